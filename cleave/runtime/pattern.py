"""Calls of a form that was seen at other sizes: from their arrays, by one function, to launches that are resized.

In decode the number of keys is another one at every step. A pattern is a form without the sizes: the first call that
has it is checked step by step, later ones by ``cleave.runtime.sizes``. A size that comes again becomes a route.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cleave.kernel import Variant
from cleave.runtime import cuda
from cleave.runtime.arrays import ADDRESSES
from cleave.runtime.call import Call, Place, array_maker
from cleave.runtime.launch import Launches, Layout, LoadedOperator
from cleave.runtime.match import facts_of, matcher
from cleave.runtime.route import Apart, Maker, Route, came_as
from cleave.runtime.sizes import Find, Found, finder

_STREAMS_KEPT = 64


@dataclass(slots=True, eq=False)
class Pattern:
    """What a form decides whatever its sizes.

    given     how many arguments came by place, and the names of the others
    route     of the sizes at which it was seen first
    find      checks a call and finds what its sizes decide; ``text`` is its source
    launches  by stream, at the sizes of the last call
    """

    given: tuple[object, ...]
    route: Route
    text: str
    find: Find
    loaded: LoadedOperator
    layout: Layout
    place: Place
    launches: dict[int, Launches] = field(default_factory=dict[int, Launches])

    def found(self, arguments: tuple[Any, ...], given: tuple[object, ...]) -> Found | None:
        """A call that passes every check; its device must be the current one."""
        route = self.route
        if given != self.given or len(arguments) != route.arguments:
            return None
        if route.device is not None and cuda.current_device() != route.device:
            return None
        try:
            return self.find(arguments)
        except (ValueError, ZeroDivisionError, RuntimeError):  # a rank; a floor; a tensor without an address
            return None

    def run(self, found: Found, outputs: tuple[Any, ...], stream: int | None) -> tuple[Any, ...] | None:
        """Launch and return the outputs; None, with nothing launched, if a number or a new address does not pass."""
        current = self.route.stream() if stream is None else stream
        outputs = self._outputs(found, outputs, stream)
        if not self._admits(found):
            return None
        launches = self.launches.get(current)
        try:
            if launches is None:
                if len(self.launches) >= _STREAMS_KEPT:
                    del self.launches[next(iter(self.launches))]
                launches = self.launches[current] = self._launches(found, current)
            else:
                self.loaded.resize(launches, found.sizes)
            launches.write(found.values)
        except (struct.error, OverflowError):
            return None
        launches.repeat()
        return outputs

    def prepared(
        self, found: Found, outputs: tuple[Any, ...], stream: int | None
    ) -> tuple[Launches, tuple[Any, ...]] | None:
        """The same, ready to be launched."""
        outputs = self._outputs(found, outputs, stream)
        if not self._admits(found):
            return None
        try:
            launches = self._launches(found, self.route.stream() if stream is None else stream)
            launches.write(found.values)
        except (struct.error, OverflowError):
            return None
        return launches, outputs

    def at(self, found: Found, arguments: Sequence[Any], stream: int | None) -> Route | None:
        """The route of these sizes; None if a number does not pass."""
        current = self.route.stream() if stream is None else stream
        try:
            launches = self._launches(found, current)
        except (struct.error, OverflowError):
            return None
        return replace(
            self.route,
            apart=self._apart(found),
            new_outputs=tuple((maker, ADDRESSES[self.place.library]) for maker in self._makers(found)),
            match=matcher(arguments, facts_of(arguments), self.route.order),
            launches={current: launches},
            admitted=[],
            rematched=0,
        )

    def _launches(self, found: Found, stream: int) -> Launches:
        return self.loaded.launches(self.layout, found.sizes, device=self.place.device, stream=stream)

    def _outputs(self, found: Found, outputs: tuple[Any, ...], stream: int | None) -> tuple[Any, ...]:
        """Those given, or new ones, whose addresses join the values."""
        if not found.shapes:
            return outputs
        makers = self._makers(found)
        if stream is None:
            outputs = tuple([make() for make in makers])
        else:
            with cuda.on_stream(stream):
                outputs = tuple([make() for make in makers])
        address = ADDRESSES[self.place.library]
        found.values.extend([address(array) for array in outputs])
        return outputs

    def _makers(self, found: Found) -> list[Maker]:
        pairs = zip(found.shapes, self.loaded.operator.outputs, strict=False)
        return [array_maker(shape, b.dtype, self.place) for shape, b in pairs]

    def _admits(self, found: Found) -> bool:
        """Addresses of new outputs."""
        if not found.shapes:
            return True
        return not any(found.values[place] % alignment for place, alignment in self.route.alignments)

    def _apart(self, found: Found) -> tuple[Apart, ...]:
        return tuple((o, x, -found.bytes[x], found.bytes[o]) for o, x, _, _ in self.route.apart)


def pattern_of(
    variants: Sequence[Variant],
    loaded: LoadedOperator,
    arguments: Sequence[Any],
    call: Call,
    route: Route,
    layout: Layout,
) -> Pattern | None:
    """That of a call, at sizes that the same variant serves; None where only checks one by one will do."""
    given = (route.counts[0], *route.names)
    names = came_as(loaded.operator, given, outputs=route.counts[1] > 0)
    made = finder(variants, call.planned.variant, names, arguments, facts_of(arguments), layout)
    return made and Pattern(given, route, *made, loaded, layout, call.place)
