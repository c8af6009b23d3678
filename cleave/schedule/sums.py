"""Sums of matmuls: the second goes on where the first ended.

a = mma(k, x, y);  b = mma(l, u, v);  c = a + b    ->    a = mma(k, x, y);  c = mma(l, u, v) onto a

Nothing else reads a and b. One result takes registers where there were two, and nobody waits between them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cleave.ir.graph import Map, Ref
from cleave.tile.program import Contract, Let, Loop, Stmt, Store, Update, names_read, statements


def continued(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements of a program with such sums joined, in every loop."""
    return _continued(body, _uses(body))


def _continued(body: tuple[Stmt, ...], uses: Counter[str]) -> tuple[Stmt, ...]:
    products = {s.name: s for s in body if isinstance(s, Let) and isinstance(s.term, Contract) and uses[s.name] == 1}
    taken: set[str] = set()
    out: list[Stmt] = []
    for s in body:
        match s:
            case Loop():
                out.append(replace(s, body=_continued(s.body, uses)))
            case Let(name, axes, Map("add", (Ref(a), Ref(b)))) if (
                a in products and b in products and not {a, b} & taken
            ):
                first, second = products[a], products[b]
                assert isinstance(second.term, Contract)
                if {*first.axes} != {*axes} or {*second.axes} != {*axes} or second.term.onto is not None:
                    out.append(s)
                    continue
                taken |= {a, b}
                out = [x for x in out if x is not second]
                out.append(Let(name, axes, replace(second.term, onto=Ref(a, first.axes))))
            case _:
                out.append(s)
    return tuple(out)


def _uses(body: tuple[Stmt, ...]) -> Counter[str]:
    """How often each value is read."""
    found = Counter[str]()
    for s in statements(body):
        match s:
            case Let(_, _, term) | Update(_, term):
                found.update(names_read(term))
            case Loop(accumulators=accumulators):
                for c in (c.carry for c in accumulators if c.carry is not None):
                    found.update(names_read(c))
            case Store(value=value):
                found.update([value.name])
    return found
