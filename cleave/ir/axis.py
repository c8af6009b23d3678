"""Axes: a name and an extent. The extent may read integer inputs at outer axes (ragged), and those axes are part of it.

Splitting axis t with count S and chunk length C (a symbol of its own, S * C >= t) gives two axes:

    t_o  of extent S                            kind "outer"
    t_i  of extent max(min(C, t - t_o * C), 0)  kind "inner", a ragged axis: the tail is no padding

and position t is t_o * C + t_i.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from cleave.ir.index import Index, IndexLike, Position, axes_of, index, maximum, minimum, of
from cleave.ir.intern import Interned, Node, node

AxisKind = Literal["plain", "outer", "inner"]


@node
class Axis(Node, metaclass=Interned):
    name: str
    extent: Index
    kind: AxisKind = "plain"

    def __repr__(self) -> str:
        return self.name

    @property
    def position(self) -> Index:
        return of(Position(self))


def axis(name: str, extent: IndexLike) -> Axis:
    return Axis(name, index(extent))


def owners(a: Axis) -> frozenset[Axis]:
    """Every axis that the extent depends on, directly or through the extents of others."""
    direct = axes_of(a.extent)
    return direct.union(*(owners(b) for b in direct))


def owners_first(axes: Iterable[Axis]) -> list[Axis]:
    """Axes in an order in which each comes after those that its extent depends on."""
    return sorted(axes, key=lambda a: (len(owners(a)), a.name))


@dataclass(frozen=True)
class SplitAxis:
    """What splitting an axis gives: position of ``base`` = ``outer * chunk + inner``."""

    base: Axis
    outer: Axis
    inner: Axis
    chunk: Index

    @property
    def position(self) -> Index:
        return self.outer.position * self.chunk + self.inner.position


def split_axis(base: Axis, count: IndexLike, chunk: IndexLike) -> SplitAxis:
    length = index(chunk)
    outer = Axis(f"{base.name}_o", index(count), "outer")
    inner = Axis(f"{base.name}_i", rest(base.extent, outer, length), "inner")
    return SplitAxis(base, outer, inner, length)


def rest(extent: Index, outer: Axis, chunk: Index) -> Index:
    """What a chunk holds of an extent."""
    return maximum(minimum(chunk, extent - outer.position * chunk), 0)
