"""Loaded tiles: which loads become tiles of 16-byte chunks in shared memory, and the copies that fill them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from cleave.codegen.dependence import values_read
from cleave.codegen.emission import C_TYPES, CHUNK, STORAGE_16, Emission
from cleave.codegen.expression import At, index_text, offset_text, present, row_positions
from cleave.codegen.layout import SharedTile
from cleave.codegen.range import extreme, multiple_of, varies
from cleave.codegen.vector import address_test, stride_tests
from cleave.ir.axis import Axis
from cleave.ir.graph import Load
from cleave.ir.index import Atom, Index, Position, Symbol, axes_of, index, inputs_of, of, substitute
from cleave.tile.box import covered, slab_bytes
from cleave.tile.program import Let, Loop


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
    if em.lanes or not isinstance(load, Load) or em.memory[load.input].dtype not in STORAGE_16:
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


def shared_tile(em: Emission, tile: Tile, address: str) -> SharedTile:
    """Where the tile will lie: rows of the block, and rows that a table places, as boxes would if matmuls by warpgroups
    can read them there."""
    plain = SharedTile(address, tile.row, tile.column, tile.chunks, tile.dtype)
    width = slab_bytes(tile.chunks * 16)
    rows = tile.row is None or any(inputs_of(i) and tile.row in axes_of(i) for i in tile.load.indices)
    if em.binding.mma != "wgmma" or not rows or tile.column is None or width is None:
        return plain
    return replace(plain, slabs=(width // 16, tile.rows))


@dataclass(frozen=True)
class Source:
    """Where a tile is copied from: a pointer that stays while some axes move, and the rest of the offset.

    ``even``: C++ text, whether every row starts at a multiple of 16 bytes.
    """

    tile: Tile
    pointer: str
    moving: Index
    even: str


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
    even = "true" if starts_even(em, tile) else _even_at_run_time(em, tile, pointer)
    if even not in ("true", "false"):
        flag = em.names.fresh(f"{tile.name}_even")
        em.writer.line(f"const bool {flag} = {even};")
        even = flag
    return Source(tile, name, rest, even)


def fill(em: Emission, source: Source, to: SharedTile) -> None:
    """Issue the copies of one tile; positions that do not exist become zero.

    Where only the dims of a call decide whether every row starts at a multiple of 16 bytes, both ways are emitted.
    """
    if starts_even(em, source.tile) or source.even == "false":
        _fill(em, source, to, _copy)
        return
    with em.writer.block(f"if ({source.even})"):
        _fill(em, source, to, _copy_even)
    with em.writer.block("else"):
        _fill(em, source, to, _copy)


def _fill(em: Emission, source: Source, to: SharedTile, copy: Callable[[Emission, Source, SharedTile], None]) -> None:
    where = chunks_of(em, source.tile)
    with em.writer.unrolled("x", where.turns):
        em.writer.line(f"const int r = {where.row}, c = {where.column};")
        if where.test:
            with em.writer.block(f"if ({where.test})"):
                copy(em, source, to)
        else:
            copy(em, source, to)


@dataclass(frozen=True)
class Chunks:
    """Which chunk of a tile a thread copies in turn x, as C++ texts; ``test``: whether there is one, if not always.

    ``first``, ``step``: its row in turn 0, and rows from turn to turn, if its column stays; else 0 rows.
    """

    turns: int
    row: str
    column: str
    test: str
    first: str = ""
    step: int = 0


def chunks_of(em: Emission, tile: Tile) -> Chunks:
    first, rows = ("", tile.rows) if em.team.share is None else (f"{em.team.share[0]} + ", em.team.share[1])
    total, threads, thread = rows * tile.chunks, em.team.threads, em.team.thread
    number = f"({thread} + x * {threads})"
    test = "" if total % threads == 0 else f"{number} < {total}" if first else f"r < {tile.rows}"
    if threads % tile.chunks == 0:
        row, column, step = f"{first}{thread} / {tile.chunks}", f"{thread} % {tile.chunks}", threads // tile.chunks
        return Chunks(-(-total // threads), f"{row} + x * {step}", column, test, row, step)
    return Chunks(-(-total // threads), f"{first}{number} / {tile.chunks}", f"{number} % {tile.chunks}", test)


def starts_even(em: Emission, tile: Tile) -> bool:
    """Whether every row and its end are known to be whole chunks."""
    starts = multiple_of(em, tile.rest) % CHUNK == 0 and em.start_multiples[tile.along] % CHUNK == 0
    return starts and multiple_of(em, em.extent(tile.along)) % CHUNK == 0


def _even_at_run_time(em: Emission, tile: Tile, pointer: str) -> str:
    """C++ test that every row starts at a multiple of 16 bytes: of the address and of all strides; or "false"."""
    tests = stride_tests(em, tile.rest, CHUNK)
    if tests is None or em.start_multiples[tile.along] % CHUNK:
        return "false"
    return " && ".join([address_test(pointer), *tests])


def _copy_even(em: Emission, source: Source, to: SharedTile) -> None:
    """Rows start at whole chunks; the last one of a row may end inside."""
    tile, at = source.tile, _chunk_at(em, source.tile)
    left, where = _left(em, tile, at), offset_text(em, source.moving, at)
    em.writer.line(f"const int left = {left}, bytes = least(greatest(2 * left, 0), 16);")
    target = f"{to.address} + {to.chunk('r', 'c')}"
    em.writer.line(f"copy_chunk({target}, {source.pointer} + (left > 0 ? {where} : 0), bytes);")


def _left(em: Emission, tile: Tile, at: At) -> str:
    """C++ text of how many elements of a row remain from a chunk on; 0 for a row that does not exist."""
    test = _row_present(em, tile, at)
    remaining = f"{index_text(em, em.extent(tile.along), at)} - {at.positions[tile.along]}"
    return remaining if test == "true" else f"({test}) ? {remaining} : 0"


def _row_present(em: Emission, tile: Tile, at: At) -> str:
    return present(
        em, tile.load.input, tile.load.indices, [a for a in em.load_axes(tile.load) if a is not tile.along], at
    )


def _copy(em: Emission, source: Source, to: SharedTile) -> None:
    tile = source.tile
    at = _chunk_at(em, tile)
    where, target = offset_text(em, source.moving, at), f"{to.address} + {to.chunk('r', 'c')}"
    if starts_even(em, tile):
        row = _row_present(em, tile, at)
        extent = em.extent(tile.along)
        whole = "" if covered(em, tile.along) else f"{at.positions[tile.along]} < {index_text(em, extent, at)}"
        tests = " && ".join(t for t in (row if row != "true" else "", whole) if t) or "true"
        em.parameters.require(em.parameters.pointer(em.memory[tile.load.input]), 2 * CHUNK)
        em.writer.line(f"const bool present = {tests};")
        em.writer.line(f"copy_chunk({target}, {source.pointer} + (present ? {where} : 0), present ? 16 : 0);")
    else:
        em.writer.line(f"const int left = {_left(em, tile, at)};")
        em.writer.line(f"copy_elements({target}, {source.pointer} + (left > 0 ? {where} : 0), left);")


def _chunk_at(em: Emission, tile: Tile) -> At:
    positions = {tile.along: em.inside(tile.along, f"c * {CHUNK}")}
    if tile.row is None:
        return At({**row_positions(em, "r"), **positions}, {}, "r")
    return At({**positions, tile.row: em.inside(tile.row, "r")})


def needed_if(em: Emission, name: str) -> str:
    """A test whether a tile before all loops is read at all, if only tables tell: rows of requests may see nothing."""
    loaded = em.lets[name].term
    assert isinstance(loaded, Load)
    alike = {let.name for let in em.lets.values() if isinstance(let.term, Load) and let.term.input == loaded.input}
    readers = [s for s in em.program.body if alike & values_read(s)]
    if len(readers) != 1 or not isinstance(readers[0], Loop) or not inputs_of(readers[0].upper):
        return ""
    bounds = extreme(em, em.fix(readers[0].lower), "least"), extreme(em, em.fix(readers[0].upper), "greatest")
    if any(found is None or varies(em, found) for found in bounds):
        return ""
    low, high = (index_text(em, found, At()) for found in bounds if found is not None)
    return f"if ({low} < {high})"
