"""Graphs and candidates as torch modules: what they compute is what the interpreter does."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cleave
from cleave import nn
from cleave.candidate import Candidate
from cleave.errors import CleaveError
from cleave.export import to_torch
from cleave.ir.dim import dim
from cleave.ir.graph import Graph, Input, Output, apply, const, graph, load
from cleave.ir.instance import draw_inputs
from cleave.ir.interp import interpret
from cleave.ir.op import MAPS
from cleave.testing.strategies import arrays, graphs, sizes_of
from tests.null.export_cases import CASES, SPECIAL, agree, hostile_reads, special_graph, split_candidates, stores
from tests.null.exported import storable, with_torch
from tests.null.operators import Operator

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("make", [make for _, make in CASES], ids=[name for name, _ in CASES])
def test_operators_agree_with_the_interpreter(make: Callable[[], Operator], rng: np.random.Generator) -> None:
    operator = make()
    for sizes in operator.sizes:
        inputs = storable(operator.graph, operator.inputs(sizes, rng))
        agree(operator.graph, with_torch(operator.graph, inputs, sizes), interpret(operator.graph, inputs, sizes))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 0), (3, 0, 2), (1, 5, 1), (0, 2, 3)])
def test_extents_of_one_and_none(sizes: tuple[int, int, int], rng: np.random.Generator) -> None:
    b, s, t = sizes
    g = nn.attention(causal=True, lse=True, d=3, e=2, group=2, dtype="float64")
    dims = {"b": b, "kv_heads": 1, "s": s, "t": t}
    inputs = draw_inputs(g, {**dims, "d": 3, "e": 2, "group": 2}, rng)
    agree(g, with_torch(g, inputs, dims), interpret(g, inputs, dims))


@pytest.mark.parametrize("op", MAPS)
def test_every_operation_at_special_values(op: str) -> None:
    g, inputs = special_graph(op)
    agree(g, with_torch(g, inputs, {}), interpret(g, inputs))


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_split_candidates(count: int, rng: np.random.Generator) -> None:
    for c in split_candidates():
        for t in (7, 1, 0):
            dims = {"b": 2, "kv_heads": 1, "s": 3, "t": t}
            inputs = storable(c.graph, draw_inputs(c.origin, {**dims, "d": 4, "e": 3, "group": 2}, rng))
            agree(c.origin, with_torch(c, inputs, {"S_t": count}), interpret(c.origin, inputs, dims))


def test_stores_that_leave_places_out(rng: np.random.Generator) -> None:
    for g, inputs in stores(rng):
        agree(g, with_torch(g, inputs, {}), interpret(g, inputs))


@settings(max_examples=60)
@given(data=st.data(), g=graphs())
def test_random_graphs(data: st.DataObject, g: Graph) -> None:
    sizes: Mapping[str, int] = data.draw(sizes_of(g, smallest=data.draw(st.sampled_from([1, 2]))))
    inputs = storable(g, arrays(g, sizes, np.random.default_rng(data.draw(st.integers(0, 2**20)))))
    agree(g, with_torch(g, inputs, sizes), interpret(g, inputs, sizes))


def test_code_is_readable() -> None:
    g = nn.attention(d=4, e=4, group=1)
    code = to_torch(g).code
    assert code.strip().startswith("def forward(self, q, k, v):")
    assert "kv_heads = k.size(1)" in code or "kv_heads = q.size(1)" in code
    assert "torch.functional.einsum" in code
    assert "to(torch.float32)" in code and "to(torch.float16)" in code


def test_results_are_a_tensor_or_a_tuple_in_the_storage_types_of_the_outputs() -> None:
    q = torch.randn(1, 2, 3, 4, dtype=torch.float16)
    out = to_torch(nn.attention(group=1))(q, q, q)
    assert out.dtype == torch.float16
    out, lse = to_torch(nn.attention(group=1, lse=True))(q=q, k=q, v=q)
    assert (out.dtype, lse.dtype) == (torch.float16, torch.float32)


def test_dims_that_no_shape_gives_are_arguments_or_bound() -> None:
    g = nn.attention()
    q, k = torch.randn(2, 6, 3, 4), torch.randn(2, 3, 5, 4)
    assert "group = " in to_torch(g).code  # 6 query heads over 3 key heads
    assert torch.equal(to_torch(g)(q, k, k), to_torch(g, bind={"group": 2})(q, k, k))
    (c, *_) = split_candidates()
    call = to_torch(c)
    q, k, v = torch.randn(1, 2, 3, 4), torch.randn(1, 1, 9, 4), torch.randn(1, 1, 9, 3)
    fixed = to_torch(c, bind={"S_t": 3})(q, k, v)
    for got, want in zip(call(q, k, v, S_t=3), fixed, strict=True):
        assert torch.equal(got, want)


def test_torch_compiles_and_exports_the_module_again() -> None:
    module = to_torch(nn.softmax(dtype="float32"))
    rows = torch.export.Dim("rows")
    again = torch.export.export(module, (torch.randn(3, 4),), dynamic_shapes=({0: rows, 1: torch.export.Dim("n")},))
    x = torch.randn(5, 7)
    torch.testing.assert_close(again.module()(x), torch.softmax(x, 1))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((1, 2, 3, 4), (1, 1, 5, 4), (1, 1, 6, 4)), "input v, axis 2: the extent must be t"),
        (((1, 2, 3, 4), (1, 1, 5, 1), (1, 1, 5, 4)), "input k, axis 3: the extent must be d"),
        (((1, 3, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4)), "input q, axis 1: the extent must be group*kv_heads"),
    ],
)
def test_shapes_that_break_the_graph_are_refused(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    module = to_torch(nn.attention(group=2))
    with pytest.raises(AssertionError) as caught:
        module(*(torch.zeros(s) for s in shapes))
    assert message in str(caught.value)


def test_declared_ranges_are_checked() -> None:
    n = dim("n", minimum=2, maximum=8, multiple_of=2)
    g = cleave.trace(lambda x: cleave.ops.exp(x), name="exp", x=(n,), dtype="float32")
    module = to_torch(g)
    module(torch.zeros(4))
    for size in (0, 10, 5):
        with pytest.raises(AssertionError, match=r"dim n: allowed is in \[2, 8\] % 2"):
            module(torch.zeros(size))


def test_reads_outside_an_input_are_refused_where_the_position_exists() -> None:
    g, good, bad = hostile_reads()
    agree(g, with_torch(g, good, {}), interpret(g, good))
    for inputs in bad:
        with pytest.raises(AssertionError, match="input table, axis 0: an index is outside"):
            with_torch(g, inputs, {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bind": {"x": 3}}, "attention: no dim 'x': the graph has b, d, e, group, kv_heads, s, t"),
        ({"bind": {"d": -1}}, "dim d = -1: allowed is >= 0"),
        (
            {"precision": "int32"},
            "to_torch: precision 'int32': allowed are bfloat16, float16, float32, float64",
        ),
    ],
)
def test_errors(options: dict[str, object], message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        to_torch(nn.attention(), **options)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CleaveError, match=r"to_torch: PyTorch is not installed \(pip install cleave\[torch\]\)"):
        to_torch(nn.softmax())


def test_an_operation_without_a_form_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAPS, "spence", MAPS["exp"])
    x = Input("x", "float32", ())
    g = graph("g", [x], [Output("y", "float32", (), (), apply("spence", apply("add", load("x"), const(1.0))))])
    with pytest.raises(CleaveError, match="to_torch: operation spence has no form in torch"):
        to_torch(g)


def test_special_values_are_special() -> None:
    assert {-np.inf, 0.0} <= set(SPECIAL) and min(SPECIAL) < 0 < max(SPECIAL)
    assert all(isinstance(c, Candidate) and c.splits for c in split_candidates())
