"""Which axes may be split, read off the graph; nobody annotates.

An axis is *reducible* if a reduction binds it. It may be *split* with a symbolic count if reductions bind it and
nothing else does: then every use of it is a commutative monoid with an identity, and empty chunks are that identity.
A top-k is one too, but rules do not know how to merge it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cleave import document
from cleave.ir.axis import Axis
from cleave.ir.graph import Graph, Reduce, bound_axis, walk
from cleave.ir.index import Symbol, axes_of, inputs_of, show

TOP_K = "top-k"
"""What the table calls a selection by rank."""

SMALL = 512
"""Fixed extents up to this are kept whole when the graph has another axis to split."""


HEADINGS = ("axis", "reducible", "splittable", "why")


@dataclass(frozen=True)
class AxisVerdict:
    """One axis: whether a reduction binds it, whether it may be split, and why."""

    axis: Axis
    reducible: bool
    splittable: bool
    why: str

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Under ``HEADINGS``."""
        return self.axis.name, _yes(self.reducible), _yes(self.splittable), self.why


@dataclass(frozen=True)
class ReducibilityTable:
    rows: tuple[AxisVerdict, ...]

    @property
    def splittable(self) -> tuple[Axis, ...]:
        return tuple(row.axis for row in self.rows if row.splittable)

    @property
    def worth_splitting(self) -> tuple[Axis, ...]:
        """Splittable axes without those whose extent is fixed and small, unless there are no others."""
        long = tuple(a for a in self.splittable if not is_small(a))
        return long or self.splittable

    @property
    def reduced(self) -> tuple[Axis, ...]:
        """Every axis of which a reduction could be split, whatever else becomes of it: without the constraint."""
        axes = (row.axis for row in self.rows if row.reducible)
        return tuple(a for a in axes if a.kind == "plain" and not _is_one(a))

    def block(self) -> document.Table:
        return document.Table(HEADINGS, tuple(row.cells for row in self.rows))

    def text(self) -> str:
        return document.text([self.block()])

    def as_dicts(self) -> list[dict[str, str | bool]]:
        return [dict(zip(HEADINGS, (r.axis.name, r.reducible, r.splittable, r.why), strict=True)) for r in self.rows]

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return document.html([self.block()])


def _yes(so: object) -> str:
    return "yes" if so else "no"


def reducibility_table(g: Graph) -> ReducibilityTable:
    """For each axis of a graph: reducible, splittable or not, and the operators that say so."""
    stores: dict[Axis, list[str]] = {}
    for o in g.outputs:
        for a in frozenset[Axis]().union(*map(axes_of, o.indices)):
            stores.setdefault(a, []).append(o.name)
    bound: dict[Axis, Counter[str]] = {}
    for t in walk(*g.terms):
        axis = bound_axis(t)
        if axis is not None:
            bound.setdefault(axis, Counter())[t.op if isinstance(t, Reduce) else TOP_K] += 1
    return ReducibilityTable(tuple(_verdict(a, bound.get(a), stores.get(a, ())) for a in g.axes))


def _verdict(axis: Axis, monoids: Counter[str] | None, stores: Sequence[str]) -> AxisVerdict:
    kept = f"{_outputs(stores)} {'it' if monoids is None else 'it too'}" if stores else ""
    if monoids is None:
        why = f"{kept}: tile it" if stores else "broadcast: read, and neither reduced nor stored"
        return AxisVerdict(axis, False, False, why)
    folds = ", ".join(f"{op} x{count}" for op, count in sorted(monoids.items()))
    if TOP_K in monoids:
        return AxisVerdict(axis, True, False, f"{folds}; no rule merges the top-k of chunks")
    if stores:
        return AxisVerdict(axis, True, False, f"{folds}; {kept}: a split would have to store chunks")
    if _is_one(axis):
        return AxisVerdict(axis, True, False, f"{folds}; the extent is 1")
    if axis.kind != "plain":
        return AxisVerdict(axis, True, False, f"{folds}; it already is a piece of a split axis")
    ragged = f"; ragged: extent {show(axis.extent)}" if axes_of(axis.extent) or inputs_of(axis.extent) else ""
    return AxisVerdict(axis, True, True, folds + ragged)


def _outputs(stores: Sequence[str]) -> str:
    return f"output {stores[0]} stores" if len(stores) == 1 else f"outputs {', '.join(stores)} store"


def fixed_extent(axis: Axis) -> int | None:
    """The extent if it can have but one value."""
    atom = axis.extent.atom
    return atom.value if isinstance(atom, Symbol) else axis.extent.constant


def is_small(axis: Axis) -> bool:
    """Whether the whole axis surely fits where one tile does: a head, a rank."""
    extent = fixed_extent(axis)
    return extent is not None and extent <= SMALL


def _is_one(axis: Axis) -> bool:
    return fixed_extent(axis) == 1
