"""The float64 interpreter against NumPy, and against a second, scalar reading of the definition."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cleave.errors import GraphError, ShapeError
from cleave.ir.axis import Axis, split_axis
from cleave.ir.dim import dim, dims
from cleave.ir.graph import (
    Cast,
    Const,
    Graph,
    IndexValue,
    Input,
    Load,
    Map,
    Output,
    Reduce,
    Term,
    Where,
    apply,
    const,
    fold,
    graph,
    load,
    substitute_axes,
)
from cleave.ir.index import BoolRead, Compare, Index, evaluate, evaluate_pred, index, read
from cleave.ir.interp import interpret
from cleave.ir.op import MAPS, MONOIDS, round_to
from cleave.testing import arrays, graphs, sizes_of

N, M, K = dims("n m k")
I, J, R = Axis("i", N), Axis("j", M), Axis("r", K)  # noqa: E741 the usual names of axes
Arrays = Mapping[str, NDArray[np.float64]]


def stored(term: Term, *axes: Axis) -> Output:
    return Output("y", "float32", tuple(a.extent for a in axes), tuple(a.position for a in axes), term)


def vector(term: Term, *, inputs: list[Input] | None = None) -> Graph:
    return graph("g", inputs or [Input("x", "float64", (N, K))], [stored(term, I)])


# ---- a scalar reading of the definition: one position at a time, nothing shared with the interpreter but the tables


def scalar(t: Term, where: dict[object, int], inputs: Arrays) -> float:
    match t:
        case Load(name, indices):
            return float(inputs[name][tuple(evaluate(i, where, inputs) for i in indices)])
        case Const(number):
            return number
        case IndexValue(i):
            return float(evaluate(i, where, inputs))
        case Map(op, args):
            return float(MAPS[op].meaning(*(np.float64(scalar(a, where, inputs)) for a in args)))
        case Where(pred, a, b):
            return scalar(a if evaluate_pred(pred, where, inputs) else b, where, inputs)
        case Reduce(op, axis, body):
            total = MONOIDS[op].identity
            for position in range(int(evaluate(axis.extent, where, inputs))):
                total = MONOIDS[op].combine(total, scalar(body, {**where, axis: position}, inputs))
            return float(total)
        case _:
            raise AssertionError(t)


@given(graphs(size=4, max_outputs=1), st.data(), st.integers(0, 2**16))
@settings(max_examples=60)
def test_interpreter_is_the_scalar_definition(g: Graph, data: st.DataObject, seed: int) -> None:
    sizes = data.draw(sizes_of(g, 1, 4)) if len(g.symbols) < 4 else {}
    if not sizes:
        return
    inputs = arrays(g, sizes, np.random.default_rng(seed))
    (output,) = g.outputs
    got = interpret(g, inputs, sizes)[output.name]
    axes = [i.atom.axis for i in output.indices]  # type: ignore[union-attr]
    for place in np.ndindex(got.shape):
        with np.errstate(all="ignore"):
            expected = scalar(output.term, {**sizes, **dict(zip(axes, place, strict=True))}, inputs)
        if np.isnan(expected):
            assert np.isnan(got[place])
            continue
        assert got[place] == pytest.approx(expected, rel=1e-9, abs=1e-9)


# ---- against NumPy


def test_contraction_is_einsum(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((3, 5)), rng.standard_normal((5, 4))
    term = fold("sum", R, apply("mul", load("x", I, R), load("w", R, J)))
    g = graph("g", [Input("x", "float64", (N, K)), Input("w", "float64", (K, M))], [stored(term, I, J)])
    np.testing.assert_allclose(interpret(g, {"x": x, "w": y})["y"], x @ y, rtol=1e-12)


def test_sum_over_an_axis_that_the_body_does_not_mention(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5))
    g = graph("g", [Input("x", "float64", (N, K))], [stored(fold("sum", J, load("x", I, R)), I, R)])
    np.testing.assert_allclose(interpret(g, {"x": x}, {"m": 4})["y"], 4 * x)


def test_a_chunked_sum_is_the_sum(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 7))
    split = split_axis(R, "S", "C")
    body = substitute_axes(load("x", I, R), {R: split.position})
    g = vector(fold("sum", split.outer, fold("sum", split.inner, body)))
    for count, chunk in ((1, 7), (3, 3), (4, 2), (7, 1), (5, 2)):
        np.testing.assert_allclose(interpret(g, {"x": x}, {"S": count, "C": chunk})["y"], x.sum(1), rtol=1e-12)


def test_ragged_and_paged_reads(rng: np.random.Generator) -> None:
    """Sums over the first lengths[i] rows, found through a page table; the garbage behind them is never read."""
    lengths, table = np.array([5, 0, 3]), np.array([[2, 0, 3], [99, 99, 99], [1, 4, 99]])
    pages = rng.standard_normal((5, 2))
    count, page = dim("count"), dim("page=2")
    ragged = Axis("t", read("lengths", I))
    element = load("pages", read("table", I, ragged.position // page), ragged.position % page)
    inputs = [
        Input("pages", "float64", (count, page)),
        Input("table", "int32", (N, M)),
        Input("lengths", "int32", (N,)),
    ]
    got = interpret(
        vector(fold("sum", ragged, element), inputs=inputs), {"pages": pages, "table": table, "lengths": lengths}
    )
    rows = [pages[table[b][: -(-n // 2)]].reshape(-1)[:n].sum() for b, n in enumerate(lengths[:1])]
    expected = [*rows, 0.0, pages[[1, 4]].reshape(-1)[:3].sum()]
    np.testing.assert_allclose(got["y"], expected, rtol=1e-12)


def test_causal_mask_with_fewer_queries_than_keys(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 5))
    seen = R.position <= I.position + K - N
    got = interpret(vector(fold("max", R, Where(seen, load("x", I, R), const(-np.inf)))), {"x": x})["y"]
    np.testing.assert_allclose(got, [x[0, :4].max(), x[1].max()])


def test_boolean_inputs_and_positions_as_values(rng: np.random.Generator) -> None:
    keep = rng.random((3, 5)) < 0.5
    term = fold("sum", R, Where(BoolRead("keep", (I.position, R.position)), IndexValue(R.position), const(0)))
    g = vector(term, inputs=[Input("keep", "bool", (N, K))])
    np.testing.assert_array_equal(interpret(g, {"keep": keep})["y"], (keep * np.arange(5)).sum(1))


# ---- the decided meanings


@pytest.mark.parametrize(("op", "identity"), [("sum", 0.0), ("max", -np.inf), ("min", np.inf)])
def test_an_empty_axis_gives_the_identity(op: str, identity: float) -> None:
    got = interpret(vector(fold(op, R, load("x", I, R))), {"x": np.zeros((3, 0))})["y"]
    np.testing.assert_array_equal(got, [identity] * 3)


def test_no_rows_at_all() -> None:
    assert interpret(vector(fold("max", R, load("x", I, R))), {"x": np.zeros((0, 4))})["y"].shape == (0,)


@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_nan_propagates(op: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))
    x[1, 2] = np.nan
    got = interpret(vector(fold(op, R, load("x", I, R))), {"x": x})["y"]
    np.testing.assert_array_equal(np.isnan(got), [False, True, False])


def test_infinite_factors_of_a_contraction() -> None:
    x = np.array([[np.inf, 1.0], [2.0, 3.0]])
    term = fold("sum", R, apply("mul", load("x", I, R), load("x", I, R)))
    np.testing.assert_array_equal(interpret(vector(term), {"x": x})["y"], [np.inf, 13.0])


def test_total_operations() -> None:
    exp_diff, recip0 = MAPS["exp_diff"].meaning, MAPS["recip0"].meaning
    inf = np.inf
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(exp_diff(np.array([-inf, -inf, 1.0]), np.array([-inf, 3.0, 1.0])), [0, 0, 1])
        np.testing.assert_array_equal(recip0(np.array([0.0, -0.0, 4.0, inf])), [0, 0, 0.25, 0])


def test_a_row_that_sees_nothing(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3))
    masked = Where(Compare("==", index(I), index(0)), load("x", I, R), const(-np.inf))
    peak = fold("max", R, masked)
    weights = apply("exp_diff", masked, peak)
    total = fold("sum", R, weights)
    out = fold("sum", R, apply("mul", apply("mul", weights, apply("recip0", total)), const(1)))
    lse = apply("add", peak, apply("log", total))
    np.testing.assert_allclose(interpret(vector(out), {"x": x})["y"], [1, 0])
    np.testing.assert_allclose(interpret(vector(lse), {"x": x})["y"], [math.log(np.exp(x[0]).sum()), -np.inf])


# ---- rounding


def test_written_casts_round(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4)) * 100
    for dtype in ("float16", "float32", "float64"):
        g = graph("g", [Input("x", "float64", (N, K))], [stored(Cast(dtype, load("x", I, R)), I, R)])
        np.testing.assert_array_equal(interpret(g, {"x": x})["y"], x.astype(dtype).astype(np.float64))


def test_bfloat16_rounds_to_nearest_even() -> None:
    exact = np.array([1.0, -2.5, 0.0, 3.0e38, np.inf, -np.inf])
    np.testing.assert_array_equal(round_to(exact[[0, 1, 2, 4, 5]], "bfloat16"), exact[[0, 1, 2, 4, 5]])
    step = 2.0**-7
    got = round_to(np.array([1 + 0.5 * step, 1 + 1.5 * step, 1 + 0.51 * step, 1 - 0.3 * step / 2]), "bfloat16")
    np.testing.assert_array_equal(got, [1.0, 1 + 2 * step, 1 + step, 1.0])
    assert np.isnan(round_to(np.array([np.nan]), "bfloat16")[0])
    assert round_to(np.array(1 + 0.51 * step), "bfloat16").shape == ()  # of an input without axes
    assert round_to(np.array([3.4e38]), "bfloat16")[0] == np.inf


@given(st.floats(-1e30, 1e30))
def test_bfloat16_is_the_nearest_of_its_neighbours(x: float) -> None:
    rounded = float(round_to(np.array([x]), "bfloat16")[0])
    single = float(np.float32(x))
    assert abs(rounded - single) <= 2.0**-8 * abs(single) + 2.0**-134
    assert float(round_to(np.array([rounded]), "bfloat16")[0]) == rounded


def test_half_precision_overflows_to_infinity() -> None:
    np.testing.assert_array_equal(round_to(np.array([70000.0, -1e6]), "float16"), [np.inf, -np.inf])


# ---- stores and errors


def test_stores_through_an_index(rng: np.random.Generator) -> None:
    """Two axes along one dimension, and rows that are left alone."""
    x = rng.standard_normal((2, 3))
    heads = Output("y", "float32", (N * K + 1,), (I.position * K + R,), load("x", I, R))
    got = interpret(graph("g", [Input("x", "float64", (N, K))], [heads]), {"x": x})["y"]
    np.testing.assert_array_equal(got, [*x.reshape(-1), np.nan])


def test_ragged_output_rows(rng: np.random.Generator) -> None:
    starts, lengths = np.array([0, 2, 2]), np.array([2, 0, 3])
    ragged = Axis("t", read("lengths", I))
    place = read("starts", I) + ragged
    y = Output("y", "float32", (K,), (place,), apply("neg", load("x", place)))
    inputs = [Input("x", "float64", (K,)), Input("starts", "int32", (N,)), Input("lengths", "int32", (N,))]
    x = rng.standard_normal(6)
    got = interpret(graph("g", inputs, [y]), {"x": x, "starts": starts, "lengths": lengths})["y"]
    np.testing.assert_array_equal(got, [*(-x[:5]), np.nan])


def test_some_positions_only(rng: np.random.Generator) -> None:
    x = rng.standard_normal((6, 4))
    g = vector(fold("sum", R, load("x", I, R)))
    (row,) = [a for a in g.axes if a.name == "n"]
    got = interpret(g, {"x": x}, at={row: np.array([5, 0, 3])})["y"]
    np.testing.assert_allclose(got[[0, 3, 5]], x.sum(1)[[0, 3, 5]])
    assert np.isnan(got[[1, 2, 4]]).all()


def shifted(by: int | Index) -> Graph:
    return vector(load("x", I.position + by, 0))


@pytest.mark.parametrize(
    ("run", "error", "message"),
    [
        (
            lambda: interpret(shifted(1), {"x": np.zeros((3, 2))}),
            GraphError,
            "input x, axis 0: index 3, allowed is 0 <= index < 3",
        ),
        (
            lambda: interpret(shifted(-1), {"x": np.zeros((3, 2))}),
            GraphError,
            "input x, axis 0: index -1, allowed is 0 <= index < 3",
        ),
        (lambda: interpret(shifted(0), {}), GraphError, "input x: missing"),
        (
            lambda: interpret(shifted(0), {"x": np.zeros(3)}),
            ShapeError,
            "input x: rank 1 (shape (3,)), expected [n, k]",
        ),
        (
            lambda: interpret(vector(fold("sum", J, load("x", I, 0))), {"x": np.zeros((3, 2))}),
            ShapeError,
            "g: dim m has no value: bind it (m=...)",
        ),
    ],
)
def test_errors(run: object, error: type[GraphError], message: str) -> None:
    with pytest.raises(error) as caught:
        run()  # type: ignore[operator]
    assert str(caught.value) == message


def test_a_page_outside_its_pool_is_an_error() -> None:
    element = load("pages", read("table", I))
    inputs = [Input("pages", "float64", (M,)), Input("table", "int32", (N,))]
    with pytest.raises(GraphError, match=r"input pages, axis 0: index 7, allowed is 0 <= index < 4"):
        interpret(vector(element, inputs=inputs), {"pages": np.zeros(4), "table": np.array([0, 7])})
