"""From dims and strides to launches: grids, argument lists, sizes of outputs and workspaces. Pure Python.

A plan depends on shapes and strides only, so it is made once for each and then reused; pointers are filled in per call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cleave.errors import LaunchError
from cleave.ir.index import Index, evaluate, evaluate_pred, show_pred
from cleave.ir.op import DTYPES
from cleave.kernel import KernelSource, OperatorSource, Parameter, Pointer, Scalar, Stride, TensorMap, Value, Variant

GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""Most blocks along x, y and z."""

_INTEGERS: dict[str, type[np.integer[Any]]] = {"int32": np.int32, "int64": np.int64}


@dataclass(frozen=True, slots=True)
class Address:
    """A place in an argument list that the address of a buffer fills."""

    buffer: str


@dataclass(frozen=True, slots=True)
class ScalarValue:
    """A place in an argument list that the value of an input without axes fills."""

    input: str
    kind: str


@dataclass(frozen=True, slots=True)
class MapOf:
    """A place in an argument list that the tensor map of a buffer fills; ``TensorMap`` with its numbers."""

    buffer: str
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


Argument = np.generic | Address | ScalarValue | MapOf


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel of a call; ``kernel`` counts within the operator."""

    kernel: int
    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a workspace, and whether they must be zero when it is new."""

    name: str
    size: int
    zeroed: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about a call that shapes and strides decide. Kernels whose grid is empty are not in ``launches``."""

    dims: Mapping[str, int]
    outputs: Mapping[str, tuple[int, ...]]
    workspaces: tuple[Memory, ...]
    launches: tuple[Launch, ...]


def choose(variants: tuple[Variant, ...], dims: Mapping[str, int]) -> int:
    """The first variant whose comparisons all hold.

    Errors: none does.
    """
    for number, variant in enumerate(variants):
        if all(bool(evaluate_pred(pred, dims)) for pred in variant.when):
            return number
    shown = ", ".join(f"{name} = {value}" for name, value in dims.items())
    allowed = "; or ".join(" and ".join(map(show_pred, v.when)) for v in variants)
    raise LaunchError(f"no variant for {shown}: allowed are {allowed}", location=variants[0].operator.name)


def make_plan(operator: OperatorSource, dims: Mapping[str, int], strides: Mapping[str, tuple[int, ...]]) -> Plan:
    """Launches of a call. ``strides`` (elements) are those of inputs and outputs, by buffer.

    Errors: a grid beyond the device's limits, a value that its parameter can't hold.
    """
    launches: list[Launch] = []
    for number, kernel in enumerate(operator.kernels):
        grid = _grid(kernel, dims)
        if 0 not in grid:
            arguments = tuple(_argument(kernel, p, dims, strides) for p in kernel.parameters)
            launches.append(Launch(number, grid, arguments))
    return Plan(
        dims=dict(dims),
        outputs={b.name: _shape(b.shape, dims) for b in operator.outputs},
        workspaces=tuple(
            Memory(w.name, math.prod(_shape(w.shape, dims)) * DTYPES[w.dtype], w.zeroed) for w in operator.workspaces
        ),
        launches=tuple(launches),
    )


def _shape(shape: tuple[Index, ...], dims: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(evaluate(e, dims)) for e in shape)


def _grid(kernel: KernelSource, dims: Mapping[str, int]) -> tuple[int, int, int]:
    counts = _shape(kernel.grid, dims)
    for axis, (count, limit) in enumerate(zip(counts, GRID_LIMITS, strict=False)):
        if not 0 <= count <= limit:
            raise LaunchError(f"{count} blocks along {'xyz'[axis]}, allowed are {limit}", location=kernel.entry)
    x, y, z = (*counts, 1, 1)[:3]
    return x, y, z


def _argument(
    kernel: KernelSource, parameter: Parameter, dims: Mapping[str, int], strides: Mapping[str, tuple[int, ...]]
) -> Argument:
    match parameter.source:
        case Pointer(buffer):
            return Address(buffer)
        case Scalar(name):
            return ScalarValue(name, parameter.kind)
        case Value(expression):
            return packed(kernel.entry, parameter.name, parameter.kind, int(evaluate(expression, dims)))
        case TensorMap(buffer, dtype, extents, steps, box, swizzle):
            return MapOf(buffer, dtype, _shape(extents, dims), _shape(steps, dims), box, swizzle)
        case Stride(buffer, axis):
            return packed(kernel.entry, parameter.name, parameter.kind, strides[buffer][axis])


def packed(entry: str, name: str, kind: str, value: float) -> np.generic:
    """A value as exactly the type that the kernel declares: a Python number would be passed as 64 bits.

    Errors: an integer that does not fit, a fraction for an integer.
    """
    if kind == "float32":
        return np.float32(value)
    scalar = _INTEGERS[kind]
    limits = np.iinfo(scalar)
    if int(value) != value or not limits.min <= value <= limits.max:
        raise LaunchError(f"parameter {name} = {value} does not fit {kind}", location=entry)
    return scalar(int(value))
