"""Reductions over one tile: a row in a quad of lanes, a vector by the whole block, a number by every thread."""

from __future__ import annotations

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


def identity(op: str) -> str:
    return number(MONOIDS[op].identity)


def reduction(em: Emission, let: Let, term: Reduce) -> None:
    """A reduction over one tile, as a value of its own."""
    name, columns = em.names.fresh(let.name), em.columns(let.axes)
    if em.has_rows(let.axes) and not columns:
        em.writer.line(f"float {name}[{em.halves}] = {{{each(em, identity(term.op))}}};")
        accumulate_rows(em, name, term)
        quad(em, name, term.op)
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
    elif term.axis not in free(body) and em.has_rows(free(body)):
        em.refuse(name, free(body), f"reduced over {term.axis}, on which it does not depend")

    def entry(which: str) -> str:
        at = fragment_at(em, term.axis, entry=which, half="h")
        return (
            f"{layout.base.name}[n][{which}]"
            if scale != 1.0 and isinstance(layout, Scaled)
            else printer(at).element(body)
        )

    shared = Printer(em, At())

    def printer(at: At) -> Printer:
        return Printer(em, at, shared.hoisted, shared.bases)

    both = combine(term.op, entry("2 * h"), entry("2 * h + 1"))
    target = name
    if scale != 1.0:
        target = em.names.fresh("part")
        em.writer.line(f"float {target}[{em.halves}] = {{{each(em, identity(term.op))}}};")
    with em.writer.unrolled("n", em.groups(term.axis)), em.writer.unrolled("h", em.halves):
        em.writer.line(f"{target}[h] = {combine(term.op, f'{target}[h]', both)};")
    if scale != 1.0:
        with em.writer.unrolled("h", em.halves):
            em.writer.line(f"{name}[h] = {combine(term.op, f'{name}[h]', f'{target}[h] * {number(scale)}')};")


def quad(em: Emission, name: str, op: str) -> None:
    """Join the four lanes that share a row."""
    with em.writer.unrolled("h", em.halves):
        em.writer.line(f"{name}[h] = quad_{op}({name}[h]);")


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
