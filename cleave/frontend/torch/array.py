"""Arrays of an imported program: positional dimensions, each made of one or several axes.

A dimension of torch is a list of axes, the last of them fastest, and none if its extent is 1. Merging dimensions puts
lists together, taking one apart cuts a list, and where another array has it cut differently, an axis is replaced by a
digit expression of two. So the heads of ``view(b, s, h, d)`` and the groups of ``repeat_interleave`` are axes of their
own down to the loads, and a key head never mentions the query heads that share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from cleave.errors import ShapeError
from cleave.frontend.context import current
from cleave.frontend.tensor import Value, replaced
from cleave.ir.axis import Axis
from cleave.ir.dim import Dim
from cleave.ir.index import Index, Position, index, show, substitute

Axes = tuple[Axis, ...]


@dataclass(frozen=True, eq=False)
class Array:
    """``storage``: the type that torch gives it."""

    value: Value
    dims: tuple[Axes, ...]
    storage: str

    @property
    def axes(self) -> Axes:
        return tuple(a for axes in self.dims for a in axes)

    @property
    def shape(self) -> tuple[Dim, ...]:
        return tuple(map(extent, self.dims))


def extent(axes: Axes) -> Dim:
    return reduce(lambda n, a: n * a.extent, axes, index(1))


def position(axes: Axes) -> Index:
    """The position along a dimension."""
    return reduce(lambda p, a: p * a.extent + a.position, axes, index(0))


def new_axis(size: Dim, name: str = "a") -> Axis:
    return current().fresh(Axis(name, size))


def new_axes(size: Dim) -> Axes:
    """The axes of a new dimension."""
    return () if size.constant == 1 else (new_axis(size),)


def moved(x: Array, mapping: dict[Axis, Index], dims: Sequence[Axes]) -> Array:
    """Other dimensions, with index expressions over them in the place of the old axes."""
    return replace(x, value=replaced(x.value, mapping), dims=tuple(dims))


def renewed(x: Array) -> Array:
    """The same array over axes that occur nowhere else."""
    names = {a: new_axis(a.extent) for a in x.axes}
    mapping = {a: b.position for a, b in names.items()}
    return moved(x, mapping, [tuple(names[a] for a in axes) for axes in x.dims])


# ---- one dimension cut in two ways


@dataclass(frozen=True)
class Joint:
    """A dimension that two arrays share: its axes, and those of each array in terms of them."""

    axes: Axes
    left: dict[Axis, Index]
    right: dict[Axis, Index]


def unify(left: Axes, right: Axes) -> Joint:
    """The coarsest axes that both are made of; equal axes keep the left one's name.

    Errors: extents that are not the same (ShapeError).
    """
    if left == right:
        return Joint(left, {}, {})
    if extent(left) is not extent(right):
        raise ShapeError(f"extent {show(extent(left))} meets {show(extent(right))}")
    ours, theirs, joint = list(left), list(right), list[Axis]()
    first: dict[Axis, Index] = {}
    second: dict[Axis, Index] = {}
    while ours and theirs:
        a, b = ours.pop(), theirs.pop()
        if a.extent is b.extent:
            _put(second, b, a.position)
            joint.insert(0, a)
        elif divides(b.extent, a.extent):
            high, low = _cut(first, a, b.extent)
            _put(second, b, low.position)
            joint.insert(0, low)
            ours.append(high)
        elif divides(a.extent, b.extent):
            high, low = _cut(second, b, a.extent)
            _put(second, low, a.position)
            joint.insert(0, a)
            theirs.append(high)
        else:
            whole = new_axis(extent(left))
            return Joint((whole,), digits(whole.position, left), digits(whole.position, right))
    return Joint(tuple(joint), first, second)


def _cut(mapping: dict[Axis, Index], old: Axis, low: Dim) -> tuple[Axis, Axis]:
    """old -> high · low + rest"""
    high, rest = new_axis(old.extent // low), new_axis(low)
    _put(mapping, old, high.position * low + rest.position)
    return high, rest


def _put(mapping: dict[Axis, Index], old: Axis, place: Index) -> None:
    for a in mapping:
        mapping[a] = substitute(mapping[a], {Position(old): place})
    mapping.setdefault(old, place)


def divides(divisor: Dim, n: Dim) -> bool:
    return divisor.constant != 0 and (n // divisor) * divisor is n


def digits(flat: Index, axes: Sequence[Axis]) -> dict[Axis, Index]:
    """The position along each axis from the one along all of them."""
    out: dict[Axis, Index] = {}
    stride = index(1)
    for number, a in reversed(list(enumerate(axes))):
        if stride.constant == 0 or a.extent.constant == 0:  # nothing is there
            out[a] = index(0)
        else:
            out[a] = flat // stride if number == 0 else (flat // stride) % a.extent
        stride = stride * a.extent
    return out


# ---- several arrays


@dataclass
class Group:
    """Arrays over shared axes, put together one after the other; ``values`` in that order."""

    values: list[Value]
    axes: dict[object, Axes]
    """Per dimension, under whatever the caller calls it."""

    def add(self, x: Array, names: Sequence[object]) -> None:
        """One more array, whose dimensions have these names; an extent of 1 fits any other."""
        there = {n: axes for n, axes in zip(names, x.dims, strict=True)}
        used = {a for n, axes in self.axes.items() for a in axes if there.get(n) != axes}
        if used & set(x.axes):
            x = renewed(x)
        own: dict[Axis, Index] = {}
        for name, axes in zip(names, x.dims, strict=True):
            before = self.axes.get(name, ())
            if not axes or not before:
                self.axes[name] = before or axes
                continue
            joint = unify(before, axes)
            self.axes[name] = joint.axes
            own |= joint.right
            if joint.left:
                self.values = [replaced(v, joint.left) for v in self.values]
        self.values.append(replaced(x.value, own))


def broadcast(*xs: Array) -> tuple[list[Value], tuple[Axes, ...]]:
    """Values over the dimensions of all, matched from the last one as NumPy does."""
    rank = max(len(x.dims) for x in xs)
    group = Group([], {})
    for x in xs:
        group.add(x, range(rank - len(x.dims), rank))
    return group.values, tuple(group.axes.get(n, ()) for n in range(rank))
