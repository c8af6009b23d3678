"""ONNX, met here and nowhere else: a graph as a model of standard operators, with symbolic dims as dim_param."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, nan
from typing import Any

from cleave.candidate import Candidate
from cleave.errors import GraphError
from cleave.export.builder import Size, Value, check_request
from cleave.export.lower import lower
from cleave.ir.graph import Graph, Input, Output
from cleave.ir.op import INTEGERS

OPSET = 18
IR_VERSION = 10
"""Of 2024: what runtimes of the last years read."""


def to_onnx(source: Graph | Candidate, *, bind: Mapping[str, int] | None = None, precision: str = "float32") -> Any:
    """An onnx.ModelProto that computes a graph.

    Inputs and outputs are those of the graph, under their names and with their dims. Dims are taken from the shapes;
    those that no shape gives, such as the number of chunks of a split, are int64 scalars behind the inputs, unless
    ``bind`` fixes them. Everything between inputs and outputs is computed in ``precision``; runtimes on the CPU know
    float32 and float64.

    ONNX has no assertions: that extents agree is left to the runtime, but positions read from integer inputs that lie
    outside their array are out of bounds in the model, too.

    Errors: onnx is not installed, an unknown dim or precision, an operation that has no form (GraphError).
    """
    check_request("onnx", "onnx", precision)
    builder = OnnxBuilder(precision)
    lower(source, builder, bind or {})
    graph = source if isinstance(source, Graph) else source.graph
    return builder.model(graph.name)


class OnnxBuilder:
    """Nodes of an ONNX graph; a value is its name, a size an int or the name of a 0-d int64 tensor."""

    def __init__(self, precision: str) -> None:
        import onnx

        self.onnx: Any = onnx
        self.precision = precision
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.initializers: dict[tuple[str, Any], Any] = {}
        self.taken: set[str] = set()

    def model(self, name: str) -> Any:
        helper = self.onnx.helper
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, list(self.initializers.values()))
        versions = [helper.make_opsetid("", OPSET)]
        made = helper.make_model(graph, producer_name="cleave", opset_imports=versions, ir_version=IR_VERSION)
        self.onnx.checker.check_model(made)
        return made

    # ---- nodes

    def _type(self, dtype: str) -> int:
        names = {"float32": "FLOAT", "float64": "DOUBLE"}
        return int(getattr(self.onnx.TensorProto, names.get(dtype, dtype.upper())))

    def _name(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name

    def node(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        out = self._name(name or op.lower())
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), [out], name=out, **attributes))
        return out

    def tensor(self, values: Any, dtype: str) -> str:
        """A constant; equal ones are one."""
        import numpy as np

        array = np.asarray(values, dtype=dtype)
        key = (dtype, (array.shape, array.tobytes()))
        if key not in self.initializers:
            name = self._name(f"c{len(self.initializers)}")
            self.initializers[key] = self.onnx.numpy_helper.from_array(array, name)
        return str(self.initializers[key].name)

    def _whole(self, n: Size) -> str:
        return self.tensor(n, "int64") if isinstance(n, int) else str(n)

    def _vector(self, sizes: Sequence[Size]) -> str:
        """Sizes as one int64 tensor, such as a shape."""
        if all(isinstance(n, int) for n in sizes):
            return self.tensor(list(sizes), "int64")
        parts = [self.node("Unsqueeze", self._whole(n), self.tensor([0], "int64")) for n in sizes]
        return self.node("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    # ---- arguments

    def input(self, source: Input, shape: Sequence[str | int]) -> Value:
        name = self._name(source.name)
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, self._type(source.dtype), list(shape)))
        return self._cast(name, "int64") if source.dtype in INTEGERS - {"int64"} else name

    def dim(self, name: str) -> Size:
        unique = self._name(name)
        self.inputs.append(self.onnx.helper.make_tensor_value_info(unique, self._type("int64"), []))
        return unique

    # ---- sizes

    def size(self, x: Value, dimension: int, name: str) -> Size:
        shape = self.node("Shape", x, start=dimension, end=dimension + 1)
        return self.node("Squeeze", shape, self.tensor([0], "int64"), name=name)

    def whole(self, op: str, a: Size, b: Size, name: str) -> Size:
        return self._integers(op, self._whole(a), self._whole(b), name)

    def _integers(self, op: str, a: str, b: str, name: str = "") -> str:
        if op == "//":
            # Div rounds towards 0: a − mod(a, b) is a multiple of b, whose sign the remainder has.
            return self.node("Div", self.node("Sub", a, self.node("Mod", a, b)), b, name=name)
        return self.node(_INTEGER[op], a, b, name=name)

    def greatest(self, x: Value, name: str) -> Size:
        flat = self.node("Reshape", x, self.tensor([-1], "int64"))
        padded = self.node("Concat", flat, self.tensor([0], "int64"), axis=0)
        return self.node("ReduceMax", padded, keepdims=0, name=name)

    def require(self, op: str, a: Size, b: Size, message: str) -> None:
        """Nothing: the extents in the model's signature say it."""

    # ---- integers and masks

    def arange(self, n: Size, name: str) -> Value:
        return self.node("Range", self._whole(0), self._whole(n), self._whole(1), name=name)

    def number(self, n: Size) -> Value:
        return self._whole(n)

    def integers(self, op: str, a: Value | Size, b: Value | Size) -> Value:
        return self._integers(op, self._whole(a), self._whole(b))

    def compare(self, op: str, a: Value | Size, b: Value | Size) -> Value:
        return self.node({"<": "Less", "<=": "LessOrEqual", "==": "Equal"}[op], self._whole(a), self._whole(b))

    def logic(self, op: str, *masks: Value) -> Value:
        return self.node({"and": "And", "or": "Or", "not": "Not"}[op], *masks)

    def _cast(self, x: str, dtype: str, name: str = "") -> str:
        return self.node("Cast", x, to=self._type(dtype), name=name)

    def to_real(self, x: Value) -> Value:
        return self._cast(x, self.precision)

    def inside(self, i: Value, n: Size, valid: Value | None, message: str) -> Value:
        # A negative index would count from the end: n itself is outside.
        below = self.node("Less", i, self._whole(0))
        i = self.node("Where", below, self._whole(n), i)
        return i if valid is None else self.node("Where", valid, i, self._whole(0))

    # ---- layout

    def unsqueeze(self, x: Value, dimensions: Sequence[int]) -> Value:
        return self.node("Unsqueeze", x, self.tensor(list(dimensions), "int64"))

    def permute(self, x: Value, order: Sequence[int]) -> Value:
        return self.node("Transpose", x, perm=list(order))

    def select(self, x: Value, dimension: int, position: Size) -> Value:
        return self.node("Gather", x, self._whole(position), axis=dimension)

    def narrow(self, x: Value, dimension: int, start: Size, length: Size) -> Value:
        end = self.whole("+", start, length, "")
        axis = self.tensor([dimension], "int64")
        return self.node("Slice", x, self._vector([start]), self._vector([end]), axis)

    def reshape(self, x: Value, shape: Sequence[Size]) -> Value:
        return self.node("Reshape", x, self._vector(shape), allowzero=1)

    def expand(self, x: Value, shape: Sequence[Size]) -> Value:
        return self.node("Expand", x, self._vector(shape))

    def pad(self, x: Value, dimension: int, rank: int, value: float) -> Value:
        shape = [1 if k == dimension else self.size(x, k, "") for k in range(rank)]
        return self.node("Concat", x, self.expand(self.constant(value), shape), axis=dimension)

    def gather(self, x: Value, indices: Sequence[Value]) -> Value:
        return self.node("GatherND", x, self._points(indices))

    def _points(self, indices: Sequence[Value]) -> str:
        """Index arrays that broadcast as one array of points."""
        shape: str | None = None
        if len(indices) > 1:
            total = indices[0]
            for i in indices[1:]:
                total = self.node("Add", total, i)
            shape = self.node("Shape", total)
        last = self.tensor([-1], "int64")
        parts = [self.node("Unsqueeze", i if shape is None else self.node("Expand", i, shape), last) for i in indices]
        return self.node("Concat", *parts, axis=-1) if len(parts) > 1 else parts[0]

    # ---- numbers

    def constant(self, value: float) -> Value:
        if self.precision == "bfloat16":
            return self._cast(self.tensor(value, "float32"), self.precision)
        return self.tensor(value, self.precision)

    def map(self, op: str, args: Sequence[Value], name: str) -> Value:
        match op:
            case "sq":
                return self.node("Mul", args[0], args[0], name=name)
            case "rsqrt":
                return self.node("Reciprocal", self.node("Sqrt", args[0]), name=name)
            case "silu":
                return self.node("Mul", args[0], self.node("Sigmoid", args[0]), name=name)
            case "exp_diff":
                hidden = self.node("Equal", args[0], self.constant(-inf))
                exponential = self.node("Exp", self.node("Sub", *args))
                return self.node("Where", hidden, self.constant(0.0), exponential, name=name)
            case "recip0":
                zero = self.node("Equal", args[0], self.constant(0.0))
                return self.node("Where", zero, self.constant(0.0), self.node("Reciprocal", args[0]), name=name)
            case _ if op in _MAPS:
                return self.node(_MAPS[op], *args, name=name)
            case _:
                raise GraphError(f"operation {op} has no form in ONNX", location="to_onnx")

    def where(self, mask: Value, a: Value, b: Value, name: str) -> Value:
        return self.node("Where", mask, a, b, name=name)

    def round_to(self, x: Value, dtype: str) -> Value:
        return self._cast(self._cast(x, dtype), self.precision)

    def reduce(self, op: str, x: Value, dimension: int, name: str) -> Value:
        if op not in _REDUCTIONS:
            raise GraphError(f"reduction {op} has no form in ONNX", location="to_onnx")
        return self.node(_REDUCTIONS[op], x, self.tensor([dimension], "int64"), keepdims=0, name=name)

    def einsum(self, equation: str, factors: Sequence[Value], name: str) -> Value:
        return self.node("Einsum", *factors, equation=equation, name=name)

    # ---- results

    def scatter(self, shape: Sequence[Size], indices: Sequence[Value], x: Value, valid: Value | None) -> Value:
        out = self.expand(self.constant(nan), shape)
        flat = self.tensor([-1], "int64")
        points = self.node("Reshape", self._points(indices), self.tensor([-1, len(indices)], "int64"))
        values = self.node("Reshape", x, flat)
        if valid is not None:
            kept = self.node("Reshape", valid, flat)
            points = self.node("Compress", points, kept, axis=0)
            values = self.node("Compress", values, kept, axis=0)
        return self.node("ScatterND", out, points, values)

    def store(self, x: Value, target: Output, shape: Sequence[str | int]) -> None:
        name = self._cast(x, target.dtype, target.name)
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, self._type(target.dtype), list(shape)))


_INTEGER = {"+": "Add", "-": "Sub", "*": "Mul", "%": "Mod", "min": "Min", "max": "Max"}
_MAPS = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "maximum": "Max",
    "minimum": "Min",
    "neg": "Neg",
    "abs": "Abs",
    "round": "Round",
    "exp": "Exp",
    "log": "Log",
    "recip": "Reciprocal",
    "sqrt": "Sqrt",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
}
_REDUCTIONS = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin"}
