"""Roles of axes: the plan of one kernel, apart from sizes.

    unit    on the grid, one element a block (batch axes, axes that ragged extents read)
    grid    on the grid in tiles
    loop    a loop over tiles inside the block
    step    a loop over single elements inside the block
    whole   inside the block in one tile that covers the extent

A role is a list of levels, outermost first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cleave.errors import ScheduleError
from cleave.ir.axis import Axis, owners
from cleave.ir.graph import Output, axes_in
from cleave.ir.index import Index, axes_of
from cleave.tile.box import is_beside

Level = Literal["unit", "grid", "loop", "step", "whole"]
Role = tuple[Level, ...]
LOOPS: frozenset[Level] = frozenset({"loop", "step"})


@dataclass(frozen=True)
class Plan:
    """Roles, and what the lowering may do.

    fuse    reductions that share producers may share a loop (horizontal fusion)
    absorb  a fold of the candidate may join dependent reductions in one loop
    prune   predicates may shorten loops
    """

    roles: Mapping[Axis, Role] = field(default_factory=dict[Axis, Role])
    fuse: bool = True
    absorb: bool = True
    prune: bool = True

    def level(self, a: Axis) -> Level:
        """The only level of an axis; an axis nobody spoke of is looped over, outer axes of splits by single steps."""
        role = self.roles.get(a, ("step",) if a.kind == "outer" else ("loop",))
        if len(role) != 1:
            raise ScheduleError(
                f"role {' '.join(role)} is two levels: the axis has to be cut in two first", location=f"axis {a}"
            )
        return role[0]

    def text(self) -> str:
        return ", ".join(f"{a}: {' '.join(role)}" for a, role in self.roles.items())


def stored_axes(outputs: Iterable[Output]) -> tuple[Axis, ...]:
    """Axes that outputs are stored along, slowest first: in ``kv * R + r`` the axis with coefficient 1 comes last."""
    return tuple(dict.fromkeys(a for o in outputs for i in o.indices for a in _by_stride(i)))


def _by_stride(i: Index) -> list[Axis]:
    def rank(a: Axis) -> tuple[bool, str]:
        return is_beside(i, a), a.name

    return sorted(axes_of(i), key=rank)


def with_owners(axes: Iterable[Axis]) -> frozenset[Axis]:
    """Axes and those that their extents read."""
    own = frozenset(axes)
    return own.union(*(owners(a) for a in own))


def program_order(outputs: Iterable[Output]) -> tuple[Axis, ...]:
    """Axes as outputs store them, then the others by name; owners of ragged extents before what they own."""
    found: dict[Axis, None] = {}

    def add(a: Axis) -> None:
        for owner in sorted(axes_of(a.extent), key=lambda b: b.name):
            add(owner)
        found.setdefault(a)

    kept = tuple(outputs)
    for a in (*stored_axes(kept), *axes_in([o.term for o in kept])):
        add(a)
    return tuple(found)
