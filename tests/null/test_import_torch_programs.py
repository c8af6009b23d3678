"""Modules and exported programs of PyTorch as graphs: Llama, sizes that are symbols, and what can't be imported."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.export import Dim

import cleave
from cleave.errors import CleaveError, GraphError, ShapeError
from cleave.export import to_torch
from cleave.frontend.torch import Imported, from_torch
from cleave.ir.graph import Cast, Graph, walk
from tests.null.torch_programs import MLP, Attention, Layer, RMSNorm, compare, interpreted

LENGTHS = (1, 7, 33)
SEQ, BATCH = Dim("seq", min=1, max=4096), Dim("batch", min=1, max=64)
DYNAMIC = {"hidden": {0: BATCH, 1: SEQ}, "cos": {0: BATCH, 1: SEQ}, "sin": {0: BATCH, 1: SEQ}}


def randn(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float64)


def layer_inputs(length: int, batch: int = 2) -> list[Any]:
    return [randn(batch, length, 24), randn(batch, length, 6), randn(batch, length, 6)]


@pytest.fixture
def layer(rng: np.random.Generator) -> Layer:
    torch.manual_seed(int(rng.integers(2**31)))
    return Layer().eval().double()


def quietly(action: Callable[[], Any]) -> Any:
    """What torch itself does with programs warns of its own future."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return action()


# ---- Llama


def test_a_layer_of_llama_keeps_its_length_symbolic(layer: Layer) -> None:
    made = from_torch(layer, layer_inputs(5), dynamic_shapes=DYNAMIC)
    assert made.graph.name == "Layer"
    assert [str(s.name) for s in made.graph.symbols] == ["batch", "seq"]
    inputs = {i.name: i for i in made.graph.inputs}
    assert list(inputs)[:4] == ["hidden", "cos", "sin", "input_layernorm_weight"]
    assert made.values.keys() == inputs.keys() - {"hidden", "cos", "sin"}
    assert made.values["self_attn_q_proj_weight"] is layer.self_attn.q_proj.weight
    for length in LENGTHS:
        args = layer_inputs(length, batch=3)
        compare(interpreted(made, args, {"seq": length, "batch": 3}), layer(*args))


def test_candidates_of_the_layer_exported_back_agree_at_three_lengths(layer: Layer) -> None:
    made = from_torch(layer, layer_inputs(5), dynamic_shapes=DYNAMIC)
    found = cleave.search(made.graph, weights=made.values)
    assert len(found.candidates) > 1
    for candidate in found.candidates:
        back = to_torch(candidate, precision="float64", bind={s.count: 2 for s in candidate.splits})
        for length in LENGTHS:
            args = layer_inputs(length)
            got = back(**dict(zip(("hidden", "cos", "sin"), args, strict=True)), **made.values)
            compare([got.detach().numpy()], layer(*args))


def test_programs_of_torch_export_as_made_decomposed_and_loaded(layer: Layer, tmp_path: Path) -> None:
    made = from_torch(layer, layer_inputs(5), dynamic_shapes=DYNAMIC)
    program = quietly(lambda: torch.export.export(layer, tuple(layer_inputs(5)), dynamic_shapes=DYNAMIC))
    path = str(tmp_path / "layer.pt2")
    quietly(lambda: torch.export.save(program, path))
    decomposed = quietly(program.run_decompositions)
    loaded = quietly(lambda: torch.export.load(path))
    args = layer_inputs(9, batch=3)
    for source in (program, decomposed, loaded):
        again = from_torch(source, dynamic_shapes=DYNAMIC)
        assert again.graph.name == "Layer"
        assert not again.graph.constraints
        assert [i.shape for i in again.graph.inputs] == [i.shape for i in made.graph.inputs]
        compare(interpreted(again, args, {"seq": 9, "batch": 3}), layer(*args))


def test_masks_written_by_hand() -> None:
    attention = Attention(12, 4, 2, 4, by_hand=True).eval().double()
    args = [randn(1, 5, 12), randn(1, 5, 4), randn(1, 5, 4)]
    made = from_torch(attention, args, dynamic_shapes={n: {1: SEQ} for n in ("x", "cos", "sin")})
    for length in LENGTHS:
        args = [randn(1, length, n) for n in (12, 4, 4)]
        compare(interpreted(made, args, {"seq": length}), attention(*args))


def test_a_projection_that_is_rotated_stays_one_product(layer: Layer) -> None:
    args = layer_inputs(5)
    text = from_torch(layer.self_attn, args, dynamic_shapes={n: {1: SEQ} for n in ("x", "cos", "sin")}).graph.text()
    rotated = cleave.trace(
        lambda x, cos, sin: cleave.ops.rotary(x, cos, sin, "pair"), x="(pair=2 f)", cos="f", sin="f"
    ).text()
    assert "where(pair1 == pair, cos[f], where(pair1 < pair, sin[f], neg(sin[f])))" in rotated
    assert text.count("q_proj_weight[") == text.count("k_proj_weight[") == 1
    assert len(re.findall(r"where\((\w+) == (\w+), cos\[.*\], where\(\1 < \2, sin\[.*\], neg\(sin\[", text)) == 2


def test_an_attention_of_torch_is_that_of_cleave() -> None:
    def grouped(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    b, s = Dim("b"), Dim("s")
    args = [torch.randn(2, 6, 5, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)]
    made = from_torch(grouped, args, dynamic_shapes=[{0: b, 2: s}] * 3).graph
    text = made.text()
    assert "k[b, n2, s1, n4]" in text and "q[b, 3*n2 + n3, s, n4]" in text
    assert "max(s1, " in text and "recip0" in text


# ---- sizes


def dims_of(g: Graph) -> dict[str, tuple[int, int | None]]:
    return {s.name: (s.minimum, s.maximum) for s in g.symbols}


def first(source: Any, *shapes: Any, args: tuple[int, ...] = (8,)) -> Imported:
    return from_torch(source, [torch.randn(n) for n in args], dynamic_shapes=shapes)


def test_ranges_and_names_are_those_of_the_caller() -> None:
    n = Dim("n", min=3, max=64)
    assert dims_of(first(lambda x: x * 2, {0: n}).graph) == {"n": (3, 64)}
    assert dims_of(first(lambda x: x * 2, {0: Dim("n")}).graph) == {"n": (0, None)}
    assert dims_of(first(lambda x: x * 2, {0: Dim.AUTO}).graph) == {"x_0": (0, None)}
    assert dims_of(first(lambda x: x * 2).graph) == {}


def test_dims_made_of_others() -> None:
    n = Dim("n", min=2, max=64)
    made = first(lambda x, y: x[: y.shape[0]] + x[y.shape[0] :] * y, {0: 2 * n}, {0: n}, args=(8, 4))
    assert [str(i.shape[0]) for i in made.graph.inputs] == ["2*n", "n"]
    x, y = randn(10), randn(5)
    compare(interpreted(made, [x, y], {"n": 5}), x[:5] + x[5:] * y, 1e-6)
    shifted = first(lambda x: x[1:] - x[:-1], {0: n + 1}, args=(5,))
    assert [str(i.shape[0]) for i in shifted.graph.inputs] == ["n + 1"]
    compare(interpreted(shifted, [y], {"n": 4}), y[1:] - y[:-1], 1e-6)


def test_conditions_that_torch_found_become_factors_and_constraints() -> None:
    def function(x: Any, y: Any) -> Any:
        torch._check(x.shape[0] <= y.shape[0])
        return y[: x.shape[0]] + x.view(-1, 4).sum(1)[:, None].expand(-1, 4).reshape(-1)

    made = first(function, {0: Dim.AUTO}, {0: Dim.AUTO}, args=(8, 16))
    assert dims_of(made.graph) == {"x_0_by_4": (2, None), "y_0": (0, None)}
    assert [str(p) for p in made.graph.constraints] == ["4*dim.x_0_by_4 <= dim.y_0"]
    with pytest.raises(ShapeError, match="does not hold"):
        interpreted(made, [randn(8), randn(4)], {"x_0_by_4": 2, "y_0": 4})


def test_pieces_put_behind_one_another_are_not_empty() -> None:
    made = first(lambda x, y: torch.cat((x, y)), {0: Dim("n")}, {0: Dim("m", min=1)}, args=(4, 3))
    assert [str(p) for p in made.graph.constraints] == ["1 <= dim.n"]
    with pytest.raises(ShapeError, match=r"constraint 1 <= dim.n does not hold for n = 0"):
        interpreted(made, [randn(0), randn(4)], {"n": 0, "m": 4})


def test_a_saved_program_keeps_its_conditions(tmp_path: Path) -> None:
    class Check(nn.Module):
        def forward(self, x: Any, more: dict[str, Any]) -> Any:
            torch._check(x.shape[0] <= more["y"].shape[0])
            return more["y"][: x.shape[0]] + x

    shapes = {"x": {0: Dim.AUTO}, "more": {"y": {0: Dim.AUTO}}}
    args = (torch.randn(8), {"y": torch.randn(16)})
    program = quietly(lambda: torch.export.export(Check(), args, dynamic_shapes=shapes))
    quietly(lambda: torch.export.save(program, str(tmp_path / "program.pt2")))
    loaded = quietly(lambda: torch.export.load(str(tmp_path / "program.pt2")))
    for source in (program, loaded):
        assert [str(p) for p in from_torch(source).graph.constraints] == ["dim.x_0 <= dim.more_y_0"]


@pytest.mark.parametrize(
    ("function", "shapes", "message"),
    [
        (
            lambda x, y: x + y,
            ({0: Dim("n")}, {0: Dim("m")}),
            r"Constraints violated \(m\)! The values of m = y.shape\[0\] and n = x.shape\[0\] must always be equal.",
        ),
        (lambda x, y: x + y, ({0: Dim("n")}, {0: 2 * Dim("n")}), r"Expected input y.shape\[0\] to be equal to 2\*n"),
        (
            lambda x, y: x + y,
            ({0: Dim("n")}, None),
            r"You marked n as dynamic but your code specialized it to .* \(8\)",
        ),
        (lambda x, y: x.view(-1, 4).sum() + y, ({0: Dim("n")}, None), r"the generated guard \(x.shape\[0\] % 4\) == 0"),
        (lambda x, y: x * 2 + y[0], ({0: Dim("n"), 1: Dim("m")}, None), "dynamic_shapes names a dimension that its"),
        (lambda x, y: x.sum() + y.sum(), ({0: Dim("n")}, {0: Dim("n", max=9)}), "Found different definitions"),
    ],
)
def test_contradictory_dims_are_refused_in_one_line(function: Any, shapes: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message) as caught:
        from_torch(function, (torch.randn(8), torch.randn(8)), dynamic_shapes=shapes)
    assert "\n" not in str(caught.value)


# ---- what is given


def test_graph_modules_and_fake_tensors() -> None:
    traced = torch.fx.symbolic_trace(MLP(4, 6))
    made = from_torch(traced, (torch.randn(3, 4),), dynamic_shapes={"x": {0: Dim("n")}})
    assert list(made.values) == ["gate_proj_weight", "up_proj_weight", "down_proj_weight"]
    with FakeTensorMode():
        x = torch.empty(3, 4)
    faked = from_torch(torch.fx.symbolic_trace(lambda x: F.silu(x) * 2), (x,), dynamic_shapes=({0: Dim("n")},))
    y = randn(5, 4)
    compare(interpreted(faked, [y], {"n": 5}), F.silu(y) * 2, 1e-6)


def test_one_tensor_given_twice_is_two_inputs() -> None:
    x = randn(4)
    made = from_torch(lambda x, y: x - 2 * y, (x, x), dynamic_shapes=({0: Dim("n")}, {0: Dim("n")}))
    a, b = randn(3), randn(3)
    compare(interpreted(made, [a, b], {"n": 3}), a - 2 * b)


def test_arguments_by_name_and_in_containers() -> None:
    def function(pair: dict[str, Any], *, scale: Any) -> dict[str, Any]:
        return {"sum": (pair["a"] + pair["b"][0]) * scale, "nothing": None, "first": pair["a"]}

    n = Dim("n")
    shapes = {"scale": None, "pair": {"a": {0: n}, "b": [{0: n}]}}
    args = ({"a": randn(4), "b": [randn(4)]},)
    made = from_torch(function, args, {"scale": randn(1)}, dynamic_shapes=shapes, name="scaled")
    assert (made.graph.name, [i.name for i in made.graph.inputs]) == ("scaled", ["pair_a", "pair_b_0", "scale"])
    assert [o.name for o in made.graph.outputs] == ["sum", "first"]
    a, b, scale = randn(5), randn(5), randn(1)
    compare(interpreted(made, [a, b, scale], {"n": 5}), ((a + b) * scale, a))


def test_numbers_of_a_call_are_constants_and_unused_parameters_no_inputs() -> None:
    linear = nn.Linear(4, 4)
    linear.register_parameter("unused", nn.Parameter(torch.randn(3)))
    assert [i.name for i in from_torch(linear, (torch.randn(2, 4),)).graph.inputs] == ["input", "weight", "bias"]
    assert from_torch(lambda x, k: x * k, (torch.randn(3), 2.5)).graph.text().endswith("(x[n3] * 2.5)\n")


def test_casts_round_where_the_type_is_narrower() -> None:
    half = from_torch(RMSNorm(8).half(), (torch.randn(2, 8, dtype=torch.float16),)).graph
    assert [t.dtype for t in walk(*half.terms) if isinstance(t, Cast)] == ["float16"]
    unrounded = from_torch(RMSNorm(8).half(), (torch.randn(2, 8, dtype=torch.float16),), rounding=False).graph
    assert not any(isinstance(t, Cast) for t in walk(*unrounded.terms))
    x = torch.randn(3, 6, dtype=torch.float16) * 1e-4
    made = from_torch(lambda x: F.rms_norm(x, (6,)), (x,))
    compare(interpreted(made, [x], {}), F.rms_norm(x, (6,)), 2e-3)


# ---- what can't be imported


def branch(x: Any) -> Any:
    if x.sum() > 0:
        return x * 2
    return x


def loop(x: Any) -> Any:
    while x.sum() > 0:
        x = x - 1
    return x


def changed(x: Any) -> Any:
    x.add_(1)
    return x * 2


def many(x: Any) -> Any:
    y = torch.cumsum(x, 0)
    z = torch.sort(y).values
    return torch.cumsum(z, 0) + torch.erf(x)


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(8, 8))

    def forward(self, x: Any) -> Any:
        self.cache.copy_(x)
        return x + self.cache


def line(function: Any, text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    start = function.__code__.co_firstlineno if hasattr(function, "__code__") else 1
    return next(n for n, code in enumerate(lines, 1) if n > start and text in code)


def test_everything_unsupported_is_listed_at_once_with_its_lines() -> None:
    with pytest.raises(GraphError) as caught:
        from_torch(many, (torch.randn(8),), dynamic_shapes=({0: Dim("n")},))
    here = "tests/null/test_import_torch_programs.py"
    one, two, three = line(many, "y = torch"), line(many, "z = torch"), line(many, "return torch")
    listed = f"aten.cumsum.default at {here}:{one}, {here}:{three}; aten.sort.default at {here}:{two}"
    assert str(caught.value) == f"many: not supported: {listed}; aten.erf.default at {here}:{three}"


def test_local_changes_in_place_are_fine() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        y += 1
        y.mul_(x)
        return y

    x = randn(8)
    compare(interpreted(from_torch(function, (x,)), [x], {}), function(x))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            branch,
            r"test_import_torch_programs.py:\d+: torch.export refuses it: control flow or a size depends on values",
        ),
        (loop, "control flow or a size depends on values of tensors"),
        (lambda x: x * x.sum().item(), r"aten.item.default \(a size or number that depends on values of tensors\) at "),
        (lambda x: x[x > 0].sum(), r"aten.gt.Scalar \(comparison <: an operand is a floating value; positions, dims"),
        (changed, "changed: the program changes x in place: a graph has no state$"),
        (Cache().eval(), "Cache: the program changes cache in place: a graph has no state$"),
        (nn.Dropout(0.5), r"aten.dropout.default \(dropout in training: call .eval\(\) first\)"),
        (nn.BatchNorm1d(8), "changes running_mean in place: a graph has no state, which .eval"),
        (lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5), "attention with dropout"),
        (lambda x: torch.arange(x.shape[0]), "output out is int64: allowed are bfloat16, float16, float32, float64"),
        (lambda x: torch.ones(3), "output out depends on no input"),
        (lambda x: (x, 3), "output out1 is 3, no tensor"),
        (lambda x: None, "the program returns nothing"),
        (lambda x: F.gelu(x), r"aten.gelu.default \(gelu with erf: approximate='tanh' is known\) at "),
        (F.gelu, r"a function without a signature: write lambda x: f\(x\)"),
        (lambda x, y: x, "lambda: torch.export refuses it: missing a required argument: 'y'"),
        (
            lambda x: x.missing(),
            r"test_import_torch_programs.py:\d+: torch.export refuses it: .* no attribute 'missing'",
        ),
        (torch.fx.symbolic_trace(lambda x: torch.erf(x)), "aten.erf.default at node erf"),
        (3, "from_torch: 3 is no function, module or exported program"),
    ],
)
def test_what_is_refused_is_said_in_one_line(source: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        from_torch(source, (torch.randn(8, 8),))
    assert "\n" not in str(caught.value)


def test_examples_of_size_one_are_explained() -> None:
    with pytest.raises(ShapeError, match="example inputs of size 2 or more are needed along symbolic dims: "):
        from_torch(lambda x: x * 2, (torch.randn(1),), dynamic_shapes=({0: Dim("n")},))


def test_other_types_are_refused() -> None:
    with pytest.raises(GraphError, match=r"input x of type torch.int8 \(allowed are float16, bfloat16, float32, "):
        from_torch(lambda x, y: x * y, (torch.zeros(4, dtype=torch.int8), torch.randn(4)))
    with pytest.raises(GraphError, match="from_torch: args is one tensor: a tuple of example inputs is expected"):
        from_torch(torch.sin, torch.randn(3))


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CleaveError, match=r"from_torch: PyTorch is not installed \(pip install cleave\[torch\]\)"):
        from_torch(many, ())


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(GraphError):
        from_torch(branch, (torch.randn(8),))
    assert capfd.readouterr() == ("", "")


def test_importing_loads_no_torch() -> None:
    program = "import sys, cleave, cleave.frontend.torch; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"
