"""Cuts that make matmuls of sums over several axes; cuts at what tiles of rows would compute again in their loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.random import Generator

from cleave.candidate import Candidate
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.ir.axis import axis
from cleave.ir.dim import dims
from cleave.ir.graph import Input, Term, Where, apply, const, fold, graph, load
from cleave.ir.index import IndexLike, compare, index
from cleave.ir.interp import interpret
from cleave.schedule.choice import Choice
from cleave.schedule.choose import choose
from cleave.target import Target
from cleave.tile.interp import run_schedule
from cleave.tile.plan import Schedule
from cleave.tile.program import Contract, tile_terms
from tests.null.scheduled_candidates import Case, found, half, is_max, output, weights
from tests.null.terms import mul, over, softmax_fold

H200, A100 = Target("sm_90a"), Target("sm_80")
HEADS, FREQ, PAIR, VALUE = 2, 8, 2, 24
SIZES = ({"s": 21, "t": 40}, {"s": 3, "t": 136})


def _attention(name: str, scores: Term, inputs: tuple[Input, ...]) -> Case:
    """Causal softmax attention over two heads, with the fold that joins its three reductions."""
    s, t = dims("s t")
    h, i, tt, e = axis("h", HEADS), axis("i", s), axis("t", t), axis("e", VALUE)
    masked = Where(compare("<=", tt, i.position + t - s), mul(scores, const(0.25)), const(-np.inf))
    p = apply("exp_diff", masked, fold("max", tt, masked))
    o = over(fold("sum", tt, mul(p, load("V", h, tt, e))), fold("sum", tt, p))
    inputs = (*inputs, half("V", HEADS, t, VALUE))
    g = graph(name, inputs, [output("O", o, (HEADS, s, VALUE), h, i, e, dtype="float16")])
    members = found(g, "t", is_max, weights(2), weights(3))
    return Case(Candidate(name, g, g, folds=(softmax_fold(members),)), {"s": 640, "t": 640}, {"s": 20, "t": 40})


def rope() -> Case:
    """Scores of rotated queries and keys: a sum over pairs inside one over frequencies."""
    s, t = dims("s t")
    h, i, tt = axis("h", HEADS), axis("i", s), axis("t", t)
    freq, pair, other = axis("freq", FREQ), axis("pair", PAIR), axis("pair1", PAIR)
    at = pair.position * FREQ + freq.position

    def rotated(x: Term, position: IndexLike) -> Term:
        sine = load("sin", position, freq)
        turned = Where(compare("<", pair, other), sine, apply("neg", sine))
        by = Where(compare("==", pair, other), load("cos", position, freq), turned)
        return fold("sum", pair, mul(x, by))

    q = rotated(load("Q", h, i, at), i.position + t - s)
    k = rotated(load("K", h, tt, at), tt)
    tables = tuple(Input(n, "float32", (index(t), index(FREQ))) for n in ("cos", "sin"))
    inputs = (half("Q", HEADS, s, PAIR * FREQ), half("K", HEADS, t, PAIR * FREQ), *tables)
    return _attention("rope", fold("sum", freq, fold("sum", other, mul(q, k))), inputs)


def _qk_norm(*, moved: bool) -> Case:
    """Scores of normalised queries and keys, the scale of keys in the operand or (moved) behind the matmul."""
    s, t = dims("s t")
    h, i, tt, d = axis("h", HEADS), axis("i", s), axis("t", t), axis("d", FREQ * PAIR)
    q, k = load("Q", h, i, d), load("K", h, tt, d)
    by_q, by_k = (apply("rsqrt", apply("add", fold("sum", d, apply("sq", x)), const(1e-3))) for x in (q, k))
    inputs = (half("Q", HEADS, s, FREQ * PAIR), half("K", HEADS, t, FREQ * PAIR))
    inner = mul(mul(q, load("G", d)), k if moved else mul(k, by_k))
    scores = fold("sum", d, inner)
    scores = mul(scores, by_q, by_k) if moved else mul(scores, by_q)
    return _attention("qk-norm", scores, (*inputs, half("G", FREQ * PAIR)))


def qk_norm() -> Case:
    return _qk_norm(moved=False)


def qk_norm_moved() -> Case:
    return _qk_norm(moved=True)


@dataclass(frozen=True)
class Cut:
    """A way to cut a case, and the types of what it stores."""

    case: Callable[[], Case]
    note: str
    stored: tuple[str, ...]


CUTS = {
    "rope": Cut(rope, "cut at operands of sums over several axes", ("float16", "float16")),
    "norms": Cut(qk_norm_moved, "cut at reductions that loops repeat for each tile of rows", ("float32",)),
    "keys": Cut(qk_norm, "cut at operands that loops compute for each tile of rows", ("float16",)),
    "operands": Cut(qk_norm, "cut at all operands that are computed", ("float16", "float16")),
}


@cache
def chosen(make: Callable[[], Case], target: Target) -> tuple[Case, Choice]:
    case = make()
    return case, choose(case.candidate, target, case.shape)


def scheduled(name: str, target: Target) -> tuple[Case, Schedule]:
    case, choice = chosen(CUTS[name].case, target)
    return case, next(a.best for a in choice.alternatives if a.partition == CUTS[name].note and a.best is not None)


def float64(case: Case, sizes: dict[str, int], rng: Generator) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    inputs = {n: np.clip(v, -2, 2).astype(np.float16).astype(np.float64) for n, v in case.inputs(rng, sizes).items()}
    with np.errstate(all="ignore"):
        return inputs, dict(interpret(case.candidate.origin, inputs, sizes))


@pytest.mark.parametrize("name", CUTS)
def test_what_is_stored_leaves_plain_attention(name: str, rng: Generator) -> None:
    """The last kernel has two matmuls, of warpgroups; all kernels together equal the graph."""
    case, plan = scheduled(name, H200)
    assert tuple(b.dtype for b in plan.temporaries) == CUTS[name].stored
    assert [k.skeleton for k in plan.kernels] == ["row"] * len(plan.temporaries) + ["specialised"]
    assert sum(isinstance(x, Contract) for x in tile_terms(plan.kernels[-1].program)) == 2
    for sizes in SIZES:
        inputs, wanted = float64(case, sizes, rng)
        assert np.allclose(run_schedule(plan, inputs, sizes)["O"], wanted["O"], rtol=1e-6, atol=1e-8), plan


@pytest.mark.parametrize(("name", "target"), [("rope", H200), ("operands", A100)], ids=str)
def test_it_is_emitted_right(name: str, target: Target, rng: Generator) -> None:
    case, plan = scheduled(name, target)
    sizes = case.suiting(plan, SIZES[0])
    inputs, wanted = float64(case, sizes, rng)
    got = emulate(generate(plan), inputs, {**sizes, **plan.bind}, int(rng.integers(2**31)))["O"]
    assert np.linalg.norm(got - wanted["O"]) <= 3e-3 * np.linalg.norm(wanted["O"]), plan


def test_sums_over_several_axes_are_fastest_as_a_matmul() -> None:
    assert chosen(rope, H200)[1].schedules[0] == scheduled("rope", H200)[1]


def test_norms_that_many_tiles_would_compute_again_are_stored() -> None:
    """A kernel more costs more than the few sums of a short call, and less than those of a long one."""
    case = qk_norm_moved()
    for length, kernels in ((256, 1), (16384, 2)):
        best = choose(case.candidate, H200, {"s": length, "t": length}).schedules[0]
        assert len(best.kernels) == kernels
        assert (best.notes == (CUTS["norms"].note,)) == (kernels == 2)
