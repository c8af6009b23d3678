"""The order of candidates, and which of them nobody needs.

order       candidates with a false step last; the best of each set of splits before the second of any; then fewest
            passes that no fold joins; then the cost at the representative sizes. With a user's cost function: by what
            it says, and in that order where it says the same
dominated   another candidate that splits the same axes is no worse in anything, whatever the sizes (from 1 up), and
            better in something. "Anything": work, transcendentals, traffic, passes over each axis, passes that no
            fold joins, live values, exactness, assumptions. The graph as written always stays
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

from cleave.candidate import Candidate, GraphCost
from cleave.cost.graph import Cost, Estimate, estimate
from cleave.errors import SearchError
from cleave.ir.dim import Dim
from cleave.ir.index import Atom, Index, Symbol, index, of, substitute, symbols_of
from cleave.rewrite.rule import Exactness
from cleave.search.folds import dependent_passes

_PROMISES = (Exactness.EXACT, Exactness.REASSOCIATES, Exactness.UNSAFE)


@dataclass(frozen=True)
class Dropped:
    """A candidate that was left out: another one, ``by``, is no worse in anything."""

    name: str
    by: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: dominated by {self.by}: {self.reason}"


def ranked(
    candidates: Sequence[Candidate], sizes: Mapping[str, int] | None = None, cost: Cost | None = None
) -> list[Candidate]:
    """Best first. ``candidates[0]`` is the graph as written: last if an unsplit one is better throughout.

    Raises SearchError if the user's cost function fails or returns no number.
    """
    estimates = {id(c): _estimate(c, sizes) for c in candidates}
    asked = {id(c): 0 if cost is None else _asked(cost, c, estimates[id(c)]) for c in candidates}
    written, others = candidates[0], candidates[1:]
    whole = [estimates[id(c)] for c in others if not c.splits]
    dominated = any(e.dominates(estimates[id(written)]) for e in whole)

    def last(c: Candidate) -> tuple[bool, bool]:
        return bool(c.false_steps), c is written and dominated

    def key(c: Candidate) -> tuple[int, float, int, str]:
        return dependent_passes(c.graph, c.folds), estimates[id(c)].scalar, len(c.splits), c.name

    best: dict[frozenset[str], Candidate] = {}
    for c in sorted(candidates, key=lambda c: (last(c), key(c))):
        best.setdefault(frozenset(s.base for s in c.splits), c)
    first = {id(c) for c in best.values()}
    own = sorted(candidates, key=lambda c: (last(c), id(c) not in first, key(c)))
    return sorted(own, key=lambda c: (bool(c.false_steps), asked[id(c)]))


def _estimate(c: Candidate, sizes: Mapping[str, int] | None) -> Estimate:
    assert c.cost is not None
    return estimate(c.graph, c.cost, c.splits, sizes)


def _asked(cost: Cost, c: Candidate, e: Estimate) -> Real:
    """What the user's function says, as it is: integers of any size are compared, not converted."""
    name, where = getattr(cost, "__name__", type(cost).__name__), f"candidate {c.name}"
    try:
        found: object = cost(c, e)
    except Exception as error:  # whatever a user's function does, the search says where
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise SearchError(f"the cost function {name} failed: {said}", location=where) from error
    if not isinstance(found, Real) or found != found:  # NaN
        shown = " ".join(reprlib.repr(found).split())
        raise SearchError(f"the cost function {name} returned {shown}: a number is expected", location=where)
    return found


# ---- dominated


def without_dominated(candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[Dropped]]:
    """Ranked candidates without those that a better one dominates."""
    kept: list[Candidate] = []
    dropped: list[Dropped] = []
    for c in candidates:
        found = next(((d, why) for d in kept for why in [_better(d, c)] if why), None)
        if found is None or c.graph is c.origin:
            kept.append(c)
        else:
            dropped.append(Dropped(c.name, found[0].name, "; ".join(found[1])))
    return kept, dropped


def _better(d: Candidate, c: Candidate) -> list[str]:
    """In what a candidate is better than another, if it is worse in nothing; else nothing."""
    if d.false_steps or {s.base for s in d.splits} != {s.base for s in c.splits}:
        return []
    if _PROMISES.index(Exactness(d.exactness)) > _PROMISES.index(Exactness(c.exactness)):
        return []
    if not set(d.assumptions) <= set(c.assumptions) or d.cost is None or c.cost is None:
        return []
    pairs = list(_compared(d, d.cost, c, c.cost))
    if not all(never_more(mine, theirs) for _, mine, theirs in pairs):
        return []
    return [f"{theirs - mine} more {what}" for what, mine, theirs in pairs if mine is not theirs]


def _compared(d: Candidate, mine: GraphCost, c: Candidate, theirs: GraphCost) -> Iterator[tuple[str, Dim, Dim]]:
    yield "work", mine.work, theirs.work
    yield "transcendentals", mine.transcendental, theirs.transcendental
    yield "traffic", mine.traffic, theirs.traffic
    yield "passes", index(dependent_passes(d.graph, d.folds)), index(dependent_passes(c.graph, c.folds))
    over, others = dict(mine.over), dict(theirs.over)
    for axis in sorted({*over, *others}):
        yield f"passes over {axis}", index(over.get(axis, 0)), index(others.get(axis, 0))
    yield "live values", index(mine.live), index(theirs.live)


def never_more(a: Dim, b: Dim) -> bool:
    """Whether a <= b is certain at all sizes from 1 up: over sizes less their least, b - a has no negative
    coefficient.
    """
    least: dict[Atom, Index] = {}
    for s in symbols_of(b - a):
        least[s] = index(s.value) if s.value is not None else of(s) + max(s.minimum, 1)
    rest = substitute(b - a, least)
    return all(
        coefficient >= 0 and all(isinstance(atom, Symbol) for atom, _ in monomial)
        for monomial, coefficient in rest.terms
    )
