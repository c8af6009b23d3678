"""Loaded kernels, their memory, and the launches of one plan with packed arguments.

The values of all launches of a call lie in one block of eight bytes each; every launch has a list of addresses into it.
A call writes what changed, addresses of arrays and numbers passed by value, and launches.

    block ::= addresses and numbers of the call | addresses of workspaces | values that the plan decides

Tensor maps lie beside it and are encoded again when the address of their array changes.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np

from cleave.errors import LaunchError
from cleave.kernel import Compiled, KernelSource
from cleave.runtime import cuda
from cleave.runtime.maps import TensorMapArgument
from cleave.runtime.plan import Address, MapOf, Memory, Plan, ScalarValue
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

    def address(self, memory: Memory, device: int, stream: int) -> int:
        """Where a workspace of at least this size lies for a stream.

        Errors: new memory would be needed while the stream records a graph.
        """
        key = (device, stream, memory.name)
        found = self._current.get(key)
        if found is not None and found.size >= memory.size:
            return found.pointer
        _refuse_capture(memory.name, stream)
        if found is not None:
            self._outgrown.append(found)
        size = 1 << max(memory.size - 1, 0).bit_length()
        self._current[key] = cuda.allocate(size, zeroed=memory.zeroed, stream=stream)
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
    return cuda.load_kernel(c.cubin, k.entry, threads=k.threads, shared_bytes=k.shared_bytes, early=early)


class LoadedOperator:
    """The kernels of one operator, loaded on demand for each device."""

    def __init__(self, kernels: Sequence[KernelSource], compiled: Sequence[Compiled]) -> None:
        self._kernels = tuple(kernels)
        self._compiled = tuple(compiled)
        self._loaded: dict[int, tuple[cuda.Kernel, ...]] = {}
        self._workspaces = Workspaces()

    def launches(self, plan: Plan, buffers: Sequence[str], *, device: int, stream: int) -> Launches:
        """The launches of a plan on a stream of the current device, loaded and with their workspaces.

        ``buffers`` are the inputs and outputs, in the order in which a call gives their addresses or values.
        Errors: kernels or workspaces that would be new while the stream records a graph.
        """
        workspaces = {m.name: self._workspaces.address(m, device, stream) for m in plan.workspaces if plan.launches}
        kernels = self._on(device, stream) if plan.launches else ()
        return Launches(kernels, plan, buffers, workspaces, stream)

    def _on(self, device: int, stream: int) -> tuple[cuda.Kernel, ...]:
        found = self._loaded.get(device)
        if found is None:
            _refuse_capture(self._kernels[0].entry, stream)
            _check_together(self._kernels)
            pairs = zip(self._kernels, self._compiled, strict=True)
            found = tuple(_load(k, c) for k, c in pairs)
            self._loaded[device] = found
        return found


class Launches:
    """The kernels of one plan on one stream, with their arguments packed except for what a call gives."""

    def __init__(
        self,
        kernels: Sequence[cuda.Kernel],
        plan: Plan,
        buffers: Sequence[str],
        workspaces: dict[str, int],
        stream: int,
    ) -> None:
        kinds = _kinds(plan)
        constants = [a for launch in plan.launches for a in launch.arguments if isinstance(a, np.generic)]
        places = {name: n for n, name in enumerate((*buffers, *workspaces))}
        self.kinds = tuple(kinds.get(name, POINTER) for name in buffers)
        self._block = (ctypes.c_uint64 * (len(places) + len(constants) + 1))()
        self._pack = struct.Struct("=" + "".join(_FORMATS[kind] for kind in self.kinds)).pack_into
        self._lock = Lock()
        self._written: Sequence[float] | None = None
        struct.pack_into(f"={len(workspaces)}Q", self._block, _WORD * len(buffers), *workspaces.values())
        start = ctypes.addressof(self._block)
        free = start + _WORD * len(places)
        self._launches: list[tuple[Callable[[], object], cuda.Kernel]] = []
        self._lists: list[Any] = []  # the driver reads them at every launch
        self._maps: list[tuple[int, TensorMapArgument]] = []
        for launch in plan.launches:
            addresses = (ctypes.c_void_p * max(len(launch.arguments), 1))()
            for n, argument in enumerate(launch.arguments):
                if isinstance(argument, np.generic):
                    ctypes.memmove(free, argument.tobytes(), argument.nbytes)
                    addresses[n], free = free, free + _WORD
                elif isinstance(argument, MapOf):
                    addresses[n] = self._map(argument, places[argument.buffer], workspaces)
                else:
                    addresses[n] = start + _WORD * places[_name(argument)]
            kernel = kernels[launch.kernel]
            self._lists.append(addresses)
            self._launches.append((kernel.bound(launch.grid, ctypes.addressof(addresses), stream), kernel))

    def _map(self, argument: MapOf, place: int, workspaces: dict[str, int]) -> int:
        """The address of a tensor map; that of a workspace stays, others follow the values of a call."""
        made = TensorMapArgument(argument)
        self._lists.append(made)
        if argument.buffer in workspaces:
            made.point_to(workspaces[argument.buffer])
        else:
            self._maps.append((place, made))
        return made.address

    def write(self, values: Sequence[float]) -> None:
        """Write the addresses (integers) and numbers of a call."""
        self._written = None
        self._pack(self._block, 0, *values)
        for place, one in self._maps:
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
