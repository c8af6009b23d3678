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


def carry_term(
    g: Group, fold: Fold, place: int, running: Mapping[Reduce, Ref], need: Callable[[Term], Term]
) -> tuple[Term | None, tuple[str, ...]]:
    """The carry of one member over the accumulators, and the names that it reads; None if the value is kept as it is.

    Parts that no member changes are emitted outside the loop, through ``need``.
    """
    at = {k: running[r] for r, k in zip(g.members, g.places, strict=True) if k is not None}
    term = fold.carry[place]
    mapping: dict[Term, Term] = {}
    for t in walk(term):
        if isinstance(t, Ref):
            ref = at[int(t.name[3:])]
            mapping[t] = Ref(ref.name + "~", ref.axes) if t.name.startswith("old") else ref
        elif not isinstance(t, Const | IndexValue) and not any(isinstance(u, Ref) for u in walk(t)):
            mapping[t] = need(t)
    made = replace(term, mapping)
    if isinstance(made, Ref):
        return None, ()
    return made, tuple(at[k].name for k in sorted(carry_reads(term)) if k != place)
