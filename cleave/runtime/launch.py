"""Loaded kernels, their memory, and launches with packed arguments.

The values of all launches of a call lie in one block of eight bytes each; every launch has a list of addresses into it.
A call writes what changed, addresses of arrays and numbers passed by value, and launches. Other sizes of the arrays
change the rest of the block and the grids, and nothing else.

    block ::= addresses and numbers of the call | addresses of workspaces | values that the sizes decide

Tensor maps lie beside it and are encoded again when the address or the sizes of their array change.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from cleave.errors import LaunchError
from cleave.kernel import Compiled, KernelSource, OperatorSource
from cleave.runtime import cuda
from cleave.runtime.maps import TensorMapArgument
from cleave.runtime.plan import Address, MapOf, Plan, ScalarValue
from cleave.target import TARGETS

_WORD = 8
POINTER = "pointer"
_FORMATS = {POINTER: "Q", "float32": "f4x", "int32": "i4x", "int64": "q"}


class Workspaces:
    """Memory between kernels, allocated once for each stream and reused; counters are zeroed when new.

    A kernel that leaves its counters at zero makes that enough, also under replay of a graph. Memory that became too
    small is kept as long as this object: a captured graph, or launches that were packed, may still write to it. Sizes
    are rounded up to powers of two, so what is kept is at most as much again.
    """

    def __init__(self) -> None:
        self._current: dict[tuple[int, int, str], cuda.DeviceMemory] = {}
        self._outgrown: list[cuda.DeviceMemory] = []

    def address(self, name: str, size: int, *, zeroed: bool, device: int, stream: int) -> int:
        """Where a workspace of at least this size lies for a stream.

        Errors: new memory would be needed while the stream records a graph.
        """
        key = (device, stream, name)
        found = self._current.get(key)
        if found is not None and found.size >= size:
            return found.pointer
        _refuse_capture(name, stream)
        if found is not None:
            self._outgrown.append(found)
        self._current[key] = cuda.allocate(1 << max(size - 1, 0).bit_length(), zeroed=zeroed, stream=stream)
        return self._current[key].pointer


def _refuse_capture(name: str, stream: int) -> None:
    if cuda.is_capturing(stream):
        raise LaunchError("call it once on this stream before a graph is captured there", location=name)


def _check_together(kernels: Sequence[KernelSource]) -> None:
    """Blocks that wait for one another must all run at once, one on each multiprocessor if need be."""
    waiting = [k for k in kernels if k.together > 1]
    if waiting:
        most = cuda.multiprocessors()
        for k in waiting:
            if k.together > most:
                raise LaunchError(
                    f"{k.together} blocks wait for one another, and the device runs {most}", location=k.entry
                )


def _load(k: KernelSource, c: Compiled) -> cuda.Kernel:
    early = k.waits and "early launch" in TARGETS[c.arch].features
    shape = {"threads": k.threads, "shared_bytes": k.shared_bytes, "cluster": k.cluster}
    return cuda.load_kernel(c.cubin, k.entry, **shape, early=early)


class LoadedOperator:
    """The kernels of one operator, loaded on demand for each device."""

    def __init__(self, operator: OperatorSource, compiled: Sequence[Compiled]) -> None:
        self.operator = operator
        self._kernels = operator.kernels
        self._compiled = tuple(compiled)
        self._loaded: dict[int, tuple[cuda.Kernel, ...]] = {}
        self._workspaces = Workspaces()

    def launches(self, layout: Layout, sizes: Sizes, *, device: int, stream: int, early: bool = True) -> Launches:
        """Launches on a stream of the current device, loaded and with their workspaces; ``early``: the first one before
        what the stream has to do is over.

        Errors: kernels or workspaces that would be new while the stream records a graph; LaunchError.
        """
        addresses = self._addresses(layout, sizes, device, stream)
        kernels = self._on(device, stream) if layout.launches else ()
        if not early:
            first = [number for number, _ in layout.launches[:1]]  # those before it have nothing to do
            kernels = tuple(k.in_order() if n in first else k for n, k in enumerate(kernels))
        found = Launches(kernels, layout, device, stream)
        found.resize(addresses, sizes)
        return found

    def resize(self, launches: Launches, sizes: Sizes) -> None:
        """Errors: as for ``launches``; ``struct.error`` for a number that its kernel's type can't hold."""
        launches.resize(self._addresses(launches.layout, sizes, launches.device, launches.stream), sizes)

    def _addresses(self, layout: Layout, sizes: Sizes, device: int, stream: int) -> list[int]:
        return [
            self._workspaces.address(name, size, zeroed=zeroed, device=device, stream=stream)
            for (name, zeroed), size in zip(layout.workspaces, sizes.memory, strict=True)
        ]

    def _on(self, device: int, stream: int) -> tuple[cuda.Kernel, ...]:
        found = self._loaded.get(device)
        if found is None:
            _refuse_capture(self._kernels[0].entry, stream)
            _check_together(self._kernels)
            pairs = zip(self._kernels, self._compiled, strict=True)
            found = tuple(_load(k, c) for k, c in pairs)
            self._loaded[device] = found
        return found


class Sizes(NamedTuple):
    """All of a call that the sizes of its arrays decide, in the order of a ``Layout``.

    numbers  integers that kernels are passed
    grids    blocks along x, y and z of each launch
    memory   bytes of workspaces
    maps     (elements, strides in bytes) of tensor maps
    """

    numbers: tuple[float, ...]
    grids: tuple[tuple[int, int, int], ...]
    memory: tuple[int, ...]
    maps: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the arguments of launches lie, at all sizes.

    kinds       of inputs and outputs, in the order in which a call gives their addresses or values
    workspaces  (name, whether zero when new)
    numbers     type of each
    maps        (place of its array in the block, map), the map at some sizes
    launches    (number of the kernel, its arguments: a place in the block, or −1 − the number of a map)
    """

    kinds: tuple[str, ...]
    workspaces: tuple[tuple[str, bool], ...]
    numbers: tuple[str, ...]
    maps: tuple[tuple[int, MapOf], ...]
    launches: tuple[tuple[int, tuple[int, ...]], ...]


def layout_of(plan: Plan, buffers: Sequence[str]) -> tuple[Layout, Sizes]:
    """Of a plan. ``buffers`` are the inputs and outputs, in the order in which a call gives addresses or values."""
    kinds = _kinds(plan)
    memory = plan.workspaces if plan.launches else ()
    places = {name: n for n, name in enumerate((*buffers, *(m.name for m in memory)))}
    constants: list[np.generic] = []
    maps: list[tuple[int, MapOf]] = []
    launches: list[tuple[int, tuple[int, ...]]] = []
    for launch in plan.launches:
        arguments: list[int] = []
        for argument in launch.arguments:
            if isinstance(argument, np.generic):
                arguments.append(len(places) + len(constants))
                constants.append(argument)
            elif isinstance(argument, MapOf):
                maps.append((places[argument.buffer], argument))
                arguments.append(-len(maps))
            else:
                arguments.append(places[_name(argument)])
        launches.append((launch.kernel, tuple(arguments)))
    layout = Layout(
        kinds=tuple(kinds.get(name, POINTER) for name in buffers),
        workspaces=tuple((m.name, m.zeroed) for m in memory),
        numbers=tuple(c.dtype.name for c in constants),
        maps=tuple(maps),
        launches=tuple(launches),
    )
    sizes = Sizes(
        numbers=tuple(c.item() for c in constants),
        grids=tuple(launch.grid for launch in plan.launches),
        memory=tuple(m.size for m in memory),
        maps=tuple((m.dims, m.strides) for _, m in maps),
    )
    return layout, sizes


@cache
def _packer(kinds: tuple[str, ...]) -> Callable[..., None]:
    return struct.Struct("=" + "".join(_FORMATS[kind] for kind in kinds)).pack_into


class Launches:
    """The kernels of a layout on one stream, with their arguments packed except for what a call gives."""

    def __init__(self, kernels: Sequence[cuda.Kernel], layout: Layout, device: int, stream: int) -> None:
        self.layout, self.kinds, self.device, self.stream = layout, layout.kinds, device, stream
        memory = (POINTER,) * len(layout.workspaces)
        self._block = (ctypes.c_uint64 * (len(layout.kinds) + len(memory) + len(layout.numbers) + 1))()
        self._pack = _packer(layout.kinds)
        self._pack_sizes = _packer((*memory, *layout.numbers))
        self._lock = Lock()
        self._written: Sequence[float] | None = None
        self._launches: list[tuple[Callable[[], object], cuda.Kernel]] = []
        self._maps = [(place, TensorMapArgument(value)) for place, value in layout.maps]
        start, maps = ctypes.addressof(self._block), self._maps
        self._kernels: list[tuple[cuda.Kernel, Any, int]] = []  # the driver reads the lists at every launch
        for number, arguments in layout.launches:
            addresses = (ctypes.c_void_p * max(len(arguments), 1))(
                *[start + _WORD * n if n >= 0 else maps[-1 - n][1].address for n in arguments]
            )
            self._kernels.append((kernels[number], addresses, ctypes.addressof(addresses)))

    def resize(self, workspaces: Sequence[int], sizes: Sizes) -> None:
        """Everything that is no address or number of a call; ``workspaces``: where they lie.

        Errors: ``struct.error`` for a number that its kernel's type can't hold; LaunchError.
        """
        self._written = None
        inputs = len(self.kinds)
        self._pack_sizes(self._block, _WORD * inputs, *workspaces, *sizes.numbers)
        for (place, made), (dims, strides) in zip(self._maps, sizes.maps, strict=True):
            made.describe(dims, strides)
            if place >= inputs:
                made.point_to(workspaces[place - inputs])
        self._launches = [
            (kernel.bound(grid, addresses, self.stream), kernel)
            for (kernel, _, addresses), grid in zip(self._kernels, sizes.grids, strict=True)
        ]

    def write(self, values: Sequence[float]) -> None:
        """Write the addresses (integers) and numbers of a call."""
        self._written = None
        self._pack(self._block, 0, *values)
        for place, one in self._maps:
            if place < len(self.kinds):
                one.point_to(int(values[place]))
        self._written = values

    def run(self, values: Sequence[float]) -> None:
        """Write the addresses (integers) and numbers of a call, unless this very list was written last, and launch.

        Errors: ``struct.error`` or OverflowError, before any launch, for a number that its kernel's type can't hold;
        LaunchError.
        """
        with self._lock:  # another thread must not write between
            if values is not self._written:
                self.write(values)
            self.repeat()

    def repeat(self) -> None:
        """Launch with the values that were written last."""
        for launch, kernel in self._launches:
            try:
                launch()
            except Exception as error:
                cuda.launch_again(launch, error, kernel.entry)


def _name(argument: Address | ScalarValue | MapOf) -> str:
    return argument.input if isinstance(argument, ScalarValue) else argument.buffer


def _kinds(plan: Plan) -> dict[str, str]:
    """Inputs that are passed by value -> type of the parameter.

    Errors: an input that is passed in two ways.
    """
    out: dict[str, str] = {}
    for launch in plan.launches:
        for argument in launch.arguments:
            if not isinstance(argument, np.generic):
                kind = argument.kind if isinstance(argument, ScalarValue) else POINTER
                if out.setdefault(_name(argument), kind) != kind:
                    raise LaunchError(f"passed as {out[_name(argument)]} and as {kind}", location=_name(argument))
    return {name: kind for name, kind in out.items() if kind != POINTER}
