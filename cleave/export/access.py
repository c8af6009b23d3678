"""Index expressions as an array library reads them: runs of whole axes, bounds of ragged extents.

kv * group + g, axes kv and g in full      a run: the dimension of the buffer taken apart into (kv, g)
5                                          a run without axes: one position
table[b, t // 16], i + kv_len[b], 2 * d    no run: positions are computed and the buffer is gathered
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from cleave.ir.axis import Axis, owners
from cleave.ir.index import (
    Atom,
    Floor,
    Index,
    Max,
    Min,
    Position,
    Symbol,
    axes_of,
    index,
    inputs_of,
    maximum,
    minimum,
    of,
    parts,
    substitute,
    symbols_of,
)


@dataclass(frozen=True)
class Run:
    """``start + ((a0 * |a1| + a1) * |a2| + a2) ..``: consecutive positions, the last axis fastest."""

    axes: tuple[Axis, ...]
    start: Index

    @property
    def length(self) -> Index:
        return reduce(lambda n, a: n * a.extent, self.axes, index(1))


def is_ragged(a: Axis) -> bool:
    """Whether the extent is not one number for all positions of the other axes."""
    return bool(axes_of(a.extent))


def settled(i: Index, values: Mapping[str, int]) -> Index:
    """The expression with the dims that have one value replaced by it."""
    fixed: dict[Atom, Index] = {}
    for s in symbols_of(i):
        value = values.get(s.name, s.value)
        if value is not None:
            fixed[s] = index(value)
    return substitute(i, fixed) if fixed else i


def run_of(i: Index, values: Mapping[str, int]) -> Run | None:
    """The run that an index expression is, None if it is none; ``values`` are those of fixed dims."""
    axes = axes_of(i)
    if inputs_of(i) or any(is_ragged(a) or inputs_of(a.extent) for a in axes):
        return None
    strides: dict[Axis, Index] = {}
    start = i
    for a in axes:
        linear = start.linear_in(Position(a))
        if linear is None or axes_of(linear[0]):
            return None
        strides[a], start = settled(linear[0], values), linear[1]
    if axes_of(start):
        return None
    expected, order = index(1), list[Axis]()
    while strides:
        # Of two with one stride, the one of extent 1 is innermost: the other's stride is then the next expected.
        found = [a for a, stride in strides.items() if stride is expected]
        if not found:
            return None
        chosen = min(found, key=lambda a: (settled(a.extent, values).constant != 1, a.name))
        order.append(chosen)
        expected = expected * settled(chosen.extent, values)
        del strides[chosen]
    return Run(tuple(reversed(order)), start)


def plain_runs(indices: Sequence[Index], values: Mapping[str, int]) -> list[Run | None]:
    """Per index its run; None where it is none, or shares an axis with another index or with that one's extents."""
    runs = [run_of(i, values) for i in indices]
    along = [axes_of(i).union(*(owners(a) for a in axes_of(i))) for i in indices]
    for number, i in enumerate(indices):
        if any(axes_of(i) & axes for k, axes in enumerate(along) if k != number):
            runs[number] = None
    return runs


def bound(i: Index, *, upper: bool = True) -> Index | None:
    """A dim that an expression over axes never exceeds (never falls below); None if that takes more than its shape.

    max(0, min(C, t - C * t_o))  ->  max(0, min(C, t)):  the first chunk of a split is the longest.
    """
    total = index(0)
    for monomial, c in i.terms:
        inside = [(atom, power) for atom, power in monomial if not isinstance(atom, Symbol)]
        rest = reduce(lambda n, s: n * of(s[0]), _symbols(monomial), index(c))
        if not inside:
            total = total + rest
            continue
        limit = _atom_bound(inside[0][0], upper=upper == (c > 0)) if [p for _, p in inside] == [1] else None
        if limit is None:
            return None
        total = total + rest * limit
    return total


def _symbols(monomial: Sequence[tuple[Atom, int]]) -> list[tuple[Atom, int]]:
    return [(atom, 1) for atom, power in monomial if isinstance(atom, Symbol) for _ in range(power)]


def _atom_bound(atom: Atom, *, upper: bool) -> Index | None:
    if not isinstance(atom, Position) and not any(axes_of(p) or inputs_of(p) for p in parts(atom)):
        return of(atom)
    match atom:
        case Position(axis):
            extent = bound(axis.extent) if upper else index(1)
            return None if extent is None else extent - 1
        case Min(a, b) | Max(a, b):
            left, right = bound(a, upper=upper), bound(b, upper=upper)
            if left is None or right is None:
                return None
            return minimum(left, right) if isinstance(atom, Min) else maximum(left, right)
        case Floor(a, b) if (b.constant or 0) > 0:
            limit = bound(a, upper=upper)
            return None if limit is None else limit // b
        case _:
            return None
