"""After saturation: which axes have a form in chunks, and what blocks the others.

A split is chunk-local: a reduction over the positions within a chunk needs none over all chunks. Where the e-graph has
no such form, a reduction *waits* for another one over the same axis, and an operator between the two is what no rule
takes the other one through:

    variance    sum_k sq(x - mean(x))                  waits for the sum in mean(x), blocked by sq
    absmax      sum_k round(x * recip(max |x|)) * w    waits for the maximum, blocked by round
    attention   sum_t exp(s - max(s)) * v              telescoping takes the maximum out: nothing waits
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from cleave.ir.axis import Axis
from cleave.ir.text import show_term
from cleave.search.deadline import Deadline
from cleave.search.decode import Decoder
from cleave.search.egraph import EGraph, ENode
from cleave.search.encode import Encoding
from cleave.search.explain import word
from cleave.search.extract import local_classes
from cleave.search.reducibility import AxisVerdict, ReducibilityTable
from cleave.search.steps import term_names
from cleave.search.term import AxisRef, ETerm, walk

_Follows = Callable[[ENode, frozenset[int]], bool]


def after_saturation(
    table: ReducibilityTable, encoding: Encoding, graph: EGraph, deadline: Deadline
) -> tuple[ReducibilityTable, tuple[Axis, ...]]:
    """The table of a graph with what the e-graph says of each axis that may be split, and the axes that no time was
    left for.
    """
    names = {a: name for name, a in encoding.axes.items() if name in encoding.splits}
    rows: list[AxisVerdict] = []
    left: list[Axis] = []
    for row in table.rows:
        late = row.splittable and deadline.passed
        left += [row.axis] * late
        rows.append(_derived(row, names.get(row.axis), encoding, graph) if row.splittable and not late else row)
    return ReducibilityTable(tuple(rows)), tuple(left)


def _derived(row: AxisVerdict, name: str | None, encoding: Encoding, graph: EGraph) -> AxisVerdict:
    if name is None:
        return replace(row, why=f"{row.why}; kept whole: fixed and small")
    local = local_classes(graph, name)
    made = _made_of_pieces(graph, name, local)
    if made.issuperset(graph.roots):
        return row
    waiting = _waiting(encoding, graph, name, local, made)
    why = "no form in chunks was found" if waiting is None else _reason(waiting, encoding)
    return replace(row, splittable=False, why=f"{row.why}; {why}")


def _made_of_pieces(graph: EGraph, name: str, local: frozenset[int]) -> frozenset[int]:
    """Classes that can be made of reductions over the pieces of an axis, those within chunks over what is local."""

    def allowed(n: ENode) -> bool:
        if n.op != "Red" or n.axis.name != name:
            return True
        return n.axis.part == "outer" or (n.axis.part == "inner" and n.operands[0] in local)

    return _closure(graph, lambda n, known: known.issuperset(n.operands) and allowed(n))


def _closure(
    graph: EGraph, follows: Callable[[ENode, frozenset[int]], bool], given: Iterable[int] = ()
) -> frozenset[int]:
    """The least set of classes with those given and those of which an e-node follows from the set."""
    known = frozenset(given)
    while True:
        more = {c for c, ns in enumerate(graph.classes) if c not in known and any(follows(n, known) for n in ns)}
        if not more:
            return known
        known |= more


# ---- what waits


@dataclass(frozen=True)
class _Waiting:
    """A reduction that needs another one over the same axis, and the operator that keeps the two together; or that
    needs none (``other`` is None) and still was not split.
    """

    reduction: ETerm
    other: ETerm | None
    blocker: ETerm


def _waiting(
    encoding: Encoding, graph: EGraph, name: str, local: frozenset[int], made: frozenset[int]
) -> _Waiting | None:
    """The first reduction that has no form in chunks, what it waits for, and the lowest operator between the two that
    depends on the positions in a chunk, and of which no form parts what does from what does not: that could be taken
    out.
    """
    t = next((t for t in walk(*encoding.roots) if _reduces(t, name) and graph.find(t) not in made), None)
    if t is None:
        return None
    parted = _closure(graph, lambda n, known: _is_parted(graph, n, name, known), local)
    between = (u for u in walk(t.operands[0]) if _depends(graph, graph.find(u), name))
    blocker = next((u for u in between if graph.find(u) not in parted), t)
    return _Waiting(t, _nearest(blocker.operands, name), blocker)


def _reduces(t: ETerm, name: str) -> bool:
    return t.op == "Red" and t.plain[-1] == AxisRef(name)


def _nearest(terms: Sequence[ETerm], name: str) -> ETerm | None:
    queue = list(terms)
    for u in queue:
        if _reduces(u, name):
            return u
        queue += u.operands
    return None


def _depends(graph: EGraph, c: int | None, name: str) -> bool:
    return c is not None and AxisRef(name, "inner") in graph.axes[c]


def _is_parted(graph: EGraph, n: ENode, name: str, parted: frozenset[int]) -> bool:
    inside = [k for k in n.operands if _depends(graph, k, name)]
    return len(inside) < len(n.operands) and parted.issuperset(inside)


def _reason(w: _Waiting, encoding: Encoding) -> str:
    decoder, names = Decoder(encoding), term_names(encoding)

    def shown(t: ETerm) -> str:
        term = decoder.term(t)
        return f"{names[term]} ({word(t)})" if term in names else show_term(term, names)

    if w.other is None:
        return f"no rule that is on splits {shown(w.reduction)}"
    itself = w.blocker is w.reduction
    through = f"{word(w.reduction)} of {word(w.reduction.operands[0])}" if itself else word(w.blocker)
    return f"{shown(w.reduction)} waits for {shown(w.other)}, which no rule takes through {through}"
