"""Which values of a program are alive at once, by name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from cleave.tile.program import Let, Loop, Stmt, Store, TileTerm, Update, names_read, statements


def alive(body: tuple[Stmt, ...], after: frozenset[str] = frozenset()) -> Iterator[frozenset[str]]:
    """Values alive at once, by a walk from the end; an operand that dies makes room for the result. ``after``: what is
    read behind the body."""
    now = after
    for s in reversed(body):
        match s:
            case Loop():
                accumulators = {c.name for c in s.accumulators}
                yield from alive(s.body, now | accumulators)
                made = {x.name for x in statements(s.body) if isinstance(x, Let)}
                now = (now | names(s.body)) - accumulators - made
            case Let(name, _, _):
                now = (now - {name}) | names((s,))
            case Update() | Store():
                now |= names((s,))
        yield now


def names(body: tuple[Stmt, ...]) -> set[str]:
    """Values that statements read, the running ones by the name of their accumulator."""
    out: set[str] = set()
    for s in statements(body):
        match s:
            case Let(_, _, term):
                out |= refs(term)
            case Update(accumulator, term):
                out |= refs(term) | {accumulator.name}
                if accumulator.carry is not None:
                    out |= refs(accumulator.carry)
            case Store():
                out.add(s.value.name)
            case Loop():
                pass
    return out


@lru_cache(maxsize=4096)
def refs(term: TileTerm) -> frozenset[str]:
    """Values that a term reads, running ones without their mark."""
    return frozenset(name.removesuffix("~") for name in names_read(term))
