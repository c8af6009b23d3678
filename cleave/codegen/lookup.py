"""Rows of tiles whose places are read from a table: what a loop looks up comes ahead of what it then copies.

    k[table[t], ..] over t: while the tile of trip u is copied, table[t] of the tile of trip u + slots - 1 is on its way

In a ring of S slots the words of a trip land with the tiles of S - 1 trips before, so nobody waits for a word and then
for what it leads to. Words of the first S - 1 trips are waited for once, before anything else. The ring of words has as
many slots as that of tiles.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cleave.codegen import feed
from cleave.codegen.emission import Emission
from cleave.codegen.expression import At, exists, index_text, offset_text
from cleave.ir.axis import Axis
from cleave.ir.index import Atom, Index, Position, Read, axes_of, inputs_of, of, parts

WORD_BYTES = 4


@dataclass(frozen=True)
class Lookup:
    """An element of a table for each row of a tile; ``address`` is the C++ name of the ring of words."""

    read: Read
    row: Axis
    rows: int
    address: str

    def place(self, slot: str, row: str = "r") -> str:
        return f"{self.address} + {slot} * {WORD_BYTES * self.rows} + {WORD_BYTES} * {row}"


def lookups(em: Emission, sources: Iterable[feed.Source], axis: Axis, slots: int) -> tuple[Lookup, ...]:
    """What the copies of a loop look up for its positions alone, with memory for so many trips."""
    found: dict[Read, Lookup] = {}
    for source in sources:
        tile = source.tile
        if tile.row is not axis:
            continue
        for atom in _reads(em.fix(source.moving)):
            is_word = em.memory[atom.input].dtype == "int32"
            if is_word and atom not in found and axes_of(of(atom)) <= {*em.units, axis} and axis in axes_of(of(atom)):
                address = em.names.fresh(f"{atom.input}_ring")
                em.constant(f"const u32 {address} = {em.allot(WORD_BYTES * tile.rows * slots)};")
                found[atom] = Lookup(atom, axis, tile.rows, address)
    return tuple(found.values())


def _reads(expression: Index) -> Iterator[Read]:
    """Outermost reads of a table."""
    for atom in expression.atoms():
        if isinstance(atom, Read):
            yield atom
        elif not isinstance(atom, Position):
            for part in parts(atom):
                yield from _reads(part)


def fetch(em: Emission, lookups: Sequence[Lookup], slot: str) -> None:
    """Ask for the words of the tile that is open."""
    threads, thread = em.team.threads, em.team.thread
    for x in lookups:
        memory = em.memory[x.read.input]
        at = At({x.row: em.inside(x.row, "r")})
        pointer = em.parameters.pointer(memory)
        tests = [exists(em, [x.row], at)]
        for i, n in zip(x.read.indices, memory.shape, strict=True):
            if axes_of(i) - em.program.unit or inputs_of(i):
                tests.append(f"{index_text(em, i, at)} >= 0 && {index_text(em, i, at)} < {index_text(em, n, at)}")
        test = " && ".join(t for t in tests if t != "true") or "true"
        where = offset_text(em, em.offset(x.read.input, x.read.indices), at)
        with em.writer.unrolled("x", -(-x.rows // threads)):
            em.writer.line(f"const int r = {thread} + x * {threads};")
            em.writer.line(f"const bool present = {f'r < {x.rows} && ' if x.rows % threads else ''}{test};")
            guard = f"if (r < {x.rows}) " if x.rows % threads else ""
            em.writer.line(f"{guard}copy_word({x.place(slot)}, {pointer} + (present ? {where} : 0), present);")


Taken = dict[tuple[Atom, feed.Chunks], str]
"""Arrays of words that a thread has in registers, for all tiles of which it copies the same rows."""


@contextmanager
def known(em: Emission, lookups: Sequence[Lookup], slot: str, source: feed.Source, taken: Taken) -> Generator[None]:
    """Copies of a tile take what was looked up from a slot: all of it first, so that one wait is enough."""
    chunks = feed.chunks_of(em, source.tile)
    words: dict[Atom, str] = {}
    for x in (x for x in lookups if x.row is source.tile.row and x.rows == source.tile.rows):
        name = taken.get((x.read, chunks))
        if name is None:
            name = taken[x.read, chunks] = em.names.fresh(f"{x.read.input}_words")
            em.writer.line(f"int {name}[{chunks.turns}];")
            with em.writer.unrolled("x", chunks.turns):
                em.writer.line(f"const int r = {chunks.row};")
                text = f"shared_read_int({x.place(slot)})"
                em.writer.line(f"{name}[x] = {f'r < {x.rows} ? {text} : 0' if chunks.test else text};")
        words[x.read] = f"{name}[x]"
    em.named |= words
    yield
    for atom in words:
        del em.named[atom]
