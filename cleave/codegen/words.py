"""Tiles and vectors that fragments are computed from, read into registers once: two neighbours a word.

Elementwise terms read element by element otherwise: a tile of shared memory, or an array in global memory. A value
that is read at the columns of a fragment is held until the trip ends, whoever reads it again.
"""

from __future__ import annotations

from cleave.codegen import matrix
from cleave.codegen.emission import C_TYPES, STORAGE_16, Emission
from cleave.codegen.expression import At, offset_text, present
from cleave.codegen.layout import Fragment, Inline, SharedTile
from cleave.codegen.range import multiple_of
from cleave.ir.axis import Axis
from cleave.ir.graph import Load, Term
from cleave.ir.index import Position
from cleave.tile.program import names_read
from cleave.tile.skeleton import STEP


def hold(em: Emission, term: Term, column: Axis) -> None:
    """What a term reads along the columns of a fragment, in words."""
    if em.lanes:
        return
    for name in names_read(term):
        match em.layouts.get(name):
            case SharedTile() as tile if _along(tile, column) and em.size(column) % STEP == 0:
                if not em.is_divided(column) and column not in em.spread:
                    matrix.hold(em, name, column)
            case Inline(Load() as load) if name not in em.words:
                _hold_vector(em, name, load, column)
            case _:
                pass


def _along(tile: SharedTile, column: Axis) -> bool:
    """Whether the rows of the block lie in a tile beside the columns."""
    return (tile.row, tile.column) in ((None, column), (column, None))


def _hold_vector(em: Emission, name: str, load: Load, column: Axis) -> None:
    """An array of 16-bit elements along the columns, from even places on."""
    memory = em.memory[load.input]
    linear = em.offset(load.input, load.indices).linear_in(Position(column))
    if em.load_axes(load) != [column] or memory.dtype not in STORAGE_16 or memory.fresh or linear is None:
        return
    if linear[0].constant != 1 or multiple_of(em, linear[1]) % 2 or em.start_multiples[column] % 2:
        return
    pointer, words = em.parameters.pointer(memory), em.names.fresh(f"{name}_words")
    em.parameters.require(pointer, 4)
    places = [At({column: em.inside(column, f"{em.group_number(column)} * 8 + pair{plus}")}) for plus in ("", " + 1")]
    tests = ", ".join(present(em, load.input, load.indices, [column], at) for at in places)
    where = offset_text(em, em.offset(load.input, load.indices), places[0])
    em.writer.line(f"u32 {words}[{em.groups(column)}];")
    with em.writer.unrolled("n", em.groups(column)):
        em.writer.line(f"{words}[n] = read_word<{C_TYPES[memory.dtype]}>({pointer} + {where}, {tests});")
    em.words[name] = Fragment(words, column)
