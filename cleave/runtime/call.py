"""One call of an operator: its arrays as facts, where it runs, and its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np

from cleave.errors import ArgumentError, LaunchError
from cleave.ir.index import evaluate
from cleave.kernel import OperatorSource
from cleave.runtime import arguments as checks
from cleave.runtime import cuda
from cleave.runtime.arrays import ArrayView, Library, contiguous_strides, torch_maker, torch_stream, view
from cleave.runtime.launch import Launches
from cleave.runtime.plan import Plan


@dataclass(frozen=True, slots=True)
class Planned:
    """What shapes and strides decide about a call; the launches by device and stream."""

    variant: int
    dims: Mapping[str, int]
    plan: Plan
    launches: dict[tuple[int, int], Launches] = field(default_factory=dict[tuple[int, int], Launches])


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call runs and whose arrays come back."""

    device: int
    stream: int
    library: Library


@dataclass(frozen=True, slots=True)
class Call:
    """A call whose arguments passed."""

    planned: Planned
    views: Mapping[str, ArrayView]
    outs: Mapping[str, ArrayView]
    place: Place


def views_of(
    operator: OperatorSource, arrays: Mapping[str, Any], from_dlpack: Callable[[Any], Any] | None
) -> dict[str, ArrayView]:
    return {
        b.name: view(f"input {b.name}", checks.as_declared(b, arrays[b.name]), from_dlpack) for b in operator.inputs
    }


def results_of(operator: OperatorSource, call: Call) -> list[Result]:
    return [Result(operator, n, call.planned.plan, call.outs, call.place) for n in range(len(operator.outputs))]


class Result:
    """One output of a call: the caller's array, or a new one of the caller's library."""

    def __init__(
        self, operator: OperatorSource, number: int, plan: Plan, outs: Mapping[str, ArrayView], place: Place
    ) -> None:
        buffer = operator.outputs[number]
        self.name, self._dtype, self._shape = buffer.name, buffer.dtype, plan.outputs[buffer.name]
        self._given = outs.get(self.name)
        self._memory: cuda.DeviceMemory | None = None
        self.array: Any = None
        if self._given is not None and not self._given.on_host:
            self.array, self.pointer = self._given.owner, self._given.pointer
        elif self._given is not None or place.library is Library.NUMPY:
            size = int(np.prod(self._shape, dtype=np.int64)) * buffer.item_bytes
            self._memory = cuda.allocate(size, zeroed=False, stream=place.stream)
            self.pointer = self._memory.pointer
        else:
            self.array = new_array(self._shape, self._dtype, place)
            self.pointer = view(f"output {self.name}", self.array).pointer

    def delivered(self, place: Place) -> Any:
        """The array to return; results for the host are copied, which waits for the kernels."""
        if self._memory is None:
            return self.array
        host = cuda.to_host(self._memory, self._shape, self._dtype, place.stream)
        if self._given is None:
            return host
        np.copyto(self._given.owner, host)
        return self._given.owner


def new_array(shape: tuple[int, ...], dtype: str, place: Place) -> Any:
    """An array without values on the current device; CuPy's for the stream of the place, torch's for its own."""
    make = array_maker(shape, dtype, place)
    if place.library is Library.TORCH:
        return make()
    with cuda.on_stream(place.stream):
        return make()


def array_maker(shape: tuple[int, ...], dtype: str, place: Place) -> Callable[[], Any]:
    """Makes arrays without values on the current device, for its library's current stream."""
    if place.library is Library.TORCH:
        return torch_maker(shape, dtype, place.device)
    return partial(cuda.empty, shape, dtype)


def signature(operator: OperatorSource, views: Mapping[str, ArrayView]) -> tuple[object, ...]:
    """What decides a plan, and whether the checks pass: names, facts and the alignment of each address."""
    alignments = {b.name: b.alignment for b in (*operator.inputs, *operator.outputs)}
    return tuple(
        (n, a.shape, a.strides, a.dtype, a.on_host, a.pointer % alignments.get(n, 1) == 0) for n, a in views.items()
    )


def given_outputs(operator: OperatorSource, out: Any, from_dlpack: Callable[[Any], Any] | None) -> dict[str, ArrayView]:
    """``out`` as an array, a sequence in the order of the outputs (None: allocate), or a mapping by name."""
    names = [b.name for b in operator.outputs]
    given: Mapping[str, Any]
    match out:
        case None:
            given = {}
        case Mapping():
            given = cast("Mapping[str, Any]", out)
        case tuple() | list():
            listed = cast("Sequence[Any]", out)
            if len(listed) != len(names):
                raise ArgumentError(f"out has {len(listed)} arrays for {len(names)} outputs", location=operator.name)
            given = dict(zip(names, listed, strict=True))
        case _ if len(names) == 1:
            given = {names[0]: out}
        case _:
            raise ArgumentError(f"out must name or list the outputs {', '.join(names)}", location=operator.name)
    for name in given:
        if name not in names:
            raise ArgumentError(f"out: no output {name!r}; there are {', '.join(names)}", location=operator.name)
    return {n: view(f"output {n}", array, from_dlpack) for n, array in given.items() if array is not None}


def output_strides(
    operator: OperatorSource, name: str, outs: Mapping[str, ArrayView], dims: Mapping[str, int]
) -> tuple[int, ...]:
    buffer = next(b for b in operator.outputs if b.name == name)
    if name in outs:
        checks.check_output(buffer, outs[name], dims)
        return checks.check_layout(buffer, outs[name], role="output")
    return contiguous_strides(tuple(int(evaluate(e, dims)) for e in buffer.shape))


def common_device(views: Sequence[tuple[str, ArrayView]]) -> int:
    """The device that all arrays are on; the current one for host arrays and for arrays that do not say."""
    places: dict[int, str] = {}
    for name, array in views:
        if array.device is not None:
            places.setdefault(array.device, name)
    if len(places) > 1:
        (a, first), (b, second) = list(places.items())[:2]
        raise ArgumentError(f"{first} is on device {a}, {second} on device {b}", location="arguments")
    return next(iter(places)) if places else cuda.current_device()


def place_of(device: int, views: Sequence[ArrayView], stream: int | None) -> Place:
    libraries = [v.library for v in views if not v.on_host]
    library = libraries[0] if libraries else Library.NUMPY
    if stream is None:
        stream = torch_stream(device) if Library.TORCH in libraries else cuda.current_stream()
    return Place(device, stream, library)


def scalar(array: ArrayView) -> float:
    if array.on_host:
        return cast("np.ndarray[Any, Any]", array.owner).item()
    if array.shape != ():
        raise LaunchError(f"shape {array.shape} for a value", location="scalar")
    return cuda.read_scalar(array.owner)
