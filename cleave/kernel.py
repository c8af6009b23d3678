"""Kernel source: CUDA text, its entry, launch and arguments. Data only; codegen writes it, the runtime reads it.

    Operator  ::= inputs, outputs, workspaces (Buffer ..), kernels in order, values of symbols
    Kernel    ::= text, entry, parameters, threads, shared memory, grid
    Parameter ::= name, kind, source (how the host computes the value)
    Source    ::= Pointer buffer | Value expression | Stride buffer axis | Scalar input | TensorMap buffer ..

Sizes, grids and values are Index expressions over dims, so one compiled kernel serves every length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cleave.ir.index import Index, Pred, Symbol
from cleave.ir.op import DTYPES

ParameterKind = Literal["pointer", "int32", "int64", "float32", "tensor_map"]
Layout = Literal["contiguous", "rows", "strided"]


MOST_SPREAD = 2
"""Blocks of a cluster up to which every multiprocessor can have one of a grid as large as the device: they come in
pairs, and clusters of more do not fill all groups of them."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """The address of an input, an output or a workspace."""

    buffer: str


@dataclass(frozen=True, slots=True)
class Value:
    """An integer computed from the dims: a dim, an extent, the number of tiles on a grid axis."""

    expression: Index


@dataclass(frozen=True, slots=True)
class Stride:
    """Distance between neighbours on an axis of a buffer, in elements."""

    buffer: str
    axis: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """The value of an input without axes, passed in the argument list."""

    input: str


@dataclass(frozen=True, slots=True)
class TensorMap:
    """An array as the copy engine sees it, 128 bytes by value; axes innermost first.

    dims     elements
    strides  bytes between neighbours on all axes but the first, multiples of 16
    box      elements that one copy fetches
    swizzle  bytes of a box's rows, and within how many its 16-byte chunks are permuted: 32, 64 or 128
    """

    buffer: str
    dtype: str
    dims: tuple[Index, ...]
    strides: tuple[Index, ...]
    box: tuple[int, ...]
    swizzle: int


Source = Pointer | Value | Stride | Scalar | TensorMap


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel. ``dtype`` is the element type behind a pointer and the type itself otherwise."""

    name: str
    kind: ParameterKind
    dtype: str
    writable: bool
    source: Source


@dataclass(frozen=True, slots=True)
class Buffer:
    """An input or output array and what the kernels require of it in memory.

    layout "contiguous": C order without gaps; "rows": the last axis without gaps, every row at a multiple of
    ``alignment`` bytes, other strides free; "strided": any strides, each read through a ``Stride`` parameter.
    ``alignment`` (bytes) holds for the address in all three. ``axes`` are the user's names, for messages.
    """

    name: str
    dtype: str
    shape: tuple[Index, ...]
    axes: tuple[str, ...] = ()
    layout: Layout = "contiguous"
    alignment: int = 1

    @property
    def item_bytes(self) -> int:
        return DTYPES[self.dtype]

    def axis_name(self, axis: int) -> str:
        """The user's name of an axis, or its number."""
        return self.axes[axis] if axis < len(self.axes) else str(axis)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory that kernels share. ``zeroed``: counters, zero before the first launch; the kernels reset them."""

    name: str
    dtype: str
    shape: tuple[Index, ...]
    zeroed: bool = False


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel before compilation.

    text           complete CUDA C++, no include
    entry          name of the ``extern "C" __global__`` function
    threads        a block's threads
    shared_bytes   dynamic shared memory of a block
    grid           blocks along x, y, z (one to three expressions); zero blocks means nothing to do
    architectures  those that the skeleton's instructions exist on, for instance ("sm_80", "sm_90a")
    skeleton       what emitted it, for reports
    cluster        blocks of consecutive numbers that run together and reach each other's shared memory
    together       blocks of consecutive numbers that wait for one another: all must fit on the device at once
    waits          whether it may be launched before the kernel before it has ended, for which it waits itself
    """

    text: str
    entry: str
    parameters: tuple[Parameter, ...]
    threads: int
    shared_bytes: int
    grid: tuple[Index, ...]
    architectures: tuple[str, ...]
    skeleton: str
    cluster: int = 1
    together: int = 1
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Resources:
    """What a compiled kernel takes.

    Registers, stack (``local_bytes``) and spills (bytes) are a thread's, shared memory (static and dynamic) a block's.
    """

    registers: int
    shared_bytes: int
    local_bytes: int
    spill_stores: int
    spill_loads: int
    cubin_bytes: int

    def __str__(self) -> str:
        spilled = self.spill_stores or self.spill_loads
        spills = f"spills {self.spill_stores}/{self.spill_loads} B" if spilled else "0 spills"
        stack = f", {self.local_bytes} B stack" if self.local_bytes else ""
        return f"{self.registers} registers, {self.shared_bytes / 1024:.1f} KB shared, {spills}{stack}"


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code of one entry for one architecture; ``cached``: it came from the disk cache, log included."""

    entry: str
    arch: str
    cubin: bytes = field(repr=False)
    log: str = field(repr=False)
    resources: Resources
    cached: bool = False


@dataclass(frozen=True, slots=True)
class OperatorSource:
    """Everything that the runtime needs to call an operator.

    fixed        values of symbols that are compiled into the text (d = 128); a call with others is refused
    derived      symbols that the host computes from the dims, in order (a chunk length from a length and a split count)
    constraints  predicates over the dims that a call must meet
    dims         symbols of the graph, those included that no shape and no kernel needs: a call may name them all
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    workspaces: tuple[Workspace, ...]
    kernels: tuple[KernelSource, ...]
    fixed: Mapping[str, int] = field(default_factory=dict[str, int])
    derived: tuple[tuple[Symbol, Index], ...] = ()
    constraints: tuple[Pred, ...] = ()
    dims: tuple[Symbol, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """One compiled form of an operator and the comparisons of dims under which the host picks it (all must hold)."""

    operator: OperatorSource
    when: tuple[Pred, ...] = ()
