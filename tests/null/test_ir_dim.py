"""Dims: their facts, and binding them from shapes."""

from __future__ import annotations

import pytest

from cleave.errors import GraphError, ShapeError
from cleave.ir.axis import Axis
from cleave.ir.bind import bind_dims
from cleave.ir.dim import dim, dims, facts
from cleave.ir.graph import Graph, Input, Output, graph, load
from cleave.ir.index import Symbol, index


def symbol(text: str, **known: int) -> Symbol:
    found = dim(text, **known).atom
    assert isinstance(found, Symbol)
    return found


def test_dims() -> None:
    b, d = dims("b, d=64")
    assert b is dim("b")
    assert symbol("d=64").value == 64
    assert d is not dim("d")
    (t,) = dims("t", minimum=1, maximum=4096, multiple_of=8)
    assert t is not dim("t")
    assert facts(symbol("t", minimum=1, maximum=4096, multiple_of=8)) == " in [1, 4096] % 8"
    assert facts(symbol("t", minimum=1)) == " >= 1"
    assert facts(symbol("t")) == ""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dims("2x"), "dim '2x': a name such as t, or name=value such as d=64, is expected"),
        (lambda: dims("lambda"), "dim 'lambda': a name such as t, or name=value such as d=64, is expected"),
        (lambda: dims("d=-1"), "dim 'd=-1': the value '-1' is no non-negative integer"),
        (lambda: dims("t", minimum=5, maximum=4), "dim t: no value with 5 <= t <= 4, divisible by 1"),
    ],
)
def test_dim_errors(make: object, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        make()  # type: ignore[operator]
    assert str(caught.value) == message


def sample() -> Graph:
    """x[2 n + 1, m], y[m, d = 4], z[n p]: n is read off an affine extent, p off a product."""
    n, m, p, d = dim("n"), dim("m", minimum=2, maximum=8, multiple_of=2), dim("p"), dim("d=4")
    i, j, k, q = Axis("i", 2 * n + 1), Axis("j", m), Axis("k", d), Axis("q", n * p)
    inputs = [Input("x", "float32", (2 * n + 1, m)), Input("y", "float32", (m, d)), Input("z", "float32", (n * p,))]
    outputs = [
        Output("a", "float32", (2 * n + 1, m), (i.position, j.position), load("x", i, j)),
        Output("b", "float32", (m, d), (j.position, k.position), load("y", j, k)),
        Output("c", "float32", (n * p,), (q.position,), load("z", q)),
    ]
    return graph("sample", inputs, outputs, [index(n) <= m])


def test_shapes_bind_dims() -> None:
    assert bind_dims(sample(), {"x": (7, 4), "y": (4, 4), "z": (15,)}) == {"n": 3, "m": 4, "p": 5, "d": 4}
    assert bind_dims(sample(), {}, {"n": 1, "m": 4, "p": 0}) == {"n": 1, "m": 4, "p": 0, "d": 4}


@pytest.mark.parametrize(
    ("shapes", "given", "message"),
    [
        ({"x": (7, 4), "y": (6, 4), "z": (15,)}, {}, "input y, axis 0: extent 6, expected 4 (m, as axis 1 of input x)"),
        ({"x": (7, 4), "y": (4, 5), "z": (15,)}, {}, "input y, axis 1: extent 5, expected 4 (d)"),
        ({"x": (7, 4, 1)}, {}, "input x: rank 3 (shape (7, 4, 1)), expected [2*n + 1, m]"),
        ({"x": (7, 5), "y": (5, 4), "z": (15,)}, {}, "dim m = 5: must be divisible by 2"),
        ({"x": (7, 10), "y": (10, 4), "z": (15,)}, {}, "dim m = 10: allowed is in [2, 8]"),
        ({"x": (8, 4), "y": (4, 4)}, {}, "sample: dim n has no value: bind it (n=...)"),
        ({"x": (7, 4)}, {"q": 3}, "sample: no dim 'q': the graph has d, m, n, p"),
        (
            {"x": (11, 4), "y": (4, 4), "z": (15,)},
            {},
            "sample: constraint dim.n <= dim.m does not hold for m = 4, n = 5",
        ),
    ],
)
def test_binding_errors(shapes: dict[str, tuple[int, ...]], given: dict[str, int], message: str) -> None:
    with pytest.raises((ShapeError, GraphError)) as caught:
        bind_dims(sample(), shapes, given)
    assert str(caught.value) == message
