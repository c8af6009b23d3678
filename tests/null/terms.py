"""Terms, folds and arrays that graphs written by hand share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.candidate import Fold
from cleave.ir.axis import Axis
from cleave.ir.graph import Graph, Reduce, Ref, Term, apply, fold, free, reductions, walk
from cleave.ir.instance import draw_inputs

Array = NDArray[Any]


def mul(*terms: Term) -> Term:
    out = terms[0]
    for t in terms[1:]:
        out = apply("mul", out, t)
    return out


def over(a: Term, b: Term) -> Term:
    """a / b, 0 where b is 0."""
    return mul(a, apply("recip0", b))


def softmax_weights(score: Term, t: Axis) -> tuple[Term, Term, Term]:
    """(maximum, weights before division, their sum)."""
    m = fold("max", t, score)
    e = apply("exp_diff", score, m)
    return m, e, fold("sum", t, e)


# ---- folds


def ref(kind: str, number: int, r: Reduce) -> Ref:
    """Member ``number`` of the old or the new state."""
    return Ref(f"{kind}{number}", tuple(sorted(free(r), key=lambda a: a.name)))


def softmax_fold(members: Sequence[Reduce], *, normalised: bool = False) -> Fold:
    """(m, l, acc): old sums are restated by exp_diff(old m, new m); a normalised acc by l / l' as well."""
    old = [ref("old", k, r) for k, r in enumerate(members)]
    rescale = apply("exp_diff", old[0], ref("new", 0, members[0]))
    carry: list[Term] = [old[0], *(mul(rescale, o) for o in old[1:])]
    if normalised:
        carry[2] = mul(rescale, old[1], apply("recip0", ref("new", 1, members[1])), old[2])
    return Fold(members[0].axis, tuple(members), tuple(carry), True)


def softmax_folds(g: Graph) -> list[Fold]:
    """Folds of every maximum and the sums of what is relative to it."""
    every = reductions(*g.terms)
    return [
        softmax_fold([m, *(r for r in every if r.axis is m.axis and r.op == "sum" and m in walk(r.body))])
        for m in every
        if m.op == "max"
    ]


# ---- arrays


def drawn(
    g: Graph, sizes: Mapping[str, int], rng: np.random.Generator, zeros: float, scale: Callable[[], float] = lambda: 1.0
) -> dict[str, Array]:
    """Fresh inputs: floats of both signs, some of them zero, each input with a scale of its own."""

    def real(shape: tuple[int, ...]) -> Array:
        return np.where(rng.random(shape) < zeros, 0.0, rng.normal(size=shape) * scale())

    return draw_inputs(g, sizes, rng, real=real)
