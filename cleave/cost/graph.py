"""Cost of a graph whatever its schedule: work, transcendentals, elements moved, dependent passes; symbolic, then at
sizes.

    work            one for each element of a pointwise operation and each element that a reduction or a top-k folds; a
                    sum over a whole axis of a sum over another one is one sum, in whatever order
    transcendental  elements of exp, log, reciprocals and the like
    traffic         elements of the tensors read and written: inputs once, partial results twice, outputs once
    passes          longest chain of reductions over one axis of which each needs the one before; of each axis too
    live            the most values held at once when terms are computed operands first, inputs and constants apart

Shared terms count once. What is made of weights alone is made once, not in each call: it costs what reading it costs.
A ragged extent is taken for its first owner (``kv_len[0]``), a chunk at its full length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.candidate import Candidate, GraphCost, Split
from cleave.ir.axis import Axis
from cleave.ir.graph import (
    Cast,
    Const,
    Graph,
    IndexValue,
    Load,
    Map,
    Reduce,
    Term,
    TopK,
    Where,
    bound_axis,
    children,
    free,
    tensor_key,
    walk,
)
from cleave.ir.index import Atom, Index, Position, Symbol, axes_of, evaluate, index, of, substitute
from cleave.ir.op import INTEGERS, MAPS

DEFAULT_EXTENT = 1024
DEFAULT_COUNT = 8
DEFAULT_READ = 512
"""Representative values of dims, of split counts, and of what an integer input holds, where nobody gave any."""

TRANSCENDENTAL_WEIGHT = 4.0
TRAFFIC_WEIGHT = 8.0
"""What one special function and one element moved are worth in multiply-adds, for ranking only."""


def graph_cost(g: Graph, splits: Sequence[Split] = (), weights: Iterable[str] = ()) -> GraphCost:
    """The symbolic cost of a graph; ``weights`` are inputs that are parameters."""
    extents, ahead, joined = _extents(g, splits), _ahead(g, frozenset(weights)), _joined(g)
    work, special = index(0), index(0)
    for t in walk(*g.terms):
        match t:
            case _ if t in ahead or t in joined:
                pass
            case Map(op, _) if MAPS[op].transcendental:
                special = special + volume(free(t), extents)
            case Map() | Where():
                work = work + volume(free(t), extents)
            case Reduce(_, axis, body) | TopK(_, axis, _, body):
                work = work + volume(free(body) | {axis}, extents)
            case _:
                pass
    over = passes(g.terms)
    most = max(over.values(), default=0)
    return GraphCost(work, special, _traffic(g, extents, ahead), most, tuple(sorted(over.items())), live(g.terms))


def _joined(g: Graph) -> frozenset[Term]:
    """Reductions over a whole axis of one of the same kind that nothing else reads: one loop over both axes."""
    terms = walk(*g.terms)
    uses = Counter(c for t in terms for c in children(t))
    out: set[Term] = set()
    for t in terms:
        if isinstance(t, Reduce) and isinstance(t.body, Reduce) and uses[t.body] == 1:
            same = t.op == t.body.op and t.axis.kind == t.body.axis.kind == "plain"
            out |= {t} if same else set()
    return frozenset(out)


def _ahead(g: Graph, weights: frozenset[str]) -> frozenset[Term]:
    """Terms of weights and numbers that are read in place of what they are made of: they are known before any call."""
    out: set[Term] = set()
    for t in walk(*g.terms):
        match t:
            case Load(name, _):
                known = name in weights
            case Map() | Reduce() | Cast():
                below = children(t)
                numbers = {c for c in below if isinstance(c, Const | IndexValue)}
                known = out.issuperset({*below} - numbers) and not out.isdisjoint(below)
            case _:
                known = False
        if known:
            out.add(t)
    return frozenset(out)


def _extents(g: Graph, splits: Sequence[Split]) -> dict[Axis, Index]:
    chunks = {s.inner: s.chunk for s in splits}
    symbols = {s.name: s for s in g.symbols}
    out: dict[Axis, Index] = {}
    for a in g.axes:
        if a in chunks and chunks[a] in symbols:
            out[a] = of(symbols[chunks[a]])
        else:
            start: dict[Atom, Index] = {Position(b): index(0) for b in axes_of(a.extent)}
            out[a] = substitute(a.extent, start)
    return out


def volume(axes: Iterable[Axis], extents: Mapping[Axis, Index]) -> Index:
    """Number of positions on some axes together."""
    return reduce(lambda product, a: product * extents[a], sorted(axes, key=lambda a: a.name), index(1))


def _traffic(g: Graph, extents: Mapping[Axis, Index], ahead: frozenset[Term]) -> Index:
    total = index(0)
    read: dict[Term, Index] = {}
    for t in _needed(g.terms, ahead):
        if isinstance(t, Load) or t in ahead:
            read.setdefault(tensor_key(t), volume(free(t), extents))
    for size in read.values():
        total = total + size
    for o in g.outputs:
        total = total + reduce(lambda product, extent: product * extent, o.shape, index(1))
    for partial in _partials(g):
        if partial not in ahead:
            total = total + 2 * volume(free(partial), extents)
    return total


def _needed(terms: Iterable[Term], ahead: frozenset[Term]) -> list[Term]:
    """Terms without those that only terms of weights are made of."""
    out: dict[Term, None] = {}
    waiting = list(terms)
    while waiting:
        t = waiting.pop()
        if t not in out:
            out[t] = None
            waiting += () if t in ahead else children(t)
    return list(out)


def _partials(g: Graph) -> list[Reduce]:
    """Reductions within a chunk, which one stage writes and the next reads."""
    return [t for t in walk(*g.terms) if isinstance(t, Reduce) and t.axis.kind == "inner"]


def passes(terms: Iterable[Term]) -> dict[str, int]:
    """Longest chain of dependent reductions over each axis, by its name."""
    depth: dict[Term, dict[Axis, int]] = {}
    longest: dict[str, int] = {}
    for t in walk(*terms):
        below: dict[Axis, int] = {}
        for c in children(t):
            for a, n in depth[c].items():
                below[a] = max(below.get(a, 0), n)
        bound = bound_axis(t)
        if bound is not None:
            below[bound] = below.get(bound, 0) + 1
            longest[bound.name] = max(longest.get(bound.name, 0), below[bound])
        depth[t] = below
    return longest


def live(terms: Sequence[Term]) -> int:
    """The most values that are held at once when terms are computed operands first, inputs and constants apart."""
    order = [t for t in walk(*terms) if children(t)]
    number = {t: n for n, t in enumerate(order)}
    last = list(range(len(order)))
    for n, t in enumerate(order):
        for c in children(t):
            if c in number:
                last[number[c]] = n
    ends = Counter(last)
    held = most = 0
    for n in range(len(order)):
        held += 1
        most = max(most, held)
        held -= ends[n]
    return most


# ---- at sizes


@dataclass(frozen=True)
class Estimate:
    """A symbolic cost at representative sizes."""

    work: float
    transcendental: float
    traffic: float
    passes: int
    live: int = 0

    @property
    def scalar(self) -> float:
        """One number for ranking graphs that compute the same."""
        return self.work + TRANSCENDENTAL_WEIGHT * self.transcendental + TRAFFIC_WEIGHT * self.traffic

    def dominates(self, other: Estimate) -> bool:
        """No worse in anything and better in something."""
        mine = (self.work, self.transcendental, self.traffic, self.passes)
        theirs = (other.work, other.transcendental, other.traffic, other.passes)
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def representative(g: Graph, splits: Sequence[Split] = (), sizes: Mapping[str, int] | None = None) -> dict[str, int]:
    """A value for every dim of a graph: as given, else the only one possible, else a default that fits its facts."""
    given = dict(sizes or {})
    out = {s.name: given.get(s.name, _default(s, DEFAULT_EXTENT)) for s in g.symbols}
    symbols = {s.name for s in g.symbols}
    for split in splits:
        if split.count in symbols and split.chunk in symbols:
            out[split.count] = given.get(split.count, DEFAULT_COUNT)
            # the extent that was split is that of the inner piece if one chunk has room for anything
            length = at_sizes(g, split.inner.extent, {**out, split.chunk: 1 << 40})
            out[split.chunk] = given.get(split.chunk, max(1, -(-int(length) // out[split.count])))
    return out


def _default(s: Symbol, value: int) -> int:
    if s.value is not None:
        return s.value
    value = max(value, s.minimum)
    value = -(-value // s.multiple) * s.multiple
    return value if s.maximum is None else min(value, s.maximum // s.multiple * s.multiple)


def at_sizes(g: Graph, expression: Index, sizes: Mapping[str, int]) -> float:
    """The value of an expression; axes are taken at their start, integer inputs hold ``DEFAULT_READ`` more at each
    position.
    """
    start: dict[Atom, Index] = {Position(a): index(0) for a in axes_of(expression)}
    typical = {i.name: _typical(len(i.shape)) for i in g.inputs if i.dtype in INTEGERS}
    return float(evaluate(substitute(expression, start), sizes, typical))


def _typical(rank: int) -> NDArray[Any]:
    return DEFAULT_READ * (1 + np.indices((2,) * rank).sum(axis=0)) if rank else np.asarray(DEFAULT_READ)


def estimate(
    g: Graph, cost: GraphCost, splits: Sequence[Split] = (), sizes: Mapping[str, int] | None = None
) -> Estimate:
    """A symbolic cost at given or representative sizes."""
    at = representative(g, splits, sizes)
    work, special, traffic = (at_sizes(g, c, at) for c in (cost.work, cost.transcendental, cost.traffic))
    return Estimate(work, special, traffic, cost.passes, cost.live)


Cost = Callable[[Candidate, Estimate], float]
"""A user's own cost of a candidate, which may look at what our own model makes of it; smaller is better.

Only the order counts: any real number will do, negative or of any size; infinity puts a candidate last. NaN, anything
that is no number, and an exception are errors of the search, which name the candidate.
"""
