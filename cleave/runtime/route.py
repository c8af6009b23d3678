"""Calls of a form that was seen before: from their arrays, read through attributes, to launches that are ready.

A form is all of a call's arrays and numbers but their addresses and values: types, shapes, strides, dtypes, devices,
and the names that they were given by. It decides every check but two: an address may be misaligned, and an output may
overlap another array. Those are made again for every call.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

from cleave.kernel import OperatorSource
from cleave.runtime import arguments as checks
from cleave.runtime import cuda
from cleave.runtime.arrays import READERS, ArrayView, Library, torch_stream
from cleave.runtime.call import Call, Place, new_array
from cleave.runtime.launch import POINTER, Launches
from cleave.runtime.plan import Plan

Form = tuple[object, ...]
Values = list[float]
"""The address or value of each argument in the order in which they came."""

Apart = tuple[int, int, int, int]
"""Places of an output and another array, which overlap where low < address of the other − the output's < high."""


@dataclass(slots=True)
class Route:
    """What a form decides.

    streams      the library whose current stream is meant
    order        of inputs and outputs of the operator, as places among the arguments that came
    alignments   (place, bytes) of addresses
    apart        what must not overlap
    new_outputs  makes results on a stream, if the call gave no ``out``
    launches     by stream
    admitted     the values of the last call: what passed once passes again
    """

    device: int
    streams: Library
    order: Callable[[Sequence[float]], Sequence[float]]
    alignments: tuple[tuple[int, int], ...]
    apart: tuple[Apart, ...]
    new_outputs: Callable[[int], tuple[Any, ...]] | None
    launches: dict[int, Launches] = field(default_factory=dict[int, Launches])
    admitted: Values = field(default_factory=list[float])

    def run(self, values: Values, outputs: tuple[Any, ...], stream: int | None) -> tuple[Any, ...] | None:
        """Launch and return the outputs; None, with nothing launched, where the long way must be gone.

        That is: another device is current, the stream is new, or an address or a number does not pass.
        """
        if cuda.current_device() != self.device:
            return None
        if stream is None:
            stream = torch_stream(self.device) if self.streams is Library.TORCH else cuda.current_stream()
        launches = self.launches.get(stream)
        if launches is None:
            return None
        if self.new_outputs is not None:
            outputs = self.new_outputs(stream)
            values = values + [READERS[type(array)](array)[0] for array in outputs]
        ordered = self.order(values)
        if values != self.admitted:
            if not self._admits(ordered):
                return None
            self.admitted = values
        try:
            launches.run(ordered)
        except (struct.error, OverflowError):
            return None
        return outputs

    def _admits(self, values: Sequence[Any]) -> bool:
        for place, alignment in self.alignments:
            if values[place] % alignment:
                return False
        # Not all(..): a generator costs as much as the comparisons.
        for output, other, low, high in self.apart:  # noqa: SIM110
            if low < values[other] - values[output] < high:
                return False
        return True


def see(inputs: tuple[Any, ...], named: Mapping[str, Any], outputs: tuple[Any, ...]) -> tuple[Form, Values]:
    """A call's form and values; an empty form if an argument is of a type that has no reader."""
    arrays = (*inputs, *named.values(), *outputs) if named else inputs + outputs
    facts: list[object] = [len(inputs), *named]
    values: list[float] = []
    try:
        for array in arrays:
            value, fact = READERS[type(array)](array)
            values.append(value)
            facts.append(fact)
    except (KeyError, RuntimeError):  # a new type; a tensor without strides
        return (), values
    return tuple(facts), values


# ---- making one ----------------------------------------------------------------------------------------------------

_ROUNDED = frozenset({"float16", "bfloat16"})


def route_of(operator: OperatorSource, given: tuple[Any, ...], call: Call, launches: Launches) -> Route | None:
    """The short way for calls of this form; None where values must be copied, read or rounded for each call.

    ``given``: how many arguments came by place, and the names of the others.
    """
    if call.place.library is Library.NUMPY or any(a.on_host for a in call.outs.values()):
        return None
    for buffer, kind in zip(operator.inputs, launches.kinds, strict=False):
        by_value = kind != POINTER
        if call.views[buffer.name].on_host != by_value or (by_value and buffer.dtype in _ROUNDED):
            return None
    buffers = (*operator.inputs, *operator.outputs)
    names = [b.name for b in buffers]
    count, *by_name = given
    came = [*names[:count], *by_name, *(b.name for b in operator.outputs)]
    places = [came.index(name) for name in names]
    here = {n: a for n, a in {**call.views, **call.outs}.items() if not a.on_host}
    arrays = {n: a for n, a in here.items() if 0 not in a.shape}
    return Route(
        device=call.place.device,
        streams=Library.TORCH if any(a.library is Library.TORCH for a in here.values()) else Library.CUPY,
        order=_as_it_came if places == list(range(len(came))) else itemgetter(*places),
        alignments=tuple((n, b.alignment) for n, b in enumerate(buffers) if b.alignment > 1 and b.name in arrays),
        apart=_apart([n for n in names if n in call.outs], names, arrays),
        new_outputs=None if call.outs else partial(_new_outputs, operator, call.planned.plan, call.place),
    )


def _as_it_came(values: Sequence[float]) -> Sequence[float]:
    return values


def _apart(outputs: Sequence[str], names: Sequence[str], arrays: Mapping[str, ArrayView]) -> tuple[Apart, ...]:
    found: list[Apart] = []
    for output in (name for name in outputs if name in arrays):
        for other in names[: names.index(output)]:  # inputs, and the outputs before it
            if other in arrays:
                (low, high), (other_low, other_high) = checks.span(arrays[output]), checks.span(arrays[other])
                found.append((names.index(output), names.index(other), low - other_high, high - other_low))
    return tuple(found)


def _new_outputs(operator: OperatorSource, plan: Plan, place: Place, stream: int) -> tuple[Any, ...]:
    here = Place(place.device, stream, place.library)
    return tuple(new_array(plan.outputs[b.name], b.dtype, here) for b in operator.outputs)
