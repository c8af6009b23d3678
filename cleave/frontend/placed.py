"""Outputs that are stored at computed places, such as the rows of requests that are packed one after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cleave.errors import ShapeError
from cleave.frontend.context import fail
from cleave.frontend.tensor import Tensor, expression
from cleave.ir.dim import is_name
from cleave.ir.index import Index, axes_of


@dataclass(frozen=True)
class Placed:
    """A tensor, and for each new name the position along it; see ``ops.place``."""

    tensor: Tensor
    places: Mapping[str, Index]

    @property
    def left(self) -> tuple[str, ...]:
        """Axes that keep their own place."""
        gone = {a for position in self.places.values() for a in axes_of(position)}
        return tuple(a.name for a in self.tensor.slots if a not in gone)


def placed(x: Tensor, places: Mapping[str, Tensor]) -> Placed:
    """The output, once its places are known to be over axes of it."""
    made = Placed(x, {name: expression(p, "place") for name, p in places.items()})
    for name, position in made.places.items():
        if not is_name(name) or name in x.axes:
            fail(f"place: {name!r} is no name for a new axis of {x.name}")
        for a in axes_of(position):
            if a not in x.slots:
                fail(f"place: {name} lies along axis {a.name}, which {x.name} has not", ShapeError)
    return made
