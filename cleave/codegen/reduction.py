"""Reductions over one tile: a row in a quad of lanes, a vector by the whole block, a number by every thread."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.codegen import words
from cleave.codegen.emission import Emission
from cleave.codegen.expression import At, Printer, fragment_at, number
from cleave.codegen.layout import RowVector, Scaled, SharedVector, Uniform
from cleave.ir.axis import Axis
from cleave.ir.graph import Reduce, Ref, Term, free
from cleave.ir.op import MONOIDS
from cleave.tile.program import Let

_COMBINE = {"sum": "{} + {}", "max": "maximum({}, {})", "min": "minimum({}, {})"}


def combine(op: str, a: str, b: str) -> str:
    return f"({_COMBINE[op].format(a, b)})"


def each(em: Emission, value: str) -> str:
    """C++ text of one value for each row of a thread."""
    return ", ".join([value] * em.halves)


def rows_of(em: Emission, vector: RowVector) -> str:
    """C++ text of the values of all rows of a thread."""
    return ", ".join(f"{vector.name}[{h}]" for h in range(em.halves))


def identity(op: str) -> str:
    return number(MONOIDS[op].identity)


def reduction(em: Emission, let: Let, term: Reduce) -> None:
    """A reduction over one tile, as a value of its own."""
    name, columns = em.names.fresh(let.name), em.columns(let.axes)
    if em.has_rows(let.axes) and not columns:
        em.writer.line(f"float {name}[{em.halves}] = {{{each(em, identity(term.op))}}};")
        accumulate_rows(em, name, term)
        join_rows(em, [(name, term.op)], term.axis)
        em.layouts[let.name] = RowVector(name)
    elif not columns and not em.has_rows(let.axes):
        em.writer.line(f"float {name} = {identity(term.op)};")
        accumulate_uniform(em, name, term)
        em.layouts[let.name] = Uniform(name)
    elif len(columns) == 1 and not em.has_rows(let.axes):
        vector = new_vector(em, name, columns[0], term.op)
        em.layouts[let.name] = vector
        accumulate_vector(em, vector, term)
    else:
        em.refuse(let.name, let.axes)


def accumulate_rows(em: Emission, name: str, term: Reduce) -> None:
    """Fold the columns that a thread owns into ``name``; a constant positive scale is applied after a maximum."""
    body, scale = term.body, 1.0
    layout = em.layouts.get(body.name) if isinstance(body, Ref) else None
    if isinstance(layout, Scaled) and term.op in ("max", "min"):
        scale = layout.factor
    elif not em.lanes and term.axis not in free(body) and em.has_rows(free(body)):
        em.refuse(name, free(body), f"reduced over {term.axis}, on which it does not depend")

    def entry(which: str) -> str:
        at = fragment_at(em, term.axis, entry=which, half="h")
        return (
            f"{layout.base.name}[n][{which}]"
            if scale != 1.0 and isinstance(layout, Scaled)
            else printer(at).element(body)
        )

    words.hold(em, body, term.axis)
    shared = Printer(em, At())

    def printer(at: At) -> Printer:
        return Printer(em, at, shared.hoisted, shared.bases)

    both = combine(term.op, entry("2 * h"), entry("2 * h + 1"))
    target, row = name, "0" if em.lanes else "h"
    if scale != 1.0:
        target = em.names.fresh("part")
        em.writer.line(f"float {target}[{em.halves}] = {{{each(em, identity(term.op))}}};")
    with em.writer.unrolled("n", em.groups(term.axis)), em.writer.unrolled("h", em.entries // 2):
        em.writer.line(f"{target}[{row}] = {combine(term.op, f'{target}[{row}]', both)};")
    if scale != 1.0:
        with em.writer.unrolled("h", em.halves):
            em.writer.line(f"{name}[h] = {combine(term.op, f'{name}[h]', f'{target}[h] * {number(scale)}')};")


def join_rows(em: Emission, parts: Sequence[tuple[str, str]], axis: Axis) -> None:
    """Join what the threads that share a row have of some values along an axis, each given with its operation."""
    if not em.lanes:
        for name, op in parts:
            with em.writer.unrolled("h", em.halves):
                em.writer.line(f"{name}[h] = quad_{op}({name}[h]);")
        if em.is_divided(axis) and parts:
            _join_warpgroups(em, parts)
        return
    em.writer.lines([f"{name}[0] = lanes_{op}<{min(em.lanes, 32)}>({name}[0]);" for name, op in parts if em.lanes > 1])
    if em.lanes > 32 and parts:
        _join_warps(em, parts)


def _join_warpgroups(em: Emission, parts: Sequence[tuple[str, str]]) -> None:
    """Warpgroups with the same rows and other columns, through shared memory that only this join takes. Before any of
    them writes there again all have met: in a trip at its matmul over the divided axis, else when a tile begins."""
    assert em.binding.division is not None
    rows, sides, place = em.block_rows, em.binding.division.parts, em.names.fresh("sides")
    with em.writer.block(""):
        em.writer.line(f"const u32 {place} = {em.allot(4 * rows * sides * len(parts))};")
        with em.writer.block("if (pair == 0)"):
            for n, (name, _) in enumerate(parts):
                with em.writer.unrolled("h", em.halves):
                    own = f"{place} + 4 * ({rows * sides * n} + {em.part} * {rows} + row + 8 * h)"
                    em.writer.line(f"shared_write_float({own}, {name}[h]);")
        em.writer.line(em.team.barrier)
        for n, (name, op) in enumerate(parts):
            with em.writer.unrolled("h", em.halves):
                em.writer.line(f"{name}[h] = {identity(op)};")
                with em.writer.unrolled("w", sides):
                    side = f"shared_read_float({place} + 4 * ({rows * sides * n} + w * {rows} + row + 8 * h))"
                    em.writer.line(f"{name}[h] = {combine(op, f'{name}[h]', side)};")
    em.met = True


def _join_warps(em: Emission, parts: Sequence[tuple[str, str]]) -> None:
    """The warps of a row through shared memory, which no other join takes before a barrier; in a loop the next trip's
    does, so all have to have read it."""
    warps, a_row, place = em.binding.warps, em.lanes // 32, em.names.fresh("parts")
    with em.writer.block(""):
        em.writer.line(f"const u32 {place} = {em.allot(4 * warps * len(parts))};")
        with em.writer.block("if (lane == 0)"):
            for n, (name, _) in enumerate(parts):
                em.writer.line(f"shared_write_float({place} + {4 * warps * n} + 4 * warp, {name}[0]);")
        em.writer.line(em.team.barrier)
        for n, (name, op) in enumerate(parts):
            em.writer.line(f"{name}[0] = {identity(op)};")
            with em.writer.unrolled("w", a_row):
                side = f"shared_read_float({place} + {4 * warps * n} + 4 * (row * {a_row} + w))"
                em.writer.line(f"{name}[0] = {combine(op, f'{name}[0]', side)};")
        if em.repeats:
            em.writer.line(em.team.barrier)


def accumulate_uniform(em: Emission, name: str, term: Reduce) -> None:
    """Every thread folds the whole tile: rare, and small."""
    at = At({term.axis: em.inside(term.axis, "c")}, {term.axis: "c"})
    text = Printer(em, at).element(term.body)
    with em.writer.block(f"for (int c = 0; c < {em.size(term.axis)}; c++)"):
        em.writer.line(f"{name} = {combine(term.op, name, text)};")


def new_vector(em: Emission, name: str, axis: Axis, op: str) -> SharedVector:
    """FP32 in shared memory, at the identity."""
    em.writer.line(f"const u32 {name} = {em.allot(4 * em.size(axis))};")
    em.writer.line(em.team.barrier)
    with em.writer.block(f"for (int r = {em.team.thread}; r < {em.size(axis)}; r += {em.team.threads})"):
        em.writer.line(f"shared_write_float({name} + 4 * r, {identity(op)});")
    return SharedVector(name, axis)


def accumulate_vector(em: Emission, vector: SharedVector, term: Reduce) -> None:
    """The block folds a tile into a vector, an element of it a thread; barriers keep readers before and after apart."""
    at = At(
        {vector.axis: em.inside(vector.axis, "r"), term.axis: em.inside(term.axis, "c")},
        {vector.axis: "r", term.axis: "c"},
    )
    text = Printer(em, at).element(term.body)
    address = f"{vector.address} + 4 * r"
    em.writer.line(em.team.barrier)
    with em.writer.block(f"for (int r = {em.team.thread}; r < {em.size(vector.axis)}; r += {em.team.threads})"):
        em.writer.line(f"float x = shared_read_float({address});")
        with em.writer.block(f"for (int c = 0; c < {em.size(term.axis)}; c++)"):
            em.writer.line(f"x = {combine(term.op, 'x', text)};")
        em.writer.line(f"shared_write_float({address}, x);")
    em.writer.line(em.team.barrier)


def add_to_vector(em: Emission, vector: SharedVector, op: str, term: Term) -> None:
    """The block folds one value an element into a vector, between the same barriers."""
    text = Printer(em, At({vector.axis: em.inside(vector.axis, "r")}, {vector.axis: "r"})).element(term)
    address = f"{vector.address} + 4 * r"
    em.writer.line(em.team.barrier)
    with em.writer.block(f"for (int r = {em.team.thread}; r < {em.size(vector.axis)}; r += {em.team.threads})"):
        em.writer.line(f"shared_write_float({address}, {combine(op, f'shared_read_float({address})', text)});")
    em.writer.line(em.team.barrier)
