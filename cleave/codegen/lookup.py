"""Rows of tiles whose places are read from a table: what a loop looks up comes ahead of what it then copies.

    k[table[t], ..] over t: while the tile of trip u is copied, table[t] of the tile of trip u + slots - 1 is on its way

In a ring of S slots the words of a trip land with the tiles of S - 1 trips before, so nobody waits for a word and then
for what it leads to. Words of the first S - 1 trips are waited for once, before anything else. The ring of words has as
many slots as that of tiles.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cleave.codegen import feed
from cleave.codegen.emission import C_TYPES, CHUNK, Emission
from cleave.codegen.expression import At, exists, index_text, offset_text, present
from cleave.codegen.layout import SharedTile
from cleave.ir.axis import Axis
from cleave.ir.index import Atom, Index, Position, Read, axes_of, inputs_of, of, parts
from cleave.tile.box import covered

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

Filled = tuple[feed.Source, SharedTile]


@dataclass(frozen=True)
class Column:
    """Of a tile whose rows a table places, the chunks that a thread copies, if they lie below one another: C++ names of
    the address of the first of them in row 0 of the array, and of its place in the shared tile."""

    pointer: str
    own: str


def columns(em: Emission, tiles: Sequence[Filled], lookups: Sequence[Lookup]) -> dict[str, Column]:
    """By pointer of the source; computed here, once."""
    found: dict[str, Column] = {}
    for source, to in tiles:
        tile, chunks = source.tile, feed.chunks_of(em, source.tile)
        own = em.names.fresh(f"{tile.name}_own")
        if not _is_looked_up(em, source, lookups) or to.beside(own, "0", "0") is None:
            continue
        if chunks.test or not chunks.step or chunks.step & (chunks.step - 1) or not feed.starts_even(em, tile):
            continue
        if em.team.share is not None or not covered(em, tile.along):
            continue
        pointer, first = em.names.fresh(f"{tile.name}_column"), em.inside(tile.along, f"{chunks.column} * {CHUNK}")
        em.parameters.require(em.parameters.pointer(em.memory[tile.load.input]), 2 * CHUNK)
        em.writer.line(f"const {C_TYPES[tile.dtype]}* {pointer} = apart({source.pointer} + {first});")
        em.writer.line(f"const u32 {own} = apart({to.chunk(chunks.first, chunks.column)});")
        found[source.pointer] = Column(pointer, own)
    return found


def _is_looked_up(em: Emission, source: feed.Source, lookups: Sequence[Lookup]) -> bool:
    """Whether words say where rows lie, and nothing else that would have to be read."""
    row = source.tile.row
    reads = {atom for atom in _reads(em.fix(source.moving)) if row in axes_of(of(atom))}
    return bool(reads) and reads <= {x.read for x in lookups if x.row is row and x.rows == source.tile.rows}


def fill(
    em: Emission, lookups: Sequence[Lookup], slot: str, tiles: Sequence[Filled], known_columns: Mapping[str, Column]
) -> None:
    """Issue the copies of some tiles; those of which a thread copies the same rows row by row, with one test a row."""
    taken: Taken = {}
    alike: dict[object, list[Filled]] = {}
    for n, (source, to) in enumerate(tiles):
        kind = (source.tile.row, feed.chunks_of(em, source.tile)) if source.pointer in known_columns else n
        alike.setdefault(kind, []).append((source, to))
    for group in alike.values():
        source, to = group[0]
        with known(em, lookups, slot, source, taken):
            if source.pointer in known_columns:
                _fill_rows(em, group, known_columns)
            else:
                feed.fill(em, source, to)


def _fill_rows(em: Emission, tiles: Sequence[Filled], known_columns: Mapping[str, Column]) -> None:
    first = tiles[0][0].tile
    row, chunks = first.row, feed.chunks_of(em, first)
    assert row is not None
    at, exist = At({row: em.inside(row, "r")}), []
    if exists(em, [row], at) != "true":
        rows, extent = em.names.fresh("rows"), index_text(em, em.extent(row), at)
        em.writer.line(f"const int {rows} = {extent} - {em.inside(row, f'({chunks.first})')};")
        exist = [f"x * {chunks.step} < {rows}"]
    slots = [em.names.fresh(f"{source.tile.name}_slot") for source, _ in tiles]
    em.writer.lines([f"const u32 {slot} = apart({to.address});" for slot, (_, to) in zip(slots, tiles, strict=True)])
    with em.writer.unrolled("x", chunks.turns):
        em.writer.line(f"const int r = {chunks.row};")
        tested: dict[str, str] = {}
        for slot, (source, to) in zip(slots, tiles, strict=True):
            tile, column = source.tile, known_columns[source.pointer]
            others = [a for a in em.load_axes(tile.load) if a not in (tile.along, row)]
            tests = [*exist, present(em, tile.load.input, tile.load.indices, others, at)]
            test = " && ".join(t for t in tests if t != "true") or "true"
            if test not in tested:
                tested[test] = em.names.fresh("present")
                em.writer.line(f"const bool {tested[test]} = {test};")
            where = offset_text(em, source.moving - of(Position(tile.along)), at)
            target = to.beside(column.own, f"x * {chunks.step}", "0")
            em.writer.line(f"copy_chunk_if({slot} + {target}, {column.pointer} + {where}, {tested[test]});")


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
