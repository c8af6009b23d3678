"""What a checker has to accept, to reject, and to leave undecided: pairs of programs from the trouble of others.

The numbers of cases that have one are in the names; the other pairs are the identities and the traps that rules of
tensor compilers meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import ops
from cleave.candidate import Candidate, Split
from cleave.ir.axis import Axis, split_axis
from cleave.ir.graph import Graph, IndexValue, Output, Term, apply, const, fold, graph, load, substitute_axes
from cleave.ir.index import Index
from cleave.ir.interp import interpret
from cleave.verify import Outcome, Step, verify

Program = Callable[..., Any]


def traced(program: Program, **inputs: str) -> Graph:
    return cleave.trace(program, name="pair", dtype="float16", **inputs)


def pair(lhs: Program, rhs: Program, **inputs: str) -> Candidate:
    return Candidate("rhs", traced(rhs, **inputs), traced(lhs, **inputs))


# ---- V05: a step function behind a reduction


def softmax_sum(x: Any) -> Any:
    return ops.sum(ops.softmax(x, axis="k"), axis="k")


def floor(x: Any) -> Any:
    """Half a unit lower, and to the nearest: floor, but for ties."""
    return ops.round(x - 0.5)


V05: dict[str, tuple[Term, Outcome]] = {
    "the step is kept": (apply("round", const(0.5)), Outcome.UNDECIDED),
    "folded to 1": (const(1.0), Outcome.UNDECIDED),
    "folded to 0": (const(0.0), Outcome.UNDECIDED),
    "a unit too much": (const(2.0), Outcome.WRONG_VALUE),
}
"""What a rule that takes the sum of a softmax for 1 makes of its floor."""


def floor_of_sum(x: Any) -> Any:
    return floor(softmax_sum(x))


@pytest.mark.parametrize("name", V05)
def test_v05_a_step_after_a_reduction_is_named_not_passed_or_failed_at_random(name: str) -> None:
    """floor(sum(softmax(x))): 0 and 1 are both honest roundings of a sum that is 1."""
    folded, outcome = V05[name]
    g = traced(floor_of_sum, x="m k")
    c = Candidate("folded", graph(g.name, g.inputs, [replace(g.outputs[0], term=folded)]), g)
    for seed in range(4):
        verdict = verify(c, cleave.Config(seed=seed), bind={"m": 64, "k": 16})
        assert verdict.outcome is outcome, verdict
        assert not verdict.passed
        if outcome is Outcome.UNDECIDED:
            assert "a step function (round) follows a reduction" in verdict.summary()
            assert "all of output out lies at jumps" in verdict.summary()


def test_v05_the_same_graph_passes_and_says_what_it_holds() -> None:
    verdict = verify(pair(floor_of_sum, floor_of_sum, x="m k"), bind={"m": 64, "k": 16})
    assert verdict.passed and "a step function (round) follows a reduction" in str(verdict)


def test_v05_a_step_away_from_its_jumps_is_decided() -> None:
    """Sums of random numbers are no half integers: there a step is like any other function."""

    def rounded(x: Any) -> Any:
        return ops.round(ops.sum(x, axis="k"))

    bind = {"m": 64, "k": 16}
    assert verify(pair(rounded, lambda x: -ops.round(ops.sum(-x, axis="k")), x="m k"), bind=bind).passed
    for wrong in (lambda x: ops.sum(x, axis="k"), lambda x: ops.sum(ops.round(x), axis="k")):
        assert verify(pair(rounded, wrong, x="m k"), bind=bind).outcome is Outcome.WRONG_VALUE


# ---- V06: a mean of means


def test_v06_the_mean_of_part_means_is_not_the_mean() -> None:
    """Right for every count that divides: only uneven parts show it."""
    g = cleave.trace(lambda x: x.mean("k"), name="mean", x="m k", dtype="float32")
    row, column = g.axes[1], Axis("k", g.inputs[0].shape[1])
    parts = split_axis(column, "S", "C")
    wrong = _mean_of_means(row, column, parts.outer, parts.inner, parts.position)
    candidate = Candidate(
        "mean of means",
        graph("mean", g.inputs, [Output("out", "float32", (row.extent,), (row.position,), wrong)]),
        g,
        splits=(Split("k", parts.outer, parts.inner, "S", "C"),),
    )
    x = np.random.default_rng(0).standard_normal((3, 10))
    even = interpret(candidate.graph, {"x": x}, {"S": 5, "C": 2})["out"]
    np.testing.assert_allclose(even, x.mean(1), rtol=1e-9)
    uneven = interpret(candidate.graph, {"x": x}, {"S": 4, "C": 3})["out"]
    assert not np.allclose(uneven, x.mean(1), rtol=1e-3, atol=1e-4)
    for bind in (None, {"m": 3, "k": 10}, {"m": 3, "k": 10, "S": 5, "C": 2}):
        failed = [check for check in verify(candidate, bind=bind).checks if check.outcome.failed]
        assert [check.step for check in failed] == [Step.SMALL]


def _mean_of_means(row: Axis, column: Axis, outer: Axis, inner: Axis, position: Index) -> Any:
    body = substitute_axes(load("x", row, column), {column: position})
    mean = apply("mul", fold("sum", inner, body), apply("recip0", IndexValue(inner.extent)))
    return apply("mul", fold("sum", outer, mean), apply("recip", IndexValue(outer.extent)))


# ---- more pairs


def naive_softmax(x: Any) -> Any:
    e = ops.exp(x)
    return e / ops.sum(e, axis="k", keepdims=True)


def variance(x: Any) -> Any:
    return ops.mean(ops.square(x - ops.mean(x, axis="k", keepdims=True)), axis="k")


def total(x: Any) -> Any:
    return ops.sum(x, axis="k", keepdims=True)


def norm(x: Any, w: Any) -> Any:
    return (x * ops.rsqrt(ops.mean(ops.square(x), axis="k", keepdims=True))) @ w


def norm_behind(x: Any, w: Any) -> Any:
    return (x @ w) * ops.rsqrt(ops.mean(ops.square(x), axis="k", keepdims=True))


SAME: dict[str, tuple[Program, Program, dict[str, str]]] = {
    "product of three": (
        lambda a, b, c: (a @ b) @ c,
        lambda a, b, c: a @ (b @ c),
        {"a": "m k", "b": "k n", "c": "n p"},
    ),
    "variance in one pass": (
        variance,
        lambda x: ops.mean(ops.square(x), axis="k") - ops.square(ops.mean(x, axis="k")),
        {"x": "m k"},
    ),
    "sqrt of a square": (lambda x: ops.sqrt(x * x), lambda x: ops.abs(x), {"x": "m k"}),
    "silu": (lambda x: ops.silu(x), lambda x: x / (1.0 + ops.exp(-x)), {"x": "m k"}),
}
DIFFERENT: dict[str, tuple[Program, Program, dict[str, str]]] = {
    "sqrt of a square": (lambda x: ops.sqrt(x * x), lambda x: x * 1.0, {"x": "m k"}),
    "transposed": (
        lambda a, b: ops.einsum("mk,kn->mn", a, b),
        lambda a, b: ops.einsum("mk,kn->nm", a, b),
        {"a": "m=4 k", "b": "k n=4"},
    ),
    "softmax that is not safe": (lambda x: ops.softmax(x, axis="k"), naive_softmax, {"x": "m k"}),
    "softmax over the other axis": (
        lambda x: ops.softmax(x, axis="k"),
        lambda x: ops.softmax(x, axis="m"),
        {"x": "m k"},
    ),
    "maximum of a product": (
        lambda x, s: ops.max(x * s, axis="k"),
        lambda x, s: ops.max(x, axis="k") * s,
        {"x": "m k", "s": ""},
    ),
    "variance of a sample": (
        variance,
        lambda x: ops.sum(ops.square(x - ops.mean(x, axis="k", keepdims=True)), axis="k") / 7.0,
        {"x": "m k"},
    ),
    "an epsilon outside": (
        lambda x: ops.rsqrt(ops.mean(ops.square(x), axis="k") + 1e-3),
        lambda x: 1.0 / (ops.sqrt(ops.mean(ops.square(x), axis="k")) + 1e-3),
        {"x": "m k"},
    ),
    "a sum of squares": (
        lambda x: ops.sum(ops.square(x), axis="k"),
        lambda x: ops.square(ops.sum(x, axis="k")),
        {"x": "m k"},
    ),
}


REJECTED = (Outcome.WRONG_VALUE, Outcome.WRONG_NON_FINITE, Outcome.OUT_OF_SCOPE)


@pytest.mark.parametrize("name", SAME)
def test_equal_pairs_are_accepted(name: str) -> None:
    lhs, rhs, inputs = SAME[name]
    verdict = verify(pair(lhs, rhs, **inputs))
    assert verdict.passed, verdict


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_pairs_are_rejected(name: str) -> None:
    lhs, rhs, inputs = DIFFERENT[name]
    assert verify(pair(lhs, rhs, **inputs)).outcome in REJECTED


def test_a_pair_that_is_equal_where_values_are_finite() -> None:
    """The norm of an empty row is 0 / 0, and of zeros 0 times infinity: only an assumption leaves them out."""
    c = pair(norm, norm_behind, x="m k", w="k n")
    assert verify(c).outcome is Outcome.WRONG_NON_FINITE
    assert verify(replace(c, assumptions=("finite",))).passed
