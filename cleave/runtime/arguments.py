"""Arguments of a call against what the operator declares: names, dtypes, ranks, dims, strides. Pure Python.

    match_arguments   positional and named arguments -> arrays by input, dims by symbol
    solve_dims        shapes -> values of all symbols; ranges, divisibility and constraints are checked
    check_layout      strides and address of an array on the device, against what the kernels read

Every message names the input and the axis as the user does, the value, and what was allowed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from operator import index as as_integer
from typing import Any

import numpy as np

from cleave.errors import ArgumentError, GraphError
from cleave.ir.bind import broken_constraint, learn_dims
from cleave.ir.dim import check_binding
from cleave.ir.index import Index, Symbol, evaluate, indices_of, show, symbols_of
from cleave.ir.op import DTYPES, round_to
from cleave.kernel import Buffer, OperatorSource
from cleave.runtime.arrays import ArrayView, contiguous_strides, numpy_dtype


def symbols(operator: OperatorSource) -> dict[str, Symbol]:
    """Symbols that a caller's arrays or keywords give, by name; derived ones are the host's."""
    shapes = [extent for b in (*operator.inputs, *operator.outputs) for extent in b.shape]
    constraints = [i for pred in operator.constraints for i in indices_of(pred)]
    kernels = [e for kernel in operator.kernels for e in kernel.grid]
    derived = [expression for _, expression in operator.derived]
    hidden = {symbol.name for symbol, _ in operator.derived}
    expressions = (*shapes, *constraints, *kernels, *derived)
    found = {s.name: s for e in expressions for s in sorted(symbols_of(e), key=_name)}
    found |= {s.name: s for s in operator.dims}
    return {name: symbol for name, symbol in found.items() if name not in hidden}


def _name(symbol: Symbol) -> str:
    return symbol.name


def match_arguments(
    operator: OperatorSource, arguments: Sequence[Any], named: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, int]]:
    """(arrays by input name, dims by symbol name). Keywords may name inputs or symbols.

    Errors: too many arguments, one given twice, one missing, an unknown name.
    """
    names = [b.name for b in operator.inputs]
    if len(arguments) > len(names):
        raise ArgumentError(f"{len(arguments)} arguments, the inputs are {_listed(names)}", location=operator.name)
    arrays = dict(zip(names, arguments, strict=False))
    dims: dict[str, int] = {}
    for name, value in named.items():
        if name in arrays:
            raise ArgumentError(f"input {name} is given twice", location=operator.name)
        if name in names:
            arrays[name] = value
        else:
            dims[name] = _dim(operator, name, value)
    for name in names:
        if name not in arrays:
            raise ArgumentError(f"input {name} is missing; the inputs are {_listed(names)}", location=operator.name)
    return arrays, dims


def _dim(operator: OperatorSource, name: str, value: Any) -> int:
    allowed = symbols(operator)
    if name not in allowed:
        inputs = _listed([b.name for b in operator.inputs])
        raise ArgumentError(
            f"unknown argument {name!r}: inputs are {inputs}; dims are {_listed(allowed)}", location=operator.name
        )
    try:
        return as_integer(value)
    except TypeError:
        raise ArgumentError(f"dim {name} = {value!r}: an integer is expected", location=operator.name) from None


def _listed(names: Sequence[str] | Mapping[str, Any]) -> str:
    return ", ".join(names) or "none"


def check_types(buffers: Sequence[Buffer], views: Mapping[str, ArrayView], *, role: str = "input") -> None:
    """dtype and rank of each array."""
    for buffer in buffers:
        array = views[buffer.name]
        if array.dtype != buffer.dtype:
            raise ArgumentError(f"dtype {array.dtype}, expected {buffer.dtype}", location=f"{role} {buffer.name}")
        if len(array.shape) != len(buffer.shape):
            wanted = ", ".join(_axis(buffer, n) for n in range(len(buffer.shape)))
            raise ArgumentError(
                f"rank {len(array.shape)} (shape {array.shape}), expected rank {len(buffer.shape)} [{wanted}]",
                location=f"{role} {buffer.name}",
            )


def _axis(buffer: Buffer, axis: int) -> str:
    extent = show(buffer.shape[axis])
    name = buffer.axis_name(axis)
    return extent if name in (extent, str(axis)) else f"{name}={extent}"


# ---- dims


def solve_dims(
    operator: OperatorSource, shapes: Mapping[str, Sequence[int]], given: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Values of all symbols, the derived ones included.

    A shape gives a symbol where an extent is that symbol, or affine in it with the rest known.
    Errors: shapes that contradict each other, the compiled extents, a range, a divisibility or a constraint; a symbol
    that nothing fixes.
    """
    values, origins = dict(given or {}), dict.fromkeys(given or {}, "as given")
    for name, value in operator.fixed.items():
        if values.setdefault(name, value) != value:
            raise ArgumentError(f"dim {name} = {values[name]}: compiled for {value}", location=operator.name)
        origins[name] = "as compiled"
    known = symbols(operator)
    for name, symbol in known.items():
        if symbol.value is not None and name not in values:
            values[name], origins[name] = symbol.value, "as declared"
    origins |= learn_dims(
        (
            (extent, int(size), f"from input {b.name}, axis {b.axis_name(axis)}")
            for b in operator.inputs
            for axis, (extent, size) in enumerate(zip(b.shape, shapes[b.name], strict=True))
        ),
        values,
    )
    for name in known:
        if name not in values:
            raise ArgumentError(f"dim {name} has no value: pass {name}=...", location=operator.name)
    _check_extents(operator.inputs, shapes, values, origins)
    _check_facts(operator, known, values, origins)
    for symbol, expression in operator.derived:
        values[symbol.name] = int(evaluate(expression, values))
    # constraints may mention derived symbols: a chunk length that covers its extent
    broken = broken_constraint(operator.constraints, values)
    if broken is not None:
        raise ArgumentError("{!r} does not hold: {}".format(*broken), location=operator.name)
    return values


def _check_extents(
    buffers: Sequence[Buffer],
    shapes: Mapping[str, Sequence[int]],
    values: Mapping[str, int],
    origins: Mapping[str, str],
) -> None:
    for buffer in buffers:
        for axis, extent in enumerate(buffer.shape):
            wanted, size = int(evaluate(extent, values)), int(shapes[buffer.name][axis])
            if wanted != size:
                location = f"input {buffer.name}, axis {buffer.axis_name(axis)}"
                raise ArgumentError(
                    f"extent {size}, expected {wanted}{_because(extent, values, origins)}", location=location
                )


def _because(extent: Index, values: Mapping[str, int], origins: Mapping[str, str]) -> str:
    """`` (t = 64 from input k, axis t)``: where the expectation comes from."""
    causes = [
        f"{s.name} = {values[s.name]} {origins.get(s.name, '')}".strip() for s in sorted(symbols_of(extent), key=_name)
    ]
    if not causes:
        return ""
    return f" ({'; '.join(causes if extent.atom is not None else [show(extent), *causes])})"


def _check_facts(
    operator: OperatorSource, known: Mapping[str, Symbol], values: Mapping[str, int], origins: Mapping[str, str]
) -> None:
    for name, symbol in known.items():
        try:
            check_binding(symbol, values[name])
        except GraphError as error:
            raise ArgumentError(f"{error.message} ({origins[name]})", location=operator.name) from None


# ---- memory


def check_layout(buffer: Buffer, array: ArrayView, *, role: str = "input") -> tuple[int, ...]:
    """Strides (elements) that the kernel may use; those of axes with at most one element are made regular.

    Errors: strides that the kernels can't honour, an address that is not aligned.
    """
    location = f"{role} {buffer.name}"
    regular = contiguous_strides(array.shape)
    strides = tuple(r if n <= 1 else s for r, s, n in zip(regular, array.strides, array.shape, strict=True))
    if 0 in array.shape:
        return regular
    if array.pointer % buffer.alignment:
        raise ArgumentError(
            f"its address is no multiple of {buffer.alignment} bytes (a view that starts inside an array?); "
            "pass a copy",
            location=location,
        )
    for axis, stride in enumerate(strides):
        problem = _stride_problem(buffer, axis, stride, regular[axis], array.shape[axis])
        if problem:
            raise ArgumentError(
                f"{problem}; pass a contiguous copy", location=f"{location}, axis {buffer.axis_name(axis)}"
            )
    return strides


def _stride_problem(buffer: Buffer, axis: int, stride: int, regular: int, extent: int) -> str:
    match buffer.layout:
        case "contiguous":
            return f"stride {stride} elements, expected {regular} (C order without gaps)" if stride != regular else ""
        case "rows" if axis == len(buffer.shape) - 1:
            return f"stride {stride} elements, expected 1 (rows without gaps)" if stride != 1 else ""
        case "rows" if extent > 1 and stride * buffer.item_bytes % buffer.alignment:
            size = f"{stride} elements ({stride * buffer.item_bytes} bytes)"
            return f"stride {size} is no multiple of {buffer.alignment} bytes"
        case _:
            return ""


def check_outputs(
    buffers: Sequence[Buffer],
    outputs: Mapping[str, ArrayView],
    values: Mapping[str, int],
    inputs: Mapping[str, ArrayView],
) -> None:
    """Arrays that were passed for results: each fits, and none shares memory with an input or another one."""
    others = {f"input {name}": array for name, array in inputs.items()}
    for buffer in buffers:
        if buffer.name in outputs:
            check_output(buffer, outputs[buffer.name], values)
            _check_apart(buffer.name, outputs[buffer.name], others)
            others[f"output {buffer.name}"] = outputs[buffer.name]


def check_output(buffer: Buffer, array: ArrayView, values: Mapping[str, int]) -> None:
    """An array that was passed for a result: shape, writable, no element twice."""
    location = f"output {buffer.name}"
    wanted = tuple(int(evaluate(e, values)) for e in buffer.shape)
    if array.shape != wanted:
        raise ArgumentError(f"shape {array.shape}, expected {wanted}", location=location)
    if not array.writable:
        raise ArgumentError("it is read-only", location=location)
    for axis, (stride, extent) in enumerate(zip(array.strides, array.shape, strict=True)):
        if extent > 1 and stride == 0:
            raise ArgumentError("stride 0: elements overlap", location=f"{location}, axis {buffer.axis_name(axis)}")


def _check_apart(name: str, array: ArrayView, others: Mapping[str, ArrayView]) -> None:
    for other, found in others.items():
        if _overlap(array, found):
            reason = "kernels read inputs while they write" if other.startswith("input") else "both are written"
            raise ArgumentError(f"it shares memory with {other}: {reason}", location=f"output {name}")


def _overlap(a: ArrayView, b: ArrayView) -> bool:
    if a.on_host or b.on_host or a.device != b.device or 0 in a.shape or 0 in b.shape:
        return False
    (a_low, a_high), (b_low, b_high) = span(a), span(b)
    return a.pointer + a_low < b.pointer + b_high and b.pointer + b_low < a.pointer + a_high


def span(array: ArrayView) -> tuple[int, int]:
    """First and one past the last byte that the array touches, from its address."""
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    return low * DTYPES[array.dtype], (high + 1) * DTYPES[array.dtype]


# ---- numbers -------------------------------------------------------------------------------------------------------


def as_declared(buffer: Buffer, value: Any) -> Any:
    """A Python number for an input without axes -> an array of the declared dtype, rounded; all else as it is.

    What is too large for a float is infinite, an integer too. Errors: a fraction, or a number that is too large, for
    an integer input.
    """
    if buffer.shape or type(value) not in (bool, int, float):
        return value
    if buffer.dtype in ("float16", "bfloat16", "float32", "float64"):
        return round_to(np.asarray(_float(value)), buffer.dtype).astype(numpy_dtype(buffer.dtype))
    with np.errstate(invalid="ignore"), contextlib.suppress(OverflowError):
        made = np.asarray(value).astype(buffer.dtype)
        if made == value:
            return made
    raise ArgumentError(f"{value!r} is no {buffer.dtype}", location=f"input {buffer.name}")


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # of an integer beyond 2**1024
        return math.inf if value > 0 else -math.inf
