"""Stores: eight or two neighbouring columns at a time from a pointer for each row, or element by element.

Four lanes hold a row; of every eight columns each has two. Where rows start and end at whole chunks of 16 bytes, the
lanes exchange what they have of four chunks, and each writes one.
"""

from __future__ import annotations

from cleave.codegen import cluster, vector
from cleave.codegen.emission import C_TYPES, CHUNK, STORAGE_16, Emission
from cleave.codegen.expression import At, Printer, exists, fragment_at, offset_text, present, row_at
from cleave.codegen.range import multiple_of
from cleave.ir.axis import Axis
from cleave.ir.index import Index, Position
from cleave.ir.op import DTYPES
from cleave.tile.program import Store


def store(em: Emission, s: Store) -> None:
    """Write a value where every one of its positions exists, from the first tile of the axes in ``once`` only."""
    if s.output in em.parts:
        cluster.store(em, s, em.parts[s.output])
        return
    columns = em.columns(s.axes)
    pointer = em.parameters.output(em.memory[s.output])
    if len(columns) > 1:
        em.refuse(s.value.name, s.axes)
    first = [f"{em.starts[a] if a not in em.program.unit else em.units[a]} == 0" for a in s.once]
    if first:
        em.writer.line(f"if ({' && '.join(first)})")
    with em.writer.block(""):
        if not em.has_rows(s.axes):
            _without_rows(em, s, columns, pointer)
        elif not columns:
            _row(em, s, pointer)
        else:
            _fragment(em, s, columns[0], pointer)


def _without_rows(em: Emission, s: Store, columns: list[Axis], pointer: str) -> None:
    if not columns:
        text = Printer(em, At()).element(s.value)
        where = offset_text(em, em.offset(s.output, s.indices), At())
        test = _both(f"{em.team.thread} == 0", _present(em, s, [], At()))
        em.writer.line(f"if ({test}) write({pointer} + {where}, {text});")
        return
    axis = columns[0]
    at = At({axis: em.inside(axis, "r")}, {axis: "r"})
    text = Printer(em, at).element(s.value)
    with em.writer.block(f"for (int r = {em.team.thread}; r < {em.size(axis)}; r += {em.team.threads})"):
        where = offset_text(em, em.offset(s.output, s.indices), at)
        em.writer.line(f"if ({_present(em, s, [axis], at)}) write({pointer} + {where}, {text});")


def _row(em: Emission, s: Store, pointer: str) -> None:
    at = row_at(em)
    text = Printer(em, at).element(s.value)
    with em.writer.unrolled("h", em.halves):
        where = offset_text(em, em.offset(s.output, s.indices), at)
        one = _both(
            em.only_one_of("0"), f"{'place' if em.lanes else 'pair'} == 0 && {_present(em, s, list(s.axes), at)}"
        )
        em.writer.line(f"if ({one}) write({pointer} + {where}, {text});")


def _fragment(em: Emission, s: Store, column: Axis, pointer: str) -> None:
    if em.lanes:
        if not vector.write(em, s, column, pointer):
            _scattered(em, s, column, pointer)
        return
    offset = em.offset(s.output, s.indices)
    linear = offset.linear_in(Position(column))
    if linear is None or linear[0].constant != 1:
        _scattered(em, s, column, pointer)
        return
    others = [a for a in s.axes if a is not column]
    dtype = em.memory[s.output].dtype
    if dtype in STORAGE_16 and em.groups(column) % 4 == 0 and _in_chunks(em, column, linear[1]):
        _chunks(em, s, column, pointer, linear[1], _present(em, s, others, row_at(em)))
        return
    low, high = _halves(em, s, column, "n")
    even = multiple_of(em, linear[1]) % 2 == 0 and em.start_multiples[column] % 2 == 0
    target, group = em.names.fresh("target"), em.group_number(column)
    with em.writer.unrolled("h", em.halves), em.writer.block(f"if ({_present(em, s, others, row_at(em))})"):
        base = offset_text(em, linear[1] + em.corner(column, "first"), row_at(em))
        em.writer.line(f"{C_TYPES[dtype]}* {target} = {pointer} + {base} + pair;")
        with em.writer.unrolled("n", em.groups(column)):
            first, second = (_column_exists(em, column, which) for which in ("", " + 1"))
            test = _both(em.only_one_holder(column), first)
            guard = "" if test == "true" else f"if ({test}) "
            if even and first == second == "true":
                em.parameters.require(pointer, 2 * DTYPES[dtype])
                em.writer.line(f"{guard}write_two({target} + {group} * 8, {low}, {high});")
            else:
                em.writer.line(f"{guard}write_pair({target} + {group} * 8, {low}, {high}, {second});")


def _halves(em: Emission, s: Store, column: Axis, group: str) -> tuple[str, str]:
    first = Printer(em, fragment_at(em, column, group, "2 * h", "h"))
    low = first.element(s.value)
    second = Printer(em, fragment_at(em, column, group, "2 * h + 1", "h"), first.hoisted, first.bases)
    return low, second.element(s.value)


def _in_chunks(em: Emission, column: Axis, rest: Index) -> bool:
    starts = multiple_of(em, rest) % CHUNK == 0 and em.start_multiples[column] % CHUNK == 0
    return starts and multiple_of(em, em.extent(column)) % CHUNK == 0


def _chunks(em: Emission, s: Store, column: Axis, pointer: str, rest: Index, row_exists: str) -> None:
    """Every lane takes part in the exchange, whatever rows exist."""
    dtype = em.memory[s.output].dtype
    type_, target = C_TYPES[dtype], em.names.fresh("target")
    em.parameters.require(pointer, CHUNK * DTYPES[dtype])
    low, high = _halves(em, s, column, "(4 * q + x)")
    group = em.group_number(column, "(4 * q + (lane & 3))")
    chunk_exists = exists(em, [column], At({column: em.inside(column, f"{group} * {CHUNK}")}))
    test = _both(em.only_one_holder(column, "q"), _both(row_exists, chunk_exists))
    with em.writer.unrolled("h", em.halves):
        base = offset_text(em, rest + em.corner(column, "first"), row_at(em))
        em.writer.line(f"{type_}* {target} = {pointer} + {base};")
        with em.writer.unrolled("q", em.groups(column) // 4):
            em.writer.line("u32 w[4];")
            with em.writer.unrolled("x", 4):
                em.writer.line(f"w[x] = pack<{type_}>({low}, {high});")
            em.writer.line("quad_transpose(w, lane);")
            em.writer.line(f"if ({test}) write_chunk({target} + {group} * {CHUNK}, w);")


def _column_exists(em: Emission, column: Axis, plus: str) -> str:
    return exists(em, [column], At({column: em.inside(column, f"{em.group_number(column)} * 8 + pair{plus}")}))


def _scattered(em: Emission, s: Store, column: Axis, pointer: str) -> None:
    at = fragment_at(em, column)
    text = Printer(em, at).element(s.value)
    with em.writer.unrolled("n", em.groups(column)), em.writer.unrolled("e", em.entries):
        where = offset_text(em, em.offset(s.output, s.indices), at)
        test = _both(em.only_one_holder(column), _present(em, s, list(s.axes), at))
        em.writer.line(f"if ({test}) write({pointer} + {where}, {text});")


def _present(em: Emission, s: Store, axes: list[Axis], at: At) -> str:
    return present(em, s.output, s.indices, axes, at)


def _both(one: str, other: str) -> str:
    return " && ".join(t for t in (one, other) if t and t != "true") or "true"
