"""Output positions at which a candidate's own conditions change: where what is wrong far away begins and ends.

    i < 1500, i == 77, i mod 64 == 63      both sides of every change of the truth along i
    i - i div 1000                         both sides of every kink of an index expression

Rules leave conditions and index expressions as they are, and splits put pieces in the place of an axis: a sound
candidate has next to none of its own, so that this costs nothing. What is wrong under one is tried there at the user's
sizes, be it a single element. Conditions on axes that are reduced need no positions: reductions are whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.ir.axis import Axis
from cleave.ir.graph import Where, axes_in, term_indices, walk
from cleave.ir.index import And, Index, Not, Or, Pred, axes_of, evaluate, evaluate_pred, pred_axes
from cleave.ir.instance import greatest_extents
from cleave.verify.sample import Stored

Array = NDArray[Any]
Condition = Pred | Index

_LONGEST = 4_000_000
"""Of an axis along which conditions are tried."""
_ENDS = 4
"""Changes at each end of an axis, and as many between, whose sides are tried."""


def conditions(s: Stored) -> frozenset[Condition]:
    """Predicates, taken apart, and index expressions that hold an axis of the output."""
    found: set[Condition] = set()
    for t in walk(*s.terms):
        found |= set(_atoms(t.pred)) if isinstance(t, Where) else set(term_indices(t))
    stored = set(s.axes)
    return frozenset(c for c in found if _axes(c) & stored)


def border_positions(
    s: Stored, own: frozenset[Condition], inputs: Mapping[str, Any], dims: Mapping[str, int]
) -> dict[Axis, Array]:
    """Positions on every axis of an output, both ends among them; empty where no condition changes anywhere."""
    if not own:
        return {}
    extents = greatest_extents(axes_in(s.terms, s.indices), dims, inputs)
    wanted = {a: np.unique([*_sides(a, own, extents, inputs, dims)]).astype(int) for a in s.axes}
    if not any(p.size for p in wanted.values()):
        return {}
    return {a: np.unique([*p, *((0, extents[a] - 1) if extents[a] else ())]).astype(int) for a, p in wanted.items()}


def _sides(
    a: Axis, own: frozenset[Condition], extents: Mapping[Axis, int], inputs: Mapping[str, Any], dims: Mapping[str, int]
) -> Iterator[int]:
    if extents[a] > _LONGEST:
        return
    along = np.arange(extents[a])
    for c in (c for c in own if a in _axes(c)):
        for share in (0.0, 0.5, 1.0):  # where the other axes are
            others: dict[Any, Any] = {b: round(share * max(extents[b] - 1, 0)) for b in _axes(c)}
            yield from _changes(c, {**dims, **others, a: along}, inputs)


def _changes(c: Condition, environment: Mapping[Any, Any], inputs: Mapping[str, Any]) -> Iterator[int]:
    if isinstance(c, Index):
        values = np.atleast_1d(np.asarray(evaluate(c, environment, inputs)))
        at = np.flatnonzero(np.diff(values, 2)) + 1
    else:
        values = np.atleast_1d(np.asarray(evaluate_pred(c, environment, inputs)))
        at = np.flatnonzero(values[1:] != values[:-1])
    between = at[:: max(len(at) // _ENDS, 1)][:_ENDS]
    for position in {*at[:_ENDS].tolist(), *between.tolist(), *at[-_ENDS:].tolist()}:
        yield from (position, position + 1)


def _atoms(pred: Pred) -> Iterator[Pred]:
    match pred:
        case And(a, b) | Or(a, b):
            yield from _atoms(a)
            yield from _atoms(b)
        case Not(a):
            yield from _atoms(a)
        case _:
            yield pred


def _axes(c: Condition) -> frozenset[Axis]:
    return axes_of(c) if isinstance(c, Index) else pred_axes(c)
