"""Bindings where threads share rows: how many threads a row has, and how many of its elements each takes at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from cleave.errors import ScheduleError
from cleave.ir.axis import Axis
from cleave.schedule.placement import Placement, Sizes, power_of_two
from cleave.tile.plan import Binding
from cleave.tile.program import Program, program_axes
from cleave.tile.skeleton import Skeleton, vector_elements

THREADS = (128, 256)
"""Threads of blocks with several rows; a row of more has a block of its own."""

HELD = 64
"""Elements of a row that a thread may hold: with them lie values that are computed from them."""

AT_ONCE, DIVIDED = (16, 32, 48, HELD), (8, 16, 32)
"""Elements that a thread takes at once of a row that is longer; and of an axis that blocks divide."""

LEAST = 8
"""Threads of a row that is no shorter: together they read a whole line of the cache."""

UNKNOWN = 4096
"""Elements of an axis whose extent is read, to choose tiles by."""


def shared_row_bindings(
    program: Program, placement: Placement, sizes: Sizes, skeleton: Skeleton, tile: Mapping[str, int]
) -> Iterator[Binding]:
    """Every combination worth costing; ``tile`` forces sizes by axis name. Errors: a size that no combination has."""
    columns = tuple(a for a in program_axes(program) if a not in program.unit and a not in placement.rows)
    vector, found = vector_elements(program), False
    for lanes, warps in _arrangements(placement, columns, sizes, skeleton, tile, vector):
        rows = {placement.rows[0]: 32 * warps // lanes} if placement.rows else {}
        options = [_tiles(a, lanes * vector, vector, sizes, tile, program) for a in columns]
        for chosen in product(*options):
            tiles = {**dict.fromkeys(program.unit, 1), **rows, **dict(zip(columns, chosen, strict=True))}
            if all(tile.get(a.name, n) == n for a, n in tiles.items()):
                found = True
                yield Binding(tiles, placement.rows, warps, skeleton.stages[0], lanes=lanes)
    if not found and any(a.name in tile for a in program_axes(program)):
        raise ScheduleError(
            f"tile {dict(tile)}: allowed are multiples of {skeleton.lanes[0] * vector} columns, so many times a power "
            f"of two, and 1 or so many rows that they fill {', '.join(map(str, THREADS))} threads",
            location=f"skeleton {skeleton.name}",
        )


def _arrangements(
    placement: Placement,
    columns: tuple[Axis, ...],
    sizes: Sizes,
    skeleton: Skeleton,
    tile: Mapping[str, int],
    vector: int,
) -> Iterator[tuple[int, int]]:
    """(threads a row, warps): no more of a row's threads than it has vectors, no more rows than there are."""
    longest = max((sizes.extent(a) or UNKNOWN for a in columns), default=1)
    useful = max(power_of_two(-(-longest // vector)), skeleton.lanes[0])
    forced = any(a.name in tile for a in (*columns, *placement.rows))
    available = power_of_two(sizes.extent(placement.rows[0]) or UNKNOWN) if placement.rows else 1
    for lanes in skeleton.lanes:
        if not forced and not min(LEAST, useful) <= lanes <= useful:
            continue
        possible = [w for w in skeleton.warps if 32 * w % lanes == 0 and (placement.rows or 32 * w == lanes)]
        filled = [w for w in possible if 32 * w == lanes or (32 * w in THREADS and 32 * w < 2 * available * lanes)]
        for warps in possible if forced else filled or possible[:1]:
            yield lanes, warps


def _tiles(
    a: Axis, width: int, vector: int, sizes: Sizes, tile: Mapping[str, int], program: Program
) -> tuple[int, ...]:
    """Tiles of a column axis, of ``width`` elements for each vector of a thread: all of it if threads can hold it;
    else a part, unless it has to be held whole."""
    whole, divided = a in program.whole, a in program.grid
    vectors = max(-(-(sizes.extent(a) or UNKNOWN) // width), 1)
    if a.name in tile:
        fits = tile[a.name] > 0 and tile[a.name] % width == 0 and (not whole or tile[a.name] >= vectors * width)
        return (tile[a.name],) if fits else ()
    if not divided and vectors * vector <= HELD:
        return (vectors * width,)
    if whole:
        return ()
    return tuple(dict.fromkeys(min(n // vector, vectors) * width for n in (DIVIDED if divided else AT_ONCE)))
