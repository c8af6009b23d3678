"""Tiles shared by memory, not by term: two loads of one scope that read the same elements under different axis names.

K tile c[t, r] and V tile c[t, e], r and e of one extent    ->    one tile, two views
"""

from __future__ import annotations

from collections.abc import Iterator

from cleave.ir.axis import Axis
from cleave.ir.graph import Load
from cleave.ir.index import Atom, Index, Position, axes_of, substitute
from cleave.tile.program import Let, Loop, Stmt

Region = tuple[str, tuple[Index, ...]]


def shared_loads(body: tuple[Stmt, ...], whole: frozenset[Axis]) -> Iterator[tuple[str, str]]:
    """Pairs (later, earlier) of Lets; axes held whole are told apart by extent and order of occurrence only."""
    first: dict[Region, str] = {}
    for s in body:
        match s:
            case Let(name, _, Load(source, indices)):
                earlier = first.setdefault((source, _anonymous(indices, whole)), name)
                if earlier != name:
                    yield name, earlier
            case Loop():
                yield from shared_loads(s.body, whole)
            case _:
                pass


def _anonymous(indices: tuple[Index, ...], whole: frozenset[Axis]) -> tuple[Index, ...]:
    found: dict[Axis, Axis] = {}
    for i in indices:
        for a in sorted(axes_of(i) & whole, key=lambda b: b.name):
            found.setdefault(a, Axis(f"%{len(found)}", a.extent, a.kind))
    atoms: dict[Atom, Index] = {Position(a): b.position for a, b in found.items()}
    return tuple(substitute(i, atoms) for i in indices)
