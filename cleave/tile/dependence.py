"""Which axes the values of a tile program depend on: what tells whether one tile may store for all."""

from __future__ import annotations

from cleave.ir.axis import Axis
from cleave.ir.graph import Reduce, Ref, term_indices, walk
from cleave.ir.index import axes_of
from cleave.tile.program import Contract, Let, Loop, Program, Stmt, Store, TileTerm, Update

Dependences = dict[str, frozenset[Axis]]


def dependences(program: Program) -> Dependences:
    """Axes at whose positions each value reads; a fold over an axis takes it away, a loop that is done as well."""
    found: Dependences = {}
    _body(program.body, found)
    return found


def _body(body: tuple[Stmt, ...], found: Dependences) -> None:
    for s in body:
        match s:
            case Let(name, _, term):
                found[name] = _term(term, found)
            case Update(c, term):
                carried = _term(c.carry, found) if c.carry is not None else frozenset[Axis]()
                found[c.name] = found.get(c.name, frozenset()) | _term(term, found) | carried
            case Loop():
                _loop(s, found)
            case Store():
                pass


def _loop(s: Loop, found: Dependences) -> None:
    """Until nothing is learnt: an accumulator may be restated by one that comes after it."""
    names = [c.name for c in s.accumulators]
    learnt = True
    while learnt:
        before = [found.get(n) for n in names]
        _body(s.body, found)
        learnt = [found.get(n) for n in names] != before
    for n in names:
        found[n] = found.get(n, frozenset()) - {s.axis}


def _term(term: TileTerm, found: Dependences) -> frozenset[Axis]:
    if isinstance(term, Contract):
        return frozenset[Axis]().union(*(_ref(r, found) for r in term.operands)) - {term.axis}
    if isinstance(term, Reduce):
        return _term(term.body, found) - {term.axis}
    parts = [_ref(t, found) for t in walk(term) if isinstance(t, Ref)]
    return frozenset[Axis]().union(*parts, *(axes_of(i) for t in walk(term) for i in term_indices(t)))


def _ref(r: Ref, found: Dependences) -> frozenset[Axis]:
    return found.get(r.name.removesuffix("~"), frozenset())
