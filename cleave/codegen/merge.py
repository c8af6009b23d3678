"""Merges in the launch that makes the partials: the second program's body, divided into slices.

    last-arriving   partials -> counter of the tile += 1 -> the block that finds all others there: counter = 0, merge
    spread          partials -> counter += 1 -> wait until it counts all -> every block merges its share of the slices
    cluster         partials -> sent to the block that merges their slice -> every block merges its own (``cluster.py``)

A slice is one tile of the second program's grid inside a tile of the first. Teams take slices in turn; a single slice
is the whole block's. A block whose chunk is empty arrives like any other. The counter resets itself, so a captured
graph may be replayed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from math import prod

from cleave.codegen.emission import Emission, Memory
from cleave.codegen.expression import At, index_text
from cleave.codegen.grid import tiles_of
from cleave.codegen.team import part_of_block
from cleave.ir.axis import Axis
from cleave.ir.index import Index, axes_of
from cleave.kernel import Workspace
from cleave.tile.check import finer_tiles
from cleave.tile.program import Program


@contextmanager
def slices(
    first: Emission, second: Emission, tiles: Sequence[str], blocks: int, number: str
) -> Generator[tuple[list[str], str, list[Axis]]]:
    """(tile numbers of the second program, how to leave, axes whose tiles are divided), for each slice of the block.

    ``blocks`` divide the slices, this one is the ``number``-th.
    """
    parts = finer_tiles(first.program, first.binding, second.program, second.binding)
    of_first = {a: tile for a, tile in zip(first.program.grid, tiles, strict=True) if a.kind != "outer"}
    starts = {b: of_first[a] for b, (a, _) in parts.items() if a in of_first}
    count = prod(n for _, n in parts.values())
    writer = second.writer
    if count == 1:
        with writer.block(f"for (int slice = {number}; slice < 1; slice++)" if blocks > 1 else ""):
            yield [starts.get(a, "0") for a in second.program.grid], "continue;" if blocks > 1 else "return;", []
        return
    teams = second.binding.teams
    if teams > 1:
        second.team = part_of_block(second.binding)
    turn = " + ".join([number] * (blocks > 1) + [f"team * {blocks}"] * (teams > 1)) or "0"
    taken = second.shared.taken
    with writer.block(f"for (int slice = {turn}; slice < {count}; slice += {teams * blocks})"):
        numbers: list[str] = []
        step = 1
        for a in second.program.grid:
            n = parts[a][1]
            within = f"slice / {step} % {n}" if step * n < count else f"slice / {step}"
            start = starts.get(a, "0")
            if n == 1:
                numbers.append(start)
                continue
            numbers.append(second.names.fresh(f"{a.name}_tile"))
            writer.line(f"const int {numbers[-1]} = {'' if start == '0' else f'{start} * {n} + '}{within};")
            step *= n
        yield numbers, "continue;", [a for a, (_, n) in parts.items() if n > 1]
        if second.shared.taken > taken:
            writer.line(second.team.barrier)  # the next slice takes the same memory


def arrive(em: Emission, tiles: Sequence[str], counts: Sequence[str]) -> None:
    """All blocks but the last of a tile return."""
    counter, total = _counter(em, tiles, counts)
    em.writer.line("// the block that arrives last merges")
    em.writer.line("__shared__ int arrived_last;")
    em.writer.line("block_barrier();")
    with em.writer.block("if (thread == 0)"):
        em.writer.line(f"arrived_last = arrive({counter}) == {total} - 1;")
        em.writer.line(f"if (arrived_last) reset({counter});")
    em.writer.line("block_barrier();")
    em.writer.line("if (!arrived_last) return;")


def meet(em: Emission, tiles: Sequence[str], counts: Sequence[str]) -> None:
    """All blocks of a tile wait for one another.

    They have consecutive numbers, and blocks start in the order of their numbers: the first ones that wait never keep
    out the last ones that they wait for. Who leaves last resets the counter.
    """
    counter, total = _counter(em, tiles, counts)
    em.writer.line("// the blocks of a tile meet, and divide the merge")
    em.writer.line("block_barrier();")
    with em.writer.block("if (thread == 0)"):
        em.writer.line(f"arrive({counter});")
        em.writer.line(f"wait_for({counter}, {total});")
        em.writer.line(f"if (arrive({counter}) == 2 * {total} - 1) reset({counter});")
    em.writer.line("block_barrier();")


def _counter(em: Emission, tiles: Sequence[str], counts: Sequence[str]) -> tuple[str, str]:
    """C++ texts: address of the counter of a block's tile, and how many blocks it counts."""
    counter = em.parameters.output(Memory(counter_name(em.program), "int32", ()))
    which, total = "0", "1"
    for a, tile, count in zip(em.program.grid, tiles, counts, strict=True):
        if a.kind == "outer":
            own = em.extent(a)  # fewer, where blocks without a chunk have gone
            count = index_text(em, own, At()) if axes_of(own) else count
            total = count if total == "1" else f"{total} * {count}"
        else:
            which = tile if which == "0" else f"({which} * {count} + {tile})"
    return f"{counter} + {which}", total


def counter_name(program: Program) -> str:
    return f"{program.name}_arrived"


def counter(program: Program, counts: Sequence[Index]) -> Workspace:
    """One counter for each tile of the grid without the outer axes."""
    size = tiles_of(n for a, n in zip(program.grid, counts, strict=True) if a.kind != "outer")
    return Workspace(counter_name(program), "int32", (size,), zeroed=True)
