"""Which axes may be split, and why: read off the graph."""

import pytest

from cleave.ir.axis import axis
from cleave.ir.dim import dims
from cleave.ir.graph import Input, Output, fold, graph, load
from cleave.search import reducibility_table
from tests.null import operators


def rows(op: operators.Operator) -> dict[str, str]:
    return {r.axis.name: str(r).split(maxsplit=1)[1] for r in reducibility_table(op.graph).rows}


def test_attention_splits_the_keys_and_the_head_axis() -> None:
    table = rows(operators.attention(operators.causal, lse=True))
    assert table["t"].split() == ["split", "max", "x1,", "sum", "x2"]
    assert table["d"].split() == ["split", "sum", "x1"]
    assert all(table[name].startswith("no ") and "tile it" in table[name] for name in ("kv", "r", "s", "e"))


def test_a_ragged_axis_is_split_and_says_what_its_extent_reads() -> None:
    table = rows(operators.paged_decode())
    assert "split" in table["kv_len_b"] and "ragged: extent kv_len[b]" in table["kv_len_b"]


def test_an_output_axis_that_is_also_reduced_is_not_split() -> None:
    n, m = dims("n m")
    i, j = axis("i", n), axis("j", m)
    x = load("X", i, j)
    total = fold("sum", j, x)
    from cleave.ir.graph import apply

    g = graph(
        "normalise",
        [Input("X", "float32", (n, m))],
        [Output("Y", "float32", (n, m), (i.position, j.position), apply("mul", x, apply("recip0", total)))],
    )
    table = reducibility_table(g)
    assert not table.splittable
    row = next(r for r in table.rows if r.axis.name == "m")
    assert row.reducible and "also an output axis" in row.why


def test_extent_one_is_not_split() -> None:
    n, one = dims("n k=1")
    i, k = axis("i", n), axis("k", one)
    g = graph(
        "one",
        [Input("X", "float32", (n, one))],
        [Output("Y", "float32", (n,), (i.position,), fold("sum", k, load("X", i, k)))],
    )
    assert not reducibility_table(g).splittable
    assert "the extent is 1" in reducibility_table(g).text()


@pytest.mark.parametrize(("name", "wanted"), [("matmul", "k"), ("swiglu", "k"), ("variance", "k")])
def test_contracted_axes_are_splittable(name: str, wanted: str) -> None:
    op = dict(operators.OTHERS)[name]()
    assert [a.name for a in reducibility_table(op.graph).splittable] == [wanted]


def test_small_fixed_axes_stay_whole_if_there_is_another() -> None:
    table = reducibility_table(operators.attention().graph)
    assert [a.name for a in table.worth_splitting] == ["t"]
    n, d = dims("n d=64")
    i, k = axis("i", n), axis("k", d)
    g = graph(
        "only",
        [Input("X", "float32", (n, d))],
        [Output("Y", "float32", (n,), (i.position,), fold("sum", k, load("X", i, k)))],
    )
    assert [a.name for a in reducibility_table(g).worth_splitting] == ["d"]
