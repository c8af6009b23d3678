"""Which output axes are rows of matmul tiles, which columns, and which batch: read off the contractions of a graph.

Q[h, s, d] K[h, t, d] summed over d    batch h, sides {s} and {t}
P[h, s, t] V[h, t, e] summed over t    batch h, sides {s} and {e}; P is computed, so its side carries the rows
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleave.ir.axis import Axis, owners
from cleave.ir.graph import Graph, Load, Reduce, Term, free, product_factors, reductions, walk
from cleave.ir.index import axes_of
from cleave.schedule.contraction import narrow_type, split_sides
from cleave.schedule.roles import stored_axes
from cleave.tile.box import is_beside


@dataclass(frozen=True)
class Contraction:
    """A sum of a product of two tiles; sides are their axes without the summed one, without batch axes."""

    reduce: Reduce
    left: frozenset[Axis]
    right: frozenset[Axis]
    left_computed: bool
    right_computed: bool


@dataclass(frozen=True)
class Structure:
    """``stored``: axes of the outputs, slowest first; ``bound``: axes that reductions bind."""

    stored: tuple[Axis, ...]
    bound: frozenset[Axis]
    batch: frozenset[Axis]
    contractions: tuple[Contraction, ...]


def structure(g: Graph) -> Structure:
    stored = stored_axes(g.outputs)
    sums, ragged = _narrow_sums(g), _ragged(g)
    batch = ragged.union(*(_batch(r, ragged) for r in sums)) if sums else ragged
    found = tuple(c for c in (_contraction(r, batch) for r in sums) if c is not None)
    return Structure(stored, frozenset(r.axis for r in reductions(*g.terms)), batch, found)


def _tiled(t: Term, unit: frozenset[Axis]) -> frozenset[Axis]:
    own = free(t)
    return own.union(*(owners(a) for a in own)) - unit


def _contraction(r: Reduce, unit: frozenset[Axis]) -> Contraction | None:
    sides = split_sides(r.body, r.axis, lambda t: _tiled(t, unit), lambda _: False)
    if sides is None:
        return None
    left, right = (
        frozenset[Axis]().union(*(_tiled(t, unit) for t in side)) - {r.axis} for side in (sides.left, sides.right)
    )
    return Contraction(r, left, right, _computed(sides.left), _computed(sides.right))


def _computed(terms: Iterable[Term]) -> bool:
    return any(not isinstance(t, Load) for t in terms)


def _batch(r: Reduce, unit: frozenset[Axis]) -> frozenset[Axis]:
    """Axes that both operands of a matmul carry: one matmul for each of their elements."""
    if _contraction(r, unit) is not None:
        return frozenset()
    own = [_tiled(f, unit) - {r.axis} for f in product_factors(r.body) if r.axis in free(f)]
    own = [axes for axes in own if axes]
    if len(own) < 2:
        return frozenset()
    shared = own[0]
    for axes in own[1:]:
        shared &= axes
    return shared if shared and _contraction(r, unit | shared) is not None else frozenset()


def matmuls(g: Graph) -> dict[Reduce, frozenset[Axis]]:
    """Sums that are matmuls, each with batch axes of its own, which others may have as rows or columns."""
    ragged = _ragged(g)
    batches = {r: ragged | _batch(r, ragged) for r in _narrow_sums(g)}
    return {r: batch for r, batch in batches.items() if _contraction(r, batch) is not None}


def _narrow_sums(g: Graph) -> list[Reduce]:
    """Sums of what matmuls multiply."""
    dtypes = {i.name: i.dtype for i in g.inputs}
    return [r for r in reductions(*g.terms) if r.op == "sum" and narrow_type(r.body, dtypes.__getitem__) is not None]


def _ragged(g: Graph) -> frozenset[Axis]:
    """Axes that extents of others read."""
    return frozenset[Axis]().union(*(owners(a) for a in g.axes))


def contiguous(g: Graph) -> frozenset[Axis]:
    """Axes along which the largest outputs lie side by side in memory."""
    found: set[Axis] = set()
    most = max((len(stored_axes([o])) for o in g.outputs), default=0)
    for o in g.outputs:
        if o.indices and len(stored_axes([o])) == most:
            last = o.indices[-1]
            found |= {a for a in axes_of(last) if is_beside(last, a)}
    return frozenset(found)


def read_beside(*terms: Term) -> frozenset[Axis]:
    """Axes along which arrays that some terms load lie side by side in memory."""
    loads = (t for t in walk(*terms) if isinstance(t, Load) and t.indices)
    return frozenset(a for t in loads for a in axes_of(t.indices[-1]) if is_beside(t.indices[-1], a))


def row_sets(g: Graph, s: Structure) -> list[frozenset[Axis]]:
    """Sets of output axes that can be rows, best first: on one side of every contraction, on the computed one if
    there is one."""
    stored = frozenset(s.stored) - s.batch - s.bound
    if not s.contractions:
        beside = contiguous(g)
        rest = stored - beside
        return [rest, stored] if rest else [stored]
    candidates = dict.fromkeys(side & stored for c in s.contractions for side in (c.left, c.right) if side & stored)
    beside = contiguous(g)
    ranked = sorted(candidates, key=lambda rows: (_misfits(rows, s.contractions), bool(rows & beside), -len(rows)))
    return [rows for rows in ranked if _consistent(rows, s.contractions)] or ranked[:1]


def _consistent(rows: frozenset[Axis], contractions: Sequence[Contraction]) -> bool:
    return not any(rows & c.left and rows & c.right for c in contractions)


def _misfits(rows: frozenset[Axis], contractions: Sequence[Contraction]) -> int:
    """Contractions whose computed operand would not carry the rows."""
    wrong = 0
    for c in contractions:
        side = "left" if rows & c.left else "right" if rows & c.right else None
        other_computed = c.right_computed if side == "left" else c.left_computed
        own_computed = c.left_computed if side == "left" else c.right_computed
        wrong += side is None or (other_computed and not own_computed)
    return wrong


def rowless(rows: frozenset[Axis], contractions: Sequence[Contraction]) -> list[Reduce]:
    """Contractions neither of whose operands carries the rows: no skeleton here has them inside a kernel."""
    return [c.reduce for c in contractions if not rows & (c.left | c.right)]
