"""PyTorch, met here and nowhere else in the frontend: torch.export, and its programs as plain data."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from sysconfig import get_paths
from traceback import format_tb
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
    _check_signature(exported, module)
    return Program(exported, sizes_of(exported, module, args, kwargs, dynamic_shapes))


def _distinct(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Example inputs, a tensor that occurs twice copied: torch.export would take both for one input."""
    import torch

    seen: set[int] = set()

    def single(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        first = id(x) not in seen
        seen.add(id(x))
        return x if first else x.detach().clone()

    return torch.utils._pytree.tree_map(single, (tuple(args), dict(kwargs)))


@contextmanager
def _quiet() -> Generator[None]:
    """No warnings, no log and no listings: what torch.export has to say is in the error that it raises."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


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
    return type(name_of(function), (torch.nn.Module,), {"forward": staticmethod(body)})().eval()


def _exported(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> Any:
    import torch

    try:
        with _quiet():
            return torch.export.export(module, tuple(args), dict(kwargs), dynamic_shapes=dynamic_shapes)
    except CleaveError:
        raise
    except Exception as error:  # torch raises many kinds
        text = str(error)
        told = _one_line(text)
        kind = ShapeError if any(words in told for words in _ABOUT_SHAPES) else GraphError
        place = _own_frame(text) or _own_frame("".join(format_tb(error.__traceback__))) or type(module).__name__
        raise kind(f"torch.export refuses it: {told}", location=place) from error


_ABOUT_SHAPES = ("Constraints violated", "dynamic_shapes", "Expected input", "Found different definitions")
_ADVICE = (
    ("Could not guard on data-dependent expression", "control flow or a size depends on values of tensors: "),
    ("specialized it to be a constant (1)", "example inputs of size 2 or more are needed along symbolic dims: "),
    ("list assignment index out of range", "dynamic_shapes names a dimension that its input does not have: "),
    ("no signature found for builtin", "a function without a signature: write lambda x: f(x). "),
)
_IDLE = re.compile(r"^(For more|For extended|For C\+\+|Caused by|consider using|File |If you suspect|- ?$)")
_LAST = ("The error above occurred", "The following call raised", "Suggested fixes")


def _one_line(text: str) -> str:
    """What is wrong, without advice on debugging; sizes as ``x.shape[0]``."""
    kept: list[str] = []
    for line in text.splitlines():
        words = re.sub(r"For more information, run.*|If you're using mark_dynamic.*|\(Size-like.*", "", line).strip(
            " -"
        )
        if words.startswith(_LAST):
            break
        if words and not _IDLE.match(words) and words not in kept:
            kept.append(words)
    told = "".join(ours for theirs, ours in _ADVICE if theirs in text) + " ".join(kept)
    return re.sub(r"L\['(\w+)'\]((?:\[[^]]*\])*)\.size\(\)", r"\1\2.shape", told)[:600] or "no reason given"


def name_of(source: Any) -> str:
    """What the graph is called: like the function, or the class of the module."""
    name = getattr(source, "__name__", None) or type(source).__name__
    if hasattr(source, "graph_signature"):
        outermost = (str(kind) for node in source.graph.nodes for path, kind in _modules(node) if not path)
        name = next((kind.rpartition(".")[2] for kind in outermost if "." in kind), "program")
    return re.sub(r"\W", "_", name).strip("_") or "graph"


def _mutates(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return bool(schema is not None and schema.is_mutable)


def _check_signature(exported: Any, module: Any) -> None:
    advice = ", which .eval() may mend" if module.training else ""
    for spec in exported.graph_signature.output_specs:
        if "MUTATION" in spec.kind.name:
            what = spec.target or getattr(spec.arg, "name", "an input")
            raise GraphError(
                f"the program changes {what} in place: a graph has no state{advice}", location=type(module).__name__
            )


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
    """The innermost line of the program outside torch; where torch kept none, the module or the node."""
    own = _own_frame(node.meta.get("stack_trace") or "")
    paths = [str(path) for path, _ in _modules(node) if path]
    return own or (f"module {paths[-1]}" if paths else f"node {node.name}")


def _modules(node: Any) -> list[tuple[Any, Any]]:
    """Paths and classes of the modules that a node is in, the outermost first."""
    stack: dict[str, tuple[Any, Any]] = node.meta.get("nn_module_stack") or {}
    return list(stack.values())


def _own_frame(text: str) -> str:
    """The innermost line outside torch that a text of frames names."""
    library = get_paths()["stdlib"]
    others = (_torch_folder(), PACKAGE, "torch/", "<frozen")
    found = [f for f in _FRAME.findall(text) if not f[0].startswith(others)]
    own = [f for f in found if not f[0].startswith(library) or "site-packages" in f[0]]
    return "".join(location_of(Path(file), int(line)) for file, line in own[-1:])


def _torch_folder() -> str:
    import torch

    return str(Path(torch.__file__).parent) + os.sep


def is_node(x: Any) -> bool:
    return type(x).__module__ == "torch.fx.node" and type(x).__name__ == "Node"


def outputs(exported: Any) -> dict[str, Any]:
    """Results by name: ``out`` of a single one, ``out0``, ``out1`` .. of a tuple, the keys of a dict; without None."""
    found = list(exported.graph_signature.user_outputs)
    spec = exported.call_spec.out_spec
    context = getattr(spec, "context", None)
    if (
        getattr(spec, "type", None) is dict
        and isinstance(context, list)
        and len(cast("list[Any]", context)) == len(found)
    ):
        return {str(k): x for k, x in zip(cast("list[Any]", context), found, strict=True) if x is not None}
    found = [x for x in found if x is not None]
    return {"out": found[0]} if len(found) == 1 else {f"out{n}": x for n, x in enumerate(found)}
