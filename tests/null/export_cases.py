"""What both exporters are tried on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave import nn
from cleave.candidate import Candidate
from cleave.ir.axis import Axis, axis
from cleave.ir.dim import dim
from cleave.ir.graph import Graph, Input, Output, apply, fold, graph, load
from cleave.ir.index import index, read
from cleave.ir.op import MAPS
from tests.null.operators import ATTENTION, OTHERS, Operator
from tests.null.searched import searched

Array = NDArray[Any]
CASES: Sequence[tuple[str, Callable[[], Operator]]] = (*ATTENTION, *OTHERS)
SPECIAL = (-np.inf, -700.0, -2.5, -1.0, -0.0, 0.0, 1e-30, 0.5, 1.0, 3.0, 700.0)

_TOLERANCE = {"float64": 1e-9, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


def agree(g: Graph, got: Sequence[Array], want: Mapping[str, Array]) -> None:
    """One output after the other, within the rounding of its storage type."""
    assert len(got) == len(g.outputs)
    for o, x in zip(g.outputs, got, strict=True):
        tolerance = _TOLERANCE[o.dtype]
        np.testing.assert_allclose(x, want[o.name], rtol=tolerance, atol=tolerance, err_msg=o.name)


def special_graph(op: str) -> tuple[Graph, dict[str, Array]]:
    """An operation at every combination of special values."""
    n = dim("n")
    axes = [axis(f"i{k}", n) for k in range(MAPS[op].arity)]
    inputs = [Input(f"x{k}", "float64", (n,)) for k in range(len(axes))]
    term = apply(op, *(load(i.name, a) for i, a in zip(inputs, axes, strict=True)))
    made = graph(op, inputs, [Output("y", "float64", (n,) * len(axes), tuple(a.position for a in axes), term)])
    return made, {i.name: np.array(SPECIAL) for i in inputs}


@cache
def split_candidates() -> tuple[Candidate, ...]:
    """Two of attention that are split along the keys, causal and with two outputs."""
    found = searched(nn.attention(causal=True, lse=True, d=4, e=3, group=2))
    return tuple(c for c in found.candidates if c.splits)[:2]


def stores(rng: np.random.Generator) -> list[tuple[Graph, dict[str, Array]]]:
    """Graphs that store through a table, ragged, and in chunks that do not divide."""
    b, n, t = dim("b"), dim("n"), dim("t")
    row, column = axis("i", b), axis("j", n)
    x = Input("x", "float64", (b, n))
    table = Input("table", "int32", (b,))
    y = apply("sq", load("x", row, column))
    scattered = Output("y", "float64", (t, n), (read("table", row), column.position), y)
    ragged = Axis("k", read("table", row))
    inside = apply("sq", load("x", row, ragged))
    prefix = Output("y", "float64", (b, n), (row.position, ragged.position), inside)
    shifted = Output("y", "float64", (b + 2, n), (row.position + 2, column.position), y)
    sums = Output("y", "float64", (b,), (row.position,), fold("max", ragged, inside))
    drawn = {"x": rng.normal(size=(4, 5))}
    return [
        (graph("shifted", [x], [shifted]), drawn),
        (graph("prefix", [x, table], [prefix]), {**drawn, "table": np.array([5, 0, 2, 3], np.int32)}),
        (graph("sums", [x, table], [sums]), {**drawn, "table": np.array([5, 0, 2, 3], np.int32)}),
        (graph("none", [x, table], [prefix]), {"x": np.zeros((0, 5)), "table": np.zeros(0, np.int32)}),
        (
            graph("scattered", [x, table, Input("z", "float64", (t,))], [scattered]),
            {**drawn, "table": np.array([6, 0, 2, 3], np.int32), "z": np.zeros(7)},
        ),
    ]


def hostile_reads() -> tuple[Graph, dict[str, Array], list[dict[str, Array]]]:
    """x[table[i], j] with a good table, and tables that point outside."""
    m, n, rows = dim("m"), dim("n"), dim("rows")
    i, j = axis("i", m), axis("j", n)
    inputs = [Input("table", "float64", (rows, n)), Input("where", "int64", (m,))]
    term = load("table", read("where", i), index(j))
    g = graph("gather", inputs, [Output("y", "float64", (m, n), (i.position, j.position), term)])
    values = np.arange(12.0).reshape(4, 3)
    tables = [np.array(w) for w in ([3, 0, 1], [4, 0, 1], [0, -1, 2])]
    good, *bad = ({"table": values, "where": w} for w in tables)
    return g, good, bad
