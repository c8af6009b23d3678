"""Rings fed by boxes: one thread of the team asks the copy engine, an mbarrier a slot counts the bytes that land.

Discipline, with S slots and the boxes of one trip in one phase of its slot's mbarrier:

    before the loop   the thread opens S mbarriers, fences, asks for S trips; the team meets
    each trip         everyone waits for the phase of the slot; compute; the team meets; the thread asks for trip + S
    after the loop    the thread closes the mbarriers; the team meets

Blocks of a cluster that read the same boxes fetch them together (``Binding.multicast``): each asks for its share, which
lands in all. A slot is free once all of them have read it: each tells the others at an mbarrier of its own, ``empty``,
and asks one trip later, so that nobody waits for a neighbour that is a little behind:

    before the loop   as above, and the cluster meets before anyone asks
    each trip         .. the team meets; the thread tells all blocks; waits until all have told it of the slot of the
                      trip before; asks for the trip - 1 + S
    after the loop    the cluster meets, so that nothing comes for a block that has gone on

The engine fills with zero what lies outside the array, and only that. Rows of a tile that lie beyond the end of their
axis and inside the array are cleared by the team before anyone reads: they may hold NaN, and 0 times it is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cleave.codegen.emission import CHUNK, Emission
from cleave.codegen.expression import At, index_text
from cleave.codegen.feed import Tile
from cleave.codegen.layout import SharedTile
from cleave.ir.axis import Axis
from cleave.ir.index import Index, axes_of, index
from cleave.ir.op import DTYPES
from cleave.kernel import TensorMap
from cleave.tile.box import CHUNK_BYTES, Rows, slab_bytes
from cleave.tile.box import box_of as box_place
from cleave.tile.program import Loop

_ROWS_OF_A_PATTERN = 8
"""Rows of a slab after which the swizzle repeats: parts of a box start there."""


@dataclass(frozen=True)
class Box:
    """A tile that is fetched in boxes, side by side.

    coordinates  innermost first; those of the first box
    beyond       the end of the tile's rows where the array goes on, None: it ends there as well
    sharers      blocks that ask for a part each, in equal parts of the rows or of the slabs; 1: it is the block's own
    """

    tile: Tile
    source: TensorMap
    row: Axis
    coordinates: tuple[Index, ...]
    beyond: Index | None
    sharers: int = 1

    @property
    def slabs(self) -> tuple[int, int]:
        """Chunks of a slab's row, and rows."""
        return self.source.swizzle // 16, self.tile.rows

    @property
    def count(self) -> int:
        """Slabs."""
        return self.tile.chunks * 16 // self.source.swizzle

    @property
    def row_dimension(self) -> int:
        """Which coordinate moves along the rows."""
        return next(n for n, i in enumerate(self.coordinates) if self.row in axes_of(i))


def box_of(em: Emission, tile: Tile, s: Loop | None) -> Box | None:
    """How a tile of a loop, or one before all loops, is fetched in boxes; None: its threads copy it."""
    memory, row = em.memory[tile.load.input], _row(em, tile)
    width = slab_bytes(tile.chunks * CHUNK_BYTES)
    if em.feed != "tma" or row is None or width is None or em.parameters.is_written(memory):
        return None
    if em.roles is not None and s is not None and s not in em.program.body:
        return None
    array, inside = (memory.shape, tile.load.indices), frozenset(em.load_axes(tile.load))
    item_bytes = DTYPES[tile.dtype]
    place = box_place(em, Rows(array, inside, row, tile.along, tile.rows, tile.chunks * CHUNK_BYTES, item_bytes), s)
    if place is None:
        return None
    shape, indices = ([em.fix(i) for i in part] for part in array)
    sharers, count = _sharers(em, tile, row, indices, s), tile.chunks * CHUNK_BYTES // width
    by_rows = tile.rows % (_ROWS_OF_A_PATTERN * sharers) == 0
    if not by_rows and count % sharers:
        sharers = 1
    corner = [1] * len(shape)
    corner[-1], corner[place.dimension] = width // item_bytes, tile.rows // (sharers if by_rows else 1)
    source = TensorMap(
        tile.load.input,
        tile.dtype,
        tuple(reversed(shape)),
        tuple(reversed(_strides(shape, item_bytes))),
        tuple(reversed(corner)),
        width,
    )
    return Box(tile, source, row, tuple(reversed(indices)), place.beyond, sharers)


def _sharers(em: Emission, tile: Tile, row: Axis, indices: Sequence[Index], s: Loop | None) -> int:
    """Blocks that read the same tile in the same trips of a loop."""
    multicast = em.binding.multicast
    if multicast is None or s is None or s not in em.program.body:
        return 1
    known = {row, tile.along, *em.load_axes(tile.load)}.union(*map(axes_of, indices))
    return 1 if multicast.axis in known else multicast.blocks


def _row(em: Emission, tile: Tile) -> Axis | None:
    if tile.row is not None:
        return tile.row
    return em.rows[0] if len(em.rows) == 1 and em.used_rows == em.block_rows else None


def _strides(shape: Sequence[Index], item_bytes: int) -> list[Index]:
    """Bytes between neighbours on all axes but the last."""
    out, step = list[Index](), index(item_bytes)
    for n in reversed(shape[1:]):
        step = step * n
        out.insert(0, step)
    return out


# ---- lines


@dataclass(frozen=True)
class Boxes:
    """The boxes of one ring. ``full``, ``empty``: C++ names of the addresses of the first slot's mbarriers.

    Where warps have roles both are named once it is known which boxes are asked for together (``with_empty``).

    sharers  blocks of the cluster that fetch some of them together; 1: none is shared
    empty    only where others than the team that reads ask for boxes: other blocks, or other warps
    rank     C++ text of this block's number among them
    """

    parts: tuple[tuple[Box, SharedTile], ...]
    full: str
    slots: int
    sharers: int = 1
    empty: str = ""
    rank: str = "0"

    @property
    def bytes(self) -> int:
        return sum(box.tile.bytes for box, _ in self.parts)


def boxes(em: Emission, parts: Sequence[tuple[Box, SharedTile]], slots: int, axis: str) -> Boxes:
    if em.roles is not None:
        return Boxes(tuple(parts), "", slots)
    full, sharers = em.names.fresh(f"{axis}_full"), max(box.sharers for box, _ in parts)
    em.constant(f"const u32 {full} = {em.allot(slots * 8)};")
    if sharers == 1:
        return Boxes(tuple(parts), full, slots)
    empty = em.names.fresh(f"{axis}_empty")
    em.writer.line(f"const u32 {empty} = {em.allot(slots * 8)};")
    return Boxes(tuple(parts), full, slots, sharers, empty, em.rank)


def with_empty(em: Emission, parts: Sequence[tuple[Box, SharedTile]], slots: int, axis: str) -> Boxes:
    """Boxes of a ring of their own, whose slots those who read them declare empty."""
    full, empty = em.names.fresh(f"{axis}_full"), em.names.fresh(f"{axis}_empty")
    if parts:
        em.constant(f"const u32 {full} = {em.allot(slots * 8)};")
        em.constant(f"const u32 {empty} = {em.allot(slots * 8)};")
    return Boxes(tuple(parts), full, slots, max([1, *(box.sharers for box, _ in parts)]), empty, em.rank)


def layout(box: Box, plain: SharedTile) -> SharedTile:
    return replace(plain, slabs=box.slabs)


def one_thread(em: Emission) -> str:
    return f"if ({em.team.thread} == 0)"


def open_ring(em: Emission, boxes: Boxes) -> None:
    """Lines of the one thread; the team, or the cluster, meets afterwards."""
    with em.writer.unrolled("p", boxes.slots):
        em.writer.line(f"mbarrier_open({boxes.full} + p * 8);")
        if boxes.sharers > 1:
            em.writer.line(f"mbarrier_open({boxes.empty} + p * 8, {boxes.sharers});")
    em.writer.line("boxes_may_follow();")


def close_ring(em: Emission, boxes: Boxes) -> None:
    if boxes.sharers > 1:
        em.writer.line("cluster_barrier();")
    with em.writer.block(one_thread(em)), em.writer.unrolled("p", boxes.slots):
        em.writer.line(f"mbarrier_close({boxes.full} + p * 8);")
        if boxes.sharers > 1:
            em.writer.line(f"mbarrier_close({boxes.empty} + p * 8);")


def ask(em: Emission, boxes: Boxes, slot: str) -> None:
    """Ask for the boxes of the trip whose position is open, into a slot: lines of the one thread."""
    full = f"{boxes.full} + {slot} * 8"
    em.writer.line(f"mbarrier_expect({full}, {boxes.bytes});")
    for box, where in boxes.parts:
        tile = box.tile
        at = At({a: em.starts[a] for a in (box.row, tile.along)})
        coordinates = [index_text(em, i, at) for i in box.coordinates]
        _ask(em, boxes, box, f"{where.address}_ring + {slot} * {tile.bytes}", full, coordinates)


def _ask(em: Emission, boxes: Boxes, box: Box, to: str, full: str, at: list[str]) -> None:
    """Lines for a box, or for this block's part of it."""
    name, (width, rows), count = em.parameters.map(box.source), box.slabs, box.count
    copy, part = ("copy_box_to_all", boxes.rank) if box.sharers > 1 else ("copy_box", "0")
    last, mask = len(at), f"{(1 << box.sharers) - 1}, " if box.sharers > 1 else ""
    own = rows // box.sharers
    if own == box.source.box[box.row_dimension]:  # parts of the rows, or all of them
        if box.sharers > 1:
            to = f"{to} + {part} * {own * width * 16}"
            at = [f"{x} + {part} * {own}" if n == box.row_dimension else x for n, x in enumerate(at[:last])]
        first = "0"
    else:
        count //= box.sharers
        first = f"{part} * {count}"
    if box.count == 1:
        em.writer.line(f"{copy}({to}, {name}, {full}, {mask}{', '.join(at)});")
        return
    with em.writer.unrolled("c", count):
        c = "c" if first == "0" else f"({first} + c)"
        columns = f"{at[0]} + {c} * {width * CHUNK}"
        em.writer.line(
            f"{copy}({to} + {c} * {rows * width * 16}, {name}, {full}, {mask}{', '.join((columns, *at[1:]))});"
        )


def tell(em: Emission, boxes: Boxes, slot: str) -> None:
    """Tell all sharers that this block has read a slot: a line of the one thread."""
    with em.writer.unrolled("p", boxes.sharers):
        em.writer.line(f"mbarrier_arrive_at(cluster_address({boxes.empty} + {slot} * 8, p));")


def wait_empty(em: Emission, boxes: Boxes, slot: str, phase: str) -> None:
    """Wait until all sharers have read a slot: a line of the one thread."""
    em.writer.line(f"mbarrier_wait_for_all({boxes.empty} + {slot} * 8, {phase});")


def wait(em: Emission, boxes: Boxes, slot: str, phase: str) -> None:
    em.writer.line(f"mbarrier_wait({boxes.full} + {slot} * 8, {phase});")


def clear_beyond(em: Emission, boxes: Boxes) -> None:
    """Rows that landed from beyond the end of their axis become zero."""
    for box, where in boxes.parts:
        if box.beyond is None:
            continue
        tile, end, start = box.tile, index_text(em, box.beyond, At()), em.starts[box.row]
        with em.writer.block(f"if ({start} + {tile.rows} > {end})"):
            count = tile.rows * tile.chunks
            with em.writer.block(f"for (int x = {em.team.thread}; x < {count}; x += {em.team.threads})"):
                em.writer.line(f"const int r = x / {tile.chunks}, c = x % {tile.chunks};")
                place = f"{where.address} + {where.chunk('r', 'c')}"
                em.writer.line(f"if ({start} + r >= {end}) clear_chunk({place});")
            em.writer.line("boxes_may_follow();")
            em.writer.line(em.team.barrier)
