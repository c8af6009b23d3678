"""A term whose own axes and index expressions are others, over children that have been renamed already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cleave.ir.axis import Axis
from cleave.ir.graph import IndexValue, Load, Reduce, Ref, Term, TopK, Where, rebuild
from cleave.ir.index import Atom, Index, substitute, substitute_pred


def renamed(t: Term, new: Sequence[Term], axis: Callable[[Axis], Axis], atoms: Mapping[Atom, Index]) -> Term:
    """All axes of a graph change at once, so nothing is captured; ``atoms`` has their positions and other symbols."""
    match t:
        case Load(name, indices):
            return Load(name, tuple(substitute(i, atoms) for i in indices))
        case IndexValue(i):
            return IndexValue(substitute(i, atoms))
        case Where(pred, _, _):
            return Where(substitute_pred(pred, atoms), new[0], new[1])
        case Reduce(op, reduced, _):
            return Reduce(op, axis(reduced), new[0])
        case TopK(part, selected, rank, _):
            return TopK(part, axis(selected), substitute(rank, atoms), new[0])
        case Ref(name, axes):
            return Ref(name, tuple(map(axis, axes)))
        case _:
            return rebuild(t, new)
