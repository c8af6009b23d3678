"""From an exported program to a graph: nodes in order, everything that is not supported collected."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from cleave.errors import CleaveError, GraphError
from cleave.frontend.context import CURRENT, Trace, current
from cleave.frontend.spec import merged_extent, merged_position
from cleave.frontend.tensor import Tensor, Value, term
from cleave.frontend.torch import border
from cleave.frontend.torch.array import Array, new_axes
from cleave.frontend.torch.aten import HANDLERS, Call, name_of
from cleave.ir.check import MOST_NESTED, check_nesting
from cleave.ir.dim import Dim, is_name
from cleave.ir.graph import Cast, Graph, IndexValue, Input, Load, Output, Where, graph, walk
from cleave.ir.index import BoolRead, Read, of, symbols_of
from cleave.ir.op import DTYPES, FLOATS, INTEGERS

_SILENT = {"_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size"}
"""Operators that check sizes and types: what they say is in the sizes and types themselves."""


@dataclass
class Conversion:
    """``values``: of nodes, by name; a node that failed has none. ``failures``: (what, where)."""

    name: str
    program: border.Program
    rounding: bool
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    failures: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def convert(program: border.Program, name: str, *, rounding: bool) -> tuple[Graph, dict[str, Any]]:
    """The graph of a program, and the values of its parameters, buffers and constants by their input's name.

    Errors: everything that is not supported, at once (GraphError).
    """
    token = CURRENT.set(Trace(_by_name(program.sizes.dims.values()), {}, "float32"))
    try:
        return _converted(program, name, rounding=rounding)
    except RecursionError:
        what = f"too many operations in one another: allowed are {MOST_NESTED}"
        raise GraphError(f"{what}, so a longer program is several graphs", location=name) from None
    finally:
        CURRENT.reset(token)


def _converted(program: border.Program, name: str, *, rounding: bool) -> tuple[Graph, dict[str, Any]]:
    state = Conversion(name, program, rounding)
    inputs: list[Input] = []
    values: dict[str, Any] = {}
    used = _names(program)
    for argument in border.arguments(program):
        if argument.value is not None and not argument.node.users:
            continue
        made = _input(state, argument, used)
        inputs.append(made)
        if argument.value is not None:
            values[made.name] = argument.value
    for node in program.nodes:
        if node.op == "call_function":
            _node(state, node)
    if state.failures:
        raise _refusal(state)
    conditions = dict.fromkeys([*program.sizes.constraints, *current().conditions])
    outputs = _outputs(state)
    check_nesting(name, outputs)
    return graph(name, inputs, outputs, tuple(conditions)), values


def _names(program: border.Program) -> set[str]:
    return {*border.outputs(program.exported), *_by_name(program.sizes.dims.values())}


def _by_name(sizes: Iterable[Dim]) -> dict[str, Dim]:
    return {s.name: of(s) for size in sizes for s in symbols_of(size)}


def _input(state: Conversion, argument: border.Argument, used: set[str]) -> Input:
    kind = argument.kind
    name = _unused(re.sub(r"\W", "_", argument.name), used)
    if kind.storage not in DTYPES:
        allowed = ", ".join(DTYPES)
        state.failures.append((f"input {argument.name} of type {kind.storage} (allowed are {allowed})", ""))
        return Input(name, "float32", ())
    dims = tuple(map(new_axes, kind.shape))
    indices = tuple(map(merged_position, dims))
    value: Value
    if kind.storage == "bool":
        value = BoolRead(name, indices)
    elif kind.storage in INTEGERS:
        value = of(Read(name, indices))
    else:
        value = Load(name, indices)
    state.values[argument.node.name] = Array(value, dims, kind.storage)
    return Input(name, kind.storage, kind.shape)


def _unused(name: str, used: set[str]) -> str:
    name = name if is_name(name) and not keyword.iskeyword(name) else f"input_{name}"
    found, number = name, 1
    while found in used:
        number += 1
        found = f"{name}_{number}"
    used.add(found)
    return found


# ---- nodes


def _node(state: Conversion, node: Any) -> None:
    operator = border.operator_of(node)
    if name_of(operator) in _SILENT:
        return
    try:
        made = _made(state, node, operator)
        if made is not None:
            state.values[node.name] = made
    except _MissingError:
        return  # what it needs has failed before
    except CleaveError as error:
        what = f"{operator} ({error.message})" if error.message else operator
        state.failures.append((what, border.location(node)))


def _made(state: Conversion, node: Any, operator: str) -> Any:
    """What an operator gives; None for a size, which is read off where it is used."""
    meta = node.meta.get("val")
    given = border.given_arguments(node)
    if operator.endswith("operator.getitem"):
        return _item(state, *given.values(), used=bool(node.users))
    if not _is_tensors(meta) and meta is not None:
        for x in given.values():
            _resolved(state, x)
        state.program.sizes.check(meta)
        return None
    handler = HANDLERS.get(name_of(operator))
    if handler is None:
        raise GraphError("")
    arguments = {k: _resolved(state, v) for k, v in given.items()}
    return handler(Call(arguments, [state.program.kind_of(v) for v in _tensors(meta)], state.rounding))


class _MissingError(Exception):
    """An operand that could not be converted."""


def _is_tensors(meta: Any) -> bool:
    return bool(_tensors(meta))


def _tensors(meta: Any) -> list[Any]:
    found = list(cast("Sequence[Any]", meta)) if isinstance(meta, (list, tuple)) else [meta]
    return [v for v in found if hasattr(v, "shape") and hasattr(v, "dtype")]


def _item(state: Conversion, source: Any, number: int, *, used: bool) -> Any:
    """One of several results; an operator may leave out one that nothing uses."""
    found = _resolved(state, source)[number]
    if found is None and used:
        raise GraphError(f"result {number} of {border.operator_of(source)}")
    return found


def _resolved(state: Conversion, x: Any) -> Any:
    """Arguments of an operator: nodes as arrays or dims, lists of them likewise."""
    if border.is_node(x):
        meta = x.meta.get("val")
        if x.name in state.values:
            return state.values[x.name]
        if meta is None or _is_tensors(meta):
            raise _MissingError
        try:
            return state.program.sizes.dim_of(meta)
        except GraphError:
            raise _MissingError from None  # said where it comes from
    if isinstance(x, (list, tuple)):
        return [_resolved(state, item) for item in cast("Sequence[Any]", x)]
    return x


# ---- results


def _refusal(state: Conversion) -> GraphError:
    """Every failure with its lines, in order of first occurrence."""
    places: dict[str, list[str]] = {}
    for what, where in state.failures:
        lines = places.setdefault(what, [])
        if where and where not in lines:
            lines.append(where)
    listed = "; ".join(f"{what} at {', '.join(lines)}" if lines else what for what, lines in places.items())
    return GraphError(f"not supported: {listed}", location=state.name)


def _outputs(state: Conversion) -> list[Output]:
    nodes = {n.name: n for n in state.program.nodes}
    found = border.outputs(state.program.exported)
    if not found:
        raise GraphError("the program returns nothing", location=state.name)
    return [_output(state, name, source, nodes) for name, source in found.items()]


def _output(state: Conversion, name: str, source: Any, nodes: Mapping[str, Any]) -> Output:
    array = state.values.get(source) if source in nodes else None
    if not isinstance(array, Array):
        raise GraphError(f"output {name} is {source!r}, no tensor", location=state.name)
    storage = state.program.kind_of(nodes[source].meta["val"]).storage
    if storage not in FLOATS:
        raise GraphError(f"output {name} is {storage}: allowed are {', '.join(sorted(FLOATS))}", location=state.name)
    value = term(Tensor(array.value))
    if not any(isinstance(t, (Load, IndexValue, Where)) for t in walk(value)):
        raise GraphError(f"output {name} depends on no input", location=state.name)
    # Storing rounds anyway: a last cast to the type of the buffer says nothing.
    value = value.operand if isinstance(value, Cast) and value.dtype == storage else value
    shape, indices = tuple(map(merged_extent, array.dims)), tuple(map(merged_position, array.dims))
    return Output(name, storage, shape, indices, value)
