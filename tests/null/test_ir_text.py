"""Graphs as text: what is printed reads back as the same terms, and errors name the line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from cleave import nn
from cleave.errors import CleaveError, ParseError
from cleave.ir.axis import Axis, split_axis
from cleave.ir.dim import dim, dims
from cleave.ir.graph import (
    Cast,
    Graph,
    IndexValue,
    Input,
    Output,
    Where,
    apply,
    const,
    fold,
    graph,
    load,
    reductions,
)
from cleave.ir.hash import graph_hash
from cleave.ir.index import BoolRead, ceildiv, maximum, minimum, read
from cleave.ir.text import parse_graph, parse_index, parse_term, term_text
from cleave.testing import graphs

ATTENTION = """\
graph attention
dims b, d = 64, e = 64, group = 4, kv_heads, s, t
input q: float16[b, group*kv_heads, s, d]
input k: float16[b, kv_heads, t, d]
input v: float16[b, kv_heads, t, e]
axis b: dim.b
axis d: dim.d
axis e: dim.e
axis group: dim.group
axis kv_heads: dim.kv_heads
axis s: dim.s
axis t: dim.t
v0[b, group, kv_heads, s, t] = sum(d, (q[b, dim.group*kv_heads + group, s, d] * k[b, kv_heads, t, d]))
v1[b, group, kv_heads, s, t] = where(t <= s + dim.t - dim.s, (v0 * 0.125), const('-inf'))
v2[b, group, kv_heads, s] = max(t, v1)
v3[b, group, kv_heads, s, t] = exp_diff(v1, v2)
v4[b, group, kv_heads, s] = sum(t, v3)
v5[b, e, group, kv_heads, s] = sum(t, ((v3 * recip0(v4)) * v[b, kv_heads, t, e]))
output out: float16[b, group*kv_heads, s, e] @ [b, dim.group*kv_heads + group, s, e] = v5
"""


def same(g: Graph, other: Graph) -> None:
    assert other == g
    assert all(a.term is b.term for a, b in zip(other.outputs, g.outputs, strict=True))
    assert other.text() == g.text()
    assert graph_hash(other) == graph_hash(g)


def test_attention_as_text() -> None:
    g = nn.attention(causal=True, d=64, e=64, group=4)
    assert g.text() == ATTENTION
    same(g, parse_graph(ATTENTION))


@given(graphs(size=7))
@settings(max_examples=200)
def test_random_graphs_read_back(g: Graph) -> None:
    same(g, parse_graph(g.text()))


def everything() -> Graph:
    """Facts, constraints, names that meet, paged and ragged reads, casts, infinities, min, max, floor and mod."""
    b, t, page = dim("b", minimum=1), dim("t", minimum=8, maximum=64, multiple_of=8), dim("page=4")
    n = dim("n")
    batch, position, x = Axis("b", b), Axis("i", minimum(read("lengths", Axis("b", b)), t)), Axis("x", n)
    slot = read("table", batch, position.position // page)
    pages = load("pages", slot, position.position % page, x)
    masked = Where(
        (position.position < read("lengths", batch)) & ~BoolRead("keep", (batch.position,)), pages, const(-np.inf)
    )
    total = fold("sum", position, apply("sq", Cast("bfloat16", masked)))
    scaled = apply("mul", total, IndexValue(maximum(n, 3) + ceildiv(t, page) * n))
    extra = apply("add", apply("neg", const(-1.5)), apply("mul", const(1e-30), load("x", x)))
    inputs = [
        Input("pages", "float16", (dim("count"), page, n)),
        Input("table", "int32", (b, t)),
        Input("lengths", "int64", (b,)),
        Input("keep", "bool", (b,)),
        Input("x", "float32", (n,)),
    ]
    outputs = [
        Output("o", "float16", (b, n), (batch.position, x.position), scaled),
        Output("scalars", "float32", (n,), (x.position,), extra),
    ]
    return graph("everything", inputs, outputs, [n <= t, t <= 4 * n])


def test_everything_reads_back() -> None:
    g = everything()
    text = g.text()
    assert "dims b >= 1, count, n, page = 4, t in [8, 64] % 8" in text
    assert "constraint dim.n <= dim.t" in text
    same(g, parse_graph(text))


def test_axes_that_share_a_name_are_told_apart() -> None:
    """The chunks of two axes of one name, and an axis called like an input."""
    s, t = dims("s t")
    first, second = split_axis(Axis("k", s), "S", "C"), split_axis(Axis("k", t), "S", "C")
    parts = [
        fold("sum", c.outer, fold("sum", c.inner, load(name, c.position))) for c, name in ((first, "x"), (second, "s"))
    ]
    g = graph(
        "g",
        [Input("x", "float32", (s,)), Input("s", "float32", (t,))],
        [Output("y", "float32", (), (), apply("add", *parts))],
    )
    assert "axis k_i_2:" in g.text()
    same(g, parse_graph(g.text()))


def test_single_terms_read_back_over_the_axes_of_the_graph() -> None:
    g = nn.attention(causal=True, d=64, e=64, group=4)
    for t in reductions(*g.terms):
        assert parse_term(g, term_text(g, t)) is t
    assert parse_index(g, "dim.group*kv_heads + group") is g.outputs[0].indices[1]


def test_comments_and_blank_lines() -> None:
    text = ATTENTION.replace("\n", "  # a remark\n\n")
    same(parse_graph(ATTENTION), parse_graph(text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dims b,", "dims b, 2x,", "file:2: dim '2x': a name such as t, or name=value such as d=64, is expected"),
        ("float16[b, kv_heads, t, d]", "float8[b]", "file:4: dtype 'float8': allowed are float16, bfloat16"),
        ("axis s: dim.s", "axis s: dim.z", "file:11: 'dim.z' is no index expression of the declared dims and axes"),
        ("v4[b, group, kv_heads, s] = sum(t, v3)", "v4 = prod(t, v3)", "file:17: expected graph, dims, constraint,"),
        ("= sum(t, v3)", "= prod(t, v3)", "file:17: 'prod(t, v3)' is no term"),
        ("= sum(t, v3)", "= sum(t, v3", "file:17: '(' was never closed"),
        ("= max(t, v1)", "= max(t, v9)", "file:15: 'v9' is no term"),
        ("t <= s +", "t >= s +", "file:14: 't >= s + dim.t - dim.s' is no predicate"),
        ("output out:", "outputs out:", "file:19: expected graph, dims, constraint, input, axis, output or"),
        ("k[b, kv_heads, t, d]))", "k[b, kv_heads, t]))", "attention: k has rank 4, read with 3 indices"),
    ],
)
def test_errors_name_the_line(old: str, new: str, message: str) -> None:
    assert old in ATTENTION
    with pytest.raises(CleaveError) as caught:
        parse_graph(ATTENTION.replace(old, new), "file")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_errors_in_single_terms() -> None:
    g = nn.matmul()
    with pytest.raises(ParseError) as caught:
        parse_term(g, "sum(k, c[k])", "saved.json")
    assert str(caught.value) == "saved.json: 'c[k]' is no term, in 'sum(k, c[k])'"


def test_what_is_nested_deeply_reads_back() -> None:
    """Python reads 200 parentheses in one another; sums and calls each have one."""
    g = parse_graph("graph g\ndims m\ninput x: float32[m]\naxis m: m\noutput out: float32[m] @ [m] = x[m]")
    (o,) = g.outputs
    term = o.term
    for _ in range(149):
        term = apply("tanh", apply("add", term, const(0.5)))
    deep = graph("g", g.inputs, [Output("out", o.dtype, o.shape, o.indices, term)])
    same(parse_graph(deep.text()), deep)
    assert max(line.count("(") for line in deep.text().splitlines()) < 60
    assert repr(deep.terms[0]).count("(") == 298
    lines, _, last = deep.text().rstrip().rpartition(" = ")
    with pytest.raises(CleaveError, match="graph: 301 operations in one another: allowed are 300"):
        parse_graph(f"{lines} = exp(exp(exp({last})))")
