"""Boxes: tiles that a copy engine can fetch by the coordinates of a corner, given a map of the whole array.

array[i0, .., i_row, .., i_last]     i_row = row + ..,  i_last = along + ..,  the others the same in the whole tile
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cleave.ir.axis import Axis
from cleave.ir.index import Index, Position, axes_of

RANKS = range(2, 6)
"""Axes of an array that a tensor map describes."""

WIDEST = 256
"""Elements of a box on one axis."""

UNIT_BYTES = 16
"""Strides are multiples of it, as is the address."""

ALIGNMENT = 1024
"""Bytes after which the engine's swizzle repeats: tiles of boxes begin at multiples of it."""

SLABS = (128, 64, 32)
"""Bytes of a box's rows, the swizzles that there are."""


def row_dimension(
    shape: Sequence[Index],
    indices: Sequence[Index],
    row: Axis,
    along: Axis,
    inside: frozenset[Axis],
    divisor: Callable[[Index], int],
    item_bytes: int,
) -> int | None:
    """The axis of an array that the rows of a tile lie along, its columns lying along the last; None: it is no box.

    ``inside``: axes that move inside the tile; ``divisor``: a number that divides the value, 0 for the value 0.
    """
    if len(shape) not in RANKS or divisor(shape[-1]) * item_bytes % UNIT_BYTES:
        return None
    found = [n for n, i in enumerate(indices) if row in axes_of(i)]
    if len(found) != 1 or found[0] == len(shape) - 1:
        return None
    for n, i in enumerate(indices):
        moving = {found[0]: row, len(shape) - 1: along}.get(n)
        rest = i if moving is None else rest_of(i, moving)
        if rest is None or axes_of(rest) & inside:
            return None
    return found[0]


def rest_of(expression: Index, axis: Axis) -> Index | None:
    """What is added to a position; None if the expression is not the position and something."""
    linear = expression.linear_in(Position(axis))
    return linear[1] if linear is not None and linear[0].constant == 1 else None


def is_beside(last: Index, a: Axis) -> bool:
    """Whether neighbours along an axis are neighbours in memory, by the last index of an array."""
    return rest_of(last, a) is not None


def slab_bytes(row_bytes: int) -> int | None:
    """The widest swizzle of which rows of a tile are whole multiples."""
    return next((n for n in SLABS if row_bytes % n == 0), None)
