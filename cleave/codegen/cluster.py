"""Partials in distributed shared memory: every block of a cluster keeps its own, and reads those of the others.

    store part[t_o, ...]   -> shared memory of this block, FP32, rows x columns of the tile
    load  part[t_o, ...]   -> shared memory of the block of rank t_o                       (``layout.ClusterPart``)

The outer axis of the split lies along the cluster: block t_o has rank t_o. The other indices of a load are those of the
store (``tile.check.check_merge``), so a place in the tile is all that it needs.
"""

from __future__ import annotations

from collections.abc import Mapping

from cleave.codegen.emission import Emission
from cleave.codegen.expression import At, Printer, fragment_at, row_at
from cleave.codegen.layout import ClusterPart
from cleave.errors import CodegenError
from cleave.ir.axis import Axis
from cleave.ir.index import axes_of
from cleave.tile.program import Store, statements

_BANKS_APART = 8
"""Floats added to a row, so that a warp's eight rows meet different banks."""


def reserve(em: Emission, tiles: Mapping[Axis, str]) -> dict[str, ClusterPart]:
    """Memory for everything that a program stores, for as long as the kernel runs. Errors: an output without outer
    axis."""
    return {s.output: _reserved(em, s, tiles) for s in statements(em.program.body) if isinstance(s, Store)}


def _reserved(em: Emission, s: Store, tiles: Mapping[Axis, str]) -> ClusterPart:
    outer = [n for n, i in enumerate(s.indices) if any(a.kind == "outer" for a in axes_of(i))]
    if len(outer) != 1:
        raise CodegenError(f"{s.output} has no part for each block of a cluster", location=em.location)
    if em.memory[s.output].dtype != "float32":
        dtype = em.memory[s.output].dtype
        raise CodegenError(f"{s.output} of {dtype} in a cluster: FP32 is kept", location=em.location)
    columns = em.columns(s.axes)
    if len(columns) > 1:
        em.refuse(s.value.name, s.axes)
    width = em.size(columns[0]) if columns else 1
    rows = em.block_rows if em.has_rows(s.axes) else 1
    stride = width + _BANKS_APART if columns and rows > 1 else width
    name = em.names.fresh(f"{s.output}_here")
    em.writer.line(f"const u32 {name} = shared_base + {em.shared.take(4 * rows * stride)};")
    start = f"{tiles[columns[0]]} * {width}" if columns and columns[0] in tiles else "0"
    (own,) = (tiles[a] for a in axes_of(s.indices[outer[0]]) if a.kind == "outer")
    return ClusterPart(name, stride, start, outer[0], own)


def store(em: Emission, s: Store, part: ClusterPart) -> None:
    """Write a value to this block's own part, what pads the tile too: nobody reads it, and no test is needed."""
    columns = em.columns(s.axes)
    if not em.has_rows(s.axes):
        _without_rows(em, s, columns, part)
        return
    if not columns:
        text = Printer(em, row_at(em)).element(s.value)
        with em.writer.unrolled("h", em.halves):
            test = _all(em.only_one_of("0"), "pair == 0")
            em.writer.line(f"if ({test}) shared_write_float({part.place('row + 8 * h', '0')}, {text});")
        return
    column = columns[0]
    first = Printer(em, fragment_at(em, column, "n", "2 * h", "h"))
    low = first.element(s.value)
    high = Printer(em, fragment_at(em, column, "n", "2 * h + 1", "h"), first.hoisted, first.bases).element(s.value)
    where = part.place("row + 8 * h", f"{em.group_number(column)} * 8 + pair")
    test = _all(em.only_one_holder(column))
    guard = "" if test == "true" else f"if ({test}) "
    with em.writer.unrolled("h", em.halves), em.existing_rows(), em.writer.unrolled("n", em.groups(column)):
        em.writer.line(f"{guard}shared_write_two({where}, {low}, {high});")


def _without_rows(em: Emission, s: Store, columns: list[Axis], part: ClusterPart) -> None:
    if not columns:
        text = Printer(em, At()).element(s.value)
        em.writer.line(f"if ({em.team.thread} == 0) shared_write_float({part.place('0', '0')}, {text});")
        return
    at = At({columns[0]: em.inside(columns[0], "r")}, {columns[0]: "r"})
    text = Printer(em, at).element(s.value)
    with em.writer.block(f"for (int r = {em.team.thread}; r < {em.size(columns[0])}; r += {em.team.threads})"):
        em.writer.line(f"shared_write_float({part.place('0', 'r')}, {text});")


def _all(*tests: str) -> str:
    return " && ".join(t for t in tests if t and t != "true") or "true"
