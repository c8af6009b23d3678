"""What a loop carries: declaration, the value before a trip, the carry, and updates that are no matmul."""

from __future__ import annotations

from contextlib import nullcontext

from cleave.codegen import behind
from cleave.codegen.dependence import read_before
from cleave.codegen.elementwise import for_elements
from cleave.codegen.emission import Emission
from cleave.codegen.expression import At, Printer, fragment_at, row_at
from cleave.codegen.layout import Fragment, Layout, RowVector, SharedVector, Uniform
from cleave.codegen.reduction import (
    accumulate_rows,
    accumulate_uniform,
    accumulate_vector,
    add_to_vector,
    combine,
    each,
    identity,
    join_rows,
    new_vector,
    rows_of,
)
from cleave.ir.graph import Reduce, Ref, Term
from cleave.tile.program import Accumulator, Loop


def declare(em: Emission, acc: Accumulator) -> None:
    """An accumulator before its loop, at the identity."""
    columns, start = em.columns(acc.axes), identity(acc.op)
    name = em.names.fresh(acc.name)
    if len(columns) > 1 or (columns and not em.has_rows(acc.axes) and acc.carry is not None):
        em.refuse(acc.name, acc.axes)
    if em.has_rows(acc.axes) and columns:
        em.writer.line(f"float {name}[{em.groups(columns[0])}][{em.entries}];")
        for_elements(em, columns[0], f"{name}[n][e] = {start};")
        em.layouts[acc.name] = Fragment(name, columns[0])
    elif em.has_rows(acc.axes):
        em.writer.line(f"float {name}[{em.halves}] = {{{each(em, start)}}};")
        em.layouts[acc.name] = RowVector(name)
    elif columns:
        em.layouts[acc.name] = new_vector(em, name, columns[0], acc.op)
        em.writer.line(em.team.barrier)  # a loop without trips has no other between the identity and its readers
    else:
        em.writer.line(f"float {name} = {start};")
        em.layouts[acc.name] = Uniform(name)


def remember_read(em: Emission, s: Loop) -> None:
    """Keep the values before this iteration that carries and terms read after the update."""
    read = read_before(s)
    for c in s.accumulators:
        if c.name + "~" in read:
            _remember(em, c)


def _remember(em: Emission, acc: Accumulator) -> None:
    old = em.names.fresh(acc.name + "~")
    match em.layouts[acc.name]:
        case RowVector() as vector:
            em.writer.line(f"const float {old}[{em.halves}] = {{{rows_of(em, vector)}}};")
            em.layouts[acc.name + "~"] = RowVector(old)
        case Uniform(name):
            em.writer.line(f"const float {old} = {name};")
            em.layouts[acc.name + "~"] = Uniform(old)
        case Fragment(name, column):
            em.writer.line(f"float {old}[{em.groups(column)}][{em.entries}];")
            for_elements(em, column, f"{old}[n][e] = {name}[n][e];")
            em.layouts[acc.name + "~"] = Fragment(old, column)
        case _:
            em.refuse(acc.name + "~", acc.axes, "a vector in shared memory is read after its update only")


def carry(em: Emission, acc: Accumulator) -> None:
    """Restate the old value relative to the new state, in place."""
    if acc.carry is None or acc.carry is Ref(acc.name + "~", acc.axes):
        return
    own = acc.name + "~"
    saved = em.layouts.get(own)
    em.layouts[own] = em.layouts[acc.name]  # the carry reads its own value where it stands
    match em.layouts[acc.name]:
        case Fragment(name, column):
            moved = behind.moved(em, acc)
            with em.writer.block(f"if ({moved})") if moved else nullcontext():
                text = Printer(em, fragment_at(em, column)).element(acc.carry)
                for_elements(em, column, f"{name}[n][e] = {text};")
        case RowVector(name):
            text = Printer(em, row_at(em)).element(acc.carry)
            with em.writer.unrolled("h", em.halves):
                em.writer.line(f"{name}[h] = {text};")
        case Uniform(name):
            em.writer.line(f"{name} = {Printer(em, At()).element(acc.carry)};")
        case _:
            em.refuse(acc.name, acc.axes)
    if saved is None:
        del em.layouts[own]
    else:
        em.layouts[own] = saved


def update(em: Emission, acc: Accumulator, term: Term) -> None:
    """new = monoid(carry, term)."""
    layout = em.layouts[acc.name]
    if isinstance(layout, SharedVector) and isinstance(term, Reduce):
        accumulate_vector(em, layout, term)
        return
    if isinstance(term, Reduce):
        _update_reduction(em, acc, layout, term)
        return
    carry(em, acc)
    add(em, acc, term)


def add(em: Emission, acc: Accumulator, term: Term) -> None:
    """accumulator = monoid(accumulator, term), the carry being done."""
    match em.layouts[acc.name]:
        case Fragment(name, column):
            text = Printer(em, fragment_at(em, column)).element(term)
            for_elements(em, column, f"{name}[n][e] = {combine(acc.op, f'{name}[n][e]', text)};")
        case RowVector(name):
            text = Printer(em, row_at(em)).element(term)
            with em.writer.unrolled("h", em.halves):
                em.writer.line(f"{name}[h] = {combine(acc.op, f'{name}[h]', text)};")
        case Uniform(name):
            em.writer.line(f"{name} = {combine(acc.op, name, Printer(em, At()).element(term))};")
        case SharedVector() as vector:
            add_to_vector(em, vector, acc.op, term)
        case _:
            em.refuse(acc.name, acc.axes)


def _update_reduction(em: Emission, acc: Accumulator, layout: Layout, term: Reduce) -> None:
    carry(em, acc)
    match layout:
        case RowVector(name) if acc.name in em.deferred:
            accumulate_rows(em, name, term)  # each lane keeps a part of its own until the loop is over
        case RowVector(name) if acc.op in ("max", "min"):
            target = em.behind[acc.name].maximum if acc.name in em.behind else name
            accumulate_rows(em, target, term)
            join_rows(em, [(target, acc.op)], term.axis)
            if acc.name in em.behind:
                behind.follow(em, acc, name)
        case RowVector(name):
            part = em.names.fresh("part")
            em.writer.line(f"float {part}[{em.halves}] = {{{each(em, identity(acc.op))}}};")
            accumulate_rows(em, part, term)
            join_rows(em, [(part, acc.op)], term.axis)
            with em.writer.unrolled("h", em.halves):
                em.writer.line(f"{name}[h] = {combine(acc.op, f'{name}[h]', f'{part}[h]')};")
        case Uniform(name):
            accumulate_uniform(em, name, term)
        case _:
            em.refuse(
                acc.name, acc.axes, f"a reduction over {term.axis} with rows and a column left; a matmul is needed"
            )


def catch_up(em: Emission, s: Loop) -> None:
    """After a loop: what was summed is restated relative to the maxima themselves."""
    for m in (c for c in s.accumulators if c.name in em.behind):
        own, top = m.name + "~", RowVector(em.behind[m.name].maximum)
        em.layouts[own], em.layouts[m.name] = em.layouts[m.name], top
        em.behind[m.name].moved = ""
        for c in behind.restated(s, m):
            carry(em, c)
        del em.behind[m.name], em.layouts[own]
