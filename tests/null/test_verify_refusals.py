"""Candidates and sizes that have no place in verification: a row or one line, in no time, never a trace."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from cleave.candidate import Candidate, Split, as_written
from cleave.errors import CleaveError, ShapeError
from cleave.ir.axis import axis, split_axis
from cleave.ir.dim import dim, dims
from cleave.ir.graph import Graph, Input, Output, Term, apply, const, fold, graph, load
from cleave.ir.index import Pred, Symbol, compare, of, read
from cleave.verify import Outcome, Step, Verdict, verify

N, M, K = dims("n m k")
ROW, COLUMN, OTHER = axis("i", N), axis("j", M), axis("l", K)
X = Input("x", "float32", (N, M))
S, C = of(Symbol("S", 1)), of(Symbol("C", 1))


def rows(term: Term, *constraints: Pred, inputs: Sequence[Input] = (X,), name: str = "y") -> Graph:
    return graph("g", inputs, [Output(name, "float32", (N,), (ROW.position,), term)], constraints)


SUM = fold("sum", COLUMN, load("x", ROW, COLUMN))
PLAIN = rows(SUM)


def timed(c: Candidate, bind: Mapping[str, int] | None = None) -> Verdict:
    began = time.process_time()
    verdict = verify(c, bind=bind)
    assert time.process_time() - began < 5.0
    return verdict


# ---- another program


W = Input("w", "float32", (N,))
OTHERS: Mapping[str, tuple[Graph, str]] = {
    "dtype": (rows(SUM, inputs=[Input("x", "float16", (N, M))]), "input x is not one of the input graph's"),
    "shape": (
        rows(fold("sum", COLUMN, load("x", COLUMN, ROW)), inputs=[Input("x", "float32", (M, N))]),
        "input x is not one of the input graph's",
    ),
    "one input more": (
        rows(apply("add", SUM, load("w", ROW)), inputs=[X, W]),
        "input w is not one of the input graph's",
    ),
    "output": (rows(SUM, name="z"), "outputs differ in name, dtype or shape from the input graph's"),
    "dim": (rows(fold("sum", OTHER, const(1.0))), "dim k is neither the input graph's nor a split's"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_candidate_of_another_program_is_out_of_scope(name: str) -> None:
    made, message = OTHERS[name]
    verdict = timed(Candidate("other", made, PLAIN), {"n": 5, "m": 7})
    assert verdict.summary() == f"scope: out of scope: {message}"


def test_a_candidate_that_holds_only_for_some_sizes_has_no_value_at_the_others() -> None:
    verdict = timed(Candidate("square", rows(SUM, compare("==", N, M)), PLAIN))
    assert verdict.outcome is Outcome.NOT_EVALUABLE
    assert "g: constraint dim.n == dim.m does not hold for" in verdict.summary()


# ---- sizes


def test_contradictory_constraints_leave_no_instance() -> None:
    verdict = timed(as_written(rows(SUM, compare("<", N, M), compare("<", M, N))))
    assert verdict.outcome is Outcome.NOT_EVALUABLE
    assert verdict.summary().endswith("no sizes of the input graph were found that meet dim.n < dim.m, dim.m < dim.n")


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ({"n": 5, "q": 1}, "as written: no dim 'q': there are m, n"),
        ({"n": -1, "m": 3}, "dim n = -1: allowed is >= 0"),
        ({"n": 5, "m": 3}, "as written: dim.n < dim.m does not hold for m = 3, n = 5"),
    ],
)
def test_a_shape_that_the_graph_does_not_have_is_an_error(bind: Mapping[str, int], message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        verify(as_written(rows(SUM, compare("<", N, M))), bind=bind)
    assert str(caught.value) == message


def test_a_shape_beyond_memory_is_tried_at_half_of_it_and_says_so() -> None:
    twice = Candidate("times one", rows(apply("mul", SUM, const(1.0))), PLAIN)
    verdict = timed(twice, {"n": 4, "m": 10**9})
    assert verdict.passed
    halves = "at m=976563, since a single output point needs too much memory"
    assert f"final test, graph half {halves}" in verdict.summary()
    assert [c.detail for c in verdict.checks if c.step is Step.GRAPH_HALF] == [halves]


def test_literal_sizes_beyond_memory_are_skipped() -> None:
    """They are compiled in: no other size says anything about them."""
    long = axis("j", dim("m=100000000"))
    inputs = [Input("x", "float32", (N, long.extent))]
    plain = fold("sum", long, load("x", ROW, long))
    made = [rows(t, inputs=inputs) for t in (apply("mul", plain, const(1.0)), plain)]
    verdict = timed(Candidate("times one", made[0], made[1]), {"n": 4})
    assert "final test, graph half skipped: a single output point needs too much memory" in verdict.summary()


def test_a_graph_whose_least_size_is_beyond_memory_is_not_evaluable() -> None:
    large = axis("j", of(Symbol("m", 10**10)))
    made = rows(fold("sum", large, load("x", ROW, large)), inputs=[Input("x", "float32", (N, large.extent))])
    verdict = timed(as_written(made))
    assert verdict.outcome is Outcome.NOT_EVALUABLE
    assert "the smallest instance is too large: an array of 10000000000 elements, allowed are " in verdict.summary()


def test_what_is_wrong_at_small_sizes_is_not_right_at_literal_ones_unseen() -> None:
    long = axis("j", dim("m=100000000"))

    def scaled(factor: float) -> Graph:
        body = apply("mul", load("x", ROW, long), const(factor))
        return rows(fold("sum", long, body), inputs=[Input("x", "float32", (N, long.extent))])

    verdict = timed(Candidate("twice", scaled(2.0), scaled(1.0)))
    assert verdict.outcome is Outcome.WRONG_VALUE
    assert "at the literal sizes not tried: a single output point needs too much memory" in verdict.summary()


@pytest.mark.parametrize("count", [12, 33, 70])
def test_many_axes(count: int) -> None:
    """Twelve different sizes are too many elements; more axes than an array has are named."""
    extents = dims(" ".join(f"d{n}" for n in range(count)))
    axes = [axis(f"a{n}", x) for n, x in enumerate(extents)]
    inputs, x = [Input("x", "float32", tuple(extents))], load("x", *axes)
    made = [
        graph("g", inputs, [Output("y", "float32", tuple(extents), tuple(a.position for a in axes), t)])
        for t in (x, apply("mul", x, const(1.0)))
    ]
    verdict = timed(Candidate("times one", made[1], made[0]))
    if count == 12:
        assert verdict.passed
    else:
        assert f"the smallest instance is too large: {count} axes, allowed are 32" in verdict.summary()


def test_a_table_that_always_points_outside_is_no_instance() -> None:
    inputs = [Input("p", "int32", (N,)), Input("x", "float32", (M,))]
    made = rows(load("x", read("p", ROW) + 1000), inputs=inputs)
    verdict = timed(as_written(made))
    assert verdict.outcome is Outcome.NOT_EVALUABLE


# ---- splits


def split_sum(base: str = "m") -> Candidate:
    cut = split_axis(COLUMN, S, C)
    made = rows(fold("sum", cut.outer, fold("sum", cut.inner, load("x", ROW, cut.position))), compare("<=", M, S * C))
    outer, inner = (next(a for a in made.axes if a.kind == kind) for kind in ("outer", "inner"))
    return Candidate("split", made, PLAIN, splits=(Split(base, outer, inner, "S", "C"),))


@pytest.mark.parametrize("bind", [{}, {"S": 2}, {"C": 4}, {"S": 3, "C": 3}, {"S": 1}, {"S": 20}, {"S": 4, "C": 9}])
def test_counts_and_lengths_that_the_caller_binds_are_taken(bind: Mapping[str, int]) -> None:
    assert timed(split_sum(), {"n": 2, "m": 9, **bind}).passed


def test_too_few_chunks_are_an_error() -> None:
    with pytest.raises(ShapeError) as caught:
        verify(split_sum(), bind={"n": 2, "m": 9, "S": 2, "C": 3})
    assert str(caught.value) == "split: dim.m <= dim.C*dim.S does not hold for C = 3, S = 2, m = 9"


def test_far_too_many_chunks_are_skipped() -> None:
    verdict = timed(split_sum(), {"n": 2, "m": 9, "S": 10**9, "C": 10**9})
    assert [c.outcome for c in verdict.checks if c.step is Step.GRAPH_HALF] == [Outcome.SKIPPED]
    assert "the candidate has arrays of 1000000000 elements at a few output points, allowed are " in verdict.summary()


def test_a_split_of_an_axis_that_does_not_exist() -> None:
    verdict = timed(split_sum("zz"))
    assert verdict.outcome is Outcome.NOT_EVALUABLE
    assert "split: split of zz, which the input graph does not have" in verdict.summary()


def test_a_count_that_nothing_declares_is_out_of_scope() -> None:
    verdict = timed(replace(split_sum(), splits=()))
    assert verdict.summary() == "scope: out of scope: dim C is neither the input graph's nor a split's"
