"""Loaded kernels, their memory, and one call of an operator on a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cleave.errors import LaunchError
from cleave.kernel import Compiled, KernelSource
from cleave.runtime import cuda
from cleave.runtime.plan import Address, Memory, Plan, ScalarValue, packed


class Workspaces:
    """Memory between kernels, allocated once for each stream and reused; counters are zeroed when new.

    A kernel that leaves its counters at zero makes that enough, also under replay of a graph. Memory that became too
    small is kept as long as this object: a captured graph may still write to it. Sizes are rounded up to powers of two,
    so what is kept is at most as much again.
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
        if cuda.is_capturing(stream):
            raise LaunchError("call it once on this stream before a graph is captured there", location=memory.name)
        if found is not None:
            self._outgrown.append(found)
        size = 1 << max(memory.size - 1, 0).bit_length()
        self._current[key] = cuda.allocate(size, zeroed=memory.zeroed, stream=stream)
        return self._current[key].pointer


class LoadedOperator:
    """The kernels of one operator, loaded on demand for each device."""

    def __init__(self, kernels: Sequence[KernelSource], compiled: Sequence[Compiled]) -> None:
        self._kernels = tuple(kernels)
        self._compiled = tuple(compiled)
        self._loaded: dict[int, tuple[cuda.Kernel, ...]] = {}
        self._workspaces = Workspaces()

    def loaded(self, device: int) -> tuple[cuda.Kernel, ...]:
        """The kernels on the current device, whose number this is."""
        found = self._loaded.get(device)
        if found is None:
            pairs = zip(self._kernels, self._compiled, strict=True)
            found = tuple(
                cuda.load_kernel(c.cubin, k.entry, threads=k.threads, shared_bytes=k.shared_bytes) for k, c in pairs
            )
            self._loaded[device] = found
        return found

    def run(
        self, plan: Plan, pointers: Mapping[str, int], scalars: Mapping[str, float], *, device: int, stream: int
    ) -> None:
        """Launch all kernels of a plan in order on a stream of the current device.

        ``pointers`` holds the addresses of inputs and outputs, ``scalars`` the values of inputs passed by value.
        """
        kernels = self.loaded(device)
        if not plan.launches:
            return
        addresses = dict(pointers)
        for memory in plan.workspaces:
            addresses[memory.name] = self._workspaces.address(memory, device, stream)
        with cuda.on_stream(stream):
            for launch in plan.launches:
                entry = self._kernels[launch.kernel].entry
                arguments = tuple(_filled(entry, a, addresses, scalars) for a in launch.arguments)
                kernels[launch.kernel].launch(launch.grid, arguments)


def _filled(
    entry: str, argument: np.generic | Address | ScalarValue, addresses: Mapping[str, int], scalars: Mapping[str, float]
) -> np.generic:
    match argument:
        case Address(buffer):
            return np.uint64(addresses[buffer])
        case ScalarValue(name, kind):
            return packed(entry, name, kind, scalars[name])
        case _:
            return argument
