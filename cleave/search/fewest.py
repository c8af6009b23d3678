"""Bans on e-nodes of graphs with needless passes: a reduction over an axis on top of another one over it.

least(class)   passes over each axis that every derivation needs: the least over its e-nodes, of each the most over its
               operands, and one more over the axis that it reduces itself
banned         e-nodes that need more over some axis than the roots do

That leaves every graph with the fewest passes over each axis, where one graph has the fewest over all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleave.search.egraph import EGraph, ENode
from cleave.search.term import AxisRef

_Passes = Mapping[AxisRef, int]


def fewest_passes(graph: EGraph, allowed: Sequence[Sequence[int]]) -> list[list[int]]:
    """Those of the allowed e-nodes that may be part of a graph with the fewest passes."""
    least: dict[int, _Passes] = {}
    changed = True
    while changed:
        changed = False
        for c, numbers in enumerate(allowed):
            for i in numbers:
                made = _passes(graph.classes[c][i], least)
                if made is not None:
                    better = _least(least.get(c, made), made)
                    changed = changed or c not in least or better != least[c]
                    least[c] = better
    if not all(r in least for r in graph.roots):
        return [[] for _ in allowed]
    most: dict[AxisRef, int] = {}
    for r in graph.roots:
        most |= {a: max(n, most.get(a, 0)) for a, n in least[r].items()}

    def kept(n: ENode) -> bool:
        made = _passes(n, least)
        return made is not None and all(count <= most.get(a, 0) for a, count in made.items())

    return [[i for i in numbers if kept(graph.classes[c][i])] for c, numbers in enumerate(allowed)]


def _passes(n: ENode, least: Mapping[int, _Passes]) -> _Passes | None:
    """Passes that an e-node needs over each axis; None while that of an operand is not known."""
    out: dict[AxisRef, int] = {}
    for k in n.operands:
        below = least.get(k)
        if below is None:
            return None
        for a, count in below.items():
            if count > out.get(a, 0):
                out[a] = count
    if n.op == "Red":
        out[n.axis] = out.get(n.axis, 0) + 1
    return out


def _least(a: _Passes, b: _Passes) -> _Passes:
    return {axis: min(count, b[axis]) for axis, count in a.items() if axis in b}
