"""PyTorch, met here and nowhere else in export: a graph as a torch.fx.GraphModule of plain torch operations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import inf, nan
from typing import Any

from cleave.candidate import Candidate
from cleave.errors import GraphError
from cleave.export.builder import Size, Value, check_request
from cleave.export.lower import lower
from cleave.ir.graph import Graph, Input, Output

Function = Callable[..., Any]
_PY: Any = operator
"""Python's operators as functions, which torch.fx prints as operators."""


def to_torch(source: Graph | Candidate, *, bind: Mapping[str, int] | None = None, precision: str = "float32") -> Any:
    """A torch.fx.GraphModule that computes a graph.

    It is called with the inputs of the graph, by position or by name, and returns the outputs: one tensor, or a tuple
    in the graph's order. Dims are taken from the shapes; those that no shape gives, such as the number of chunks of a
    split, are integer arguments behind the inputs, unless ``bind`` fixes them. Everything between inputs and outputs
    is computed in ``precision`` (float64 for comparisons with the interpreter). ``.code`` is readable, torch.compile
    and torch.export take the module.

    Errors: torch is not installed, an unknown dim or precision, an operation that torch has no form for (GraphError).
    A call whose shapes break the graph's constraints fails with an AssertionError that names input, axis and extent.
    """
    check_request("torch", "PyTorch", precision)
    builder = TorchBuilder(precision)
    lower(source, builder, bind or {})
    graph = source if isinstance(source, Graph) else source.graph
    return builder.module(graph.name)


class TorchBuilder:
    """Nodes of a torch.fx.Graph; numbers that are known stay Python numbers."""

    def __init__(self, precision: str) -> None:
        import torch

        self.torch: Any = torch
        self.graph: Any = torch.fx.Graph()
        self.precision: Any = getattr(torch, precision)
        self.device: Any = None
        self.outputs: list[Any] = []
        self.first: Any = None

    def module(self, name: str) -> Any:
        self.graph.output(self.outputs[0] if len(self.outputs) == 1 else tuple(self.outputs))
        self.graph.lint()
        return self.torch.fx.GraphModule(self.torch.nn.Module(), self.graph, name)

    def call(self, function: Function, *args: Any, name: str = "", **keywords: Any) -> Value:
        return self.graph.create_node("call_function", function, args, keywords, name=name or None)

    def method(self, method: str, *args: Any, name: str = "", **keywords: Any) -> Value:
        return self.graph.create_node("call_method", method, args, keywords, name=name or None)

    def _device(self) -> dict[str, Any]:
        """Where new tensors are made: where the first input is."""
        if self.device is None and self.first is not None:
            self.device = self.call(getattr, self.first, "device", name="device")
        return {} if self.device is None else {"device": self.device}

    # ---- arguments

    def input(self, source: Input, shape: Sequence[str | int]) -> Value:
        node = self.graph.placeholder(source.name)
        self.first = node if self.first is None else self.first
        return node

    def dim(self, name: str) -> Size:
        return self.graph.placeholder(name, int)

    # ---- sizes

    def size(self, x: Value, dimension: int, name: str) -> Size:
        return self.method("size", x, dimension, name=name)

    def whole(self, op: str, a: Size, b: Size, name: str) -> Size:
        functions = {**_ARITHMETIC, "min": self.torch.sym_min, "max": self.torch.sym_max}
        return self.call(functions[op], a, b, name=name)

    def greatest(self, x: Value, name: str) -> Size:
        # One 0 more: there may be no element, and a negative extent is an empty one.
        padded = self.call(self.torch.nn.functional.pad, self.method("flatten", x), (0, 1))
        return self.method("item", self.method("amax", padded), name=name)

    def require(self, op: str, a: Size, b: Size, message: str) -> None:
        self.call(self.torch._assert, self.call(_PY.eq if op == "==" else _PY.le, a, b), message)

    # ---- integers and masks

    def arange(self, n: Size, name: str) -> Value:
        return self.call(self.torch.arange, n, **self._device(), name=name)

    def number(self, n: Size) -> Value:
        return self._full((), n, self.torch.int64)

    def _full(self, shape: Sequence[Size], value: Any, dtype: Any) -> Value:
        return self.call(self.torch.full, tuple(shape), value, dtype=dtype, **self._device())

    def integers(self, op: str, a: Value | Size, b: Value | Size) -> Value:
        functions = {**_ARITHMETIC, "min": self.torch.minimum, "max": self.torch.maximum}
        return self.call(functions[op], a, b)

    def compare(self, op: str, a: Value | Size, b: Value | Size) -> Value:
        return self.call({"<": _PY.lt, "<=": _PY.le, "==": _PY.eq}[op], a, b)

    def logic(self, op: str, *masks: Value) -> Value:
        return self.call({"and": _PY.and_, "or": _PY.or_, "not": _PY.invert}[op], *masks)

    def to_real(self, x: Value) -> Value:
        return self.method("to", x, self.precision)

    def inside(self, i: Value, n: Size, valid: Value | None, message: str) -> Value:
        if valid is not None:
            i = self.call(self.torch.where, valid, i, 0)
        within = self.call(_PY.and_, self.call(_PY.ge, i, 0), self.call(_PY.lt, i, n))
        self.call(self.torch._assert, self.method("all", within), message)
        return i

    # ---- layout

    def unsqueeze(self, x: Value, dimensions: Sequence[int]) -> Value:
        x = self._array(x)
        for dimension in dimensions:
            x = self.method("unsqueeze", x, dimension)
        return x

    def permute(self, x: Value, order: Sequence[int]) -> Value:
        return self.method("permute", x, *order)

    def select(self, x: Value, dimension: int, position: Size) -> Value:
        return self.method("select", x, dimension, position)

    def narrow(self, x: Value, dimension: int, start: Size, length: Size) -> Value:
        return self.method("narrow", x, dimension, start, length)

    def reshape(self, x: Value, shape: Sequence[Size]) -> Value:
        return self.method("reshape", x, tuple(shape))

    def expand(self, x: Value, shape: Sequence[Size]) -> Value:
        return self.method("expand", self._array(x), *shape)

    def pad(self, x: Value, dimension: int, rank: int, value: float) -> Value:
        widths = (0, 0) * (rank - 1 - dimension) + (0, 1)
        return self.call(self.torch.nn.functional.pad, x, widths, value=value)

    def gather(self, x: Value, indices: Sequence[Value]) -> Value:
        return self.call(_PY.getitem, x, tuple(indices))

    # ---- numbers

    def constant(self, value: float) -> Value:
        return value

    def _array(self, x: Value) -> Value:
        return self._full((), x, self.precision) if isinstance(x, float) else x

    def map(self, op: str, args: Sequence[Value], name: str) -> Value:
        # Numbers may stay numbers beside an array in arithmetic; every other operation takes arrays.
        plain = op in _PYTHON and not all(isinstance(a, float) for a in args)
        operands = list(args) if plain else [self._array(a) for a in args]
        if op == "exp_diff":
            exponential = self.call(self.torch.exp, self.call(_PY.sub, *operands))
            return self.call(self.torch.where, self.call(_PY.eq, operands[0], -inf), 0.0, exponential, name=name)
        if op == "recip0":
            inverse = self.call(self.torch.reciprocal, *operands)
            return self.call(self.torch.where, self.call(_PY.eq, operands[0], 0), 0.0, inverse, name=name)
        return self.call(self._function(op), *operands, name=name)

    def _function(self, op: str) -> Function:
        if op in _PYTHON:
            return _PYTHON[op]
        if op == "silu":
            return self.torch.nn.functional.silu
        if op not in _TORCH:
            raise GraphError(f"operation {op} has no form in torch", location="to_torch")
        return getattr(self.torch, _TORCH[op])

    def where(self, mask: Value, a: Value, b: Value, name: str) -> Value:
        if isinstance(a, float) and isinstance(b, float):
            a = self._array(a)
        return self.call(self.torch.where, mask, a, b, name=name)

    def round_to(self, x: Value, dtype: str) -> Value:
        return self.method("to", self.method("to", self._array(x), getattr(self.torch, dtype)), self.precision)

    def reduce(self, op: str, x: Value, dimension: int, name: str) -> Value:
        if op not in _REDUCTIONS:
            raise GraphError(f"reduction {op} has no form in torch", location="to_torch")
        return self.method(_REDUCTIONS[op], x, dimension, name=name)

    def einsum(self, equation: str, factors: Sequence[Value], name: str) -> Value:
        return self.call(self.torch.einsum, equation, *factors, name=name)

    # ---- results

    def scatter(self, shape: Sequence[Size], indices: Sequence[Value], x: Value, valid: Value | None) -> Value:
        out = self._full(shape, nan, self.precision)
        if valid is not None:
            indices = [self.call(_PY.getitem, i, valid) for i in indices]
            x = self.call(_PY.getitem, x, valid)
        return self.method("index_put", out, tuple(indices), x)

    def store(self, x: Value, target: Output, shape: Sequence[str | int]) -> None:
        dtype = getattr(self.torch, target.dtype)
        self.outputs.append(self.method("to", self._array(x), dtype, name=target.name))


_ARITHMETIC: dict[str, Function] = {"+": _PY.add, "-": _PY.sub, "*": _PY.mul, "//": _PY.floordiv, "%": _PY.mod}
_PYTHON: dict[str, Function] = {"add": _PY.add, "sub": _PY.sub, "mul": _PY.mul, "neg": _PY.neg}
_TORCH = {
    "maximum": "maximum",
    "minimum": "minimum",
    "abs": "abs",
    "round": "round",
    "sq": "square",
    "exp": "exp",
    "log": "log",
    "recip": "reciprocal",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}
_REDUCTIONS = {"sum": "sum", "max": "amax", "min": "amin"}
