"""PyTorch, met here and nowhere else in the frontend: torch.export, and its programs as plain data."""

from __future__ import annotations

import importlib.util
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from cleave.errors import CleaveError, GraphError, ShapeError, location_of
from cleave.frontend.context import PACKAGE
from cleave.ir.dim import Dim
from cleave.ir.index import Symbol, index, maximum, minimum, of
from cleave.ir.op import DTYPES


@dataclass(frozen=True)
class Kind:
    """Shape and type of a tensor."""

    shape: tuple[Dim, ...]
    storage: str


@dataclass(frozen=True)
class Argument:
    """An input of the program: its name, where a parameter comes from (None for what a caller passes), its value."""

    node: Any
    name: str
    kind: Kind
    value: Any = None


@dataclass
class Program:
    """An ExportedProgram read into what the importer needs. ``dims``: names and facts of the symbols."""

    exported: Any
    dims: dict[str, Dim] = field(default_factory=dict[str, Dim])

    @property
    def nodes(self) -> Sequence[Any]:
        return list(self.exported.graph.nodes)


def is_installed() -> bool:
    return importlib.util.find_spec("torch") is not None


def program_of(source: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> Program:
    """The program of a function, a module (an fx.GraphModule is one) or an ExportedProgram.

    Errors: whatever torch.export refuses, contradictory dims among it, in one line (ShapeError, GraphError).
    """
    import torch

    if isinstance(source, torch.export.ExportedProgram):
        exported: Any = source
        args, kwargs = exported.example_inputs or (args, kwargs)
    else:
        module = source if isinstance(source, torch.nn.Module) else _module(source)
        exported = _quietly(lambda: _exported(module, args, kwargs, dynamic_shapes))
    if any(_mutates(node) for node in exported.graph.nodes):
        exported = _quietly(lambda: exported.run_decompositions({}))
    _check_signature(exported)
    return Program(exported, _dims(exported, args, kwargs, dynamic_shapes))


def _quietly(action: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return action()


def _module(function: Callable[..., Any]) -> Any:
    """A function as a module: torch.export takes nothing else.

    It keeps lines of code only for frames that are called forward, so a plain function is given that name.
    """
    import torch

    body = function
    if isinstance(function, FunctionType):
        code = function.__code__.replace(co_name="forward")
        body = FunctionType(code, function.__globals__, "forward", function.__defaults__, function.__closure__)
        body.__kwdefaults__ = function.__kwdefaults__
    return type(name_of(function), (torch.nn.Module,), {"forward": staticmethod(body)})()


def _exported(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> Any:
    import torch

    try:
        return torch.export.export(module, tuple(args), dict(kwargs), dynamic_shapes=dynamic_shapes)
    except CleaveError:
        raise
    except Exception as error:  # torch raises many kinds
        text = str(error)
        kind = ShapeError if "Constraints violated" in text or "dynamic_shapes" in text else GraphError
        raise kind(f"torch.export refuses it: {_one_line(text)}", location=type(module).__name__) from error


def _one_line(text: str) -> str:
    """What is wrong, without advice on debugging."""
    kept: list[str] = []
    for line in text.splitlines():
        if line.startswith("The error above occurred"):
            break
        words = re.sub(r"For more information[^.]*?(?:\.|$)(?:\S*$)?", "", line).strip(" -")
        if words:
            kept.append(words)
    return " ".join(kept)[:600] or "no reason given"


def name_of(source: Any) -> str:
    """What the graph is called."""
    name = getattr(source, "__name__", None) or type(source).__name__
    return re.sub(r"\W", "_", name).strip("_") or "graph"


def _mutates(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return bool(schema is not None and schema.is_mutable)


def _check_signature(exported: Any) -> None:
    for spec in exported.graph_signature.output_specs:
        if "MUTATION" in spec.kind.name:
            what = spec.target or getattr(spec.arg, "name", "an input")
            raise GraphError(f"the program changes {what} in place: a graph has no state", location="from_torch")


# ---- dims


def _dims(exported: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> dict[str, Dim]:
    """The dim of each symbol of torch: called as the caller's Dim is, with its range."""
    named: dict[str, Any] = {}
    if dynamic_shapes is not None:
        sizes = [n.meta.get("val") for n in exported.graph.nodes if n.name in exported.graph_signature.user_inputs]
        for value, wanted in zip(sizes, _leaves((tuple(args), dict(kwargs)), dynamic_shapes), strict=False):
            for number, declared in _per_dimension(wanted):
                _name_symbols(value, number, declared, named)
    out: dict[str, Dim] = {}
    for symbol, limits in exported.range_constraints.items():
        out[str(symbol)] = _dim(str(symbol), limits, named.get(str(symbol)))
    return out


def _name_symbols(value: Any, number: int, declared: Any, named: dict[str, Any]) -> None:
    root = getattr(declared, "root", declared)
    size = value.shape[number] if hasattr(value, "shape") and number < len(value.shape) else None
    symbols = getattr(getattr(getattr(size, "node", None), "expr", None), "free_symbols", ())
    if hasattr(root, "__name__") and hasattr(root, "min") and len(symbols) == 1:
        named[str(next(iter(symbols)))] = root


def _dim(name: str, limits: Any, declared: Any) -> Dim:
    """torch reserves 0 and 1 where nothing was declared: that is its way of tracing, and no fact."""
    low, high = _bound(limits.lower), _bound(limits.upper)
    minimum_size = low if low is not None and low > 2 else 0
    if declared is not None:
        name = str(declared.__name__)
        minimum_size = max(int(declared.min), minimum_size)
    return of(Symbol(re.sub(r"\W", "_", name), minimum_size, high))


def _bound(limit: Any) -> int | None:
    try:
        value = int(limit)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    return value if abs(value) < 2**60 else None


def _leaves(given: tuple[Sequence[Any], Mapping[str, Any]], shapes: Any) -> Iterator[Any]:
    """What ``dynamic_shapes`` says of each tensor, in the order of the tensors."""
    values = [*given[0], *given[1].values()]
    yield from _paired(values, list(_mapping(shapes).values()) if isinstance(shapes, Mapping) else shapes)


def _paired(value: Any, spec: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        inner = _sequence(value)
        for v, s in zip(inner, _sequence(spec) if spec is not None else [None] * len(inner), strict=False):
            yield from _paired(v, s)
    elif isinstance(value, Mapping):
        for k, v in _mapping(value).items():
            yield from _paired(v, _mapping(spec).get(k) if spec is not None else None)
    else:
        yield spec


def _per_dimension(spec: Any) -> list[tuple[int, Any]]:
    if isinstance(spec, Mapping):
        return [(int(k), v) for k, v in _mapping(spec).items()]
    return [] if spec is None else list(enumerate(_sequence(spec)))


def _sequence(x: Any) -> list[Any]:
    return list(cast("Sequence[Any]", x))


def _mapping(x: Any) -> Mapping[Any, Any]:
    return cast("Mapping[Any, Any]", x)


_BINARY: dict[str, Callable[[Dim, Dim], Dim]] = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "Max": maximum,
    "Min": minimum,
}


def dim_of(size: Any, dims: Mapping[str, Dim]) -> Dim:
    """A size of torch: an integer or an expression over its symbols."""
    if isinstance(size, int):
        return index(size)
    expression = getattr(getattr(size, "node", None), "expr", size)
    return _expression(expression, dims)


def _expression(e: Any, dims: Mapping[str, Dim]) -> Dim:
    if e.is_Integer:
        return index(int(e))
    if e.is_Symbol:
        return dims[str(e)] if str(e) in dims else of(Symbol(str(e)))
    kind = type(e).__name__
    parts = [_expression(a, dims) for a in e.args]
    if kind == "Pow" and e.args[1].is_Integer and int(e.args[1]) > 0:
        return reduce(lambda a, b: a * b, [parts[0]] * int(e.args[1]))
    if kind not in _BINARY:
        raise GraphError(f"a size {e}: sums, products, quotients and remainders of dims are known")
    return reduce(_BINARY[kind], parts)


# ---- nodes


def arguments(program: Program) -> list[Argument]:
    """Inputs in order, those that a caller passes first, then parameters, buffers and constants under their paths."""
    exported = program.exported
    specs = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}
    passed: list[Argument] = []
    own: list[Argument] = []
    for node in exported.graph.nodes:
        if node.op != "placeholder":
            continue
        spec = specs[node.name]
        value = node.meta.get("val")
        if spec.target is None:
            if hasattr(value, "shape"):
                passed.append(Argument(node, node.name, kind_of(value, program.dims)))
            continue
        kept = exported.state_dict.get(spec.target, exported.constants.get(spec.target))
        own.append(Argument(node, spec.target, kind_of(value, program.dims), kept))
    return [*passed, *own]


def kind_of(value: Any, dims: Mapping[str, Dim]) -> Kind:
    return Kind(tuple(dim_of(n, dims) for n in value.shape), storage_of(value.dtype))


def storage_of(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    return name if name in DTYPES else f"torch.{name}"


def operator_of(node: Any) -> str:
    """``aten.add.Tensor``, ``operator.getitem``."""
    target = node.target
    if hasattr(target, "_schema"):
        return str(target)
    module = getattr(target, "__module__", "").removeprefix("_")
    return f"{module}.{getattr(target, '__name__', target)}"


def given_arguments(node: Any) -> dict[str, Any]:
    """Arguments of an operator by the names in its schema."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {str(n): a for n, a in enumerate(node.args)} | dict(node.kwargs)
    names = [a.name for a in schema.arguments]
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def location(node: Any) -> str:
    """The innermost line of the program outside torch, as far as torch keeps frames; "" if none is known."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if not f[0].startswith((_torch_folder(), PACKAGE, "torch/"))]
    chosen = (own or frames)[-1:]
    return "".join(location_of(Path(file), int(line)) for file, line in chosen)


def _torch_folder() -> str:
    import torch

    return str(Path(torch.__file__).parent) + os.sep


def is_node(x: Any) -> bool:
    return type(x).__module__ == "torch.fx.node" and type(x).__name__ == "Node"


def output_names(exported: Any) -> list[str]:
    """``out`` of a single tensor, ``out0``, ``out1`` .. of a tuple, the keys of a dict."""
    count = len(exported.graph_signature.user_outputs)
    spec = exported.call_spec.out_spec
    context = getattr(spec, "context", None)
    if getattr(spec, "type", None) is dict and isinstance(context, list) and len(cast("list[Any]", context)) == count:
        return [str(k) for k in cast("list[Any]", context)]
    if count == 1:
        return ["out"]
    return [f"out{n}" for n in range(count)]
