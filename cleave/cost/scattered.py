"""Tiles that come element by element: none of their axes has its elements side by side in memory."""

from __future__ import annotations

from collections.abc import Iterable

from cleave.ir.axis import Axis
from cleave.ir.graph import Load
from cleave.ir.index import Position

SECTOR_BYTES = 32
"""What memory and caches move at least, however little of it is asked for."""


def is_scattered(load: Load, tiled: Iterable[Axis]) -> bool:
    """Whether no axis of a tile has neighbours for neighbours in memory: x[m, h, e] over m and h, say."""
    linear = [load.indices[-1].linear_in(Position(a)) for a in tiled] if load.indices else []
    return bool(linear) and not any(found is not None and found[0].constant == 1 for found in linear)
