"""Graphs and candidates as ONNX models: two runtimes compute what the interpreter does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleave import nn
from cleave.errors import CleaveError
from cleave.export import to_onnx
from cleave.ir.graph import Graph, Input, Output, apply, graph, load
from cleave.ir.instance import draw_inputs
from cleave.ir.interp import interpret
from cleave.ir.op import MAPS
from cleave.testing.strategies import arrays, graphs, sizes_of
from tests.null.export_cases import CASES, agree, hostile_reads, special_graph, split_candidates, stores
from tests.null.exported import storable, with_onnx_reference, with_onnx_runtime
from tests.null.operators import Operator

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

RUNTIMES = (with_onnx_reference, with_onnx_runtime)


@pytest.mark.parametrize("make", [make for _, make in CASES], ids=[name for name, _ in CASES])
def test_operators_agree_with_the_interpreter(make: Callable[[], Operator], rng: np.random.Generator) -> None:
    operator = make()
    for sizes in operator.sizes:
        inputs = storable(operator.graph, operator.inputs(sizes, rng))
        want = interpret(operator.graph, inputs, sizes)
        for run in RUNTIMES:
            agree(operator.graph, run(operator.graph, inputs, sizes), want)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 0), (1, 5, 1)])
def test_extents_of_one_and_none(sizes: tuple[int, int, int], rng: np.random.Generator) -> None:
    b, s, t = sizes
    g = nn.attention(causal=True, lse=True, d=3, e=2, group=2, dtype="float64")
    dims = {"b": b, "kv_heads": 1, "s": s, "t": t}
    inputs = draw_inputs(g, {**dims, "d": 3, "e": 2, "group": 2}, rng)
    for run in RUNTIMES:
        agree(g, run(g, inputs, dims), interpret(g, inputs, dims))


@pytest.mark.parametrize("op", MAPS)
def test_every_operation_at_special_values(op: str) -> None:
    g, inputs = special_graph(op)
    for run in RUNTIMES:
        agree(g, run(g, inputs, {}), interpret(g, inputs))


@pytest.mark.parametrize("count", [1, 3, 8])
def test_split_candidates(count: int, rng: np.random.Generator) -> None:
    c = split_candidates()[0]
    for t in (7, 1):
        dims = {"b": 2, "kv_heads": 1, "s": 3, "t": t}
        inputs = storable(c.graph, draw_inputs(c.origin, {**dims, "d": 4, "e": 3, "group": 2}, rng))
        for run in RUNTIMES:
            agree(c.origin, run(c, inputs, {"S_t": count}), interpret(c.origin, inputs, dims))


def test_stores_that_leave_places_out(rng: np.random.Generator) -> None:
    for g, inputs in stores(rng):
        for run in RUNTIMES:
            agree(g, run(g, inputs, {}), interpret(g, inputs))


@settings(max_examples=25)
@given(data=st.data(), g=graphs())
def test_random_graphs(data: st.DataObject, g: Graph) -> None:
    sizes = data.draw(sizes_of(g, smallest=data.draw(st.sampled_from([1, 2]))))
    inputs = storable(g, arrays(g, sizes, np.random.default_rng(data.draw(st.integers(0, 2**20)))))
    agree(g, with_onnx_runtime(g, inputs, sizes), interpret(g, inputs, sizes))


def test_dims_are_parameters_of_the_signature() -> None:
    model = to_onnx(nn.attention(d=4, e=4))
    shapes = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {
        "q": ["b", "group*kv_heads", "s", 4],
        "k": ["b", "kv_heads", "t", 4],
        "v": ["b", "kv_heads", "t", 4],
        "out": ["b", "group*kv_heads", "s", 4],
    }
    assert [d.dim_value for d in to_onnx(nn.matmul(), bind={"k": 8}).graph.input[0].type.tensor_type.shape.dim] == [
        0,
        8,
    ]
    assert [i.name for i in to_onnx(split_candidates()[0]).graph.input] == ["q", "k", "v", "S_t"]


@pytest.mark.parametrize("run", RUNTIMES)
def test_reads_outside_an_input_are_refused(run: Callable[..., list[np.ndarray]]) -> None:
    g, good, bad = hostile_reads()
    agree(g, run(g, good, {}), interpret(g, good))
    for inputs in bad:
        with pytest.raises(Exception, match=r"(?i)out of bounds|invalid ind|index"):
            run(g, inputs, {})


def test_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CleaveError, match="softmax: no dim 'x': the graph has m, n"):
        to_onnx(nn.softmax(), bind={"x": 1})
    with pytest.raises(CleaveError, match="to_onnx: precision 'bool': allowed are bfloat16, float16, float32, float64"):
        to_onnx(nn.softmax(), precision="bool")
    monkeypatch.setitem(MAPS, "spence", MAPS["exp"])
    g = graph("g", [Input("x", "float32", ())], [Output("y", "float32", (), (), apply("spence", load("x")))])
    with pytest.raises(CleaveError, match="to_onnx: operation spence has no form in ONNX"):
        to_onnx(g)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CleaveError, match=r"to_onnx: onnx is not installed \(pip install cleave\[onnx\]\)"):
        to_onnx(nn.softmax())
