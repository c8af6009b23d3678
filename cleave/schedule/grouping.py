"""Grouping: which reductions over one axis share a loop.

Repeatedly, among the reductions that are left: the last wave is what no other depends on. Members of it that share
an upstream value are fused (horizontal fusion). A fold of the candidate then lets earlier reductions of the same
axis join: the loop carries its state. Without a fold they become loops of their own, before this one: the scheduler
proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cleave.candidate import Fold
from cleave.ir.axis import Axis
from cleave.ir.graph import IndexValue, Reduce, Ref, Term, free, walk


@dataclass(frozen=True)
class Group:
    """Reductions of one loop, in dependency order; ``places[k]`` says where member k stands in the fold, if it does."""

    members: tuple[Reduce, ...]
    fold: Fold | None = None
    places: tuple[int | None, ...] = ()

    @property
    def axis(self) -> Axis:
        return self.members[0].axis

    @property
    def absorbs(self) -> bool:
        """Whether a tile is computed relative to the joint state, rather than alone and then joined."""
        return self.fold is None or self.fold.absorbing


def group(
    pending: Sequence[Reduce], folds: Sequence[Fold], *, fuse: bool, note: Callable[[str], None] = lambda _: None
) -> Iterator[Group]:
    """Groups of some reductions, given in dependency order; later loops come first."""
    below = {r: frozenset(t for t in walk(r.body) if isinstance(t, Reduce)) & set(pending) for r in pending}
    left = list(pending)
    while left:
        wave = [r for r in left if not any(r in below[q] for q in left)]
        fused = _fused(wave, fuse=fuse)
        chosen, fold = _absorbed(fused, left, below, folds) or (set(fused), None)
        members = tuple(r for r in pending if r in chosen)
        if len(chosen) > 1:
            note(_why_together(members, fold))
        else:
            _report_alone(members[0], pending, below, note, fuse=fuse)
        if fold is None:
            _report(fused, left, below, note)
        yield Group(members, fold, tuple(_place(fold, r) for r in members))
        left = [r for r in left if r not in chosen]


def _why_together(members: Sequence[Reduce], fold: Fold | None) -> str:
    names, a = _ops(members), members[0].axis
    if fold is None:
        return f"{names} over {a} in one loop: they read the same values along it"
    how = "relative to the joint state" if fold.absorbing else "alone, and joined to the state"
    return f"{names} over {a} in one loop: a fold of the candidate restates what was gathered; tiles are computed {how}"


def _report_alone(
    r: Reduce,
    pending: Sequence[Reduce],
    below: Mapping[Reduce, frozenset[Reduce]],
    note: Callable[[str], None],
    *,
    fuse: bool,
) -> None:
    """Why a reduction shares its loop with no other; of those that need one another ``_report`` tells."""
    a = r.axis
    others = [q for q in pending if q is not r and q.axis is a]
    beside = [q for q in others if q not in below[r] and r not in below[q]]
    if beside:
        why = "they read no value in common that varies along it" if fuse else "horizontal fusion is switched off"
        note(f"{r.op} over {a} in a loop of its own, beside {_ops(beside)} over {a}: {why}")
    elif not others:
        note(f"{r.op} over {a} in a loop of its own: nothing else is reduced over {a} there")


def _ops(reductions: Sequence[Reduce]) -> str:
    """``max, sum and sum``."""
    *first, last = [r.op for r in reductions]
    return f"{', '.join(first)} and {last}" if first else last


def _report(
    fused: Sequence[Reduce],
    left: Sequence[Reduce],
    below: Mapping[Reduce, frozenset[Reduce]],
    note: Callable[[str], None],
) -> None:
    for r in fused:
        for u in left:
            if u in below[r] and u.axis is r.axis:
                note(f"{r.op} over {r.axis} needs the finished {u.op} over {u.axis} and no fold holds both: two loops")


def _place(fold: Fold | None, r: Reduce) -> int | None:
    return fold.members.index(r) if fold is not None and r in fold.members else None


def _varying(r: Reduce) -> frozenset[Term]:
    """Values below a reduction that change along its axis."""
    return frozenset(t for t in walk(r.body) if r.axis in free(t) and not isinstance(t, IndexValue))


def _fused(wave: Sequence[Reduce], *, fuse: bool) -> list[Reduce]:
    chosen = [wave[-1]]
    grown = fuse
    while grown:
        grown = False
        for r in wave:
            if r not in chosen and r.axis is chosen[0].axis and any(_varying(r) & _varying(q) for q in chosen):
                chosen.append(r)
                grown = True
    return chosen


def _absorbed(
    fused: Sequence[Reduce], left: Sequence[Reduce], below: Mapping[Reduce, frozenset[Reduce]], folds: Sequence[Fold]
) -> tuple[set[Reduce], Fold] | None:
    """The group with the earlier members of a fold that it depends on, if a fold holds all that is needed."""
    for fold in folds:
        if fold.axis is not fused[0].axis or fused[0] not in fold.members:
            continue
        state = set(fold.members) & set(left)
        earlier = {u for r in fused for u in below[r] if u in state and u not in fused}
        if not earlier:
            continue
        base = [r for r in fused if r in state or not below[r] & earlier]
        members = {*base, *earlier}
        needed_outside = any(below[q] & earlier for q in left if q not in members and q.axis is fold.axis)
        if needed_outside or not all(_closed(fold, r, members, below) for r in members):
            continue
        return members, fold
    return None


def _closed(fold: Fold, r: Reduce, members: set[Reduce], below: Mapping[Reduce, frozenset[Reduce]]) -> bool:
    """Whether a member's restatement reads only what the loop carries."""
    if not below[r] & members:
        return True
    return r in fold.members and all(fold.members[j] in members for j in carry_reads(fold.carry[fold.members.index(r)]))


def carry_reads(carry: Term) -> frozenset[int]:
    """Numbers of the members that a carry term reads, from its references ``old<j>`` and ``new<j>``."""
    names = [t.name for t in walk(carry) if isinstance(t, Ref)]
    return frozenset(int(n[3:]) for n in names if n[:3] in ("old", "new") and n[3:].isdigit())
