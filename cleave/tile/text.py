"""Tile programs as text for people.

kernel attention: grid b, s/Bs, h; whole e, d
  q_1[s, d] = Q[b, s, h, d]
  for t in [0, min(dim.t, s + 1)) step Bt  carry m1[s], s1[s]
    m1 = max(m1~, max[t](w1))
    s1 = sum(s1~ * exp_diff(m1~, m1), sum[t](e1))
  store O[b, s, h, e] = d1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cleave.ir.axis import Axis
from cleave.ir.graph import Cast, Map, Reduce, Ref, Where
from cleave.ir.index import show, show_pred
from cleave.ir.text import show_term
from cleave.tile.plan import KernelPlan, Schedule
from cleave.tile.program import Contract, Let, Loop, Program, Stmt, Store, TileTerm, Update


def show_program(program: Program) -> str:
    """A heading, then one statement a line; deterministic."""
    lines = [heading(program), *_lines(program.body, program.unit, 1)]
    return "\n".join(lines) + "\n"


def heading(program: Program) -> str:
    grid = ", ".join(a.name if a in program.unit else f"{a.name}/B{a.name}" for a in program.grid)
    whole = f"; whole {_names(program.whole)}" if program.whole else ""
    return f"kernel {program.name}: grid {grid or '-'}{whole}"


def _names(axes: Iterable[Axis]) -> str:
    return ", ".join(a.name for a in axes)


def _lines(body: tuple[Stmt, ...], unit: frozenset[Axis], depth: int) -> Iterator[str]:
    for s in body:
        yield from ("  " * depth + line for line in statement_lines(s, unit))
        if isinstance(s, Loop):
            yield from _lines(s.body, unit, depth + 1)


def statement_lines(s: Stmt, unit: frozenset[Axis]) -> Iterator[str]:
    """One statement without what is inside it."""
    match s:
        case Let(name, axes, term):
            yield f"{name}[{_names(axes)}] = {show_tile(term)}"
        case Update(accumulator, term):
            old = f"{accumulator.name}~" if accumulator.carry is None else _flat(accumulator.carry)
            yield f"{accumulator.name} = {accumulator.op}({old}, {show_tile(term)})"
        case Store(output, indices, value, _, once):
            only = f"  only in the first tile of {_names(once)}" if once else ""
            yield f"store {output}[{', '.join(map(show, indices))}] = {value.name}{only}"
        case Loop(axis, lower, upper, accumulators, _):
            step = "1" if axis in unit else f"B{axis.name}"
            carried = ", ".join(f"{c.name}[{_names(c.axes)}]" for c in accumulators)
            carry = f"  carry {carried}" if carried else ""
            yield f"for {axis.name} in [{show(lower)}, {show(upper)}) step {step}{carry}"


def show_tile(term: TileTerm) -> str:
    """A term of depth one, references by their names."""
    match term:
        case Contract(axis, left, right, onto):
            return f"mma[{axis.name}]({left.name}, {right.name})" + ("" if onto is None else f" onto {onto.name}")
        case Reduce(op, axis, body):
            return f"{op}[{axis.name}]({_flat(body)})"
        case _:
            return _flat(term)


def _flat(term: TileTerm) -> str:
    match term:
        case Ref(name, _):
            return name
        case Map(op, args):
            return f"{op}({', '.join(map(_flat, args))})"
        case Where(pred, a, b):
            return f"where({show_pred(pred)}, {_flat(a)}, {_flat(b)})"
        case Cast(dtype, a):
            return f"{dtype}({_flat(a)})"
        case Contract() | Reduce():
            return show_tile(term)
        case _:
            return show_term(term)


def show_schedule(schedule: Schedule) -> str:
    """Heading, bindings, kernels with their loop nests, temporaries and notes."""
    count = "1 kernel" if len(schedule.kernels) == 1 else f"{len(schedule.kernels)} kernels"
    lines = [f"schedule of {schedule.candidate} for {schedule.target.arch}: {count}, merge {schedule.merge}"]
    for what, values in (("compiled in", schedule.bind), ("chosen for", schedule.shape)):
        lines += [f"{what}: {', '.join(f'{k} = {v}' for k, v in values.items())}"] if values else []
    lines += [f"chunk {c.symbol.name} = {show(c.length)}" for c in schedule.chunks]
    lines += [f"requires {show_pred(p)}" for p in schedule.constraints]
    lines += [f"temporary {b.name}: {b.dtype}[{', '.join(map(show, b.shape))}]" for b in schedule.temporaries]
    for k in schedule.kernels:
        lines += [binding_line(k), k.program.text().rstrip(), *(f"  # {n}" for n in k.notes)]
    if schedule.modelled is not None:
        terms = ", ".join(f"{k} {v:.4g}" for k, v in schedule.modelled.terms.items())
        lines.append(f"modelled {schedule.modelled.microseconds:.1f} us ({terms})")
    return "\n".join([*lines, *(f"# {n}" for n in schedule.notes)]) + "\n"


def binding_line(k: KernelPlan) -> str:
    """Skeleton, tiles, rows, warps and instructions of a kernel."""
    ordered = sorted(k.binding.tiles.items(), key=lambda pair: pair[0].name)  # a set may have given their order
    tiles = ", ".join(f"{a.name} {n}" for a, n in ordered)
    chain = "; operands through shared memory" if k.chain == "shared" else ""
    teams = f" in {k.binding.teams} teams along the loops" if k.binding.teams > 1 else ""
    rows = f" of {16 * k.binding.row_tiles} rows" if k.binding.row_tiles > 1 else ""
    loaders = f" and {k.binding.loaders} that only load" if k.binding.loaders else ""
    warps = f"{k.binding.warps} warps{rows}{teams}{loaders}, {k.binding.stages} stages"
    feed = "; boxes by tma" if k.feed == "tma" else ""
    mma = "" if k.binding.mma == "mma.sync" else f"; {k.binding.mma}"
    if k.binding.division is not None:
        names = " and ".join(a.name for a in k.binding.division.axes)
        mma += f", columns of {names} in {k.binding.division.parts} parts"
    if k.binding.multicast is not None:
        feed += f", fetched together by {k.binding.multicast.blocks} blocks along {k.binding.multicast.axis.name}"
    return f"{k.skeleton}: tiles {tiles}; rows {_names(k.binding.rows) or '-'}; {warps}{mma}{chain}{feed}"
