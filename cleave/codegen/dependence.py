"""Who reads what in a body: order of statements, values before a trip, parts that lanes may keep, live registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cleave.codegen.emission import Emission
from cleave.codegen.layout import Fragment, Rounded, Scaled
from cleave.ir.axis import Axis
from cleave.ir.graph import Load, Map, Reduce, Ref, Term, free
from cleave.tile.program import Accumulator, Contract, Let, Loop, Stmt, Store, TileTerm, Update, names_read, statements

_IN_REGISTERS = (Fragment, Rounded, Scaled)


def ordered(body: Sequence[Stmt]) -> list[Stmt]:
    """Row reductions directly after what they read: the fragment need not outlive the matmul that repacks it."""
    out = list(body)
    for s in body:
        if isinstance(s, Update) and isinstance(s.term, Reduce):
            needed = {
                *names_read(s.term),
                *(names_read(s.accumulator.carry) if s.accumulator.carry is not None else ()),
            }
            at = out.index(s)
            last = max((n for n in range(at) if _defines(out[n]) & needed), default=-1)
            if last >= 0:
                out.insert(last + 1, out.pop(at))
    return out


def _defines(s: Stmt) -> set[str]:
    match s:
        case Let(name):
            return {name}
        case Update(acc, _):
            return {acc.name}
        case Loop(accumulators=accumulators):
            return {a.name for a in accumulators}
        case Store():
            return set()


def is_pointwise(s: Stmt) -> bool:
    return isinstance(s, Let | Update) and not isinstance(s.term, Contract | Reduce)


def read_before(s: Loop) -> set[str]:
    """Values before the trip that something besides their own carry reads."""
    found: set[str] = set()
    for inner in statements(s.body):
        match inner:
            case Let(_, _, term):
                found.update(names_read(term))
            case Update(acc, term):
                found.update(names_read(term))
                if acc.carry is not None:
                    found.update(set(names_read(acc.carry)) - {acc.name + "~"})
            case _:
                pass
    return found


def values_read(s: Stmt) -> set[str]:
    """Names of values that a statement reads, those inside it included."""
    inside = (s, *statements(s.body)) if isinstance(s, Loop) else (s,)
    terms: list[TileTerm] = [i.term for i in inside if isinstance(i, Let | Update)]
    terms += [c.carry for i in inside if isinstance(i, Loop) for c in i.accumulators if c.carry is not None]
    return {i.value.name for i in inside if isinstance(i, Store)}.union(*(names_read(t) for t in terms))


def deferrable(em: Emission, c: Accumulator, s: Loop) -> bool:
    """Each lane may keep its own part of a row: nobody reads the whole inside the loop, and the carry acts on parts.

    sum: no carry, or own~ times what does not read own;  max, min: no carry.
    """
    if em.columns(c.axes) or not em.has_rows(c.axes):
        return False
    terms: list[TileTerm] = [i.term for i in statements(s.body) if isinstance(i, (Let, Update))]
    terms += [a.carry for a in s.accumulators if a is not c and a.carry is not None]
    read = {n for t in terms for n in names_read(t)} | {
        i.value.name for i in statements(s.body) if isinstance(i, Store)
    }
    if read & {c.name, c.name + "~"}:
        return False
    own = [i for i in statements(s.body) if isinstance(i, Update) and i.accumulator.name == c.name]
    if not all(isinstance(i.term, Reduce) for i in own):
        return False
    return c.carry is None or (c.op == "sum" and _scales(c.carry, c.name + "~"))


def _scales(carry: Term, own: str) -> bool:
    match carry:
        case Ref(name, _):
            return name == own
        case Map("mul", (a, b)):
            inside = [own in names_read(a), own in names_read(b)]
            return inside.count(True) == 1 and _scales(a if inside[0] else b, own)
        case _:
            return False


def live(em: Emission, s: Loop) -> int:
    """Registers of a thread for the loop's accumulators and its widest fragment."""
    carried = sum(em.size(a) // 2 for c in s.accumulators if em.has_rows(c.axes) for a in em.columns(c.axes))
    computed = [
        em.size(a) // 2
        for i in s.body
        if isinstance(i, Let) and not isinstance(i.term, Load) and em.has_rows(i.axes)
        for a in em.columns(i.axes)
    ]
    return em.row_tiles * (carried + max(computed, default=0))


def spreadable(em: Emission, s: Loop) -> set[Axis]:
    """Columns of a joined loop that the teams may divide: all that follows takes them one by one and stores them so."""
    columns = {em.columns(c.axes)[0] for c in s.accumulators if em.has_rows(c.axes) and em.columns(c.axes)}
    if s not in em.program.body:
        return set()
    following = em.program.body[em.program.body.index(s) + 1 :]
    made = {c.name for c in s.accumulators}
    even = {a for a in columns if em.groups(a) % em.shares(a) == 0 and em.binding.teams % em.shares(a) == 0}
    return {a for a in even if em.shares(a) > 1 and _column_by_column(em, a, following, made)}


def _column_by_column(em: Emission, column: Axis, following: Sequence[Stmt], made: set[str]) -> bool:
    """Whether statements use an axis as the column of elementwise values only, none of which is whole already."""
    fresh = set(made)
    for i in following:
        match i:
            case Let(name, axes, term) if column in axes or column in _axes_of(term):
                kept = [r for r in names_read(term) if r not in fresh and isinstance(em.layouts.get(r), _IN_REGISTERS)]
                along = [r for r in kept if column in em.lets[r].axes] if all(r in em.lets for r in kept) else kept
                if isinstance(term, (Contract, Reduce)) or em.columns(axes) != [column] or along:
                    return False
                fresh.add(name)
            case Store(axes=axes, value=value) if column in axes or column in value.axes:
                if em.columns(axes) != [column] or not em.has_rows(axes) or value.name not in fresh:
                    return False
            case Loop() if column is i.axis or any(column in axes for axes in _axes_inside(i)):
                return False
            case _:
                pass
    return True


def _axes_of(term: TileTerm) -> frozenset[Axis]:
    match term:
        case Contract(axis):
            return frozenset((axis,)).union(*(r.axes for r in term.operands))
        case Reduce(_, axis, _):
            return free(term) | {axis}
        case _:
            return free(term)


def _axes_inside(s: Loop) -> Iterator[tuple[Axis, ...]]:
    for i in statements(s.body):
        match i:
            case Let(_, axes, term) | Update(Accumulator(_, _, axes), term):
                yield (*axes, *_axes_of(term))
            case Store(axes=axes):
                yield axes
            case Loop(axis):
                yield (axis,)
