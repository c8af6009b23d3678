"""Joining the states of the teams of a block: the fold's combine, from the carry that the loop's trips use.

    joint_k = monoid_k over the sides w of  carry_k(old := state of w, new := joint)        in the order of members

Every team writes its state to shared memory in FP32; every thread then reads the same place of all sides. A team
without a trip brings the identity, which the carry keeps: ``exp_diff`` is 0 where its first argument is -inf.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleave.codegen.dependence import spreadable
from cleave.codegen.elementwise import for_elements
from cleave.codegen.emission import Emission, aligned
from cleave.codegen.expression import At, Printer, fragment_at, row_at
from cleave.codegen.layout import Fragment, RowVector, SharedVector, Uniform
from cleave.codegen.reduction import combine, identity
from cleave.ir.axis import Axis
from cleave.ir.graph import Ref, Term
from cleave.tile.program import Accumulator, Loop, names_read


@dataclass(frozen=True)
class _Sides:
    """Where the states of one accumulator lie: C++ name of the first side's address, and the bytes between two."""

    address: str
    step: int


def teams(em: Emission, s: Loop) -> None:
    """Make the accumulators of a loop whose trips were divided the joint ones, in all threads.

    Columns of a fragment are spread over the teams where what follows allows it: each joins and stores its own.
    """
    if not s.accumulators:
        return
    em.writer.line(f"// the states of {em.binding.teams} teams are joined")
    mark = em.shared.top
    with em.writer.block(""):
        sides = {c.name: _written(em, c) for c in s.accumulators if not isinstance(em.layouts[c.name], SharedVector)}
        em.writer.line("block_barrier();")
        em.spread |= spreadable(em, s)
        for c in s.accumulators:
            if c.name in sides and not isinstance(em.layouts[c.name], Fragment):
                _read_small(em, c, sides[c.name])
        for c in s.accumulators:
            _joined(em, s, c, sides)
        em.writer.line("block_barrier();")
    em.shared.top = mark
    for c in s.accumulators:
        em.layouts.pop(c.name + "~", None)
        _rename_vector(em, c)


# ---- states in shared memory


def _written(em: Emission, c: Accumulator) -> _Sides:
    """A team's own state goes to its side."""
    name, rows = em.names.fresh(f"{c.name}_sides"), em.block_rows
    match em.layouts[c.name]:
        case Fragment(value, column):
            blocks = em.groups(column)
            sides = _side(em, name, rows * blocks * 8 * 4)
            with em.writer.unrolled("h", em.halves), em.existing_rows(), em.writer.unrolled("n", blocks):
                pair = f"{value}[n][2 * h], {value}[n][2 * h + 1]"
                em.writer.line(f"shared_write_two({name} + team * {sides.step} + {_place(em, column)}, {pair});")
        case RowVector(value):
            sides = _side(em, name, rows * 4)
            with em.writer.unrolled("h", em.halves):
                where = f"{name} + team * {sides.step} + (row + 8 * h) * 4"
                em.writer.line(f"if (pair == 0) shared_write_float({where}, {value}[h]);")
        case Uniform(value):
            sides = _side(em, name, 4)
            em.writer.line(f"if (member == 0) shared_write_float({name} + team * {sides.step}, {value});")
        case _:
            em.refuse(c.name, c.axes)
    return sides


def _side(em: Emission, name: str, size: int) -> _Sides:
    offset = em.shared.take(size, em.binding.teams)
    em.writer.line(f"const u32 {name} = shared_base + {offset};")
    return _Sides(name, aligned(size))


def _place(em: Emission, column: Axis) -> str:
    """Where a thread keeps entries 2h and 2h + 1 of a fragment's group n, for the same thread of another team.

    Rows that pad the tile are moved with the others: their values go nowhere, and no test of each is needed.
    """
    return f"(({em.group_number(column)} * {em.halves} + h) * {32 * em.binding.warps_a_team} + member) * 8"


def _read_small(em: Emission, c: Accumulator, sides: _Sides) -> None:
    """All sides of a row value or a number, in registers: the carries of other members read them too."""
    name, count = em.names.fresh(f"{c.name}_side"), em.binding.teams
    match em.layouts[c.name]:
        case RowVector():
            em.writer.line(f"float {name}[{count}][{em.halves}];")
            with em.writer.unrolled("w", count), em.writer.unrolled("h", em.halves):
                where = f"{sides.address} + w * {sides.step} + (row + 8 * h) * 4"
                em.writer.line(f"{name}[w][h] = shared_read_float({where});")
            em.layouts[c.name + "~"] = RowVector(f"{name}[w]")
        case _:
            em.writer.line(f"float {name}[{count}];")
            with em.writer.unrolled("w", count):
                em.writer.line(f"{name}[w] = shared_read_float({sides.address} + w * {sides.step});")
            em.layouts[c.name + "~"] = Uniform(f"{name}[w]")


def _read_fragments(em: Emission, s: Loop, c: Accumulator, sides: dict[str, _Sides]) -> None:
    """Side w of the fragments that a carry reads, its own among them."""
    needed = {f"{c.name}~", *names_read(_carry(c))}
    for other in (o for o in s.accumulators if f"{o.name}~" in needed):
        layout = em.layouts[other.name]
        if not isinstance(layout, Fragment):
            continue
        name, blocks = em.names.fresh(f"{other.name}_side"), em.groups(layout.column)
        em.writer.line(f"float {name}[{blocks}][{2 * em.halves}] = {{}};")
        with em.writer.unrolled("h", em.halves), em.existing_rows(), em.writer.unrolled("n", blocks):
            where = f"{sides[other.name].address} + w * {sides[other.name].step} + {_place(em, layout.column)}"
            em.writer.line(f"shared_read_two({name}[n][2 * h], {name}[n][2 * h + 1], {where});")
        em.layouts[f"{other.name}~"] = Fragment(name, layout.column)


# ---- the joint state


def _carry(c: Accumulator) -> Term:
    return Ref(f"{c.name}~", c.axes) if c.carry is None else c.carry


def _joined(em: Emission, s: Loop, c: Accumulator, sides: dict[str, _Sides]) -> None:
    count = em.binding.teams
    match em.layouts[c.name]:
        case Fragment(value, column):
            for_elements(em, column, f"{value}[n][e] = {identity(c.op)};")
            with em.writer.unrolled("w", count, at_once=_sides_at_once(em, c, column)):
                _read_fragments(em, s, c, sides)
                text = Printer(em, fragment_at(em, column)).element(_carry(c))
                for_elements(em, column, f"{value}[n][e] = {combine(c.op, f'{value}[n][e]', text)};")
        case RowVector(value):
            em.writer.line(" = ".join(f"{value}[{h}]" for h in range(em.halves)) + f" = {identity(c.op)};")
            with em.writer.unrolled("w", count):
                text = Printer(em, row_at(em)).element(_carry(c))
                with em.writer.unrolled("h", em.halves):
                    em.writer.line(f"{value}[h] = {combine(c.op, f'{value}[h]', text)};")
        case Uniform(value):
            em.writer.line(f"{value} = {identity(c.op)};")
            with em.writer.unrolled("w", count):
                text = Printer(em, At()).element(_carry(c))
                em.writer.line(f"{value} = {combine(c.op, value, text)};")
        case SharedVector(address, axis):
            _joined_vector(em, c, address, em.size(axis))
        case _:
            em.refuse(c.name, c.axes)


_MOST_LOADED = 256
"""Values of sides that a thread may be loading at once: the compiler asks for all that it can see."""


def _sides_at_once(em: Emission, c: Accumulator, column: Axis) -> int | None:
    """None: all, which it must be where a carry reads what lies in registers for every side."""
    if c.carry is not None:
        return None
    return max(1, _MOST_LOADED // (em.groups(column) * 2 * em.halves))


def _joined_vector(em: Emission, c: Accumulator, address: str, size: int) -> None:
    """Vectors of the teams lie side by side; the first becomes the joint one."""
    step = aligned(4 * size)
    with em.writer.block(f"for (int r = thread; r < {size}; r += {em.team.threads})"):
        em.writer.line(f"float x = {identity(c.op)};")
        with em.writer.unrolled("w", em.binding.teams):
            other = f"shared_read_float({address} - team * {step} + w * {step} + 4 * r)"
            em.writer.line(f"x = {combine(c.op, 'x', other)};")
        em.writer.line(f"shared_write_float({address} - team * {step} + 4 * r, x);")


def _rename_vector(em: Emission, c: Accumulator) -> None:
    layout = em.layouts[c.name]
    if isinstance(layout, SharedVector):
        joint = em.names.fresh(f"{c.name}_joint")
        em.writer.line(f"const u32 {joint} = {layout.address} - team * {aligned(4 * em.size(layout.axis))};")
        em.layouts[c.name] = SharedVector(joint, layout.axis)
