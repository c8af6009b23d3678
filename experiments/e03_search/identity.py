"""When two graphs are the same: equal up to the order of operands of commutative operations.

Axis names are canonical already, and associativity is not looked through: (a * b) * c is another graph than
a * (b * c).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from cleave.ir.axis import Axis
from cleave.ir.graph import Cast, Const, Graph, IndexValue, Load, Map, Reduce, Ref, Term, TopK, Where, children, walk
from cleave.ir.index import show, show_pred
from cleave.ir.op import MAPS


def identity(g: Graph) -> str:
    """Equal for graphs that are the same."""
    known: dict[Term, str] = {}
    for t in walk(*g.terms):
        parts = [known[c] for c in children(t)]
        if isinstance(t, Map) and MAPS[t.op].commutative:
            parts.sort()
        known[t] = _digest(_head(t), *parts)
    inputs = [f"{i.name} {i.dtype} {[show(e) for e in i.shape]}" for i in g.inputs]
    outputs = [f"{o.name} {o.dtype} {[show(i) for i in (*o.shape, *o.indices)]} {known[o.term]}" for o in g.outputs]
    return _digest(*inputs, *outputs, *sorted(map(show_pred, g.constraints)))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _head(t: Term) -> str:
    """A term without its children."""
    match t:
        case Load(name, indices):
            return f"load {name} {[show(i) for i in indices]}"
        case Const(value):
            return f"const {value!r}"
        case IndexValue(i):
            return f"value {show(i)}"
        case Map(op, _):
            return f"map {op}"
        case Reduce(op, axis, _):
            return f"reduce {op} {_axis(axis)}"
        case Where(pred, _, _):
            return f"where {show_pred(pred)}"
        case Cast(dtype, _):
            return f"cast {dtype}"
        case TopK(part, axis, rank, _):
            return f"top-k {part} {_axis(axis)} {show(rank)}"
        case Ref(name, axes):
            return f"ref {name} {[_axis(a) for a in axes]}"


def _axis(a: Axis) -> str:
    return f"{a.name} {a.kind} {show(a.extent)}"


def ranks(expected: Mapping[str, Iterable[Graph]], candidates: Iterable[Graph]) -> dict[str, int | None]:
    """For each title the best place of one of its graphs among candidates, counted from 1, or None."""
    places: dict[str, int] = {}
    for number, g in enumerate(candidates, 1):
        places.setdefault(identity(g), number)
    found = {title: [places[i] for i in map(identity, graphs) if i in places] for title, graphs in expected.items()}
    return {title: min(at, default=None) for title, at in found.items()}
