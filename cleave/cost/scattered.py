"""Tiles that come element by element: none of their axes has its elements side by side in memory."""

from __future__ import annotations

from collections.abc import Iterable

from cleave.ir.axis import Axis
from cleave.ir.graph import Load
from cleave.tile.box import is_beside

SECTOR_BYTES = 32
"""What memory and caches move at least, however little of it is asked for."""


def is_scattered(load: Load, tiled: Iterable[Axis]) -> bool:
    """Whether no axis of a tile has neighbours for neighbours in memory: x[m, h, e] over m and h, say."""
    axes = tuple(tiled)
    return bool(load.indices and axes) and not any(is_beside(load.indices[-1], a) for a in axes)
