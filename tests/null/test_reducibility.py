"""Which axes may be split, and why: read off the graph."""

import re

import pytest

import cleave
from cleave import Config, Rulebook, nn
from cleave.ir.axis import axis
from cleave.ir.dim import dims
from cleave.ir.graph import Graph, Input, Output, fold, graph, load
from cleave.search import reducibility_table
from cleave.search.reducibility import AxisVerdict
from tests.null import operators
from tests.null.searched import found as found_of


def rows(op: operators.Operator) -> dict[str, str]:
    return {r.axis.name: " ".join(r.cells[1:]) for r in reducibility_table(op.graph).rows}


def test_attention_splits_the_keys_and_the_head_axis() -> None:
    table = rows(operators.attention(operators.causal, lse=True))
    assert table["t"] == "yes yes max x1, sum x2"
    assert table["d"] == "yes yes sum x1"
    assert all(table[name] == "no no outputs O, L store it: tile it" for name in ("kv", "r", "s"))
    assert table["e"] == "no no output O stores it: tile it"


def test_a_ragged_axis_is_split_and_says_what_its_extent_reads() -> None:
    table = rows(operators.paged_decode())
    assert table["kv_len_b"].startswith("yes yes ") and "ragged: extent kv_len[b]" in table["kv_len_b"]


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
    assert row.reducible and row.why == "sum x1; output Y stores it too: a split would have to store chunks"


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


# ---- after saturation


def searched(g: Graph, rules: Rulebook | None = None) -> dict[str, AxisVerdict]:
    found = cleave.search(g, rules, Config(isolate=False))
    return {row.axis.name: row for row in found.report.reducibility.rows}


@pytest.mark.parametrize(
    ("name", "axis", "why"),
    [
        ("variance", "k", r"sum x2; .* waits for v0 \(sum\[k\]\), which no rule takes through sq"),
        ("cast", "t", r"max x1, sum x2; v3 \(sum\[t\]\) waits for v0 \(max\[t\]\), which no rule takes through cast"),
        ("quantised", "k", r"max x1, sum x1; .* waits for v0 \(max\[k\]\), which no rule takes through round"),
        ("layer norm", "k", r"sum x3; v3 \(sum\[k\]\) waits for v0 \(sum\[k\]\), which no rule takes through sq"),
    ],
)
def test_the_blocking_operator_is_named(name: str, axis: str, why: str) -> None:
    named = {"quantised": "quantised_matmul", "layer norm": "layernorm_linear"}
    g = nn.instantiate(named[name], {})[0] if name in named else dict(operators.OTHERS)[name]().graph
    row = searched(g)[axis]
    assert row.reducible and not row.splittable
    assert re.fullmatch(why, row.why), row.why


@pytest.mark.parametrize("name", ["causal lse", "ragged prefill", "qk norm"])
def test_telescoping_takes_the_maximum_out(name: str) -> None:
    found = found_of(name)
    splittable = {a.name for a in found.report.reducibility.splittable}
    assert {s.base for c in found.candidates for s in c.splits} == splittable - {"d"}
    d = next(row for row in found.report.reducibility.rows if row.axis.name == "d")
    assert d.splittable and d.why.endswith("; kept whole: fixed and small")


def test_without_the_rule_that_splits_nothing_is_splittable() -> None:
    row = searched(dict(operators.OTHERS)["matmul"]().graph, Rulebook.default().without("split-red"))["k"]
    assert row.reducible and not row.splittable and row.why.startswith("sum x1; no rule that is on splits ")


def test_without_telescoping_the_sum_waits_for_the_maximum() -> None:
    g = dict(operators.ATTENTION)["full"]().graph
    row = searched(g, Rulebook.default().without("telescope"))["t"]
    assert not row.splittable and row.why.endswith("(max[t]), which no rule takes through sum[t] of exp_diff")
