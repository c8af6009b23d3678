"""Which axes may be split, read off the graph; nobody annotates.

An axis is *reducible* if a reduction binds it. It may be *split* with a symbolic count if reductions bind it and nothing else
does: then every use of it is a commutative monoid with an identity, and empty chunks are that identity.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from cleave.ir.axis import Axis
from cleave.ir.graph import Graph, reductions
from cleave.ir.index import Symbol, axes_of, inputs_of, show


@dataclass(frozen=True)
class AxisVerdict:
    """One axis: whether a reduction binds it, whether it may be split, and why."""

    axis: Axis
    reducible: bool
    splittable: bool
    why: str

    def __str__(self) -> str:
        kind = "split" if self.splittable else "reducible" if self.reducible else "no"
        return f"{self.axis.name:12s} {kind:10s} {self.why}"


@dataclass(frozen=True)
class ReducibilityTable:
    rows: tuple[AxisVerdict, ...]

    @property
    def splittable(self) -> tuple[Axis, ...]:
        return tuple(row.axis for row in self.rows if row.splittable)

    def text(self) -> str:
        return "".join(f"{row}\n" for row in self.rows)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from cleave.display import preformatted

        return preformatted(self.text())


def reducibility_table(g: Graph) -> ReducibilityTable:
    """For each axis of a graph: reducible, split or not, and the reason."""
    stored = frozenset[Axis]().union(*(axes_of(i) for o in g.outputs for i in o.indices))
    bound: dict[Axis, Counter[str]] = {}
    for r in reductions(*g.terms):
        bound.setdefault(r.axis, Counter())[r.op] += 1
    return ReducibilityTable(tuple(_verdict(a, bound.get(a), a in stored) for a in g.axes))


def _verdict(axis: Axis, monoids: Counter[str] | None, is_stored: bool) -> AxisVerdict:
    if monoids is None:
        return AxisVerdict(axis, False, False, "output axis: tile it" if is_stored else "no reduction binds it")
    folds = ", ".join(f"{op} x{count}" for op, count in sorted(monoids.items()))
    if is_stored:
        return AxisVerdict(axis, True, False, f"{folds}, but also an output axis: a split would have to store chunks")
    if _is_one(axis):
        return AxisVerdict(axis, True, False, f"{folds}, but the extent is 1")
    if axis.kind != "plain":
        return AxisVerdict(axis, True, False, f"{folds}, but it already is a piece of a split axis")
    ragged = f"; ragged: extent {show(axis.extent)}" if axes_of(axis.extent) or inputs_of(axis.extent) else ""
    return AxisVerdict(axis, True, True, folds + ragged)


def _is_one(axis: Axis) -> bool:
    atom = axis.extent.atom
    return axis.extent.constant == 1 or (isinstance(atom, Symbol) and atom.value == 1)
