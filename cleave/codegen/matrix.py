"""The rows of a shared tile in registers: A fragments of mma.m16n8k16, which hold what C fragments hold, two columns in
a word.

Step kk of sixteen columns, register 2 g + h: columns 8 (2 kk + g) + pair and the next, row h of the thread's two.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleave.codegen.emission import Emission
from cleave.codegen.layout import Fragment, SharedTile
from cleave.ir.axis import Axis
from cleave.tile.skeleton import STEP


@dataclass(frozen=True)
class Form:
    """Rows and chunks of a tile that the lanes of a warp address for an operand: each lane's own, and how far from
    those the steps of the loops lead, as C++ texts."""

    row: str
    chunk: str
    rows: str
    chunks: str


A_CHUNK = Form("(lane & 15)", "(lane >> 4)", "{warp} * 16", "kk * 2")
A_TRANSPOSED = Form("(lane & 7) + ((lane >> 4) << 3)", "((lane >> 3) & 1)", "kk * 16", "{warp} * 2")


def address(em: Emission, tile: SharedTile, form: Form) -> str:
    """C++ text of what a lane loads in a step; what does not change from step to step is written here."""
    own = em.names.fresh("own")
    found = tile.beside(own, form.rows, form.chunks)
    if found is None:
        return f"{tile.address} + {tile.chunk(f'{form.rows} + {form.row}', f'{form.chunks} + {form.chunk}')}"
    em.writer.line(f"const u32 {own} = apart({tile.chunk(form.row, form.chunk)});")
    return f"{tile.address} + {found}"


def left_shape(em: Emission) -> str:
    """Dimensions of the A fragments of one step: one for each sixteen rows of a warp."""
    return "[4]" if em.row_tiles == 1 else f"[{em.row_tiles}][4]"


def of_tile(em: Emission, fragments: str, n: int) -> str:
    return fragments if em.row_tiles == 1 else f"{fragments}[{n}]"


def load_left(em: Emission, tile: SharedTile, k: Axis, target: str = "a") -> list[str]:
    """Lines that load the A fragments of step kk; what is the same in all steps is written here."""
    form, name = A_TRANSPOSED, "load_matrices_transposed"
    if tile.column is k and tile.row is None:
        form, name = A_CHUNK, "load_matrices"
    warp = em.row_warp if em.row_tiles == 1 else f"({em.row_warp} * {em.row_tiles} + %n)"
    where = address(em, tile, Form(form.row, form.chunk, form.rows.format(warp=warp), form.chunks.format(warp=warp)))
    return [f"{name}({of_tile(em, target, n)}, {where.replace('%n', str(n))});" for n in range(em.row_tiles)]


def hold(em: Emission, name: str, k: Axis, wish: str = "words") -> None:
    """Keep the rows of a tile in registers until the statements of this scope end, if they are held nowhere yet."""
    tile = em.layouts[name]
    if name in em.held or not isinstance(tile, SharedTile):
        return
    em.need(name)
    words = em.names.fresh(f"{name}_{wish}")
    em.held[name] = Fragment(words, k)
    em.writer.line(f"u32 {words}[{em.size(k) // STEP}]{left_shape(em)};")
    lines = load_left(em, tile, k, f"{words}[kk]")
    with em.writer.unrolled("kk", em.size(k) // STEP):
        em.writer.lines(lines)


def held_element(em: Emission, held: Fragment, dtype: str, group: str, entry: str) -> str:
    """C++ text: the element of a held tile that register ``[group][entry]`` of a fragment would hold."""
    step = f"{held.name}[({group}) >> 1]"
    if em.row_tiles > 1:
        step = f"{step}[({entry}) >> 2]"
    return f"half_of<{dtype}>({step}[(({group}) & 1) * 2 + ((({entry}) >> 1) & 1)], ({entry}) & 1)"
