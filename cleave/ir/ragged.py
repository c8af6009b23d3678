"""Ragged extents: what is known of lengths that are read from inputs, from how a graph uses them.

    pointers   read at neighbours, p[i + 1] - p[i]; where p[i] + .. is a position in an array, they rise from 0 to its
               extent at most; or to P where min(p[i], P) is read
    rests      added to a multiple of a difference of pointers, 16 * (p[i + 1] - p[i]) + r[i]: at most that multiple

The *average* of an extent is what it is if all requests are alike and arrays hold nothing else.

Pieces of ragged extents may lie one request behind the other, found from the pointers alone:

    first(i) = floor(min(p[i], P) / L) + i        the place of the first piece of request i, P being the array's extent
    room(i)  = first(i + 1) - first(i)            places that it has: pieces of L elements always suffice

All requests together have floor(P / L) places and one more each, whatever the pointers hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cleave.ir.axis import Axis
from cleave.ir.index import (
    Atom,
    Floor,
    Index,
    Max,
    Min,
    Position,
    Read,
    axes_of,
    ceildiv,
    index,
    inputs_of,
    minimum,
    of,
    parts,
    substitute,
)

Places = Iterable[tuple[Index, Index]]
"""Positions in arrays, each with the extent of the array there."""


@dataclass(frozen=True)
class Lengths:
    """Tables by name: ``pointers`` with what their last element is at most, ``rests`` with what each element is;
    ``unbounded``: pointers of which no array says it."""

    pointers: Mapping[str, Index] = field(default_factory=dict[str, Index])
    rests: Mapping[str, int] = field(default_factory=dict[str, int])
    unbounded: frozenset[str] = frozenset()

    def average(self, extent: Index, count: Mapping[str, Index]) -> Index | None:
        """An extent over dims; ``count``: differences of pointers that a table has. None: it reads something else."""
        known: dict[Atom, Index] = {}
        for i in _inside(extent):
            for later, earlier, _ in _neighbours(i):
                if later.input in self.pointers:
                    known[later] = ceildiv(self.pointers[later.input], count[later.input])
                    known[earlier] = index(0)
        known |= {
            atom: index(self.rests[atom.input])
            for i in _inside(extent)
            for atom in i.atoms()
            if isinstance(atom, Read) and atom.input in self.rests
        }
        found = substitute(extent, known)
        return None if inputs_of(found) else found

    def table(self, extent: Index) -> Table | None:
        """Pointers that say what an extent is at most. None: it is no difference of neighbours, or longer."""
        match extent.atom:
            case Min(a, b):
                return self.table(a) or self.table(b)
            case Max(a, b) if not inputs_of(b) or not inputs_of(a):
                one, other = (a, b) if inputs_of(a) else (b, a)
                return self.table(one) if other.constant is not None and other.constant <= 0 else None
            case _:
                pass
        full: dict[Atom, Index] = {a: index(self.rests[a.input]) for a, _ in _reads(extent) if a.input in self.rests}
        most = substitute(extent, full)
        for later, earlier, factor in _neighbours(most):
            beyond = (most - (of(later) - of(earlier)) * factor).constant
            match earlier.indices:
                case (Index(atom=Position(owner)),) if beyond is not None and beyond <= 0:
                    limit = self.pointers.get(earlier.input)
                    return None if limit is None else Table(owner, of(earlier) * factor, limit * factor)
                case _:
                    pass
        return None


@dataclass(frozen=True)
class Table:
    """Where what requests have begins in an array: ``start`` at a position of ``owner``, ``limit`` the array's end."""

    owner: Axis
    start: Index
    limit: Index

    def packed(self, length: Index) -> Packing:
        """Pieces of so many elements."""
        first = minimum(self.start, self.limit) // length + self.owner.position
        return Packing(self.owner, first, self.limit // length + self.owner.extent)


@dataclass(frozen=True)
class Packing:
    """Places of pieces one request behind the other; ``first`` at a position of ``owner``, ``total`` places in all."""

    owner: Axis
    first: Index
    total: Index

    @property
    def room(self) -> Index:
        return _after(self.first, self.owner) - self.first


def _after(at: Index, owner: Axis) -> Index:
    return substitute(at, {Position(owner): owner.position + 1})


def rooms(extent: Index) -> Packing | None:
    """The packing whose places an extent does not exceed, read off the extent itself."""
    match extent.atom:
        case Min(a, b) | Max(a, b):
            return rooms(a) or rooms(b)
        case _:
            pass
    for monomial, factor in extent.terms:
        match monomial:
            case ((Floor(Index(atom=Min(a, b)), length) as earlier, 1),) if (
                factor == -1 and len(axes_of(of(earlier))) == 1
            ):
                (owner,) = axes_of(of(earlier))
                found = Packing(
                    owner, of(earlier) + owner.position, (b if inputs_of(a) else a) // length + owner.extent
                )
                if found.room is extent:
                    return found
            case _:
                pass
    return None


def lengths(extents: Iterable[Index], places: Places) -> Lengths:
    """What integer inputs hold, as far as extents and positions in arrays tell."""
    wanted: dict[str, None] = {}
    rests: dict[str, int] = {}
    limited: dict[str, Index] = {}
    for extent in extents:
        for i in _inside(extent):
            limited |= _limited(i)
            for later, _, factor in _neighbours(i):
                wanted.setdefault(later.input)
                if factor > 1:
                    rests |= {a.input: factor for a, c in _reads(i) if c == 1}
    pointers: dict[str, Index] = {}
    for position, limit in places:
        for atom, factor in _reads(position):
            if factor == 1 and atom.input in wanted:
                pointers.setdefault(atom.input, limit)
    pointers = limited | pointers
    own = {name: most for name, most in rests.items() if name not in wanted}
    return Lengths(pointers, own, frozenset(wanted) - pointers.keys())


def _limited(expression: Index) -> dict[str, Index]:
    """P, where min(p[i], P) stands: so places of pieces are found (``Packing``)."""
    match expression.atom:
        case Min(Index(atom=Read(input=name)), limit) | Min(limit, Index(atom=Read(input=name))) if not inputs_of(
            limit
        ):
            return {name: limit}
        case _:
            return {}


def positions(indices: Iterable[tuple[str, tuple[Index, ...]]], shapes: Mapping[str, tuple[Index, ...]]) -> Places:
    """Every position at which arrays are read, those inside other positions included."""
    for name, where in indices:
        for i, limit in zip(where, shapes.get(name, ()), strict=False):
            yield i, limit
            for inner in _inside(i):
                reads = (a for a in inner.atoms() if isinstance(a, Read))
                yield from positions(((a.input, a.indices) for a in reads), shapes)


def _inside(expression: Index) -> Iterator[Index]:
    """An expression and those in its atoms, positions of reads excepted."""
    yield expression
    for atom in expression.atoms():
        if not isinstance(atom, Position | Read):
            for part in parts(atom):
                yield from _inside(part)


def _reads(expression: Index) -> Iterator[tuple[Read, int]]:
    """Elements of inputs that are added, with their factors."""
    for monomial, factor in expression.terms:
        match monomial:
            case ((Read() as atom, 1),):
                yield atom, factor
            case _:
                pass


def _neighbours(expression: Index) -> Iterator[tuple[Read, Read, int]]:
    """(p[.., i + 1], p[.., i], factor) for every difference of neighbours."""
    found = list(_reads(expression))
    for later, factor in found:
        for earlier, other in found:
            if factor > 0 and other == -factor and later.input == earlier.input and _follows(later, earlier):
                yield later, earlier, factor


def _follows(later: Read, earlier: Read) -> bool:
    steps = [(a - b).constant for a, b in zip(later.indices, earlier.indices, strict=True)]
    return bool(steps) and steps[-1] == 1 and not any(steps[:-1])
