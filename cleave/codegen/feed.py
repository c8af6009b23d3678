"""Loaded tiles: which loads become tiles of 16-byte chunks in shared memory, and the copies that fill them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cleave.codegen.emission import C_TYPES, CHUNK, STORAGE_16, Emission
from cleave.codegen.expression import At, exists, index_text, offset_text, row_positions
from cleave.codegen.layout import SharedTile
from cleave.codegen.range import covered, multiple_of
from cleave.ir.axis import Axis
from cleave.ir.graph import Load
from cleave.ir.index import Atom, Index, Position, Symbol, axes_of, index, of, substitute
from cleave.tile.program import Let


@dataclass(frozen=True)
class Tile:
    """A load as rows of contiguous chunks. ``row`` None: the rows of the block; ``column`` None: those are contiguous.

    ``rest`` is the offset without the contiguous axis ``along``.
    """

    name: str
    load: Load
    row: Axis | None
    column: Axis | None
    along: Axis
    rest: Index
    rows: int
    chunks: int
    dtype: str

    @property
    def bytes(self) -> int:
        return self.rows * self.chunks * 16


def tile_of(em: Emission, let: Let) -> Tile | None:
    """The tile of a load; None if it is read element by element where it is used.

    One axis must be contiguous (coefficient 1 in the offset), and the others be the rows of the block or a single axis.
    """
    load = let.term
    if not isinstance(load, Load) or em.memory[load.input].dtype not in STORAGE_16:
        return None
    axes, offset = em.load_axes(load), em.offset(load.input, load.indices)
    for along in sorted(axes, key=lambda a: a in em.rows):
        linear = offset.linear_in(Position(along))
        others = [a for a in axes if a is not along]
        if linear is None or linear[0].constant != 1 or em.size(along) % CHUNK or not others:
            continue
        if along in em.rows and (em.rows != (along,) or em.used_rows < em.block_rows):
            continue
        if all(a in em.rows for a in others):
            row, rows = None, em.block_rows
        elif len(others) == 1:
            row, rows = others[0], em.size(others[0])
        else:
            continue
        column = None if along in em.rows else along
        dtype = em.memory[load.input].dtype
        return Tile(let.name, load, row, column, along, linear[1], rows, em.size(along) // CHUNK, dtype)
    return None


def region(em: Emission, tile: Tile) -> object:
    """Equal for two loads of the same memory under different axis names: they share one tile."""
    names: dict[Atom, Index] = {Position(tile.along): of(Symbol("%along"))}
    if tile.row is not None:
        names[Position(tile.row)] = of(Symbol("%row"))
    indices = tuple(substitute(i, names) for i in tile.load.indices)
    extents = (em.extent(tile.along), None if tile.row is None else em.extent(tile.row))
    starts = (em.starts.get(tile.along), None if tile.row is None else em.starts.get(tile.row))
    return (tile.load.input, indices, extents, starts, tile.rows, tile.chunks)


def shared_tile(tile: Tile, address: str) -> SharedTile:
    return SharedTile(address, tile.row, tile.column, tile.chunks, tile.dtype)


@dataclass(frozen=True)
class Source:
    """Where a tile is copied from: a pointer that stays while some axes move, and the rest of the offset."""

    tile: Tile
    pointer: str
    moving: Index


def source(em: Emission, tile: Tile, moving: Iterable[Axis]) -> Source:
    """Compute the part of the address that the moving axes and the rows of the tile do not change, once."""
    inside = {*moving, *([tile.row] if tile.row else em.rows), tile.along}
    offset = tile.rest + of(Position(tile.along))
    still, rest = index(0), index(0)
    for monomial, factor in offset.terms:
        part = Index(((monomial, factor),))
        if axes_of(part) & inside:
            rest = rest + part
        else:
            still = still + part
    pointer = em.parameters.pointer(em.memory[tile.load.input])
    name = em.names.fresh(f"{tile.name}_source")
    distance = offset_text(em, still, At())
    em.writer.line(f"const {C_TYPES[tile.dtype]}* {name} = {pointer}{'' if distance == '0' else f' + {distance}'};")
    return Source(tile, name, rest)


def fill(em: Emission, source: Source, to: str) -> None:
    """Issue the copies of one tile; positions that do not exist become zero."""
    tile = source.tile
    total, threads, thread = tile.rows * tile.chunks, em.team.threads, em.team.thread
    count = -(-total // threads)
    with em.writer.unrolled("x", count):
        if threads % tile.chunks == 0:
            em.writer.line(
                f"const int r = {thread} / {tile.chunks} + x * {threads // tile.chunks}, c = {thread} % {tile.chunks};"
            )
        else:
            number = f"({thread} + x * {threads})"
            em.writer.line(f"const int r = {number} / {tile.chunks}, c = {number} % {tile.chunks};")
        if total % threads:
            with em.writer.block(f"if (r < {tile.rows})"):
                _copy(em, source, to)
        else:
            _copy(em, source, to)


def _copy(em: Emission, source: Source, to: str) -> None:
    tile = source.tile
    at = _chunk_at(em, tile)
    others = [a for a in em.load_axes(tile.load) if a is not tile.along]
    present = exists(em, others, at)
    where, target = offset_text(em, source.moving, at), f"{to} + swizzle<{tile.chunks}>(r, c)"
    aligned = multiple_of(em, tile.rest) % CHUNK == 0 and em.start_multiples[tile.along] % CHUNK == 0
    extent = em.extent(tile.along)
    if aligned and multiple_of(em, extent) % CHUNK == 0:
        whole = "" if covered(em, tile.along) else f"{at.positions[tile.along]} < {index_text(em, extent, at)}"
        tests = " && ".join(t for t in (present if present != "true" else "", whole) if t) or "true"
        em.parameters.require(em.parameters.pointer(em.memory[tile.load.input]), 2 * CHUNK)
        em.writer.line(f"const bool present = {tests};")
        em.writer.line(f"copy_chunk({target}, {source.pointer} + (present ? {where} : 0), present ? 16 : 0);")
    else:
        em.writer.line(f"const int left = ({present}) ? {index_text(em, extent, at)} - {at.positions[tile.along]} : 0;")
        em.writer.line(f"copy_elements({target}, {source.pointer} + (left > 0 ? {where} : 0), left);")


def _chunk_at(em: Emission, tile: Tile) -> At:
    positions = {tile.along: em.inside(tile.along, f"c * {CHUNK}")}
    if tile.row is None:
        return At({**row_positions(em, "r"), **positions}, {}, "r")
    return At({**positions, tile.row: em.inside(tile.row, "r")})
