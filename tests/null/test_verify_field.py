"""Finite fields: their laws, what they decide, and what they leave open and say so."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from cleave.candidate import Candidate, as_written
from cleave.errors import CleaveError
from cleave.frontend import ops
from cleave.frontend.trace import trace
from cleave.ir.axis import axis
from cleave.ir.dim import dims
from cleave.ir.graph import (
    Cast,
    Const,
    Graph,
    Input,
    Load,
    Map,
    Reduce,
    Term,
    Where,
    apply,
    const,
    fold,
    graph,
    load,
    walk,
)
from cleave.ir.graph import replace as replaced
from cleave.ir.index import compare
from cleave.ir.interp import make_space
from cleave.verify import Check, Outcome, References, Step, verify
from cleave.verify.equivalence import check_equivalence
from cleave.verify.field import MODULI, draw, inexact, levels, residues
from cleave.verify.field_check import check_field
from cleave.verify.instantiate import Data
from tests.null import scheduled_candidates as hand
from tests.null.operators import ATTENTION, OTHERS
from tests.null.scheduled_candidates import output
from tests.null.searched import searched
from tests.null.terms import mul
from tests.null.test_verify import attention

N = dims("n")[0]
ROW, T = axis("i", N), axis("t", dims("t")[0])
X, Y, Z = load("x", ROW), load("y", ROW), load("z", T)
LOW = const(-np.inf)


def one(x: Term) -> Term:
    return apply("add", const(1.0), x)


def minus(x: Term) -> Term:
    return apply("neg", x)


def masked(x: Term) -> Term:
    return Where(compare("<", ROW, 3), x, LOW)


MAX = fold("max", T, Z)
EQUAL = {
    "exponents add": (apply("exp", apply("add", X, Y)), mul(apply("exp", X), apply("exp", Y))),
    "through zero": (apply("exp", const(0.0)), const(1.0)),
    "inner exponents add": (
        apply("exp", apply("exp", apply("add", X, Y))),
        apply("exp", mul(apply("exp", X), apply("exp", Y))),
    ),
    "telescope": (apply("exp_diff", X, Y), mul(apply("exp_diff", X, MAX), apply("exp_diff", MAX, Y))),
    "masked": (apply("exp_diff", masked(X), MAX), Where(compare("<", ROW, 3), apply("exp_diff", X, MAX), const(0.0))),
    "sum and distribution": (
        mul(X, fold("sum", T, mul(Z, Z))),
        fold("sum", T, mul(Z, apply("add", mul(X, Z), const(0.0)))),
    ),
    "quotient": (mul(mul(X, Y), apply("recip", Y)), X),
    "reciprocal of 0": (apply("recip0", apply("sub", X, X)), const(0.0)),
    "reciprocal of a mask": (apply("recip0", LOW), const(0.0)),
    "sigmoid": (apply("sigmoid", minus(X)), apply("sub", const(1.0), apply("sigmoid", X))),
    "silu": (apply("silu", X), mul(X, apply("recip", one(apply("exp", minus(X)))))),
    "tanh is odd": (apply("tanh", minus(X)), minus(apply("tanh", X))),
    "tanh": (
        apply("tanh", X),
        mul(
            apply("sub", apply("exp", X), apply("exp", minus(X))),
            apply("recip", apply("add", apply("exp", X), apply("exp", minus(X)))),
        ),
    ),
    "binary fractions": (apply("mul", const(0.1), const(4.0)), const(0.1 * 4)),
    "roots of products": (apply("sqrt", mul(X, Y)), mul(apply("sqrt", X), apply("sqrt", Y))),
    "root and reciprocal": (apply("rsqrt", X), apply("recip", apply("sqrt", X))),
    "abs is even": (apply("abs", minus(X)), apply("abs", X)),
    "maximum of three": (
        apply("maximum", X, apply("maximum", Y, masked(X))),
        apply("maximum", apply("maximum", masked(X), Y), X),
    ),
    "maximum twice": (apply("maximum", MAX, fold("max", T, Z)), MAX),
    "log of equal terms": (apply("log", mul(X, Y)), apply("log", mul(Y, X))),
    "log of 0": (apply("log", apply("sub", X, X)), LOW),
    "casts of equal terms": (Cast("float16", apply("sq", X)), Cast("float16", mul(X, X))),
}
DIFFERENT = {
    "constant": (mul(X, const(1.0001)), X),
    "tiny": (apply("add", X, const(1e-30)), X),
    "sign": (apply("exp_diff", X, Y), apply("exp_diff", Y, X)),
    "sum of squares": (fold("sum", T, apply("sq", Z)), apply("sq", fold("sum", T, Z))),
    "twice": (fold("sum", T, mul(X, Z)), fold("sum", T, mul(const(2.0), X, Z))),
    "maximum of a product": (fold("max", T, mul(X, Z)), mul(X, fold("max", T, Z))),
    "cast": (Cast("float16", X), X),
    "other cast": (Cast("float16", X), Cast("bfloat16", X)),
    "log": (apply("log", mul(X, Y)), apply("add", apply("log", X), apply("log", Y))),
    "one position": (Where(compare("==", ROW, 4), const(0.0), X), X),
}


def values(lhs: Term, rhs: Term, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residues modulo p of both sides (p for −inf), and where both have a value."""
    count = levels(lhs, rhs)
    assert count <= len(MODULI)
    drawn = {"x": draw((5,), count, rng), "y": draw((5,), count, rng), "z": draw((4,), count, rng)}
    shapes = {"x": np.zeros(5), "y": np.zeros(5), "z": np.zeros(4)}
    space = make_space((ROW, T), shapes, {"n": 5, "t": 4})
    found = [residues(t, space, drawn, {}) for t in (lhs, rhs)]
    a, b = (np.where(r.low, MODULI[0], r.parts[0]) for r in found)
    return *np.broadcast_arrays(a, b), ~(found[0].lost | found[1].lost)


@pytest.mark.parametrize("name", EQUAL)
def test_laws_that_hold(name: str, rng: np.random.Generator) -> None:
    a, b, known = values(*EQUAL[name], rng)
    assert known.any()
    assert (np.where(known, a, 0) == np.where(known, b, 0)).all()


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_different_differs(name: str, rng: np.random.Generator) -> None:
    a, b, known = values(*DIFFERENT[name], rng)
    assert ((a != b) & known).any()


def test_moduli_are_a_chain() -> None:
    for m, inner in pairwise(MODULI):
        assert (m - 1) % inner == 0 and m % 4 == 3 and m < 2**31
        assert pow(3, m - 1, m) == 1


def test_what_stands_in_is_named() -> None:
    assert inexact(apply("log", MAX), Cast("float16", X)) == {"log", "max", "cast to float16"}
    assert not inexact(apply("silu", fold("sum", T, Z)))


# ---- candidates


def field(c: Candidate) -> Check:
    return check_field(c, References(c.origin, 5), np.random.default_rng(5))


@pytest.mark.parametrize(
    "candidate",
    [
        hand.flash_decoding(causal=True).candidate,
        replace(hand.attention().candidate, origin=hand.attention(naive=True).candidate.graph),
        hand.swiglu_split().candidate,
        replace(hand.rmsnorm_matmul().candidate, origin=hand.rmsnorm_matmul(naive=True).candidate.graph),
        hand.matmul_split().candidate,
        attention().unsplit,
        attention().split,
    ],
    ids=lambda c: c.name,
)
def test_sound_candidates_are_equal_in_every_output(candidate: Candidate) -> None:
    found = field(candidate)
    assert found.outcome is Outcome.PASSED and not found.detail and found.instances >= 5


def pair(lhs: Term, rhs: Term) -> Candidate:
    """y[i] = lhs, and the candidate y[i] = rhs."""
    names = {t.input for t in (X, Y, Z) if isinstance(t, Load)}
    shapes = {"x": (N,), "y": (N,), "z": (dims("t")[0],)}
    inputs = [Input(n, "float32", shapes[n]) for n in sorted(names)]
    made = [graph("pair", inputs, [output("out", t, (N,), ROW)]) for t in (lhs, rhs)]
    return Candidate("rhs", made[1], made[0])


def test_what_float64_cannot_see_is_refuted() -> None:
    """A factor of 1 + 1e-12 that a candidate drops: nothing, to the tolerance of float64."""
    c = pair(fold("sum", T, mul(X, Z, const(1 + 1e-12))), fold("sum", T, mul(X, Z)))
    verdict = verify(c)
    assert verdict.outcome is Outcome.WRONG_VALUE
    assert [k.step for k in verdict.checks if k.outcome.failed] == [Step.FIELD]
    assert "output out at (" in verdict.summary() and f"other residues modulo {MODULI[0]}" in verdict.summary()


def test_what_an_order_decides_is_left_open() -> None:
    c = pair(fold("max", T, apply("add", Z, X)), apply("add", MAX, X))
    found = field(c)
    assert found.outcome is Outcome.SKIPPED
    assert found.detail == "out is left open: laws of max do not hold there"
    assert verify(c).passed
    assert "finite field skipped: out is left open: laws of max do not hold there" in verify(c).summary()


def test_rounded_constants_are_left_open() -> None:
    found = field(pair(mul(X, const(0.1), const(0.2)), mul(X, Const(0.1 * 0.2))))
    assert found.outcome is Outcome.SKIPPED and "the candidate has the constant 0.02" in found.detail


def test_three_exponentials_in_one_another_are_left_open() -> None:
    def deep(x: Term) -> Term:
        return apply("exp", apply("exp", apply("exp", x)))

    found = field(pair(deep(apply("add", X, Y)), deep(apply("add", Y, X))))
    assert "3 exponentials in one another, 2 can be followed" in found.detail


def test_an_output_that_is_left_open_does_not_hide_the_other() -> None:
    lhs = (fold("max", T, apply("add", Z, X)), mul(X, Y))
    rhs = (apply("add", MAX, X), mul(Y, X))
    inputs = pair(X, X).origin.inputs
    made = [graph("two", inputs, [output("m", a, (N,), ROW), output("p", b, (N,), ROW)]) for a, b in (lhs, rhs)]
    found = field(Candidate("two", made[1], made[0]))
    assert found.outcome is Outcome.PASSED and found.detail == "m is left open: laws of max do not hold there"


def test_wrong_rescales_are_refuted_or_left_open_never_equal() -> None:
    """The reverse difference has no value on an empty chunk: an agreement elsewhere is none."""
    for weight in (lambda m, joint: apply("exp_diff", joint, m), lambda m, joint: const(1.0)):
        c = attention(weight).split
        for seed in range(4):
            found = check_field(c, References(c.origin, seed), np.random.default_rng(seed))
            assert found.outcome is Outcome.SKIPPED and found.detail.startswith("O is left open: ")


# ---- mutants


def _changes(t: Term) -> Iterator[Term]:
    """Terms that are like another but for a swap, a sign, a factor, a function or a monoid."""
    match t:
        case Map("add", (a, b)):
            yield from (apply("sub", a, b), a)
        case Map("mul", (a, b)):
            yield from (a, b, mul(t, a))
        case Map("sub" | "exp_diff" as op, (a, b)):
            yield apply(op, b, a)
        case Map(_, (a,)):
            yield from (a, minus(t))
        case Reduce("sum", over, body):
            yield fold("max", over, body)
        case _:
            pass


def _mutants(g: Graph) -> Iterator[Candidate]:
    """One for each change of each term that leaves a graph: other free axes do not."""
    for t in walk(*g.terms):
        for changed in _changes(t):
            try:
                outputs = [replace(o, term=replaced(o.term, {t: changed})) for o in g.outputs]
                yield Candidate("mutant", graph(g.name, g.inputs, outputs, g.constraints), g)
            except CleaveError:
                continue


@pytest.mark.parametrize("name", ["full", "latent", "matmul", "rms norm and matmul", "variance", "swiglu", "chain"])
def test_no_mutant_that_is_wrong_is_equal_in_the_fields(name: str) -> None:
    """What float64 tells apart differs there: it is refuted, or left open with the reason."""
    g = dict((*ATTENTION, *OTHERS))[name]().graph
    references = References(g, 5)
    wrong, refuted = 0, 0
    for c in _mutants(g):
        if not check_equivalence(c, Step.SMALL, references.small(), np.random.default_rng(5)).outcome.failed:
            continue
        found = check_field(c, references, np.random.default_rng(5))
        wrong, refuted = wrong + 1, refuted + (found.outcome is Outcome.WRONG_VALUE)
        assert found.outcome is not Outcome.PASSED and (found.outcome.failed or "left open" in found.detail), c
    assert wrong >= 4
    if name in ("matmul", "variance", "swiglu", "chain"):
        assert refuted >= 0.75 * wrong  # the others have a maximum or a cast


def test_a_norm_of_nothing_is_no_counterexample() -> None:
    """1 / k of an empty row is infinite: candidates that assume finite values are not tried there."""

    def norm(x, gain, w):
        return (x * ops.rsqrt(ops.mean(ops.square(x), axis="k", keepdims=True) + 1e-3) * gain) @ w

    g: Graph = trace(norm, x="m k", gain="k", w="k n", dtype="float16", name="norm")
    found = searched(g)
    assert len(found.candidates) > 1 and any("finite" in c.assumptions for c in found.candidates)
    assert all(verify(c).passed for c in found.candidates)
    assert verify(as_written(g)).passed


def test_masks_keep_an_instance_regular() -> None:
    """−inf is what a mask is made of; 1 / 0 is not. Of the sizes of the norm one in ten is empty."""
    small = References(attention().origin).small()
    masked = [r for r in small if r.sizes.data is not Data.LOWEST]
    assert len(masked) > 10 and all(r.regular for r in masked)
    assert len(masked) == len(small)  # there is no product or sum of it: queries and keys are no masks
    biased = References(dict(ATTENTION)["bias"]().graph).small()
    assert sum(r.sizes.data is Data.LOWEST for r in biased) >= 1  # an additive mask is one
    norm = References(hand.rmsnorm_matmul().candidate.graph).small()
    assert sum(r.regular for r in norm) > 0.8 * len(norm)
