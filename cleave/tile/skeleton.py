"""Skeletons as data: what each kernel template can express, and where it exists.

``cta-ring``   all warps of a block share a ring of shared-memory tiles; each warp owns 16 rows; mma.sync m16n8k16, or
wgmma by each four of them. Warps or warpgroups with the same rows may divide the columns of a wide sum.
``warp-ring``  the same, but the warps form several teams along the reduction: each has all rows of the block, a ring
of its own and every so-manieth trip; the fold's carry joins their states. For few rows, where memory is the limit.
``specialised``  a warpgroup of loaders asks for boxes, the others multiply by wgmma and never wait for one another; the
second matmul of a trip runs beside the first one of the next and what lies between. For many rows.
``row``        no matmul: so many threads share a row, a part of a warp or several warps, and have its columns in
registers; of a loop over them the first trip is kept, so that what fits is read once. Where memory is the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from cleave.ir.axis import Axis
from cleave.ir.graph import Load, Reduce
from cleave.ir.op import DTYPES
from cleave.tile.box import is_beside
from cleave.tile.plan import Binding, Division, Feed, Merge, Mma
from cleave.tile.program import (
    Contract,
    Let,
    Loop,
    Program,
    Store,
    TileTerm,
    Update,
    is_uneven,
    loops,
    program_axes,
    statements,
)

WARPGROUP = 4
"""Warps that execute a wgmma together, side by side along the rows."""

MOST_COLUMNS = 256
"""Columns of one wgmma."""

PIECE = 8
"""Columns of one group of a fragment."""

STEP = 16
"""Elements of a sum that one mma.sync multiplies."""

COLUMNS_APART = 64
"""Columns of a tile of boxes that lie apart: where a part of it may begin."""

LOADERS_REGISTERS: Mapping[int, tuple[int, int]] = {8: (40, 232), 12: (32, 160)}
"""Warps that compute -> registers of a thread that only loads, and of the others, which take what the first leave:
multiples of 8, together what a block has. Where few compute, everyone has enough."""

CROWDED_REGISTERS, CROWDED_FRAGMENTS = 64, 32
"""Registers of a thread whose block only loads a tile, computes, and stores: many such blocks have to be there at once,
or none stores while another loads. Those of fragments that it may have: 32 of them took 87 if left alone."""

LOOP_TILES = (32, 64, 128)

VECTOR_BYTES = 16
"""What a thread reads or writes at once."""


TEAMS, ALONE = "warp-ring", "cta-ring"
"""Skeletons whose warps form teams, or one team."""


@dataclass(frozen=True)
class Skeleton:
    """Capabilities of one template.

    teams            into how many teams the warps may be divided, each with all rows
    feeds            how tiles of loops may be loaded, the best first; a target need not have all
    stages           slots of a ring, the usual ones first
    rows_per_warp    rows of a matmul tile that one warp owns, all of them: a fragment chain never leaves its warp
    mmas             instructions of its matmuls, the usual ones first; a target need not have all
    loaders          warps of a block that only ask for boxes
    divisions        into how many parts warps may divide the columns of a wide axis: warpgroups if others load for them
    loop_tiles       elements of a loop's axis that are worth trying
    lanes            how many threads may share a row, where there are no matmuls
    row_tiles        how many times as many a warp may own: more of them read each tile of the other operand less often
    column_multiple  columns of a fragment, and elements of a contracted tile, come in multiples of this
    vector_bytes     rows of a tile fed asynchronously start at multiples of this, on an axis whose elements lie side
    by side operands         storage types of matmul operands; accumulation is FP32
    """

    name: str
    architectures: tuple[str, ...]
    mma: tuple[int, int, int]
    feeds: tuple[Feed, ...]
    merges: tuple[Merge, ...]
    rows_per_warp: int
    column_multiple: int
    vector_bytes: int
    operands: tuple[str, ...]
    warps: tuple[int, ...]
    stages: tuple[int, ...]
    teams: tuple[int, ...] = (1,)
    row_tiles: tuple[int, ...] = (1,)
    mmas: tuple[Mma, ...] = ("mma.sync", "wgmma")
    loaders: int = 0
    divisions: tuple[int, ...] = (1,)
    loop_tiles: tuple[int, ...] = LOOP_TILES
    lanes: tuple[int, ...] = ()


SKELETONS: dict[str, Skeleton] = {
    "cta-ring": Skeleton(
        name="cta-ring",
        architectures=("sm_80", "sm_90a"),
        mma=(16, 8, 16),
        feeds=("cp.async", "tma"),
        merges=("none", "second-launch", "last-arriving", "spread", "cluster"),
        rows_per_warp=16,
        column_multiple=16,
        vector_bytes=16,
        operands=("float16", "bfloat16"),
        warps=(1, 2, 4, 8),
        stages=(2, 3, 4),
        divisions=(1, 2, 4, 8),
    ),
    "warp-ring": Skeleton(
        name="warp-ring",
        architectures=("sm_80", "sm_90a"),
        mma=(16, 8, 16),
        feeds=("tma", "cp.async"),
        merges=("none", "second-launch", "last-arriving", "spread", "cluster"),
        rows_per_warp=16,
        column_multiple=16,
        vector_bytes=16,
        operands=("float16", "bfloat16"),
        warps=(2, 4, 8, 16),
        stages=(3, 2, 4),
        teams=(2, 4, 8),
        row_tiles=(1, 2, 4),
    ),
    "specialised": Skeleton(
        name="specialised",
        architectures=("sm_90a",),
        mma=(64, 8, 16),
        feeds=("tma",),
        merges=("none", "second-launch", "cluster"),
        rows_per_warp=16,
        column_multiple=16,
        vector_bytes=16,
        operands=("float16", "bfloat16"),
        warps=(4, 8, 12),
        stages=(2, 3, 4),
        mmas=("wgmma",),
        loaders=WARPGROUP,
        divisions=(1, 2),
        loop_tiles=(64, 128, 160, 176),
    ),
    "row": Skeleton(
        name="row",
        architectures=("sm_80", "sm_90a"),
        mma=(1, 1, 1),
        feeds=("cp.async",),
        merges=("none", "second-launch"),
        rows_per_warp=1,
        column_multiple=1,
        vector_bytes=16,
        operands=(),
        warps=(1, 2, 4, 8, 16),
        stages=(1,),
        mmas=("mma.sync",),
        lanes=(2, 4, 8, 16, 32, 64, 128, 256, 512),
    ),
}


def refusals(skeleton: Skeleton, program: Program, binding: Binding) -> tuple[str, ...]:
    """Why a skeleton can't express a program under a binding; empty if it can."""
    if skeleton.lanes:
        return tuple(dict.fromkeys(_shared_row_refusals(skeleton, program, binding)))
    if binding.teams > 1 and not loops(program):
        return (f"{binding.teams} teams, and no loop for them to divide",)
    return tuple(
        dict.fromkeys((*_row_refusals(skeleton, program, binding), *_value_refusals(skeleton, program, binding)))
    )


def vector_elements(program: Program) -> int:
    """Elements of a row that a thread has side by side: a vector of the narrowest array that is read or written."""
    dtypes = {b.name: b.dtype for b in (*program.inputs, *program.outputs)}
    every = list(statements(program.body))
    names = [s.term.input for s in every if isinstance(s, Let) and isinstance(s.term, Load) and s.axes]
    names += [s.output for s in every if isinstance(s, Store) and s.axes]
    return max(4, VECTOR_BYTES // min((DTYPES[dtypes[name]] for name in names if DTYPES[dtypes[name]] > 1), default=4))


def _shared_row_refusals(skeleton: Skeleton, program: Program, binding: Binding) -> Iterator[str]:
    rows = prod(binding.tile(a) for a in binding.rows)
    if binding.lanes not in skeleton.lanes:
        yield f"{binding.lanes} threads a row, allowed are {', '.join(map(str, skeleton.lanes))}"
    elif rows * binding.lanes != 32 * binding.warps:
        yield f"{rows} rows of {binding.lanes} threads in {binding.warps} warps"
    else:
        yield from _shared_column_refusals(program, binding)
    yield from (f"row axis {a} is not tiled on the grid" for a in binding.rows if a not in program.grid)
    for s in statements(program.body):
        match s:
            case Let(name, axes, term):
                yield from _shared_value_refusals(name, axes, term, binding)
            case Update(c, term):
                yield from _shared_value_refusals(c.name, c.axes, term, binding)
            case Loop(_, _, _, accumulators, _):
                for c in accumulators:
                    yield from _shared_value_refusals(c.name, c.axes, None, binding)
            case Store():
                yield from _shared_value_refusals(s.output, _tiled(s.axes, program), None, binding)


def _tiled(axes: tuple[Axis, ...], program: Program) -> tuple[Axis, ...]:
    return tuple(a for a in axes if a not in program.unit)


def _shared_column_refusals(program: Program, binding: Binding) -> Iterator[str]:
    """Tiles of all axes that are laid over the threads of a row."""
    width = binding.lanes * vector_elements(program)
    for a in program_axes(program):
        if a not in program.unit and a not in binding.rows and binding.tile(a) % width:
            yield f"tile {binding.tile(a)} of {a} is no multiple of {width}, what {binding.lanes} threads hold"


def _shared_value_refusals(name: str, axes: tuple[Axis, ...], term: TileTerm | None, binding: Binding) -> Iterator[str]:
    if isinstance(term, Contract):
        yield f"{name} is a matmul, and this skeleton has none"
    others = columns((*axes, term.axis) if isinstance(term, Reduce) else axes, binding)
    if len(others) > 1:
        yield f"{name} has {len(others)} axes besides rows ({_names(others)})"


def _row_refusals(skeleton: Skeleton, program: Program, binding: Binding) -> Iterator[str]:
    rows = 1
    for a in binding.rows:
        rows *= binding.tile(a)
        if a not in program.grid or a in program.unit:
            yield f"row axis {a} is not tiled on the grid"
    if binding.warps not in skeleton.warps:
        yield f"{binding.warps} warps, allowed are {', '.join(map(str, skeleton.warps))}"
    if binding.teams not in skeleton.teams or binding.warps % binding.teams:
        yield f"{binding.warps} warps in {binding.teams} teams, allowed are {', '.join(map(str, skeleton.teams))} teams"
    elif binding.row_tiles not in skeleton.row_tiles:
        allowed = ", ".join(str(n * skeleton.rows_per_warp) for n in skeleton.row_tiles)
        yield f"{binding.row_tiles * skeleton.rows_per_warp} rows a warp, allowed are {allowed}"
    elif rows != skeleton.rows_per_warp * binding.row_tiles * binding.row_warps:
        yield f"{rows} rows for {binding.row_warps} warps of {skeleton.rows_per_warp * binding.row_tiles}"
    yield from _instruction_refusals(skeleton, binding)
    if binding.loaders and binding.multicast is not None and is_uneven(program):
        yield "boxes fetched together by blocks that take tiles of different lengths: allowed are blocks in step"
    yield from _division_refusals(skeleton, program, binding)
    if binding.stages not in skeleton.stages:
        yield f"{binding.stages} stages, allowed are {', '.join(map(str, skeleton.stages))}"


def _instruction_refusals(skeleton: Skeleton, binding: Binding) -> Iterator[str]:
    if binding.mma not in skeleton.mmas:
        yield f"{binding.mma}, allowed are {', '.join(skeleton.mmas)}"
    elif binding.mma == "wgmma" and not has_warpgroups(binding):
        yield (
            f"wgmma by teams of {binding.warps_a_team} warps of {binding.row_tiles * skeleton.rows_per_warp} rows: "
            f"allowed are multiples of {WARPGROUP} warps, of {skeleton.rows_per_warp} rows"
        )
    if binding.loaders != skeleton.loaders:
        yield f"{binding.loaders} warps that only load, allowed are {skeleton.loaders}"


def _division_refusals(skeleton: Skeleton, program: Program, binding: Binding) -> Iterator[str]:
    """Each part of a divided axis is taken as it stands: nothing adds parts up, or wants a whole row of them."""
    parts = 1 if binding.division is None else binding.division.parts
    if parts not in skeleton.divisions:
        yield f"columns in {parts} parts, allowed are {', '.join(map(str, skeleton.divisions))}"
    if binding.division is None:
        return
    a, least = binding.division.axis, parts * (COLUMNS_APART if binding.mma == "wgmma" else skeleton.column_multiple)
    if a not in program.whole or binding.tile(a) % least:
        yield f"columns of {a} in {parts} parts: allowed are whole axes of multiples of {least}"
    lets = {s.name: s.term for s in statements(program.body) if isinstance(s, Let)}
    terms = [s.term for s in statements(program.body) if isinstance(s, Let | Update)]
    summed = [t for t in terms if isinstance(t, Contract | Reduce) and t.axis is a]
    of_tiles = [t for t in summed if isinstance(t, Contract) and _are_loaded(lets, t)]
    if len(of_tiles) < len(summed) or any(a is x.axis for x in loops(program)):
        yield f"columns of {a} in parts: what is computed along it is summed, or it is walked"
    yield from _loop_division_refusals(program, binding, binding.division)
    yield from _narrow_refusals(program, lets, binding)


def _loop_division_refusals(program: Program, binding: Binding, division: Division) -> Iterator[str]:
    """Parts of a tile of a loop meet before the matmul that sums over it, which every trip has."""
    a = division.loop
    if a is None:
        return
    least = PIECE * division.parts if binding.mma == "mma.sync" else max(COLUMNS_APART, 2 * PIECE * division.parts)
    if binding.tile(a) % least:
        yield f"columns of {a} in {division.parts} parts: allowed are tiles of multiples of {least}"
    walked = [s for s in program.body if isinstance(s, Loop) and s.axis is a]
    for s in walked:
        products = [i.term for i in s.body if isinstance(i, Update) and isinstance(i.term, Contract)]
        if any(isinstance(i, Loop) for i in s.body) or not any(t.axis is a for t in products):
            yield f"columns of {a} in parts: allowed in a loop that ends with a matmul over it"
    if not walked:
        yield f"columns of {a} in parts: no loop of the kernel walks it"


def multiplies_columns(columns: int, depth: int, *, along_sum: bool) -> bool:
    """Whether a warp can multiply so many columns by mma.sync: pairs of pieces; or a single one, two steps of the sum
    at once, where elements of the second operand lie side by side along the sum."""
    return columns % (2 * PIECE) == 0 or (columns == PIECE and depth % (2 * STEP) == 0 and along_sum)


def _narrow_refusals(program: Program, lets: Mapping[str, TileTerm], binding: Binding) -> Iterator[str]:
    """What a warp has of divided columns is what it can multiply."""
    products = [s.term for s in statements(program.body) if isinstance(s, Let | Update)]
    for t in products if binding.mma == "mma.sync" else ():
        if not isinstance(t, Contract):
            continue
        second, depth = lets.get(t.right.name), binding.tile(t.axis)
        beside = not isinstance(second, Load) or is_beside(second.indices[-1], t.axis)
        for a in t.right.axes:
            if a is t.axis or a in program.unit or multiplies_columns(binding.columns(a), depth, along_sum=beside):
                continue
            yield (
                f"{binding.columns(a)} columns of {a} in a warp, and tiles of {depth} of {t.axis}: allowed are "
                f"multiples of {2 * PIECE} columns; or {PIECE}, with multiples of {2 * STEP} elements side by side"
            )


def _are_loaded(lets: Mapping[str, TileTerm], term: Contract) -> bool:
    return isinstance(lets.get(term.left.name), Load) and isinstance(lets.get(term.right.name), Load)


def has_warpgroups(binding: Binding) -> bool:
    """Whether a team's warps make warpgroups, each with 64 rows side by side."""
    return binding.row_warps % WARPGROUP == 0 and binding.row_tiles == 1


def columns(axes: tuple[Axis, ...], binding: Binding) -> tuple[Axis, ...]:
    """Axes of a value that are no rows."""
    return tuple(a for a in axes if a not in binding.rows)


def has_rows(axes: tuple[Axis, ...], binding: Binding) -> bool:
    return any(a in binding.rows for a in axes)


def _value_refusals(skeleton: Skeleton, program: Program, binding: Binding) -> Iterator[str]:
    for s in statements(program.body):
        match s:
            case Let(name, axes, term):
                yield from _shape_refusals(name, axes, term, binding)
                yield from _term_refusals(skeleton, name, axes, term, binding)
            case Update(accumulator, term):
                yield from _term_refusals(skeleton, accumulator.name, accumulator.axes, term, binding)
            case Loop(_, _, _, accumulators, _):
                for c in accumulators:
                    yield from _shape_refusals(c.name, c.axes, None, binding)
                    if c.carry is not None and columns(c.axes, binding) and not has_rows(c.axes, binding):
                        yield f"{c.name} is restated in a loop and has {_names(c.axes)} without rows"
            case _:
                pass


def _names(axes: tuple[Axis, ...]) -> str:
    return ", ".join(a.name for a in axes)


def _shape_refusals(name: str, axes: tuple[Axis, ...], term: TileTerm | None, binding: Binding) -> Iterator[str]:
    others = columns(axes, binding)
    if has_rows(axes, binding) and len(others) > 1:
        yield f"{name} has rows and {len(others)} more axes ({_names(others)})"
    if isinstance(term, Contract | Reduce) or term is None:
        allowed = 1
        if not has_rows(axes, binding) and len(others) > allowed:
            yield f"{name} is computed without rows, over {_names(others)}"


def _term_refusals(
    skeleton: Skeleton, name: str, axes: tuple[Axis, ...], term: TileTerm, binding: Binding
) -> Iterator[str]:
    if isinstance(term, Contract):
        if not has_rows(term.left.axes, binding) or has_rows(term.right.axes, binding):
            yield f"{name}: the left operand of a matmul carries the rows, the right one does not"
        for a in (*columns(axes, binding), term.axis):
            if binding.tile(a) % skeleton.column_multiple:
                yield f"tile {binding.tile(a)} of {a} is no multiple of {skeleton.column_multiple}"
        for a in columns(axes, binding):
            if binding.mma == "wgmma" and binding.columns(a) > MOST_COLUMNS:
                yield f"tile {binding.tile(a)} of {a}: wgmma has at most {MOST_COLUMNS} columns"
    elif not isinstance(term, Load):
        for a in columns(axes, binding):
            if has_rows(axes, binding) and binding.tile(a) % 8:
                yield f"tile {binding.tile(a)} of {a} is no multiple of 8"


def takes_all_registers(binding: Binding) -> bool:
    """Whether loaders leave their registers to those who compute: one block has all of a multiprocessor."""
    return binding.loaders > 0 and binding.warps in LOADERS_REGISTERS


def is_crowded(program: Program, binding: Binding) -> bool:
    """Whether blocks have no loop, and so little to hold that ``CROWDED_REGISTERS`` are enough."""
    if binding.lanes or binding.loaders or loops(program):
        return False
    values = [s.axes for s in program.body if isinstance(s, Let) and not isinstance(s.term, Load)]
    values += [s.accumulator.axes for s in program.body if isinstance(s, Update)]
    held = (axes for axes in values if any(a in binding.rows for a in axes))
    fragments = sum(prod(binding.tiles.get(a, 1) for a in axes) for axes in held)
    return fragments <= CROWDED_FRAGMENTS * 32 * binding.row_warps
