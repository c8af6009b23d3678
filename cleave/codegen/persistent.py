"""Blocks that go from tile to tile: in strides, or each takes the next tile that nobody has.

    strides   tile = number of the block, and so many further as there are blocks
    taken     where loops are longer in some tiles than in others. The loader takes a number, and tells the others:

                  loader    wait until all have read the number before; write the number; arrive; ask for its boxes
                  others    one thread of each warp waits until it has arrived, reads, tells that it has

Long tiles come first, so that what is left for the end is short. The number after the last makes a block leave; the one
that is last to leave resets the counters, so a captured graph replays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleave.codegen import grid
from cleave.codegen.emission import Emission, Memory
from cleave.codegen.writer import Writer
from cleave.ir.index import Index, index
from cleave.kernel import Workspace
from cleave.tile.program import is_uneven


@dataclass(frozen=True)
class Tiles:
    """Heads of the loops over tiles and lines with which a turn begins, of the loader and of the others.

    ``counters``: memory that blocks share; ``places``: C++ names of two mbarriers and a number in shared memory.
    """

    loader: tuple[str, Writer]
    others: tuple[str, Writer]
    counters: tuple[Workspace, ...] = ()
    places: tuple[str, ...] = ()


def tiles(em: Emission, counts: Sequence[Index], number: str) -> Tiles:
    """``number``: C++ name of the number of the tile."""
    return (_taken if is_uneven(em.program) else _strides)(em, counts, number)


def _strides(em: Emission, counts: Sequence[Index], number: str) -> Tiles:
    place, last = em.names.fresh("place"), _count(em, counts)
    start = Writer()
    start.line(f"const int {number} = (int){place};")
    every = f"for (u32 {place} = blockIdx.x; {place} < (u32){last}; {place} += gridDim.x)", start
    return Tiles(every, every)


def _taken(em: Emission, counts: Sequence[Index], number: str) -> Tiles:
    counters = Workspace(f"{em.program.name}_taken", "int32", (index(2),), zeroed=True)
    taken = em.parameters.output(Memory(counters.name, counters.dtype, counters.shape))
    turn, place, last = em.names.fresh("turn"), em.names.fresh("place"), _count(em, counts)
    full, empty, told = (em.names.fresh(f"{number}_{n}") for n in ("full", "empty", "told"))
    loader, others = Writer(), Writer()
    loader.line(f"mbarrier_wait_for_all({empty}, {turn} ^ 1);")
    loader.line(f"mbarrier_tell({full}, {told}, {place});")
    with loader.block(f"if ((u32){place} >= (u32){last})"):
        with loader.block(f"if (take({taken} + 1) == (int)gridDim.x - 1)"):
            loader.lines([f"reset({taken});", f"reset({taken} + 1);"])
        loader.line("break;")
    loader.line(f"const int {number} = {place};")
    others.line(f"const int {number} = mbarrier_told({full}, {turn}, {told}, {empty});")
    others.line(f"if ((u32){number} >= (u32){last}) break;")
    # at most all tiles and one more for each block: no sum of these overflows
    following = f"{place} = (int)gridDim.x + take({taken}), {turn} ^= 1"
    return Tiles(
        (f"for (int {place} = blockIdx.x, {turn} = 0;; {following})", loader),
        (f"for (int {turn} = 0;; {turn} ^= 1)", others),
        (counters,),
        (full, empty, told),
    )


def open_places(em: Emission, t: Tiles) -> list[str]:
    """Shared memory, behind that of the tiles; gives the lines of the one thread that opens mbarriers."""
    if not t.places:
        return []
    full, empty, told = t.places
    first = em.allot(24)
    em.writer.line(f"const u32 {full} = {first}, {empty} = {full} + 8, {told} = {full} + 16;")
    return [f"mbarrier_open({full});", f"mbarrier_open({empty}, {em.binding.warps});"]


def _count(em: Emission, counts: Sequence[Index]) -> str:
    return grid.count_text(em, grid.tiles_of(counts), "all_tiles")
