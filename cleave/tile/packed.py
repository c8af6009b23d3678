"""Grid axes whose tiles lie one request behind the other: as many blocks as there may be, whatever the lengths are.

grid request, tile of its extent       ->  grid place        place = first(request) + tile
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cleave.ir.axis import Axis
from cleave.ir.graph import Load, walk
from cleave.ir.index import Index, index, inputs_of
from cleave.ir.ragged import Lengths, Packing, lengths, positions, rooms
from cleave.tile.plan import Binding
from cleave.tile.program import Contract, Program, Store, outer_axes, program_axes, statements, tile_terms


@dataclass(frozen=True)
class Packed:
    """A grid axis with the places of its tiles."""

    axis: Axis
    packing: Packing

    def merged(self, grid: Sequence[Axis], counts: Sequence[Index]) -> list[Index]:
        """Tiles along each axis, of which this one has the places; 1 for the owner, which a place tells."""
        return [index(1) if a is self.packing.owner else n for a, n in zip(grid, counts, strict=True)]


def packed_axis(program: Program, binding: Binding) -> Packed | None:
    """The chunks of a split that are packed; or else rows of requests, unless neighbours fetch together."""
    for a in outer_axes(program):
        found = rooms(a.extent)
        if found is not None and _is_unit(program, found.owner):
            return Packed(a, found)
    read = [a for a in program.grid if inputs_of(a.extent)]
    if not read or binding.multicast is not None:
        return None
    known = program_lengths(program)
    for a in read:
        table = known.table(a.extent)
        if table is not None and _is_unit(program, table.owner):
            return Packed(a, table.packed(index(1 if a in program.unit else binding.tile(a))))
    return None


def _is_unit(program: Program, a: Axis) -> bool:
    return a in program.unit and a in program.grid


@lru_cache(maxsize=256)
def program_lengths(program: Program) -> Lengths:
    """What the tables of a program hold."""
    shapes = {b.name: b.shape for b in (*program.inputs, *program.outputs)}
    return lengths((a.extent for a in program_axes(program)), positions(_indices(program), shapes))


def _indices(program: Program) -> Iterator[tuple[str, tuple[Index, ...]]]:
    for term in tile_terms(program):
        if not isinstance(term, Contract):
            yield from ((t.input, t.indices) for t in walk(term) if isinstance(t, Load))
    for s in statements(program.body):
        if isinstance(s, Store):
            yield s.output, s.indices
