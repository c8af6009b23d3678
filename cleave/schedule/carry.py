"""Accumulators of a loop: what a fold's carry terms become when its members are values of the loop.

old1 * exp_diff(old0, new0)    ->    s1~ * exp_diff(m1~, m1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cleave.candidate import Fold
from cleave.ir.graph import Const, IndexValue, Reduce, Ref, Term, replace, walk
from cleave.schedule.grouping import Group, carry_reads


def is_restated(g: Group, member: int) -> bool:
    """Whether a member depends on others of its loop, so that it moves when they do."""
    r = g.members[member]
    return any(u in g.members and u is not r for u in walk(r.body) if isinstance(u, Reduce))


def before(ref: Ref) -> Ref:
    """An accumulator before this trip."""
    return Ref(ref.name + "~", ref.axes)


def carry_term(
    g: Group,
    fold: Fold,
    place: int,
    old: Mapping[Reduce, Ref],
    new: Mapping[Reduce, Ref],
    need: Callable[[Term], Term],
) -> Term:
    """The carry of one member, from the values of one state (``old``) and of the joint one (``new``).

    Parts that no member changes are emitted outside the loop, through ``need``.
    """
    member = {k: r for r, k in zip(g.members, g.places, strict=True) if k is not None}
    mapping: dict[Term, Term] = {}
    for t in walk(fold.carry[place]):
        if isinstance(t, Ref):
            state = old if t.name.startswith("old") else new
            mapping[t] = state[member[int(t.name[3:])]]
        elif not isinstance(t, Const | IndexValue) and not any(isinstance(u, Ref) for u in walk(t)):
            mapping[t] = need(t)
    return replace(fold.carry[place], mapping)


def carry_needs(g: Group, fold: Fold, place: int, running: Mapping[Reduce, Ref]) -> tuple[str, ...]:
    """Names of the other accumulators that a member's carry reads."""
    member = {k: r for r, k in zip(g.members, g.places, strict=True) if k is not None}
    return tuple(running[member[k]].name for k in sorted(carry_reads(fold.carry[place])) if k != place)
