"""Top-k: its meaning, its text, what the search and the verifier make of it, and who refuses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cleave
from cleave import Config, nn, ops
from cleave.candidate import Candidate
from cleave.cli import main
from cleave.config import Ablation
from cleave.errors import CleaveError
from cleave.export import to_onnx, to_torch
from cleave.ir.axis import axis
from cleave.ir.check import check_graph
from cleave.ir.dim import dims
from cleave.ir.graph import Graph, Input, Output, Term, apply, fold, free, graph, load, top_k
from cleave.ir.hash import graph_hash
from cleave.ir.index import index, read
from cleave.ir.interp import interpret
from cleave.ir.text import parse_graph
from cleave.search import Found, reducibility_table, search
from cleave.target import Target
from cleave.testing.strategies import COLUMN, INNER, INPUTS, ROW, arrays, sizes_of, terms
from cleave.verify import compare, graph_tolerance, verify, with_magnitudes
from cleave.verify.verdict import Outcome, Step

Array = np.ndarray[Any, Any]


def ranked(row: Array) -> list[int]:
    """Positions, NaN first, then the larger, then the lower index."""
    return sorted(range(len(row)), key=lambda j: (not np.isnan(row[j]), 0.0 if np.isnan(row[j]) else -row[j], j))


def top(k: int = 3, dtype: str = "float64", indices: str | None = None) -> Graph:
    def chosen(x: ops.Tensor) -> dict[str, ops.Tensor]:
        values, where = ops.top_k(x, k, axis="n")
        return {"values": values, "where": where}

    return cleave.trace(
        chosen, name="top", x="m n", dtype=dtype, outputs={"where": f"{indices}[m rank]"} if indices else None
    )


def router(k: int = 2) -> Graph:
    """Logits, softmax, top-k, and what is made of the values: rules work on both sides of the selection."""

    def route(x: ops.Tensor, w: ops.Tensor) -> dict[str, ops.Tensor]:
        values, experts = ops.top_k(ops.softmax(x @ w, axis="n"), k, axis="n")
        return {"weights": values * ops.reciprocal0(ops.sum(values, "rank", keepdims=True)), "experts": experts}

    return cleave.trace(route, name="router", x="m d", w="d n")


# ---- meaning


@pytest.mark.parametrize("extent", [0, 1, 2, 3, 8])
def test_values_and_indices(extent: int, rng: np.random.Generator) -> None:
    x = rng.choice([-np.inf, -1.0, -0.0, 0.0, 0.5, 2.0, np.inf, np.nan], (40, extent))
    found = interpret(top(), {"x": x})
    for row, values, where in zip(x, found["values"], found["where"], strict=True):
        order = ranked(row)[:3]
        np.testing.assert_array_equal(where, [*order, *[extent] * (3 - len(order))])
        np.testing.assert_array_equal(values, [*row[order], *[-np.inf] * (3 - len(order))])


def test_ties_go_to_the_lower_index_and_nan_comes_first() -> None:
    x = np.array([[1.0, 2.0, 2.0, np.nan, 2.0], [-np.inf, -np.inf, -0.0, 0.0, -1.0]])
    found = interpret(top(4), {"x": x})
    assert found["where"].tolist() == [[3, 1, 2, 4], [2, 3, 4, 0]]
    np.testing.assert_array_equal(found["values"], [[np.nan, 2, 2, 2], [0, 0, -1, -np.inf]])


def test_ragged_axes_have_no_positions_beyond_their_extent() -> None:
    b, t = dims("b t")
    b_ = axis("b", b)
    t_, r_ = axis("t", read("length", b_)), axis("r", index(2))
    x = load("X", b_, t_)
    outputs = [
        Output(part, dtype, (b, index(2)), (b_.position, r_.position), top_k(part, t_, r_, x))
        for part, dtype in (("value", "float32"), ("index", "int64"))
    ]
    g = graph("ragged", [Input("X", "float32", (b, t)), Input("length", "int32", (b,))], outputs)
    found = interpret(g, {"X": np.array([[1.0, 9, 5], [7, 8, 9], [3, 9, 9]]), "length": np.array([3, 0, 1])})
    assert found["value"].tolist() == [[9, 5], [-np.inf, -np.inf], [3, -np.inf]]
    assert found["index"].tolist() == [[1, 2], [0, 0], [0, 1]]


def test_a_whole_axis_is_sorted(rng: np.random.Generator) -> None:
    """The ranks have the extent of what is sorted, so both axes would be called n."""
    m, n = dims("m n")
    m_, n_, r_ = axis("m", m), axis("n", n), axis("r", n)
    value = top_k("value", n_, r_, load("X", m_, n_))
    g = graph(
        "sort", [Input("X", "float32", (m, n))], [Output("Y", "float32", (m, n), (m_.position, r_.position), value)]
    )
    x = rng.standard_normal((4, 7))
    np.testing.assert_array_equal(interpret(g, {"X": x})["Y"], -np.sort(-x, axis=1))
    assert parse_graph(g.text()) == g


def test_a_rank_may_be_any_index_and_the_extent_one(rng: np.random.Generator) -> None:
    def second(x: ops.Tensor) -> ops.Tensor:
        return ops.top_k(x, 2, axis="n")[0][:, 1]

    x = rng.standard_normal((3, 6))
    out = interpret(cleave.trace(second, x="m n"), {"x": x})["out"]
    np.testing.assert_array_equal(out, np.sort(x, axis=1)[:, -2])
    ones = interpret(cleave.trace(lambda x: ops.top_k(x, 1, axis=1), name="one", x="m 1"), {"x": x[:, :1]})
    np.testing.assert_array_equal(ones["out0"], x[:, :1])
    np.testing.assert_array_equal(ones["out1"], np.zeros((3, 1)))


# ---- text and names


def test_text_hash_and_dtypes() -> None:
    for g in (top(), top(1), top(3, indices="int64"), router(), nn.moe_routing(k=2)):
        assert parse_graph(g.text()) == g
        assert graph_hash(parse_graph(g.text())) == graph_hash(g)
    assert [o.dtype for o in top().outputs] == ["float64", "int32"]
    assert [o.dtype for o in top(indices="int64").outputs] == ["float64", "int64"]
    assert "v0[m, n3] = top_value(n, n3, x[m, n])" in top().text()
    assert "top index n" in top().svg()
    assert graph_hash(top(3)) != graph_hash(top(2))


def test_names_of_axes_do_not_count() -> None:
    m, n = dims("m n")

    def made(bound: str, rank: str) -> Graph:
        m_, n_, r_ = axis("m", m), axis(bound, n), axis(rank, index(3))
        value = top_k(
            "value", n_, r_, apply("sub", load("X", m_, n_), fold("max", axis("x", n), load("X", m_, axis("x", n))))
        )
        return graph(
            "g",
            [Input("X", "float32", (m, n))],
            [Output("Y", "float32", (m, index(3)), (m_.position, r_.position), value)],
        )

    assert len({graph_hash(made(*names)) for names in (("n", "r"), ("r", "n"), ("z", "x"))}) == 1


@st.composite
def selections(draw: st.DrawFn) -> Graph:
    """A selection of random terms, ranked by an axis that may be of the same extent, under more terms."""
    chosen = draw(st.sampled_from([ROW, COLUMN, INNER]))
    ranks = draw(st.sampled_from([axis("r", index(2)), axis("r", chosen.extent)]))
    t: Term = top_k(draw(st.sampled_from(["value", "index"])), chosen, ranks, draw(terms(4)))
    if draw(st.booleans()):
        t = apply("add", t, apply("tanh", fold("sum", draw(st.sampled_from([ROW, ranks])), t)))
    if draw(st.booleans()):
        t = top_k("index", draw(st.sampled_from([ROW, COLUMN, INNER])), 1, t)
    stored = tuple(a for a in (ROW, COLUMN, INNER, ranks) if a in free(t))
    shape, indices = tuple(a.extent for a in stored), tuple(a.position for a in stored)
    return Graph("random", INPUTS, (Output("out", "float32", shape, indices, t),))


@given(selections(), st.data())
@settings(max_examples=40)
def test_random_selections_keep_their_value_under_canonical_names_and_as_text(raw: Graph, data: st.DataObject) -> None:
    g = graph("random", raw.inputs, raw.outputs)
    assert parse_graph(g.text()) == g
    sizes = data.draw(sizes_of(g))
    x = arrays(g, sizes, np.random.default_rng(0))
    np.testing.assert_allclose(interpret(g, x, sizes)["out"], interpret(raw, x, sizes)["out"], rtol=1e-9)


def test_errors() -> None:
    m, n = dims("m n")
    m_, n_ = axis("m", m), axis("n", n)
    inputs = [Input("X", "float32", (m, n))]
    with pytest.raises(CleaveError, match="top-k part 'best': allowed are value, index"):
        top_k("best", n_, 0, load("X", m_, n_))
    own = top_k("value", n_, n_.position, load("X", m_, n_))
    with pytest.raises(CleaveError, match="g: top-k over axis n: its rank n mentions that axis"):
        check_graph(Graph("g", tuple(inputs), (Output("Y", "float32", (m, n), (m_.position, n_.position), own),)))
    half = Output("Y", "int32", (m,), (m_.position,), top_k("value", n_, 0, load("X", m_, n_)))
    with pytest.raises(CleaveError, match="g, output Y: dtype int32: allowed are bfloat16, float16, float32, float64"):
        graph("g", inputs, [half])


@pytest.mark.parametrize(
    ("k", "axes", "name", "message"),
    [
        (0, "m n", "rank", "top_k: k = 0: a whole number >= 1 is expected"),
        (True, "m n", "rank", "top_k: k = True: a whole number >= 1 is expected"),
        (9, "m n=8", "rank", "top_k: k = 9, axis n of x has extent n = 8"),
        (2, "m n", "m", "top_k: the new axis can't be called 'm': x has m, n"),
        (2, "m t", "rank", "x has no axis 'n': its axes are m, t"),
    ],
)
def test_errors_of_the_frontend(k: Any, axes: str, name: str, message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        cleave.trace(lambda x: ops.top_k(x, k, axis="n", name=name), name="top", x=axes)
    assert message in str(caught.value)


def test_the_dims_of_a_symbolic_axis_have_room_for_k(rng: np.random.Generator) -> None:
    g = nn.moe_routing()
    with pytest.raises(CleaveError, match=r"constraint 8 <= dim.n does not hold for n = 5"):
        interpret(g, {"logits": rng.standard_normal((2, 5))})


# ---- search


@pytest.fixture(scope="module")
def found() -> Found:
    return search(router(), config=Config(isolate=False), sizes={"m": 16, "d": 4096, "n": 64})


def test_rules_work_below_the_selection(found: Found, rng: np.random.Generator) -> None:
    assert [c.name for c in found.candidates] == ["split d", "as written"] or len(found.candidates) >= 2
    c = found.pick(split="d")
    x = {"x": rng.standard_normal((3, 7)), "w": rng.standard_normal((7, 5))}
    expected = interpret(c.origin, x)
    got = interpret(c.graph, x, {"S_d": 3, "C_d": 3})
    np.testing.assert_array_equal(got["experts"], expected["experts"])
    np.testing.assert_allclose(got["weights"], expected["weights"], rtol=1e-12)
    assert c.steps and all(verify(c, Config(seed=seed)).passed for seed in range(2))


def test_the_axis_of_a_selection_is_not_split(found: Found) -> None:
    row = next(r for r in reducibility_table(router()).rows if r.axis.name == "n")
    assert row.reducible and not row.splittable
    assert row.why == "max x1, sum x1, top-k x2; no rule merges the top-k of chunks"
    assert row.why in found.report.text()


def test_without_the_reducibility_constraint_candidates_are_right(rng: np.random.Generator) -> None:
    g = router()
    without = search(
        g, config=Config(ablation=Ablation(reducibility=False), isolate=False), sizes={"m": 16, "d": 64, "n": 64}
    )
    assert any(s.base == "n" for c in without.candidates for s in c.splits)
    x = {"x": rng.standard_normal((3, 4)), "w": rng.standard_normal((4, 6))}
    expected = interpret(g, x)
    for c in without.candidates:
        got = interpret(c.graph, x, {n: 3 for s in c.splits for n in (s.count, s.chunk)})
        np.testing.assert_array_equal(got["experts"], expected["experts"], err_msg=c.name)
        np.testing.assert_allclose(got["weights"], expected["weights"], rtol=1e-12, err_msg=c.name)


def test_candidates_are_saved_and_explained(found: Found, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "moe.json"
    words = ["moe_routing", "--bind", "m=64,n=32,k=4"]
    assert main(["search", *words, "--save", str(file)]) == 0
    loaded = cleave.load(file)
    assert [c.graph for c in loaded.candidates] == [nn.instantiate("moe_routing", {"k": 4})[0]]
    capsys.readouterr()
    assert main(["explain", str(file)]) == 0
    assert "no rule merges the top-k of chunks" in capsys.readouterr().out


# ---- verification


def candidate(g: Graph, origin: Graph) -> Candidate:
    return Candidate("planted", g, origin)


def planted(part_of: str) -> Graph:
    """The router with one thing wrong."""

    def route(x: ops.Tensor, w: ops.Tensor) -> dict[str, ops.Tensor]:
        logits = x @ w
        p = ops.softmax(logits, axis="n")
        values, experts = ops.top_k(p, 2, axis="n")
        if part_of == "other body":
            experts = ops.top_k(ops.square(logits), 2, axis="n")[1]
        if part_of == "the least":
            values = -ops.top_k(-p, 2, axis="n")[0]
        if part_of == "one rank on":
            experts = ops.top_k(p, 3, axis="n")[1][:, 1:]
        if part_of == "logits":
            experts = ops.top_k(logits, 2, axis="n")[1]
        if part_of == "twice":
            experts = ops.top_k(2.0 * p, 2, axis="n")[1]
        return {"weights": values * ops.reciprocal0(ops.sum(values, 1, keepdims=True)), "experts": experts}

    return cleave.trace(route, name="router", x="m d", w="d n")


@pytest.mark.parametrize("wrong", ["other body", "the least", "one rank on"])
def test_wrong_selections_are_rejected(wrong: str) -> None:
    verdict = verify(candidate(planted(wrong), planted("nothing")))
    assert verdict.outcome is Outcome.WRONG_VALUE


def test_positions_of_what_is_as_large_are_left_open() -> None:
    """The order of the logits is that of their softmax; where that is 0 for large ones, either expert is right."""
    claim = replace(candidate(planted("logits"), planted("nothing")), assumptions=("finite",))
    for seed in range(2):
        verdict = verify(claim, Config(seed=seed))
        assert verdict.passed, verdict
    small = next(c for c in verdict.checks if c.step is Step.SMALL)
    assert small.detail == "a step function (top-k) follows a reduction: either side of a jump is an honest rounding"


def test_ties_within_a_rounding_have_room_and_nothing_else_has(rng: np.random.Generator) -> None:
    g = with_magnitudes(planted("nothing"))
    x = {"x": np.eye(3), "w": np.array([[1.0, 2, 2, 1], [4, 1, 2, 3], [1, 1, 1, 1]])}
    x["w"][0, 2] += 1e-12
    found = interpret(g, x)
    assert found["experts"].tolist() == [[2, 1], [0, 3], [0, 1]]
    room = found["experts__magnitude"] - found["experts__decided"]
    assert (room > 0).tolist() == [[True, True], [False, False], [True, True]]


def test_fields_select_by_an_order_and_prove_nothing_by_it() -> None:
    """Twice as large keeps the order of numbers, but not that of residues."""
    verdict = verify(candidate(planted("twice"), planted("nothing")))
    field = next(c for c in verdict.checks if c.step is Step.FIELD)
    assert field.outcome is Outcome.PASSED and "experts is left open: laws of" in field.detail
    same = verify(candidate(planted("nothing"), planted("nothing")))
    assert next(c for c in same.checks if c.step is Step.FIELD).detail == ""


def test_positions_are_compared_exactly() -> None:
    tolerance = graph_tolerance(nn.moe_routing(), "experts")
    values = np.array([3.0, 70000.0])
    assert compare(values, values, values, tolerance).passed
    assert not compare(values + np.array([0.0, 1.0]), values, values, tolerance).passed


# ---- who refuses it


def test_no_schedule(found: Found) -> None:
    with pytest.raises(CleaveError, match="split d: top-k over axis n: no kernel selects by rank yet"):
        cleave.schedule(found.pick(split="d"), Target("sm_90a"), bind={"m": 16, "d": 64, "n": 64})


@pytest.mark.parametrize(("library", "export"), [("torch", to_torch), ("onnx", to_onnx)])
def test_no_export(library: str, export: Callable[[Graph], object]) -> None:
    pytest.importorskip(library)
    with pytest.raises(CleaveError, match="moe_routing: the top-k over axis n can't be exported"):
        export(nn.moe_routing())
