"""Loop bounds from predicates: where a predicate is false for sure, a body that is then the identity need not run.

t <= i + T - S      upper bound  i + T - S + 1
i - w < t           lower bound  i - w + 1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from cleave.ir.axis import Axis
from cleave.ir.graph import Reduce, Term, Where, walk
from cleave.ir.index import Compare, Index, Position, Pred, axes_of, conjuncts, index, maximum, minimum
from cleave.schedule.masks import is_identity, without


@dataclass(frozen=True)
class Bound:
    """Where the predicate can hold on the axis: at positions below an upper or from a lower bound on."""

    side: Literal["lower", "upper"]
    value: Index


def solve(pred: Pred, a: Axis) -> Bound | None:
    """A predicate solved for the position on an axis; None unless it is an inequality with coefficient 1 or -1."""
    if not isinstance(pred, Compare) or pred.op not in ("<", "<="):
        return None
    difference = pred.left - pred.right  # difference < 0 or <= 0
    linear = difference.linear_in(Position(a))
    if linear is None or a in axes_of(linear[1]):
        return None
    factor, rest = linear[0].constant, linear[1]
    strict = 1 if pred.op == "<" else 0
    if factor == 1:  # a < -rest, or a <= -rest
        return Bound("upper", 1 - rest - strict)
    if factor == -1:  # a > rest, or a >= rest
        return Bound("lower", rest + strict)
    return None


def loop_bounds(a: Axis, members: Iterable[tuple[Reduce, Term]], fixed: frozenset[Axis]) -> tuple[Index, Index]:
    """[lower, upper) of a loop: the extent, shortened by the predicates that allow it."""
    lower, upper = index(0), a.extent
    for bound in bounds(a, members, fixed):
        if bound.side == "lower":
            lower = maximum(lower, bound.value)
        else:
            upper = minimum(upper, bound.value)
    return lower, upper


def bounds(a: Axis, members: Iterable[tuple[Reduce, Term]], fixed: frozenset[Axis]) -> Iterator[Bound]:
    """Bounds that every member of a loop allows; ``members`` are reductions with their bodies.

    A bound may only mention axes of ``fixed``: one that moves with a loop inside would cut what another trip needs.
    """
    pairs = list(members)
    wheres = [t for _, body in pairs for t in walk(body) if isinstance(t, Where)]
    for pred in dict.fromkeys(p for w in wheres for p in conjuncts(w.pred)):
        bound = solve(pred, a)
        if bound is None or not axes_of(bound.value) <= fixed:
            continue
        if all(is_identity(without(body, pred), r.op) for r, body in pairs):
            yield bound
