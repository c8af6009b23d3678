"""What is known about an index over a tile: its greatest and least value, what divides it, if a predicate always holds.

Values are Index expressions over dims and corners (first and last positions of tiles), so they print like any other.
"""

from __future__ import annotations

from typing import Literal

from cleave.codegen.emission import Emission
from cleave.ir.index import (
    And,
    Atom,
    BoolRead,
    Compare,
    Floor,
    Index,
    Max,
    Min,
    Mod,
    Monomial,
    Not,
    Or,
    Position,
    Pred,
    Symbol,
    axes_of,
    index,
    maximum,
    minimum,
    nonnegative,
    of,
)
from cleave.tile.box import divisor

Way = Literal["greatest", "least"]
_OTHER: dict[Way, Way] = {"greatest": "least", "least": "greatest"}


def extreme(em: Emission, expression: Index, way: Way) -> Index | None:
    """The greatest or least value over the positions of the tile, or a bound beyond it; None if nothing is known."""
    total = index(0)
    for monomial, factor in expression.terms:
        part = _monomial(em, monomial, way if factor > 0 else _OTHER[way])
        if part is None:
            return None
        total = total + part * factor
    return total


def _monomial(em: Emission, monomial: Monomial, way: Way) -> Index | None:
    product, moving = index(1), [atom for atom, _ in monomial if varies(em, of(atom))]
    for atom, power in monomial:
        factor: Index | None = of(atom)
        if atom in moving:
            # a product of two moving factors, or one with a factor of unknown sign, is bounded by no corner
            others = [a for a, _ in monomial if a is not atom]
            if len(moving) > 1 or power > 1 or not all(nonnegative(of(a)) for a in others):
                return None
            factor = _atom(em, atom, way)
        if factor is None:
            return None
        for _ in range(power):
            product = product * factor
    return product


def _atom(em: Emission, atom: Atom, way: Way) -> Index | None:
    match atom:
        case Position(axis):
            return em.corner(axis, "last" if way == "greatest" else "first")
        case Min(a, b):
            return _joined(em, a, b, way, "least")
        case Max(a, b):
            return _joined(em, a, b, way, "greatest")
        case Floor(a, b) if not varies(em, b) and nonnegative(b):
            found = extreme(em, a, way)
            return None if found is None else found // b
        case _:
            return None


def _joined(em: Emission, a: Index, b: Index, way: Way, kind: Way) -> Index | None:
    """min(a, b) is at most either, so one known side bounds its greatest value; likewise max from below."""
    first, second = extreme(em, a, way), extreme(em, b, way)
    if first is None or second is None:
        return (second if first is None else first) if way == _OTHER[kind] else None
    return minimum(first, second) if kind == "least" else maximum(first, second)


def varies(em: Emission, expression: Index) -> bool:
    """Whether the value differs between positions of the tile."""
    return any(a not in em.program.unit for a in axes_of(expression))


def always(em: Emission, pred: Pred) -> Pred | None:
    """A predicate without positions that, if true, makes ``pred`` true over the whole tile; None if none is known."""
    match pred:
        case Compare(("<" | "<=") as op, a, b):
            most = extreme(em, em.fix(a - b), "greatest")
            return None if most is None else Compare(op, most, index(0))
        case And(p, q):
            first, second = always(em, p), always(em, q)
            return None if first is None or second is None else And(first, second)
        case Or(p, q):
            first, second = always(em, p), always(em, q)
            return Or(first, second) if first is not None and second is not None else first or second
        case Not(Compare("<", a, b)):
            return always(em, Compare("<=", b, a))
        case Not(Compare("<=", a, b)):
            return always(em, Compare("<", b, a))
        case Compare() | Not() | BoolRead():
            return None


def multiple_of(em: Emission, expression: Index) -> int:
    """A number that divides the value at all positions; 0 for the value 0."""
    return divisor(expression, em.symbol_multiple)


_FIRST_BEYOND = 2**31


def beyond_int(em: Emission, expression: Index) -> bool:
    """Whether a product in it may need more than 32 bits, as the number of an element in a whole array does."""
    return any(_product_bound(monomial, factor) >= _FIRST_BEYOND for monomial, factor in em.fix(expression).terms)


def _product_bound(monomial: Monomial, factor: int) -> int:
    """What a product is less than. A position or dim by itself fits; so does the start of a chunk, which lies about in
    the axis."""
    alone = sum(power for _, power in monomial) <= 1 and abs(factor) == 1
    if alone or any(isinstance(atom, Position) and atom.axis.kind == "outer" for atom, _ in monomial):
        return 0
    bound = abs(factor)
    for atom, power in monomial:
        bound *= _atom_bound(atom) ** power
    return bound


def _atom_bound(atom: Atom) -> int:
    match atom:
        case Symbol():
            return _FIRST_BEYOND if atom.maximum is None else atom.maximum
        case Position(axis):
            known = axis.extent.constant
            return _FIRST_BEYOND if known is None else known
        case Mod(_, b) if b.constant is not None:
            return abs(b.constant)
        case Min(a, b) if nonnegative(of(atom)) and (a.constant or b.constant):
            return a.constant or b.constant or 0
        case _:
            return _FIRST_BEYOND
