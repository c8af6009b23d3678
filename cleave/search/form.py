"""What tells two chosen graphs apart, whatever the order of factors, association and names."""

from __future__ import annotations

from collections import Counter

from cleave.search.egraph import EGraph
from cleave.search.problem import Choice, in_order
from cleave.search.term import AxisRef

Form = frozenset[tuple[str, int]]


def form(graph: EGraph, choice: Choice) -> Form:
    """What tells two chosen graphs apart: the multiset of their reductions with the operations down to the next
    reductions.

    Order of factors, association and names do not count.
    """
    near: dict[int, frozenset[str]] = {}
    depends: dict[int, frozenset[tuple[str, AxisRef]]] = {}
    count: Counter[str] = Counter()
    for c in in_order(graph, choice, graph.roots):
        n = graph.classes[c][choice[c]]
        below = frozenset[str]().union(*(near[k] for k in n.operands))
        needs = frozenset[tuple[str, AxisRef]]().union(*(depends[k] for k in n.operands))
        if n.op == "Red":
            count[f"{n}"[: f"{n}".rindex(", ")] + f" of {sorted(below)} with {sorted(needs)}"] += 1
            near[c], depends[c] = frozenset(), frozenset({(str(n.plain[0]), n.axis)})
        else:
            near[c], depends[c] = below | ({n.op} if n.operands else set[str]()), needs
    for r in graph.roots:
        count[f"output of {sorted(near[r])} with {sorted(depends[r])}"] += 1
    return frozenset(count.items())
