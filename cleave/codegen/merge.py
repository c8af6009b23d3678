"""The last-arriving merge: the block that completes the partials of a tile runs the second program's body on them.

    partials -> fence -> counter of the tile += 1 -> the block that finds all others there: counter = 0, merge

A block whose chunk is empty arrives like any other. The counter resets itself, so a captured graph may be replayed.
"""

from __future__ import annotations

from collections.abc import Sequence

from cleave.codegen.emission import Emission, Memory
from cleave.errors import CodegenError
from cleave.ir.axis import Axis
from cleave.ir.index import Index, index
from cleave.kernel import Workspace
from cleave.tile.program import Program


def shared_tiles(first: Program, second: Program, tiles: Sequence[str]) -> list[str]:
    """Tile numbers of the second program: those of the first without its outer axes, in order.

    Errors: grids that do not agree.
    """
    kept = [(a, tile) for a, tile in zip(first.grid, tiles, strict=True) if a.kind != "outer"]
    if [a.extent for a, _ in kept] != [a.extent for a in second.grid]:
        has, needed = (", ".join(a.name for a in axes) for axes in (second.grid, [a for a, _ in kept]))
        raise CodegenError(
            f"last-arriving merge over the grid [{has}], the blocks of the partials have [{needed}]",
            location=f"kernel {second.name}",
        )
    return [tile for _, tile in kept]


def outer_axes(program: Program) -> list[Axis]:
    return [a for a in program.grid if a.kind == "outer"]


def arrive(em: Emission, tiles: Sequence[str], counts: Sequence[str]) -> None:
    """All blocks but the last of a tile return."""
    counter = em.parameters.output(Memory(counter_name(em.program), "int32", ()))
    which, total = "0", "1"
    for a, tile, count in zip(em.program.grid, tiles, counts, strict=True):
        if a.kind == "outer":
            total = count if total == "1" else f"{total} * {count}"
        else:
            which = tile if which == "0" else f"({which} * {count} + {tile})"
    em.writer.line("// the block that arrives last merges")
    em.writer.line("__shared__ int arrived_last;")
    em.writer.line("block_barrier();")
    with em.writer.block("if (thread == 0)"):
        em.writer.line("publish();")  # what the block has written: the barrier ordered it before this thread's fence
        em.writer.line(f"arrived_last = arrive({counter} + {which}) == {total} - 1;")
        em.writer.line(f"if (arrived_last) reset({counter} + {which});")
        em.writer.line("publish();")
    em.writer.line("block_barrier();")
    em.writer.line("if (!arrived_last) return;")


def counter_name(program: Program) -> str:
    return f"{program.name}_arrived"


def counter(program: Program, counts: Sequence[Index]) -> Workspace:
    """One counter for each tile of the grid without the outer axes."""
    size = index(1)
    for a, count in zip(program.grid, counts, strict=True):
        if a.kind != "outer":
            size = size * count
    return Workspace(counter_name(program), "int32", (size,), zeroed=True)
