"""Boxes: tiles that a copy engine can fetch by the coordinates of a corner, given a map of the whole array.

array[i0, .., i_row, .., i_last]     i_row = row + ..,  i_last = along + ..,  the others the same in the whole tile

The scheduler and the emitter ask ``box_of`` alike which tiles come so: each tells what it knows of the tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Protocol

from cleave.ir.axis import Axis
from cleave.ir.index import Atom, Index, Max, Min, Position, Symbol, axes_of
from cleave.tile.plan import Binding
from cleave.tile.program import Loop, Program

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

CHUNK_BYTES = 16
"""Of the parts that a tile's rows are made of."""


class Tiles(Protocol):
    """What is known of the tiles of a program, when it is compiled."""

    @property
    def program(self) -> Program: ...

    @property
    def binding(self) -> Binding: ...

    def fix(self, expression: Index) -> Index:
        """The expression with compile-time symbols replaced by their values."""
        ...

    def size(self, a: Axis) -> int:
        """Elements of a tile; 1 of a unit axis."""
        ...

    def start_multiple(self, a: Axis) -> int:
        """What divides the first positions of an axis's tiles; 1 if nothing is known."""
        ...

    def symbol_multiple(self, s: Symbol) -> int:
        """What divides a dim in every call."""
        ...


@dataclass(frozen=True)
class Rows:
    """A load as rows that lie along ``row`` and whose elements lie side by side ``along`` an axis.

    array    shape and indices, in terms of dims and positions
    inside   axes of the load that move inside the tile
    rows     as many as the tile has; ``row_bytes``: bytes of one; ``item_bytes``: of an element
    """

    array: tuple[Sequence[Index], Sequence[Index]]
    inside: frozenset[Axis]
    row: Axis
    along: Axis
    rows: int
    row_bytes: int
    item_bytes: int


@dataclass(frozen=True)
class BoxPlace:
    """Where a tile is fetched in boxes. ``dimension``: the array's axis that rows lie along; ``beyond``: the end of the
    rows where the array goes on, None: it ends there as well."""

    dimension: int
    beyond: Index | None


def box_of(t: Tiles, tile: Rows, loop: Loop | None) -> BoxPlace | None:
    """How a tile of a loop, or one before all loops, is fetched in boxes; None: it can't be.

    What lies outside the array comes as zero. Rows beyond the end of their axis and inside the array are cleared when
    they have come, if all threads know that end and they are no rows of the block.
    """
    if slab_bytes(tile.row_bytes) is None or tile.rows > WIDEST:
        return None
    shape, indices = ([t.fix(i) for i in part] for part in tile.array)
    dimension = row_dimension(
        shape, indices, tile.row, tile.along, tile.inside, lambda i: divisor(i, t.symbol_multiple), tile.item_bytes
    )
    if dimension is None:
        return None
    last = len(shape) - 1
    if not _ends_together(t, tile.along, _end(shape[last], indices[last], tile.along), loop):
        return None
    if _ends_together(t, tile.row, _end(shape[dimension], indices[dimension], tile.row), loop):
        return BoxPlace(dimension, None)
    beyond = t.fix(tile.row.extent)
    differs = any(a not in t.program.unit for a in axes_of(beyond))
    return None if tile.row in t.binding.rows or differs else BoxPlace(dimension, beyond)


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


def divisor(expression: Index, symbol_multiple: Callable[[Symbol], int]) -> int:
    """A number that divides the value at all positions; 0 for the value 0."""
    total = 0
    for monomial, factor in expression.terms:
        known = abs(factor)
        for atom, power in monomial:
            known *= _atom_divisor(atom, symbol_multiple) ** power
        total = gcd(total, known)
    return total


def _atom_divisor(atom: Atom, symbol_multiple: Callable[[Symbol], int]) -> int:
    match atom:
        case Symbol():
            return max(symbol_multiple(atom), 1)
        case Min(a, b) | Max(a, b):
            return gcd(divisor(a, symbol_multiple), divisor(b, symbol_multiple)) or 1
        case _:
            return 1


# ---- where a tile ends and where its array ends


def covered(t: Tiles, a: Axis) -> bool:
    """Whether every position of the tile exists, known when compiling."""
    extent, size = t.fix(a.extent).constant, t.size(a)
    if extent is None:
        return False
    if a in t.program.whole:
        return extent >= size
    return extent % size == 0 and t.start_multiple(a) % size == 0  # tiles start before the end


def _end(extent: Index, position: Index, a: Axis) -> Index:
    """The first position of an axis that lies outside the array."""
    rest = rest_of(position, a)
    assert rest is not None
    return extent - rest


def _ends_together(t: Tiles, a: Axis, end: Index, loop: Loop | None) -> bool:
    """Whether all positions of a tile that lie beyond the axis lie outside the array.

    An axis ends at the least of its bounds. A bound that whole tiles meet cuts none: a tile starts before it.
    """
    if covered(t, a):
        return True
    bounds = _bounds(t.fix(a.extent))
    before = bounds if a in t.program.grid else ()
    if loop is not None and a is loop.axis:
        before = _bounds(t.fix(loop.upper))
    size = t.size(a)

    def is_met(bound: Index) -> bool:
        return divisor(bound, t.symbol_multiple) % size == 0 and t.start_multiple(a) % size == 0

    return all(bound == end or (bound in before and is_met(bound)) for bound in bounds)


def _bounds(extent: Index) -> tuple[Index, ...]:
    """A position, which is not negative, is below an extent if it is below all of these."""
    match extent.atom:
        case Max(a, b) if b.constant is not None and b.constant <= 0:
            return _bounds(a)
        case Max(a, b) if a.constant is not None and a.constant <= 0:
            return _bounds(b)
        case Min(a, b):
            return (*_bounds(a), *_bounds(b))
        case _:
            return (extent,)
