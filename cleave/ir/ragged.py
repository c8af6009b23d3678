"""Ragged extents: what is known of lengths that are read from inputs, from how a graph uses them.

    pointers   read at neighbours, p[i + 1] - p[i]; where p[i] + .. is a position in an array, they rise from 0 to its
               extent at most
    rests      added to a multiple of a difference of pointers, 16 * (p[i + 1] - p[i]) + r[i]: at most that multiple

The *average* of an extent is what it is if all requests are alike and arrays hold nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cleave.ir.index import Atom, Index, Position, Read, ceildiv, index, inputs_of, parts, substitute

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


def lengths(extents: Iterable[Index], places: Places) -> Lengths:
    """What integer inputs hold, as far as extents and positions in arrays tell."""
    wanted: dict[str, None] = {}
    rests: dict[str, int] = {}
    for extent in extents:
        for i in _inside(extent):
            for later, _, factor in _neighbours(i):
                wanted.setdefault(later.input)
                if factor > 1:
                    rests |= {a.input: factor for a, c in _reads(i) if c == 1}
    pointers: dict[str, Index] = {}
    for position, limit in places:
        for atom, factor in _reads(position):
            if factor == 1 and atom.input in wanted:
                pointers.setdefault(atom.input, limit)
    own = {name: most for name, most in rests.items() if name not in wanted}
    return Lengths(pointers, own, frozenset(wanted) - pointers.keys())


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
