"""Lets that are computed element by element: fragments, rows, masks, and values that are left to their readers."""

from __future__ import annotations

import numpy as np

from cleave.codegen import vector, words
from cleave.codegen.emission import STORAGE_16, Emission
from cleave.codegen.expression import (
    At,
    Printer,
    exists,
    fragment_at,
    number,
    offset_text,
    part_place,
    pred_text,
    present,
    row_at,
)
from cleave.codegen.layout import Fragment, Inline, Layout, Rounded, RowVector, Scaled, Uniform
from cleave.codegen.range import always, multiple_of
from cleave.ir.axis import Axis
from cleave.ir.graph import Cast, Const, IndexValue, Load, Map, Ref, Term, Where
from cleave.ir.index import Position
from cleave.ir.op import MAPS
from cleave.tile.program import Let


def for_elements(em: Emission, column: Axis, body: str) -> None:
    with em.writer.unrolled("n", em.groups(column)), em.writer.unrolled("e", em.entries):
        em.writer.line(body)


# ---- lets


def elementwise(em: Emission, let: Let, term: Term) -> None:
    """Give a value its layout and compute it if the layout holds one."""
    columns = em.columns(let.axes)
    layout = _deferred(em, let, term, columns)
    if layout is None and em.has_rows(let.axes):
        if len(columns) > 1:
            em.refuse(let.name, let.axes)
        layout = _fragment(em, let, term, columns[0]) if columns else _row(em, let, term)
    elif layout is None:
        layout = Inline(term) if columns or isinstance(term, (Const, Ref)) else _uniform(em, let, term)
    em.layouts[let.name] = layout


def _deferred(em: Emission, let: Let, term: Term, columns: list[Axis]) -> Layout | None:
    """What costs nothing until it is read: constants, constant positive scales, roundings of what exists already."""
    known = constant(em, term)
    if known is not None:
        return Inline(Const(known))
    match term:
        case Ref(name, _):
            return em.layouts.get(name)
        case Cast(dtype, Ref() as operand) if dtype in STORAGE_16 and em.has_rows(let.axes) and len(columns) == 1:
            return Rounded(operand, dtype, columns[0])
        case Map("mul", (a, b)):
            return _scaled(em, a, constant(em, b)) or _scaled(em, b, constant(em, a))
        case _:
            return None


def _scaled(em: Emission, operand: Term, factor: float | None) -> Layout | None:
    if em.precise or factor is None or not 0 < factor < float("inf") or not isinstance(operand, Ref):
        return None
    match em.layouts.get(operand.name):
        case Fragment() as base:
            return Scaled(base, factor)
        case Scaled(base, before):
            return Scaled(base, factor * before)
        case _:
            return None


def constant(em: Emission, term: Term) -> float | None:
    """The value of a term that is known when compiling: built of numbers and fixed dims."""
    match term:
        case Const(number):
            return number
        case IndexValue(i):
            fixed = em.fix(i).constant
            return None if fixed is None else float(fixed)
        case Ref(name, _):
            layout = em.layouts.get(name)
            return constant(em, layout.term) if isinstance(layout, Inline) else None
        case Map(op, args):
            values = [constant(em, a) for a in args]
            known = [np.float64(v) for v in values if v is not None]
            with np.errstate(all="ignore"):
                return float(MAPS[op].meaning(*known)) if len(known) == len(values) else None
        case _:
            return None


def _fragment(em: Emission, let: Let, term: Term, column: Axis) -> Layout:
    name = em.names.fresh(let.name)
    if isinstance(term, Where) and (masked := _masked(em, term, name, column)) is not None:
        return masked
    if isinstance(term, Load) and (vector.read if em.lanes else _paired_load)(em, term, name, column):
        return Fragment(name, column)
    words.hold(em, term, column)
    printer = Printer(em, fragment_at(em, column))
    em.writer.line(f"float {name}[{em.groups(column)}][{em.entries}];")
    if isinstance(term, Map) and term.op in NEAR_ZERO:
        _near_zero(em, name, column, term.op, printer.element(term.args[0]))
    else:
        for_elements(em, column, f"{name}[n][e] = {printer.element(term)};")
    return Fragment(name, column)


NEAR_ZERO = {"tanh": ("tanh_of", "tanh_near_zero")}
"""Operations with a shorter form for arguments below ``NEAR_ZERO``: a thread takes it if all of its elements are."""


def _near_zero(em: Emission, name: str, column: Axis, op: str, argument: str) -> None:
    anywhere, near = NEAR_ZERO[op]
    largest = em.names.fresh("largest")
    em.writer.line(f"float {largest} = 0.f;")
    with em.writer.unrolled("n", em.groups(column)), em.writer.unrolled("e", em.entries):
        em.writer.line(f"{name}[n][e] = {argument};")
        em.writer.line(f"{largest} = fmaxf({largest}, fabsf({name}[n][e]));  // NaN is none")
    with em.writer.block(f"if ({largest} < NEAR_ZERO)"):
        for_elements(em, column, f"{name}[n][e] = {near}({name}[n][e]);")
    with em.writer.block("else"):
        for_elements(em, column, f"{name}[n][e] = {anywhere}({name}[n][e]);")


def registers(em: Emission, let: Let) -> int:
    """Registers of a thread for a value of rows or columns."""
    return sum(em.entries * em.groups(a) for a in em.columns(let.axes)) or em.halves


def _masked(em: Emission, term: Where, name: str, column: Axis) -> Layout | None:
    """where(p, x, c): copy x, and touch it only in tiles where p may be false.

    A positive scale of x stays deferred if c is the same after scaling (0 or an infinity).
    """
    sure = always(em, term.pred)
    if sure is None or not isinstance(term.then, Ref) or not isinstance(term.otherwise, Const):
        return None
    layout, c = em.layouts.get(term.then.name), term.otherwise.value
    if isinstance(layout, Scaled) and c in (0.0, float("inf"), float("-inf")):
        source, result = layout.base, Scaled(Fragment(name, column), layout.factor)
    elif isinstance(layout, Fragment):
        source, result = layout, Fragment(name, column)
    else:
        return None
    at = fragment_at(em, column)
    em.writer.line(f"float {name}[{em.groups(column)}][{em.entries}];")
    for_elements(em, column, f"{name}[n][e] = {source.name}[n][e];")
    with em.writer.block(f"if (!{pred_text(em, sure, At())})"):
        for_elements(em, column, f"if (!{pred_text(em, term.pred, at)}) {name}[n][e] = {number(c)};")
    return result


def _paired_load(em: Emission, load: Load, name: str, column: Axis) -> bool:
    """A FP32 temporary, read two columns at a time from a pointer for each row."""
    part = em.parts.get(load.input)
    memory = em.memory[load.input]
    offset = em.offset(load.input, load.indices)
    linear = offset.linear_in(Position(column))
    alone = linear is not None and linear[0].constant == 1
    if not memory.fresh or memory.dtype != "float32" or linear is None or not alone:
        return False
    group = em.group_number(column)
    columns_at = {**row_at(em).positions, column: em.inside(column, f"{group} * 8 + pair")}
    next_at = {**columns_at, column: em.inside(column, f"{group} * 8 + pair + 1")}
    first = exists(em, [column], At(columns_at))
    second = exists(em, [column], At(next_at))
    others = [a for a in em.load_axes(load) if a is not column]
    row_exists = present(em, load.input, load.indices, others, row_at(em))
    start = em.names.fresh("source")
    if part is None:
        pointer = em.parameters.pointer(memory)
        base = offset_text(em, linear[1] + em.corner(column, "first"), row_at(em))
        begin = f"const float* {start} = {pointer} + {base} + pair;"
        even = multiple_of(em, linear[1]) % 2 == 0 and em.start_multiples[column] % 2 == 0
    else:
        place = part_place(em, load, part, "pair", row_at(em))
        begin, even = f"const u32 {start} = {place};", True
    em.writer.line(f"float {name}[{em.groups(column)}][{em.entries}] = {{}};")
    with em.writer.unrolled("h", em.halves), em.existing_rows():
        if part is None:
            em.writer.line(f"const bool present = {row_exists};")
        em.writer.line(begin)
        with em.writer.unrolled("n", em.groups(column)):
            pair = f"{name}[n][2 * h], {name}[n][2 * h + 1]"
            if part is not None:
                em.writer.line(f"shared_read_two({pair}, {start} + {group} * 32);")
                for entry, test in (("2 * h", first), ("2 * h + 1", second)):
                    if test != "true":
                        em.writer.line(f"{name}[n][{entry}] = where({test}, {name}[n][{entry}]);")
            elif even and first == second == "true":
                em.writer.line(f"read_fresh_two({pair}, {start} + {group} * 8, present);")
            else:
                tests = f"present && {first}, present && {second}"
                em.writer.line(f"read_fresh_pair({pair}, {start} + {group} * 8, {tests});")
    return True


def _row(em: Emission, let: Let, term: Term) -> Layout:
    name = em.names.fresh(let.name)
    text = Printer(em, row_at(em)).element(term)
    em.writer.line(f"float {name}[{em.halves}];")
    with em.writer.unrolled("h", em.halves):
        em.writer.line(f"{name}[h] = {text};")
    return RowVector(name)


def _uniform(em: Emission, let: Let, term: Term) -> Layout:
    text = Printer(em, At()).element(term)
    name = em.names.fresh(let.name)
    em.writer.line(f"const float {name} = {text};")
    return Uniform(name)
