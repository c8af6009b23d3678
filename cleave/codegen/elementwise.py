"""Lets and updates without a matmul: elementwise tiles, masks, row reductions, vectors, and what a loop carries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cleave.codegen.emission import STORAGE_16, Emission
from cleave.codegen.expression import At, Printer, exists, fragment_at, number, offset_text, pred_text, row_at
from cleave.codegen.layout import Fragment, Inline, Layout, Rounded, RowVector, Scaled, SharedVector, Uniform
from cleave.codegen.range import always, multiple_of
from cleave.ir.axis import Axis
from cleave.ir.graph import Cast, Const, IndexValue, Load, Map, Reduce, Ref, Term, Where, free
from cleave.ir.index import Position
from cleave.ir.op import MAPS, MONOIDS
from cleave.tile.program import Accumulator, Let

_COMBINE = {"sum": "{} + {}", "max": "maximum({}, {})", "min": "minimum({}, {})"}


def combine(op: str, a: str, b: str) -> str:
    return f"({_COMBINE[op].format(a, b)})"


def identity(op: str) -> str:
    return number(MONOIDS[op].identity)


def blocks_of(em: Emission, column: Axis) -> int:
    """Groups of eight columns in a fragment."""
    size = em.size(column)
    if size % 8:
        em.refuse(f"along {column}", [column], f"tile of {size} elements: fragments need multiples of 8")
    return size // 8


def for_elements(em: Emission, column: Axis, body: str) -> None:
    with em.writer.unrolled("n", blocks_of(em, column)), em.writer.unrolled("e", 4):
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
    """Values that cost nothing until they are read: constants, constant positive scales, roundings of what exists already."""
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
    if factor is None or not 0 < factor < float("inf") or not isinstance(operand, Ref):
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
    name, blocks = em.names.fresh(let.name), blocks_of(em, column)
    if isinstance(term, Where) and (masked := _masked(em, term, name, column)) is not None:
        return masked
    if isinstance(term, Load) and _paired_load(em, term, name, column):
        return Fragment(name, column)
    text = Printer(em, fragment_at(em, column)).element(term)
    em.writer.line(f"float {name}[{blocks}][4];")
    for_elements(em, column, f"{name}[n][e] = {text};")
    return Fragment(name, column)


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
    em.writer.line(f"float {name}[{blocks_of(em, column)}][4];")
    for_elements(em, column, f"{name}[n][e] = {source.name}[n][e];")
    with em.writer.block(f"if (!{pred_text(em, sure, At())})"):
        for_elements(em, column, f"if (!{pred_text(em, term.pred, at)}) {name}[n][e] = {number(c)};")
    return result


def _paired_load(em: Emission, load: Load, name: str, column: Axis) -> bool:
    """A FP32 temporary, read two columns at a time from a pointer for each row."""
    memory = em.memory[load.input]
    offset = em.offset(load.input, load.indices)
    linear = offset.linear_in(Position(column))
    if not memory.fresh or memory.dtype != "float32" or linear is None or linear[0].constant != 1:
        return False
    pointer, start = em.parameters.pointer(memory), em.names.fresh("source")
    columns_at = {**row_at(em).positions, column: f"({em.starts[column]} + n * 8 + pair)"}
    next_at = {**columns_at, column: f"({em.starts[column]} + n * 8 + pair + 1)"}
    first = exists(em, [column], At(columns_at))
    second = exists(em, [column], At(next_at))
    row_exists = exists(em, [a for a in em.load_axes(load) if a is not column], row_at(em))
    base = offset_text(em, linear[1] + em.corner(column, "first"), row_at(em))
    em.writer.line(f"float {name}[{blocks_of(em, column)}][4];")
    with em.writer.unrolled("h", 2):
        em.writer.line(f"const bool present = {row_exists};")
        em.writer.line(f"const float* {start} = {pointer} + {base} + pair;")
        with em.writer.unrolled("n", blocks_of(em, column)):
            em.writer.line(f"{name}[n][2 * h] = {name}[n][2 * h + 1] = 0.f;")
            even = multiple_of(em, linear[1]) % 2 == 0 and em.start_multiples[column] % 2 == 0
            if even and first == second == "true":
                em.writer.line(f"if (present) read_fresh_two({name}[n][2 * h], {name}[n][2 * h + 1], {start} + n * 8);")
            else:
                tests = f"{first}, {second}"
                em.writer.line(f"if (present) read_fresh_pair({name}[n][2 * h], {name}[n][2 * h + 1], {start} + n * 8, {tests});")
    return True


def _row(em: Emission, let: Let, term: Term) -> Layout:
    text = Printer(em, row_at(em)).element(term)
    name = em.names.fresh(let.name)
    em.writer.line(f"float {name}[2];")
    with em.writer.unrolled("h", 2):
        em.writer.line(f"{name}[h] = {text};")
    return RowVector(name)


def _uniform(em: Emission, let: Let, term: Term) -> Layout:
    text = Printer(em, At()).element(term)
    name = em.names.fresh(let.name)
    em.writer.line(f"const float {name} = {text};")
    return Uniform(name)


# ---- reductions


def reduction(em: Emission, let: Let, term: Reduce) -> None:
    """A reduction over one tile, as a value of its own."""
    name, columns = em.names.fresh(let.name), em.columns(let.axes)
    if em.has_rows(let.axes) and not columns:
        em.writer.line(f"float {name}[2] = {{{identity(term.op)}, {identity(term.op)}}};")
        accumulate_rows(em, name, term)
        quad(em, name, term.op)
        em.layouts[let.name] = RowVector(name)
    elif not columns and not em.has_rows(let.axes):
        em.writer.line(f"float {name} = {identity(term.op)};")
        _accumulate_uniform(em, name, term)
        em.layouts[let.name] = Uniform(name)
    elif len(columns) == 1 and not em.has_rows(let.axes):
        vector = new_vector(em, name, columns[0], term.op)
        em.layouts[let.name] = vector
        _accumulate_vector(em, vector, term, lambda old: old)
    else:
        em.refuse(let.name, let.axes)


def accumulate_rows(em: Emission, name: str, term: Reduce) -> None:
    """Fold the columns that a thread owns into ``name[2]``; a constant positive scale is applied once, after a maximum."""
    body, scale = term.body, 1.0
    layout = em.layouts.get(body.name) if isinstance(body, Ref) else None
    if isinstance(layout, Scaled) and term.op in ("max", "min"):
        scale = layout.factor
    elif term.axis not in free(body) and em.has_rows(free(body)):
        em.refuse(name, free(body), f"reduced over {term.axis}, on which it does not depend")

    def entry(which: str) -> str:
        at = fragment_at(em, term.axis, entry=which, half="h")
        return f"{layout.base.name}[n][{which}]" if scale != 1.0 and isinstance(layout, Scaled) else printer(at).element(body)

    shared = Printer(em, At())

    def printer(at: At) -> Printer:
        return Printer(em, at, shared.hoisted, shared.bases)

    both = combine(term.op, entry("2 * h"), entry("2 * h + 1"))
    target = name
    if scale != 1.0:
        target = em.names.fresh("part")
        em.writer.line(f"float {target}[2] = {{{identity(term.op)}, {identity(term.op)}}};")
    with em.writer.unrolled("n", blocks_of(em, term.axis)), em.writer.unrolled("h", 2):
        em.writer.line(f"{target}[h] = {combine(term.op, f'{target}[h]', both)};")
    if scale != 1.0:
        with em.writer.unrolled("h", 2):
            em.writer.line(f"{name}[h] = {combine(term.op, f'{name}[h]', f'{target}[h] * {number(scale)}')};")


def quad(em: Emission, name: str, op: str) -> None:
    """Join the four lanes that share a row."""
    with em.writer.unrolled("h", 2):
        em.writer.line(f"{name}[h] = quad_{op}({name}[h]);")


def _accumulate_uniform(em: Emission, name: str, term: Reduce) -> None:
    """Every thread folds the whole tile: rare, and small."""
    at = At({term.axis: f"({em.starts[term.axis]} + c)"}, {term.axis: "c"})
    text = Printer(em, at).element(term.body)
    with em.writer.block(f"for (int c = 0; c < {em.size(term.axis)}; c++)"):
        em.writer.line(f"{name} = {combine(term.op, name, text)};")


def new_vector(em: Emission, name: str, axis: Axis, op: str) -> SharedVector:
    """FP32 in shared memory, at the identity."""
    em.writer.line(f"const u32 {name} = shared_base + {em.shared.take(4 * em.size(axis))};")
    em.writer.line("block_barrier();")
    with em.writer.block(f"for (int r = thread; r < {em.size(axis)}; r += {em.threads})"):
        em.writer.line(f"shared_write_float({name} + 4 * r, {identity(op)});")
    return SharedVector(name, axis)


def _accumulate_vector(em: Emission, vector: SharedVector, term: Reduce, carried: Callable[[str], str]) -> None:
    """The block folds a tile into a vector, one element of it a thread; barriers keep readers before and after apart."""
    at = At({vector.axis: f"({em.starts[vector.axis]} + r)", term.axis: f"({em.starts[term.axis]} + c)"}, {vector.axis: "r", term.axis: "c"})
    text = Printer(em, at).element(term.body)
    address = f"{vector.address} + 4 * r"
    em.writer.line("block_barrier();")
    with em.writer.block(f"for (int r = thread; r < {em.size(vector.axis)}; r += {em.threads})"):
        em.writer.line(f"float x = {carried(f'shared_read_float({address})')};")
        with em.writer.block(f"for (int c = 0; c < {em.size(term.axis)}; c++)"):
            em.writer.line(f"x = {combine(term.op, 'x', text)};")
        em.writer.line(f"shared_write_float({address}, x);")
    em.writer.line("block_barrier();")


# ---- accumulators


def declare(em: Emission, acc: Accumulator) -> None:
    """An accumulator before its loop, at the identity."""
    columns, start = em.columns(acc.axes), identity(acc.op)
    name = em.names.fresh(acc.name)
    if len(columns) > 1 or (columns and not em.has_rows(acc.axes) and acc.carry is not None):
        em.refuse(acc.name, acc.axes)
    if em.has_rows(acc.axes) and columns:
        em.writer.line(f"float {name}[{blocks_of(em, columns[0])}][4];")
        for_elements(em, columns[0], f"{name}[n][e] = {start};")
        em.layouts[acc.name] = Fragment(name, columns[0])
    elif em.has_rows(acc.axes):
        em.writer.line(f"float {name}[2] = {{{start}, {start}}};")
        em.layouts[acc.name] = RowVector(name)
    elif columns:
        em.layouts[acc.name] = new_vector(em, name, columns[0], acc.op)
    else:
        em.writer.line(f"float {name} = {start};")
        em.layouts[acc.name] = Uniform(name)


def remember(em: Emission, acc: Accumulator) -> None:
    """Keep the value before this iteration, for carries and terms that read it after the update."""
    old = em.names.fresh(acc.name + "~")
    match em.layouts[acc.name]:
        case RowVector(name):
            em.writer.line(f"const float {old}[2] = {{{name}[0], {name}[1]}};")
            em.layouts[acc.name + "~"] = RowVector(old)
        case Uniform(name):
            em.writer.line(f"const float {old} = {name};")
            em.layouts[acc.name + "~"] = Uniform(old)
        case Fragment(name, column):
            em.writer.line(f"float {old}[{blocks_of(em, column)}][4];")
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
            text = Printer(em, fragment_at(em, column)).element(acc.carry)
            for_elements(em, column, f"{name}[n][e] = {text};")
        case RowVector(name):
            text = Printer(em, row_at(em)).element(acc.carry)
            with em.writer.unrolled("h", 2):
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
    if isinstance(layout, SharedVector):
        if not isinstance(term, Reduce):
            em.refuse(acc.name, acc.axes)
        _accumulate_vector(em, layout, term, lambda old: old)
        return
    if isinstance(term, Reduce):
        _update_reduction(em, acc, layout, term)
        return
    carry(em, acc)
    match layout:
        case Fragment(name, column):
            text = Printer(em, fragment_at(em, column)).element(term)
            for_elements(em, column, f"{name}[n][e] = {combine(acc.op, f'{name}[n][e]', text)};")
        case RowVector(name):
            text = Printer(em, row_at(em)).element(term)
            with em.writer.unrolled("h", 2):
                em.writer.line(f"{name}[h] = {combine(acc.op, f'{name}[h]', text)};")
        case Uniform(name):
            em.writer.line(f"{name} = {combine(acc.op, name, Printer(em, At()).element(term))};")
        case _:
            em.refuse(acc.name, acc.axes)


def _update_reduction(em: Emission, acc: Accumulator, layout: Layout, term: Reduce) -> None:
    carry(em, acc)
    match layout:
        case RowVector(name) if acc.name in em.deferred:
            accumulate_rows(em, name, term)  # each lane keeps a part of its own until the loop is over
        case RowVector(name) if acc.op in ("max", "min"):
            accumulate_rows(em, name, term)
            quad(em, name, acc.op)
        case RowVector(name):
            part = em.names.fresh("part")
            em.writer.line(f"float {part}[2] = {{{identity(acc.op)}, {identity(acc.op)}}};")
            accumulate_rows(em, part, term)
            quad(em, part, acc.op)
            with em.writer.unrolled("h", 2):
                em.writer.line(f"{name}[h] = {combine(acc.op, f'{name}[h]', f'{part}[h]')};")
        case Uniform(name):
            _accumulate_uniform(em, name, term)
        case _:
            em.refuse(acc.name, acc.axes, f"a reduction over {term.axis} with rows and a column left; a matmul is needed")
