"""Folds, read off the outer stage of chunk-local split candidates; see ``cleave.candidate`` for what a fold is.

    outer stage   total_k = monoid_k over o of  B_k(partials, totals)         one total for each partial
    carry         carry_k = B_k with  partial_j := old_j,  total_j := new_j

Nothing is guessed: the rules found the outer stage. Its carry is tried on a small instance (any order of chunks, empty
chunks and dead rows included) against the reduction over the whole axis, since an outer stage need not be a fold (a
division under the outer sum is none). A reduction over another axis gets the fold if its body is that of the partial,
with what it depends on restated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_field
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.candidate import Fold, Split, split_dims
from cleave.errors import CleaveError
from cleave.ir.axis import Axis
from cleave.ir.generic import Rewriting
from cleave.ir.graph import (
    Cast,
    Graph,
    Map,
    Reduce,
    Ref,
    Term,
    Where,
    bound_axis,
    canonical,
    children,
    free,
    rebuild,
    reductions,
    replace,
    substitute_axes,
    walk,
)
from cleave.ir.index import Index, index, of, show_pred
from cleave.ir.instance import CHUNKS, Instance
from cleave.ir.interp import Space, make_space, value
from cleave.ir.op import MAPS, MONOIDS
from cleave.search.deadline import Deadline
from cleave.search.reducibility import is_small
from cleave.search.small import Small

Array = NDArray[Any]
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Pattern:
    """A fold as a split candidate shows it: partials and totals in dependency order; ``base`` is the axis that was
    split.
    """

    graph: Graph
    splits: tuple[Split, ...]
    split: Split
    base: Axis
    partials: tuple[Reduce, ...]
    totals: tuple[Reduce, ...]
    absorbing: bool = False

    def carry(self, members: Sequence[Reduce], kept: Sequence[int]) -> tuple[Term, ...]:
        """Carries of the kept members, over refs with the axes of ``members`` (one for each kept)."""
        mapping: dict[Term, Term] = {}
        for place, (k, member) in enumerate(zip(kept, members, strict=True)):
            axes = _axes(member)
            mapping[self.partials[k]] = Ref(f"old{place}", axes)
            mapping[self.totals[k]] = Ref(f"new{place}", axes)
        return tuple(replace(self.totals[k].body, mapping) for k in kept)


def _axes(member: Reduce) -> tuple[Axis, ...]:
    return tuple(sorted(free(member), key=lambda a: a.name))


# ---- patterns of a split candidate


def patterns(
    g: Graph, splits: Sequence[Split], bases: Mapping[str, Axis], small: Small, deadline: Deadline
) -> list[Pattern]:
    """The folds that the outer stages of a graph show and that hold on all instances; without one there are none.

    Raises OutOfTime.
    """
    if not small.instances or not splits:
        return []
    to = Rewriting(small.freed, g.axes)
    trials = [make_trial(to.graph(g), [_split(s, to) for s in splits], at) for at in small.instances]
    out: list[Pattern] = []
    for split in splits:
        kept = Pattern(g, tuple(splits), split, bases[split.count], (), ())
        for partial, total in zip(*_outer_stage(g, split, bases[split.count]), strict=True):
            wider = with_field(kept, partials=(*kept.partials, partial), totals=(*kept.totals, total))
            deadline.check()
            if _closed(wider) and all(holds(_pattern(wider, to), trial) for trial in trials):
                kept = wider
        if kept.partials:
            absorbing = all(holds(_pattern(kept, to), trial, absorbing=True) for trial in trials)
            out.append(with_field(kept, absorbing=absorbing))
    return out


def _of_one_chunk(p: Reduce, split: Split, base: Axis) -> bool:
    return p.axis is split.inner and not any(r.axis in (split.outer, base) for r in reductions(p.body))


def _outer_stage(g: Graph, split: Split, base: Axis) -> tuple[list[Reduce], list[Reduce]]:
    """Partials and totals that belong together: a total folds exactly one partial that no earlier total has.

    A partial that needs a total, or a reduction over the whole axis, is known only after all chunks: it is no state.
    """
    partials: list[Reduce] = []
    totals: list[Reduce] = []
    for total in reductions(*g.terms):
        if total.axis is not split.outer:
            continue
        own = [p for p in _stage(total.body, split) if _of_one_chunk(p, split, base) and p not in partials]
        if len(own) == 1 and own[0].op == total.op:
            partials.append(own[0])
            totals.append(total)
    return partials, totals


def _stage(body: Term, split: Split) -> list[Reduce]:
    """Reductions over the pieces of a split that a body mentions directly, not those inside them."""
    found: dict[Reduce, None] = {}
    stack: list[Term] = [body]
    while stack:
        t = stack.pop()
        if isinstance(t, Reduce) and t.axis in (split.inner, split.outer):
            found.setdefault(t)
        else:
            stack += children(t)
    return list(found)


def _closed(p: Pattern) -> bool:
    """Whether the carries mention nothing along the pieces but the state itself."""
    everything = tuple(range(len(p.partials)))
    refs = p.carry(p.totals, everything)
    return all(not free(c) & {p.split.outer, p.split.inner} for c in refs)


def _pattern(p: Pattern, to: Rewriting) -> Pattern:
    """The pattern in another form of its graph."""
    partials, totals = ([m for m in map(to.term, rs) if isinstance(m, Reduce)] for rs in (p.partials, p.totals))
    splits = tuple(_split(s, to) for s in p.splits)
    return Pattern(
        to.graph(p.graph), splits, _split(p.split, to), to.axis(p.base), tuple(partials), tuple(totals), p.absorbing
    )


def _split(s: Split, to: Rewriting) -> Split:
    return with_field(s, outer=to.axis(s.outer), inner=to.axis(s.inner))


# ---- does it hold


@dataclass
class Trial:
    """A graph on an instance, split in several chunks and in one, and the values found there."""

    chunks: Space
    whole: Space
    in_chunks: dict[Term, Array]
    in_one: dict[Term, Array]


def make_trial(g: Graph, splits: Sequence[Split], instance: Instance) -> Trial:
    chunks, whole = (make_space(g.axes, instance.inputs, split_dims(splits, instance, count)) for count in (CHUNKS, 1))
    return Trial(chunks, whole, {}, {})


def holds(p: Pattern, trial: Trial, *, absorbing: bool = False) -> bool:
    """Joining chunks one by one, in two orders, from the identity, gives the reductions over the whole axis."""
    try:
        with np.errstate(all="ignore"):
            wanted = [value(q, trial.whole, trial.in_one) for q in p.partials]
            count = trial.chunks.environment[p.split.outer].size
            orders = (range(count), range(count - 1, -1, -1))
            return all(_agree(_joined(p, trial, order, absorbing=absorbing), wanted) for order in orders)
    except (CleaveError, ValueError, RuntimeError):  # RuntimeError: more axes than an array can have
        return False


def _agree(found: Sequence[Array], wanted: Sequence[Array]) -> bool:
    return all(np.allclose(f, w, _TOLERANCE, _TOLERANCE, equal_nan=False) for f, w in zip(found, wanted, strict=True))


def _joined(p: Pattern, trial: Trial, order: Iterable[int], *, absorbing: bool) -> list[Array]:
    kept = range(len(p.partials))
    carries = p.carry(p.totals, kept)
    old, new = ([Ref(f"{word}{k}", _axes(p.totals[k])) for k in kept] for word in ("old", "new"))
    tiles = [replace(q, {p.partials[j]: new[j] for j in kept if j != k}) for k, q in enumerate(p.partials)]
    space = trial.chunks
    states = [value(q, space, trial.in_chunks) for q in p.partials]
    number = space.number(p.split.outer)
    state = [np.full([1] * len(space.order), MONOIDS[q.op].identity) for q in p.partials]
    for o in order:
        joint: list[Array] = []
        for k, q in enumerate(p.partials):
            known = {new[j]: joint[j] for j in range(k)}
            mine = value(carries[k], space, {**known, **_bound(old, state)})
            if absorbing:
                theirs = _at(value(tiles[k], space, {**_unaffected(tiles[k], trial.in_chunks), **known}), number, o)
            else:
                theirs = value(carries[k], space, {**known, **_bound(old, [_at(s, number, o) for s in states])})
            joint.append(MONOIDS[q.op].combine(mine, theirs))
        state = joint
    return state


def _unaffected(t: Term, values: Mapping[Term, Array]) -> dict[Term, Array]:
    """What is known of the subterms of a term."""
    return {u: values[u] for u in walk(t) if u in values}


def _bound(refs: Sequence[Ref], values: Sequence[Array]) -> dict[Term, Array]:
    return dict(zip(refs, values, strict=True))


def _at(values: Array, number: int, position: int) -> Array:
    return values if values.shape[number] == 1 else np.take(values, [position], axis=number)


# ---- attaching


def folds_of(
    g: Graph, splits: Sequence[Split], bases: Mapping[str, Axis], known: Sequence[Pattern]
) -> tuple[Fold, ...]:
    """The folds of a candidate: over each axis, groups of dependent reductions that match a known pattern.

    ``bases`` are the axes that were split, by the name of the count.
    """
    out: dict[Fold, None] = {}
    views = [_View(bases[s.count], s, _symbol(g, s.chunk)) for s in splits]
    for axis in dict.fromkeys(r.axis for r in reductions(*g.terms)):
        members = [r for r in reductions(*g.terms) if r.axis is axis]
        if len(members) > 1:
            for pattern in _different(known, axis):
                for f in _matched(axis, members, pattern, [v for v in views if v.split.count != pattern.split.count]):
                    if not any(set(f.members) <= set(other.members) for other in out if other.axis is axis):
                        out.setdefault(f)
    return tuple(out)


def _different(known: Sequence[Pattern], axis: Axis) -> list[Pattern]:
    """Patterns that can differ over an axis: over a chunk index all, else one for each list of partials."""
    if axis.kind == "outer":
        return list(known)
    longest = sorted(known, key=lambda p: -len(p.partials))
    return list({(p.base, tuple(_wanted(p.partials).values())): p for p in reversed(longest)}.values())[::-1]


@dataclass(frozen=True)
class _View:
    """Another split of a candidate: a pattern that lacks it sees the whole axis, i as  k - o * C."""

    base: Axis
    split: Split
    chunk: Index

    def whole(self, t: Term) -> Term:
        position = self.base.position - self.split.outer.position * self.chunk
        return substitute_axes(t, {self.split.inner: position}) if self.split.inner in free(t) else t

    def in_chunks(self, t: Term) -> Term:
        position = self.split.outer.position * self.chunk + self.split.inner.position
        return substitute_axes(t, {self.base: position}) if self.base in free(t) else t


def _symbol(g: Graph, name: str) -> Index:
    return next((of(s) for s in g.symbols if s.name == name), index(0))


def _matched(axis: Axis, members: Sequence[Reduce], p: Pattern, views: Sequence[_View]) -> list[Fold]:
    others = [v for v in views if v.split.outer not in p.graph.axes]
    pairs = _outer_pairs(members, p) if axis.kind == "outer" else _body_pairs(axis, members, p, others)
    pairs = _self_contained(pairs, p)
    out: list[Fold] = []
    for group in _groups(pairs, p):
        if len(group) > 1:
            chosen = [pairs[k] for k in group]
            carry = p.carry(chosen, group)
            for v in others:
                carry = tuple(v.in_chunks(c) for c in carry)
            out.append(Fold(axis, tuple(chosen), carry, p.absorbing))
    return out


def _outer_pairs(members: Sequence[Reduce], p: Pattern) -> dict[int, Reduce]:
    """The totals of the pattern's own graph are their own fold."""
    return {k: t for k, t in enumerate(p.totals) if t in members}


def _body_pairs(axis: Axis, members: Sequence[Reduce], p: Pattern, views: Sequence[_View]) -> dict[int, Reduce]:
    """Members whose body is that of a partial, at position o * C + i or at the piece itself, with members restated."""
    position = _position(axis, p)
    if position is None:
        return {}
    wanted = _wanted(p.partials)
    pairs: dict[int, Reduce] = {}
    for r in members:
        marked: dict[Term, int] = {m: k for k, m in pairs.items()}
        shape = _shape(r, [], marked, (axis, position), views)
        k = next((k for k, form in wanted.items() if form is shape and k not in pairs), None)
        if k is not None and p.partials[k].op == r.op:
            pairs[k] = r
    return pairs


@cache
def _wanted(partials: tuple[Reduce, ...]) -> dict[int, Term]:
    """The body of each partial, as members over the same position show it."""
    return {k: _shape(q, partials, {}) for k, q in enumerate(partials)}


def _position(axis: Axis, p: Pattern) -> Index | None:
    """Where the pattern is on an axis: an axis of the extent that was split, or a piece of the same split."""
    if axis is p.split.inner:
        return axis.position
    chunk = next((s for s in p.graph.symbols if s.name == p.split.chunk), None)
    if axis.kind != "plain" or chunk is None or axis.extent is not p.base.extent:
        return None
    return p.split.outer.position * of(chunk) + p.split.inner.position


def _shape(
    r: Reduce,
    partials: Sequence[Reduce],
    marked: Mapping[Term, int],
    place: tuple[Axis, Index] | None = None,
    views: Sequence[_View] = (),
) -> Term:
    """The body of a reduction with members as numbered refs, at a place, with commutative operands sorted."""
    numbers: dict[Term, int] = {**{q: k for k, q in enumerate(partials)}, **marked}
    body = replace(r.body, {m: Ref(f"member{k}", ()) for m, k in numbers.items() if m is not r})
    if place is not None:
        body = substitute_axes(body, {place[0]: place[1]})
    for v in views:
        body = v.whole(body)
    return _sorted(canonical(body))


def _sorted(term: Term) -> Term:
    made: dict[Term, Term] = {}
    for t in walk(term):
        new = rebuild(t, [made[c] for c in children(t)]) if children(t) else t
        if isinstance(new, Map) and MAPS[new.op].commutative:
            new = Map(new.op, tuple(sorted(new.args, key=_digest)))
        made[t] = new
    return made[term]


@cache
def _digest(t: Term) -> str:
    """A name for a term that depends on its structure only."""
    match t:
        case Map(op, _):
            own = op
        case Reduce(op, axis, _):
            own = f"{op} {axis.name} {axis.extent}"
        case Where(pred, _, _):
            own = show_pred(pred)
        case Cast(dtype, _):
            own = dtype
        case _:
            own = repr(t)
    text = "|".join([type(t).__name__, own, *map(_digest, children(t))])
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _mentioned(p: Pattern, k: int) -> set[int]:
    """Members that the carry of member k, or its partial, mentions."""
    inside = set(walk(p.totals[k].body)) | set(walk(p.partials[k].body))
    return {j for j in range(len(p.partials)) if j != k and (p.partials[j] in inside or p.totals[j] in inside)}


def _self_contained(pairs: Mapping[int, Reduce], p: Pattern) -> dict[int, Reduce]:
    """Drop members whose carry needs one that is missing."""
    kept = dict(sorted(pairs.items()))
    while missing := [k for k in kept if not _mentioned(p, k) <= kept.keys()]:
        for k in missing:
            del kept[k]
    return kept


def _groups(kept: Iterable[int], p: Pattern) -> list[list[int]]:
    """Members that hang together, in order."""
    groups: list[set[int]] = []
    for k in kept:
        joined = {k} | _mentioned(p, k)
        touching = [g for g in groups if g & joined]
        groups = [g for g in groups if not g & joined] + [joined.union(*touching)]
    return [sorted(g) for g in groups]


# ---- what is left without a fold


def dependent_passes(g: Graph, folds: Sequence[Fold]) -> int:
    """Longest chain of reductions over one axis, each needing the one before, members of a fold counted as one.

    Axes of a small fixed extent do not count: what is held whole is passed over at no cost.
    """
    together: dict[tuple[Term, Axis], int] = {(r, f.axis): n for n, f in enumerate(folds) for r in f.members}
    depth: dict[Term, dict[Axis, tuple[int, int | None]]] = {}
    longest = 0
    for t in walk(*g.terms):
        below: dict[Axis, tuple[int, int | None]] = {}
        for c in children(t):
            for a, found in depth[c].items():
                below[a] = max(below.get(a, (0, None)), found, key=lambda pair: pair[0])
        bound = bound_axis(t)
        if bound is not None:
            number, last = below.get(bound, (0, None))
            mine = together.get((t, bound))
            below[bound] = (number if mine is not None and mine == last else number + 1, mine)
            longest = longest if is_small(bound) else max(longest, below[bound][0])
        depth[t] = below
    return longest
