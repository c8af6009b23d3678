"""Axes of a graph that are the pieces of another one: how a graph with a split, read from text, is encoded.

    sum(t_o, sum(t_i, X[t_o * C + t_i]))     t_i of extent max(min(C, t - t_o * C), 0),  constraint t <= S * C

is in the rule language a reduction over Outer t of one over Inner t of a leaf that reads t: here t - t_o * C is put in
the place of t_i, down to the loads, and t_o * C + t_i becomes t.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleave.ir.axis import Axis, SplitAxis, owners, split_axis
from cleave.ir.dim import is_dim
from cleave.ir.graph import Graph, Reduce, Term, children, rebuild, reductions, substitute_axes, walk
from cleave.ir.index import Symbol, axes_of, compare, of, symbols_of


@dataclass(frozen=True)
class Pieces:
    """A split that is in a graph: the two axes with the axis that they divide, and the symbols of count and chunk."""

    split: SplitAxis
    count: str
    chunk: str


def pieces_of(g: Graph) -> tuple[Pieces, ...]:
    """Pairs of axes of a graph that together are one of its reduced axes; at most one pair an axis."""
    stored = frozenset[Axis]().union(*(axes_of(i) for o in g.outputs for i in o.indices))
    bases = dict.fromkeys(
        a for a in (r.axis for r in reductions(*g.terms)) if a.kind == "plain" and is_dim(a.extent) and a not in stored
    )
    found: dict[Axis, Pieces] = {}
    for inner in (a for a in g.axes if a.kind == "inner" and a not in stored):
        for base in sorted(bases, key=lambda b: (f"{b.name}_i" != inner.name, b.name)):
            made = _as_pieces(g, base, inner)
            if made is not None and base not in found:
                found[base] = made
                break
    return tuple(p for p in found.values() if not _is_owner(g, p) and p.split.outer not in stored)


def _as_pieces(g: Graph, base: Axis, inner: Axis) -> Pieces | None:
    owning = [a for a in owners(inner) if a.kind == "outer"]
    if len(owning) != 1 or not isinstance(owning[0].extent.atom, Symbol):
        return None
    outer, count = owning[0], owning[0].extent.atom
    for chunk in sorted(symbols_of(inner.extent), key=lambda s: s.name):
        like = split_axis(Axis(outer.name.removesuffix("_o"), base.extent), outer.extent, of(chunk))
        reaches = compare("<=", base.extent, of(count) * of(chunk))
        if like.outer is outer and like.inner.extent is inner.extent and reaches in g.constraints:
            return Pieces(SplitAxis(base, outer, inner, of(chunk)), count.name, chunk.name)
    return None


def _is_owner(g: Graph, p: Pieces) -> bool:
    """Whether the extent of a third axis depends on a piece."""
    return any(axes_of(a.extent) & {p.split.outer, p.split.inner} for a in g.axes if a is not p.split.inner)


def folded(terms: Iterable[Term], pieces: Sequence[Pieces]) -> dict[Term, Term]:
    """Each term with the position in the whole axis where it read the position in a chunk."""
    whole = {p.split.inner: p.split.base.position - p.split.outer.position * p.split.chunk for p in pieces}
    made: dict[Term, Term] = {}
    for t in walk(*terms):
        new = rebuild(t, [made[c] for c in children(t)]) if children(t) else t
        if isinstance(new, Reduce) and new.axis in whole:
            new = Reduce(new.op, new.axis, substitute_axes(new.body, {new.axis: whole[new.axis]}))
        made[t] = new
    return made
