"""Name clashes: an axis that is divided among blocks and bound by a reduction as well is two axes.

Y[i, k] = x[i, k] / sum(k, x[i, k]), k on the grid    ->    Y[i, k] = x[i, k] / sum(k_2, x[i, k_2])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace as replaced

from cleave.candidate import Fold
from cleave.ir.axis import Axis
from cleave.ir.graph import Graph, Output, Reduce, Term, axes_in, children, rebuild, rename_axis, walk
from cleave.ir.index import axes_of
from cleave.schedule.roles import LOOPS, Plan, Role


def separate(
    g: Graph, plan: Plan, folds: Sequence[Fold]
) -> tuple[tuple[Output, ...], tuple[Fold, ...], dict[Axis, Role]]:
    """Outputs, folds and roles with one name an axis, and bound axes renamed where the plan puts an output's axis on
    the grid."""
    stored = {a for o in g.outputs for i in o.indices for a in axes_of(i)}
    bound = {t.axis for t in walk(*g.terms) if isinstance(t, Reduce)}
    axes = axes_in(g.terms, (i for o in g.outputs for i in o.indices))
    names: set[str] = set()
    split = [a for a in axes if a in stored & bound and not is_inside(plan, a)]
    for a in (*(a for a in axes if a in stored), *(a for a in axes if a not in stored)):
        if a.name in names:
            split.append(a)
        names.add(a.name)
    roles, kept = dict(plan.roles), tuple(folds)
    outputs: tuple[Output, ...] = g.outputs
    for a in split:
        b = Axis(fresh_name(a.name, names), a.extent, a.kind)
        names.add(b.name)
        roles.setdefault(b, ("loop",) if a in stored else plan.roles.get(a, (plan.level(a),)))
        outputs = tuple(replaced(o, term=rebind(o.term, a, b)) for o in outputs)
        kept = tuple(_rename_fold(f, a, b) for f in kept)
        inherit(roles, outputs)
    return outputs, kept, roles


def is_inside(plan: Plan, a: Axis) -> bool:
    """Whether a block sees the whole axis."""
    return plan.level(a) in LOOPS or plan.level(a) == "whole"


def inherit(roles: dict[Axis, Role], outputs: Sequence[Output]) -> None:
    """Axes whose extents changed with a renaming keep the role of the axis of their name."""
    by_name = {a.name: role for a, role in roles.items()}
    for a in axes_in([o.term for o in outputs]):
        if a not in roles and a.name in by_name:
            roles[a] = by_name[a.name]


def fresh_name(name: str, taken: Iterable[str]) -> str:
    used = set(taken)
    return next(f"{name}_{n}" for n in range(2, len(used) + 3) if f"{name}_{n}" not in used)


def _rename_fold(fold: Fold, a: Axis, b: Axis) -> Fold:
    members = tuple(rebind_reduce(m, a, b) for m in fold.members)
    return Fold(b if fold.axis is a else fold.axis, members, fold.carry, fold.absorbing)


def rebind(term: Term, a: Axis, b: Axis) -> Term:
    """Reductions over a become reductions over b, all the way down; free occurrences of a stay."""
    made: dict[Term, Term] = {}
    for t in walk(term):
        new = rebuild(t, [made[c] for c in children(t)]) if children(t) else t
        if isinstance(new, Reduce) and new.axis is a:
            new = Reduce(new.op, b, rename_axis(new.body, a, b))
        made[t] = new
    return made[term]


def rebind_reduce(r: Reduce, a: Axis, b: Axis) -> Reduce:
    made = rebind(r, a, b)
    assert isinstance(made, Reduce)
    return made
