"""Which axes of two operands are one axis.

As in NumPy, dimensions are compared from the last to the first, and a missing one or one of extent 1 fits any other.
Two axes fit when they have one name (or neither has a name) and one extent. Where that fails, axes are matched by
name alone, if one operand has all axes of the other. What is left is refused: NumPy would compare positions, and
names say that these differ. Integer expressions and masks are functions of named positions: there the axes of both
are simply put together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from cleave.errors import ShapeError
from cleave.frontend.context import fail
from cleave.frontend.spec import describe, is_anonymous, is_unit, same_extent
from cleave.ir.axis import Axis

Slots = Sequence[Axis]


@dataclass(frozen=True)
class Joint:
    """The axes of a result, and what axes of the right operand are called there."""

    slots: tuple[Axis, ...]
    renamed: dict[Axis, Axis]


def join(left: Slots, right: Slots, names: tuple[str, str], *, positions: bool = False) -> Joint:
    """The axes of an elementwise result; ``positions``: the operands are integer expressions or masks."""
    found = _by_position(left, right) or _by_name(left, right, names, positions=positions)
    if found is None:
        _refuse(left, right, names)
    return found


def _by_position(left: Slots, right: Slots) -> Joint | None:
    slots: list[Axis] = []
    renamed: dict[Axis, Axis] = {}
    for offset in range(1, max(len(left), len(right)) + 1):
        a = left[-offset] if offset <= len(left) else None
        b = right[-offset] if offset <= len(right) else None
        slot = _fitting(a, b)
        if slot is None:
            return None
        if b is not None and not is_unit(b) and slot is not b:
            renamed[b] = slot
        slots.insert(0, slot)
    kept = [a for a in slots if not is_unit(a)]
    return Joint(tuple(slots), renamed) if len(set(kept)) == len(kept) else None


def _fitting(a: Axis | None, b: Axis | None) -> Axis | None:
    if a is None or b is None:
        return a or b
    if is_unit(b):
        return a
    if is_unit(a):
        return b
    alike = a.name == b.name or (is_anonymous(a) and is_anonymous(b))
    return a if alike and same_extent(a.extent, b.extent) else None


def _by_name(left: Slots, right: Slots, names: tuple[str, str], *, positions: bool) -> Joint | None:
    ours = {a.name: a for a in left if not is_unit(a)}
    theirs = {a.name: a for a in right if not is_unit(a)}
    for name in ours.keys() & theirs.keys():
        check_extent(name, ours[name], theirs[name], names)
    renamed = {theirs[n]: ours[n] for n in ours.keys() & theirs.keys() if ours[n] is not theirs[n]}
    if theirs.keys() <= ours.keys():
        return Joint(tuple(left), renamed)
    if ours.keys() <= theirs.keys():
        return Joint(tuple(renamed.get(b, b) for b in right), renamed)
    if positions:
        return Joint((*left, *(b for b in right if b.name not in ours and not is_unit(b))), renamed)
    return None


def check_extent(name: str, a: Axis, b: Axis, names: tuple[str, str]) -> None:
    if not same_extent(a.extent, b.extent):
        extents = f"extent {describe(a.extent)} of {names[0]}, {describe(b.extent)} of {names[1]}"
        fail(f"axis {name}: {extents}", ShapeError)


def _refuse(left: Slots, right: Slots, names: tuple[str, str]) -> NoReturn:
    ours = [a for a in left if not is_unit(a) and a.name not in {b.name for b in right}]
    theirs = [b for b in right if not is_unit(b) and b.name not in {a.name for a in left}]
    one, other = (
        f"axis {a.name} (extent {describe(a.extent)}) of {owner}"
        for a, owner in zip((ours[-1], theirs[-1]), names, strict=True)
    )
    hint = "give them one name if they are one axis, or add an axis with None"
    fail(f"{one} and {other} do not match: {hint}", ShapeError)
