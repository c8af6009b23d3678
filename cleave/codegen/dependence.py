"""Who reads what in a body: order of statements, values before a trip, parts that lanes may keep, live registers."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.codegen.emission import Emission
from cleave.codegen.expression import refs
from cleave.ir.graph import Load, Map, Reduce, Ref, Term
from cleave.tile.program import Accumulator, Contract, Let, Loop, Stmt, Store, TileTerm, Update, statements


def ordered(body: Sequence[Stmt]) -> list[Stmt]:
    """Row reductions directly after what they read: the fragment need not outlive the matmul that repacks it."""
    out = list(body)
    for s in body:
        if isinstance(s, Update) and isinstance(s.term, Reduce):
            needed = {*refs(s.term), *(refs(s.accumulator.carry) if s.accumulator.carry is not None else ())}
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


def read_before(s: Loop) -> set[str]:
    """Values before the trip that something besides their own carry reads."""
    found: set[str] = set()
    for inner in statements(s.body):
        match inner:
            case Let(_, _, term):
                found.update(refs(term))
            case Update(acc, term):
                found.update(refs(term))
                if acc.carry is not None:
                    found.update(set(refs(acc.carry)) - {acc.name + "~"})
            case _:
                pass
    return found


def deferrable(em: Emission, c: Accumulator, s: Loop) -> bool:
    """Each lane may keep its own part of a row: nobody reads the whole inside the loop, and the carry acts on parts.

    sum: no carry, or own~ times what does not read own;  max, min: no carry.
    """
    if em.columns(c.axes) or not em.has_rows(c.axes):
        return False
    terms: list[TileTerm] = [i.term for i in statements(s.body) if isinstance(i, (Let, Update))]
    terms += [a.carry for a in s.accumulators if a is not c and a.carry is not None]
    read = {n for t in terms for n in refs(t)} | {i.value.name for i in statements(s.body) if isinstance(i, Store)}
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
            inside = [own in refs(a), own in refs(b)]
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
    return carried + max(computed, default=0)


def column_by_column(em: Emission, s: Loop, c: Accumulator) -> bool:
    """Whether what follows a loop of the program's body reads an accumulator one column at a time, and stores it so."""
    following = em.program.body[em.program.body.index(s) + 1 :]
    columns, names = em.columns(c.axes), {c.name}
    for i in following:
        match i:
            case Let(name, axes, term) if names & set(refs(term)):
                if isinstance(term, (Contract, Reduce)) or em.columns(axes) != columns:
                    return False
                names.add(name)
            case Store(value=value, axes=axes):
                if value.name in names and em.columns(axes) != columns:
                    return False
            case Loop():
                if names & read_inside(i):
                    return False
            case _:
                pass
    return True


def read_inside(s: Loop) -> set[str]:
    """Names that statements of a loop read."""
    found: set[str] = set()
    for i in statements(s.body):
        match i:
            case Let(_, _, term):
                found.update(refs(term))
            case Update(acc, term):
                found.update(refs(term), refs(acc.carry) if acc.carry is not None else ())
            case Store(value=value):
                found.add(value.name)
            case Loop():
                pass
    return found
