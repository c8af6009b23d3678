"""Tile sizes, warps and stages to try for one program.

Rules of thumb from measured kernels of this structure: matmul 128 x 128 or 64 x 64 with 32 or 64 along the sum;
attention 128 rows in 8 warps with 64 or 128 keys, two stages; few rows when there are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

from cleave.errors import ScheduleError
from cleave.ir.axis import Axis
from cleave.ir.graph import Load
from cleave.ir.index import axes_of
from cleave.schedule.placement import MOST_ROWS, Placement, Sizes, known_extent, power_of_two
from cleave.tile.plan import Binding, Division
from cleave.tile.program import Contract, Let, Loop, Program, loops, statements, tile_terms
from cleave.tile.skeleton import COLUMNS_APART, MOST_COLUMNS, WARPGROUP, Skeleton

COLUMN_TILES = (32, 64, 128, 192, 256)
"""The last three for matmuls only: elementwise fragments of 128 columns cost registers and save no traffic."""

WARP_COLUMNS = 128
"""Columns up to which mma.sync is considered: wider tiles are for warpgroups, whose operand lies in shared memory."""

SLICE = 16
"""Elements of an output axis that a loop which only stores takes at once."""


def bindings(
    program: Program, placement: Placement, sizes: Sizes, skeleton: Skeleton, tile: Mapping[str, int]
) -> Iterator[Binding]:
    """Every combination worth costing; ``tile`` forces sizes by axis name."""
    inside = tuple(dict.fromkeys(s.axis for s in loops(program) if s.axis not in program.unit))
    columns = tuple(a for a in program.grid if a not in program.unit and a not in placement.rows)
    fixed = {a: _unit_tile(a, tile) for a in program.unit}
    fixed |= {a: _whole_tile(a, sizes, skeleton, tile) for a in program.whole}
    fixed |= {a: _row_tile(a, sizes, tile) for a in placement.rows[1:]}
    choices = [_options(a, _loop_tiles(program, a, skeleton), sizes, skeleton, tile) for a in inside]
    wide = COLUMN_TILES if any(isinstance(t, Contract) for t in tile_terms(program)) else COLUMN_TILES[:2]
    choices += [_options(a, wide, sizes, skeleton, tile) for a in columns]
    for parts, divisions in _divisions(program, fixed, skeleton).items():
        for (warps, teams, row_tiles), first in _row_tiles(placement, sizes, skeleton, tile, parts):
            for chosen in product(*choices):
                sized = dict(zip((*inside, *columns), chosen, strict=True))
                tiles = {**fixed, **sized, **({placement.rows[0]: first} if placement.rows else {})}
                for count, division in product(skeleton.stages, divisions):
                    yield Binding(
                        tiles,
                        placement.rows,
                        warps,
                        count,
                        teams,
                        row_tiles,
                        loaders=skeleton.loaders,
                        division=division,
                    )


def _loop_tiles(program: Program, a: Axis, skeleton: Skeleton) -> tuple[int, ...]:
    """Tiles of a loop; along rows of arrays only those that fill slabs of boxes: narrow ones are read slowly."""
    loads = (s.term for s in statements(program.body) if isinstance(s, Let) and isinstance(s.term, Load))
    beside = any(t.indices and a in axes_of(t.indices[-1]) for t in loads)
    return tuple(n for n in skeleton.loop_tiles if not beside or n <= COLUMNS_APART or n % COLUMNS_APART == 0)


def _divisions(
    program: Program, whole: Mapping[Axis, int], skeleton: Skeleton
) -> Mapping[int, tuple[Division | None, ...]]:
    """Columns of a sum that are too many for the registers of one warpgroup, or of one warp, are divided, if the
    skeleton can; and those of the loop's tiles as well, which single warps always do. By the number of parts."""
    summed = {a for s in loops(program) for c in s.accumulators for a in c.axes}
    wide = [a for a in program.whole if a in summed and whole[a] > MOST_COLUMNS]
    enough = [n for n in skeleton.divisions if n > 1 and any(whole[a] <= n * MOST_COLUMNS for a in wide)]
    if len(wide) != 1 or not enough:
        return {1: (None,)}
    walked = [s.axis for s in program.body if isinstance(s, Loop)][:1]
    if skeleton.loaders:
        n = enough[0]
        return {n: (Division(wide[0], n), *(Division(wide[0], n, a) for a in walked))}
    return {n: tuple(Division(wide[0], n, a) for a in walked) for n in enough}


def _row_tiles(
    p: Placement, sizes: Sizes, skeleton: Skeleton, tile: Mapping[str, int], parts: int
) -> Iterator[tuple[tuple[int, int, int], int]]:
    """((warps, teams, sets of rows a warp), tile of the first row axis); no more rows than the shape has, rounded up
    to a warp's, or a warpgroup's where several of them divide columns. ``parts``: warps that share rows."""
    if not p.rows:
        return
    others = prod(_row_tile(a, sizes, tile) for a in p.rows[1:])
    forced = tile.get(p.rows[0].name)
    needed = max(known_extent(p.rows[0], sizes), 1) * others
    least = skeleton.rows_per_warp * (WARPGROUP if parts > 1 and skeleton.loaders else 1)
    arrangements = [
        (w, n, r)
        for w in reversed(skeleton.warps)
        for n in skeleton.teams
        for r in skeleton.row_tiles
        if w % (n * parts) == 0
    ]
    for warps, teams, row_tiles in arrangements:
        rows = warps // (teams * parts) * skeleton.rows_per_warp * row_tiles
        if rows % others or (forced is not None and rows != forced * others):
            continue
        idle = WARPGROUP * skeleton.rows_per_warp * row_tiles if skeleton.loaders else rows // 2
        if forced is None and rows - idle >= max(needed, least):
            continue  # half of the rows, or a warpgroup's, are none of the shape's
        yield (warps, teams, row_tiles), rows // others
    possible = sorted({w // (n * parts) * skeleton.rows_per_warp * r for w, n, r in arrangements})
    if forced is not None and forced * others not in possible:
        allowed = ", ".join(str(rows // others) for rows in possible if not rows % others)
        raise ScheduleError(
            f"tile {forced}: allowed in {skeleton.name} are {allowed}", location=f"axis {p.rows[0].name}"
        )


def _options(
    a: Axis, usual: tuple[int, ...], sizes: Sizes, skeleton: Skeleton, tile: Mapping[str, int]
) -> tuple[int, ...]:
    forced = tile.get(a.name)
    if forced is not None:
        if forced <= 0 or forced % skeleton.column_multiple:
            raise ScheduleError(
                f"tile {forced}: allowed are multiples of {skeleton.column_multiple}", location=f"axis {a.name}"
            )
        return (forced,)
    extent = sizes.extent(a)
    if extent is None:
        return usual
    covering = -(-max(extent, 1) // skeleton.column_multiple) * skeleton.column_multiple
    kept = tuple(n for n in usual if n < 2 * covering)
    return kept or (min(covering, usual[0]),)


def _whole_tile(a: Axis, sizes: Sizes, skeleton: Skeleton, tile: Mapping[str, int]) -> int:
    extent = sizes.extent(a)
    if extent is None:
        raise ScheduleError(
            "a ragged axis can't be held whole: its extent is not known at compile time", location=f"axis {a}"
        )
    covering = -(-max(extent, 1) // skeleton.column_multiple) * skeleton.column_multiple
    forced = tile.get(a.name, covering)
    if forced < covering or forced % skeleton.column_multiple:
        raise ScheduleError(
            f"tile {forced}: allowed are multiples of {skeleton.column_multiple} from {covering}, as it is held whole",
            location=f"axis {a.name}",
        )
    return forced


def _unit_tile(a: Axis, tile: Mapping[str, int]) -> int:
    forced = tile.get(a.name, 1)
    if forced != 1:
        raise ScheduleError(
            f"tile {forced}: single elements of it are taken, so 1 is allowed", location=f"axis {a.name}"
        )
    return forced


def _row_tile(a: Axis, sizes: Sizes, tile: Mapping[str, int]) -> int:
    """The tile of a row axis after the first: it covers the representative extent unless another one is forced."""
    covering = power_of_two(sizes.extent(a) or 1)
    forced = tile.get(a.name, covering)
    if forced != power_of_two(forced) or forced > MOST_ROWS:
        allowed = ", ".join(str(1 << n) for n in range(MOST_ROWS.bit_length()))
        raise ScheduleError(f"tile {forced}: allowed are {allowed}", location=f"axis {a.name}")
    return forced
