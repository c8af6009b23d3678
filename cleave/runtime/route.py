"""Calls of a form that was seen before: from their arrays, read through attributes, to launches that are ready.

A form is all of a call's arrays and numbers but their addresses and values: types, shapes, strides, dtypes, devices,
and the names that they were given by. It decides every check but two: an address may be misaligned, and an output may
overlap another array. Those are made again for every call.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cleave.kernel import OperatorSource
from cleave.runtime import arguments as checks
from cleave.runtime import cuda
from cleave.runtime.arrays import ADDRESSES, READERS, ArrayView, Library, asking_torch
from cleave.runtime.call import Call, Place, array_maker
from cleave.runtime.launch import POINTER, Launches
from cleave.runtime.match import Match, Values, matcher
from cleave.runtime.plan import Plan

Form = tuple[object, ...]

Apart = tuple[int, int, int, int]
"""Places of an output and another array, which overlap where low < address of the other − the output's < high."""

Maker = Callable[[], Any]
Address = Callable[[Any], int]


@dataclass(slots=True)
class Route:
    """What a form decides.

    device       the one that must be current; None where there is no other
    stream       asks for the one that is meant
    counts       how many inputs came by place, and how many arrays in ``out``
    names        of the other inputs, in their order
    order        of inputs and outputs of the operator, as places among the arguments that came
    alignments   (place, bytes) of addresses
    apart        what must not overlap
    new_outputs  makers of results and of their addresses, if the call gave no ``out``
    numbers      whether some are passed by value: equal ones may differ, 0.0 and -0.0
    match        recognises the form of a call
    launches     by stream
    admitted     the values of the last call: what passed once passes again
    rematched    how often ``match`` was made anew
    """

    device: int | None
    stream: Callable[[], int]
    counts: tuple[int, int]
    names: tuple[str, ...]
    order: tuple[int, ...]
    alignments: tuple[tuple[int, int], ...]
    apart: tuple[Apart, ...]
    new_outputs: tuple[tuple[Maker, Address], ...]
    numbers: bool
    match: Match
    launches: dict[int, Launches] = field(default_factory=dict[int, Launches])
    admitted: Values = field(default_factory=list[float])
    rematched: int = 0

    @property
    def arguments(self) -> int:
        """How many came."""
        return self.counts[0] + len(self.names) + self.counts[1]

    def ordered(self, values: Values) -> Values:
        """From the order in which arguments came."""
        return [values[place] for place in self.order]

    def run(self, values: Values, outputs: tuple[Any, ...], stream: int | None) -> tuple[Any, ...] | None:
        """Launch with ordered values and return the outputs; None, with nothing launched, where the long way must be
        gone.

        That is: another device is current, the stream is new, or an address or a number does not pass.
        """
        if self.device is not None and cuda.current_device() != self.device:
            return None
        current = self.stream() if stream is None else stream
        launches = self.launches.get(current)
        if launches is None:
            return None
        if self.new_outputs:
            outputs = self._made(stream)
            values += [address(array) for array, (_, address) in zip(outputs, self.new_outputs, strict=True)]
        admitted = self.admitted  # another thread may replace it
        if values != admitted:
            if not self._admits(values):
                return None
            self.admitted = admitted = values
        try:
            launches.run(values if self.numbers else admitted)
        except (struct.error, OverflowError):
            return None
        return outputs

    def _made(self, stream: int | None) -> tuple[Any, ...]:
        if stream is None:
            return tuple([make() for make, _ in self.new_outputs])
        with cuda.on_stream(stream):
            return tuple([make() for make, _ in self.new_outputs])

    def _admits(self, values: Sequence[Any]) -> bool:
        for place, alignment in self.alignments:
            if values[place] % alignment:
                return False
        # Not all(..): a generator costs as much as the comparisons.
        for output, other, low, high in self.apart:  # noqa: SIM110
            if low < values[other] - values[output] < high:
                return False
        return True


def see(arguments: Sequence[Any], given: tuple[object, ...]) -> tuple[Form, Values]:
    """A call's form and values; an empty form if an argument is of a type that has no reader."""
    facts: list[object] = [*given]
    values: Values = []
    try:
        for argument in arguments:
            value, fact = READERS[type(argument)](argument)
            values.append(value)
            facts.append(fact)
    except (KeyError, RuntimeError):  # a new type; a tensor without strides
        return (), values
    return tuple(facts), values


# ---- making one ----------------------------------------------------------------------------------------------------

_ROUNDED = frozenset({"float16", "bfloat16"})


def route_of(
    operator: OperatorSource,
    arguments: Sequence[Any],
    given: tuple[Any, ...],
    form: Form,
    call: Call,
    launches: Launches,
) -> Route | None:
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
    outputs = [b.name for b in operator.outputs] if call.outs else []
    came = came_as(operator, given, outputs=bool(outputs))
    order = tuple(came.index(b.name) for b in (operator.inputs if not outputs else buffers))
    here = {n: a for n, a in {**call.views, **call.outs}.items() if not a.on_host}
    arrays = {n: a for n, a in here.items() if 0 not in a.shape}
    torch = any(a.library is Library.TORCH for a in here.values())
    device = call.place.device
    return Route(
        device=None if cuda.device_count() == 1 else device,
        stream=asking_torch(device) if torch else cuda.current_stream,
        counts=(count, len(outputs)),
        names=tuple(by_name),
        order=order,
        alignments=tuple((n, b.alignment) for n, b in enumerate(buffers) if b.alignment > 1 and b.name in arrays),
        apart=_apart(outputs, names, arrays),
        new_outputs=() if outputs else _makers(operator, call.planned.plan, call.place),
        numbers=any(kind != POINTER for kind in launches.kinds),
        match=matcher(arguments, form[len(given) :], order),
    )


def came_as(operator: OperatorSource, given: tuple[Any, ...], *, outputs: bool) -> list[str]:
    """The input, dim or output that each argument of a call is."""
    count, *by_name = given
    by_place = [b.name for b in operator.inputs][:count]
    return [*by_place, *by_name, *([b.name for b in operator.outputs] if outputs else [])]


def _apart(outputs: Sequence[str], names: Sequence[str], arrays: Mapping[str, ArrayView]) -> tuple[Apart, ...]:
    found: list[Apart] = []
    for output in (name for name in outputs if name in arrays):
        for other in names[: names.index(output)]:  # inputs, and the outputs before it
            if other in arrays:
                (low, high), (other_low, other_high) = checks.span(arrays[output]), checks.span(arrays[other])
                found.append((names.index(output), names.index(other), low - other_high, high - other_low))
    return tuple(found)


def _makers(operator: OperatorSource, plan: Plan, place: Place) -> tuple[tuple[Maker, Address], ...]:
    address = ADDRESSES[place.library]
    return tuple((array_maker(plan.outputs[b.name], b.dtype, place), address) for b in operator.outputs)
