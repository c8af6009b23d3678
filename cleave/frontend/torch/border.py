"""PyTorch, met here and nowhere else in the frontend: torch.export, and its programs as plain data."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from cleave.errors import CleaveError, GraphError, ShapeError, location_of
from cleave.frontend.context import PACKAGE
from cleave.frontend.torch.sizes import Sizes, sizes_of
from cleave.ir.dim import Dim
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
    """An ExportedProgram read into what the importer needs."""

    exported: Any
    sizes: Sizes

    @property
    def nodes(self) -> Sequence[Any]:
        return list(self.exported.graph.nodes)

    def kind_of(self, value: Any) -> Kind:
        return Kind(tuple(map(self.sizes.dim_of, value.shape)), storage_of(value.dtype))


def is_installed() -> bool:
    return importlib.util.find_spec("torch") is not None


def program_of(source: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> Program:
    """The program of a function, a module (an fx.GraphModule is one) or an ExportedProgram.

    Errors: whatever torch.export refuses, contradictory dims among it, in one line (ShapeError, GraphError); a program
    that changes its inputs or buffers.
    """
    import torch

    if isinstance(source, torch.export.ExportedProgram):
        exported: Any = source
        module = exported.module()
        args, kwargs = exported.example_inputs or (args, kwargs)
    else:
        module = source if isinstance(source, torch.nn.Module) else _module(source)
        args, kwargs = _distinct(args, kwargs)
        exported = _exported(module, args, kwargs, dynamic_shapes)
    if any(_mutates(node) for node in exported.graph.nodes):
        with _quiet():
            exported = exported.run_decompositions({})
    _check_signature(exported)
    return Program(exported, sizes_of(exported, module, args, kwargs, dynamic_shapes))


def _distinct(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Example inputs, a tensor that occurs twice copied: torch.export would take both for one input."""
    import torch
    from torch.utils import _pytree

    seen: set[int] = set()

    def single(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        first = id(x) not in seen
        seen.add(id(x))
        return x if first else x.detach().clone()

    return _pytree.tree_map(single, (tuple(args), dict(kwargs)))


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings, no log and no listings: what torch.export has to say is in the error that it raises."""
    handlers = logging.getLogger("torch").handlers
    levels = [handler.level for handler in handlers]
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        try:
            for handler in handlers:
                handler.setLevel(logging.CRITICAL + 1)
            yield
        finally:
            for handler, level in zip(handlers, levels, strict=True):
                handler.setLevel(level)


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
        with _quiet():
            return torch.export.export(module, tuple(args), dict(kwargs), dynamic_shapes=dynamic_shapes)
    except CleaveError:
        raise
    except Exception as error:  # torch raises many kinds
        text = str(error)
        kind = ShapeError if any(words in text for words in _ABOUT_SHAPES) else GraphError
        place = _own_frame(text) or type(module).__name__
        raise kind(f"torch.export refuses it: {_one_line(text)}", location=place) from error


_ABOUT_SHAPES = ("Constraints violated", "dynamic_shapes", "Expected input", "Found different definitions")
_IDLE = re.compile(r"^(For more|For extended|For C\+\+|Caused by|consider using|The following call|File |\(Size-like)")


def _one_line(text: str) -> str:
    """What is wrong, without advice on debugging."""
    kept: list[str] = []
    for line in text.splitlines():
        words = re.sub(r"For more information.*", "", line).strip(" -")
        if words.startswith(("The error above occurred", "The following call raised")):
            break
        if words and not _IDLE.match(words):
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
                passed.append(Argument(node, node.name, program.kind_of(value)))
            continue
        kept = exported.state_dict.get(spec.target, exported.constants.get(spec.target))
        own.append(Argument(node, spec.target, program.kind_of(value), kept))
    return [*passed, *own]


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
    """Arguments of an operator by the names in its schema, defaults among them."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {str(n): a for n, a in enumerate(node.args)} | dict(node.kwargs)
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    names = [a.name for a in schema.arguments]
    return defaults | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def location(node: Any) -> str:
    """The innermost line of the program outside torch, as far as torch keeps frames; "" if none is known."""
    text = node.meta.get("stack_trace") or ""
    return _own_frame(text) or "".join(location_of(Path(file), int(line)) for file, line in _FRAME.findall(text)[-1:])


def _own_frame(text: str) -> str:
    """The innermost line outside torch that a text of frames names."""
    own = [f for f in _FRAME.findall(text) if not f[0].startswith((_torch_folder(), PACKAGE, "torch/"))]
    return "".join(location_of(Path(file), int(line)) for file, line in own[-1:])


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
