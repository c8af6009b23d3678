"""Nodes and arithmetic of integer expressions over dims, axes and integer inputs, and of predicates over them.

    Index  ::= canonical polynomial: integer coefficients over products of atoms
    Atom   ::= Symbol name | Position axis | Read input [Index ..] | Floor a b | Mod a b | Min a b | Max a b
    Pred   ::= Compare (< <= ==) a b | BoolRead input [Index ..] | And p q | Or p q | Not p

A *dim* is an Index without axes and inputs (see ``dim.py``). Equal polynomials are the same object, so
``(kv * R + r) // R`` with r an axis of extent R simply *is* ``kv``. Ceil division is ``-(-a // b)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from cleave.errors import GraphError
from cleave.ir.intern import Interned, Node, node

if TYPE_CHECKING:
    from cleave.ir.axis import Axis


@node
class Symbol(Node, metaclass=Interned):
    """A named non-negative integer and what is known: ``minimum <= value <= maximum``, ``value % multiple == 0``."""

    name: str
    minimum: int = 0
    maximum: int | None = None
    multiple: int = 1

    @property
    def value(self) -> int | None:
        """The value, if the range leaves only one."""
        return self.minimum if self.minimum == self.maximum else None


@node
class Position(Node, metaclass=Interned):
    """Where we are on an axis."""

    axis: Axis


@node
class Read(Node, metaclass=Interned):
    """An element of an integer input."""

    input: str
    indices: tuple[Index, ...]


@node
class Floor(Node, metaclass=Interned):
    """Floor division."""

    left: Index
    right: Index


@node
class Mod(Node, metaclass=Interned):
    left: Index
    right: Index


@node
class Min(Node, metaclass=Interned):
    left: Index
    right: Index


@node
class Max(Node, metaclass=Interned):
    left: Index
    right: Index


Atom: TypeAlias = Symbol | Position | Read | Floor | Mod | Min | Max
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]
IndexLike: TypeAlias = "Index | Axis | int | str"


@node
class Index(Node, metaclass=Interned):
    """A polynomial: ``terms`` are (monomial, coefficient) in canonical order, the constant under the empty monomial."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: IndexLike) -> Index:
        return NotImplemented if _foreign(other) else _sum((self, 1), (index(other), 1))

    def __radd__(self, other: IndexLike) -> Index:
        return index(other) + self

    def __sub__(self, other: IndexLike) -> Index:
        return NotImplemented if _foreign(other) else _sum((self, 1), (index(other), -1))

    def __rsub__(self, other: IndexLike) -> Index:
        return index(other) - self

    def __neg__(self) -> Index:
        return _sum((self, -1))

    def __mul__(self, other: IndexLike) -> Index:
        return NotImplemented if _foreign(other) else _product(self, index(other))

    def __rmul__(self, other: IndexLike) -> Index:
        return index(other) * self

    def __floordiv__(self, other: IndexLike) -> Index:
        return NotImplemented if _foreign(other) else _floor(self, index(other))

    def __rfloordiv__(self, other: IndexLike) -> Index:
        return index(other) // self

    def __mod__(self, other: IndexLike) -> Index:
        return NotImplemented if _foreign(other) else _mod(self, index(other))

    def __rmod__(self, other: IndexLike) -> Index:
        return index(other) % self

    def __lt__(self, other: IndexLike) -> Pred:
        return NotImplemented if _foreign(other) else compare("<", self, index(other))

    def __le__(self, other: IndexLike) -> Pred:
        return NotImplemented if _foreign(other) else compare("<=", self, index(other))

    def __gt__(self, other: IndexLike) -> Pred:
        return NotImplemented if _foreign(other) else compare("<", index(other), self)

    def __ge__(self, other: IndexLike) -> Pred:
        return NotImplemented if _foreign(other) else compare("<=", index(other), self)

    def __repr__(self) -> str:
        return show(self)

    def __bool__(self) -> bool:
        raise GraphError(f"{self} has no truth value: it is symbolic")

    @property
    def constant(self) -> int | None:
        """The value if there is nothing symbolic in it; a symbol with one possible value counts as symbolic."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def atom(self) -> Atom | None:
        """The atom if the polynomial is exactly one."""
        match self.terms:
            case ((((atom, 1),), 1),):
                return atom
            case _:
                return None

    def atoms(self) -> tuple[Atom, ...]:
        return tuple(dict.fromkeys(a for monomial, _ in self.terms for a, _ in monomial))

    def linear_in(self, atom: Atom) -> tuple[Index, Index] | None:
        """(c, rest) with self = c * atom + rest, both free of the atom; None if it is not of that form."""
        coefficient, rest = cast("dict[Monomial, int]", {}), cast("dict[Monomial, int]", {})
        for monomial, c in self.terms:
            powers = dict(monomial)
            others = tuple((a, p) for a, p in monomial if a is not atom)
            if powers.get(atom, 0) > 1 or any(mentions(a, atom) for a, _ in others):
                return None
            (coefficient if atom in powers else rest)[others] = c
        return _make(coefficient), _make(rest)


# ---- predicates


class _Logic(Node):
    __slots__ = ()

    def __and__(self, other: Pred) -> Pred:
        return both(cast("Pred", self), other)

    def __or__(self, other: Pred) -> Pred:
        return Or(cast("Pred", self), other)

    def __invert__(self) -> Pred:
        return Not(cast("Pred", self))

    def __bool__(self) -> bool:
        raise GraphError(f"{self} has no truth value: it is symbolic; use & | ~ and where()")

    def __repr__(self) -> str:
        return show_pred(cast("Pred", self))


@node
class Compare(_Logic, metaclass=Interned):
    op: str
    left: Index
    right: Index


@node
class BoolRead(_Logic, metaclass=Interned):
    """An element of a boolean input."""

    input: str
    indices: tuple[Index, ...]


@node
class And(_Logic, metaclass=Interned):
    left: Pred
    right: Pred


@node
class Or(_Logic, metaclass=Interned):
    left: Pred
    right: Pred


@node
class Not(_Logic, metaclass=Interned):
    operand: Pred


Pred: TypeAlias = Compare | BoolRead | And | Or | Not


def compare(op: str, left: IndexLike, right: IndexLike) -> Pred:
    if op not in ("<", "<=", "=="):
        raise GraphError(f"comparison {op!r}: allowed are <, <= and ==")
    return Compare(op, index(left), index(right))


def both(left: Pred, right: Pred) -> Pred:
    return left if left is right else And(left, right)


def conjuncts(pred: Pred) -> tuple[Pred, ...]:
    """p and q and r -> (p, q, r)."""
    return conjuncts(pred.left) + conjuncts(pred.right) if isinstance(pred, And) else (pred,)


# ---- making


def index(value: IndexLike) -> Index:
    """An Index from an integer, an axis (its position) or the name of a symbol."""
    from cleave.ir.axis import Axis

    match value:
        case Index():
            return value
        case bool():
            raise GraphError(f"{value} is no index")
        case int():
            return _make({(): value})
        case str():
            return of(Symbol(value))
        case Axis():
            return of(Position(value))
    if isinstance(value, np.integer):
        return _make({(): int(value)})
    raise GraphError(f"{value!r} is no index: an integer, a dim, an axis or an expression of them is")


def _foreign(value: object) -> bool:
    """Of a type that may know itself how to combine with an Index (a traced tensor does)."""
    return hasattr(type(value), "__radd__") and not isinstance(value, (Index, int, float, complex, np.generic))


def of(atom: Atom) -> Index:
    return Index(((((atom, 1),), 1),))


def read(name: str, *indices: IndexLike) -> Index:
    return of(Read(name, tuple(index(i) for i in indices)))


def minimum(a: IndexLike, b: IndexLike) -> Index:
    return _extreme(index(a), index(b), Min)


def maximum(a: IndexLike, b: IndexLike) -> Index:
    return _extreme(index(a), index(b), Max)


def ceildiv(a: IndexLike, b: IndexLike) -> Index:
    return -((-index(a)) // index(b))


def _make(terms: Mapping[Monomial, int]) -> Index:
    kept = [(m, c) for m, c in terms.items() if c != 0]
    return Index(tuple(sorted(kept, key=lambda term: (not term[0], _monomial_key(term[0])))))


def _sum(*parts: tuple[Index, int]) -> Index:
    out: dict[Monomial, int] = {}
    for part, sign in parts:
        for monomial, c in part.terms:
            out[monomial] = out.get(monomial, 0) + sign * c
    return _make(out)


def _product(a: Index, b: Index) -> Index:
    out: dict[Monomial, int] = {}
    for m, c in a.terms:
        for n, d in b.terms:
            monomial = _multiply(m, n)
            out[monomial] = out.get(monomial, 0) + c * d
    return _make(out)


def _multiply(m: Monomial, n: Monomial) -> Monomial:
    powers: dict[Atom, int] = dict(m)
    for atom, power in n:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: key(item[0])))


def _divided(a: Index, b: Index) -> tuple[Index, Index]:
    """(q, r) with a = q * b + r, taking out of each term what b divides; b a single term."""
    if len(b.terms) != 1:
        return (index(1), index(0)) if a is b else (index(0), a)
    divisor, factor = b.terms[0]
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, c in a.terms:
        powers = dict(monomial)
        fits = all(powers.get(atom, 0) >= power for atom, power in divisor)
        q = _quotient(c, factor, constant=not monomial) if fits else 0
        if q:
            left = tuple((x, p - dict(divisor).get(x, 0)) for x, p in monomial if p > dict(divisor).get(x, 0))
            quotient[left] = quotient.get(left, 0) + q
        if c - q * factor:
            rest[monomial] = c - q * factor
    return _make(quotient), _make(rest)


def _quotient(c: int, factor: int, *, constant: bool) -> int:
    """How often a coefficient is taken out of a floor: constants down to 0 .. factor − 1, others towards 0.

    So ceil division of m by 16 stays −(−m // 16): nothing in it is larger than m.
    """
    return c // factor if constant or c >= 0 else -(-c // factor)


def _within(a: Index, b: Index) -> bool:
    """0 <= a < b for sure: a position on an axis of exactly that extent, or by ranges of positions and constants."""
    atom = a.atom
    if isinstance(atom, Position) and atom.axis.extent is b:
        return True
    limit, greatest = _value(b), _greatest(a)
    return limit is not None and greatest is not None and greatest < limit


def _value(extent: Index) -> int | None:
    """A constant, or the value of a symbol that has only one."""
    atom = extent.atom
    return atom.value if isinstance(atom, Symbol) else extent.constant


def _greatest(a: Index) -> int | None:
    """An upper bound of a sum of positions on axes of known extent, none of them subtracted; so the sum is >= 0."""
    total = 0
    for monomial, c in a.terms:
        if c < 0:
            return None
        reach = c
        for atom, power in monomial:
            extent = _value(atom.axis.extent) if isinstance(atom, Position) else None
            if extent is None:
                return None
            reach *= max(extent - 1, 0) ** power
        total += reach
    return total


def _floor(a: Index, b: Index) -> Index:
    if b.constant == 0:
        raise GraphError(f"{a} // 0")
    if b.constant == 1:
        return a
    quotient, rest = _divided(a, b)
    if rest.constant == 0 or _within(rest, b):
        return quotient
    return quotient + of(Floor(rest, b))


def _mod(a: Index, b: Index) -> Index:
    if b.constant == 0:
        raise GraphError(f"{a} % 0")
    _, rest = _divided(a, b)
    if rest.constant == 0 or b.constant == 1:
        return index(0)
    return rest if _within(rest, b) else of(Mod(rest, b))


def _extreme(a: Index, b: Index, which: type[Min] | type[Max]) -> Index:
    difference = (a - b).constant
    if difference is not None:
        return a if (difference <= 0) == (which is Min) else b
    first, second = sorted((a, b), key=spell)
    return of(which(first, second))


def parts(atom: Atom) -> tuple[Index, ...]:
    """The expressions inside an atom."""
    match atom:
        case Read(_, indices):
            return indices
        case Floor(a, b) | Mod(a, b) | Min(a, b) | Max(a, b):
            return (a, b)
        case Position(axis):
            return (axis.extent,)
        case Symbol():
            return ()


def mentions(atom: Atom, wanted: Atom) -> bool:
    """Whether the value of an atom can change with another; a position does not with what its axis' extent reads."""
    if atom is wanted:
        return True
    inside = () if isinstance(atom, Position) else parts(atom)
    return any(mentions(a, wanted) for part in inside for a in part.atoms())


@cache
def axes_of(expression: Index) -> frozenset[Axis]:
    """Axes whose position the value depends on (not those that only their extents read)."""
    found: set[Axis] = set()
    for atom in expression.atoms():
        if isinstance(atom, Position):
            found.add(atom.axis)
        else:
            found.update(*(axes_of(p) for p in parts(atom)))
    return frozenset(found)


# ---- text


@cache
def key(atom: Atom) -> str:
    """Total order of atoms: their text, with the extents of axes so that equal names stay apart."""
    if isinstance(atom, Symbol):
        return f"{atom.name}:{atom.minimum}:{atom.maximum}:{atom.multiple}"
    if isinstance(atom, Position):
        return f"{atom.axis.name}:{spell(atom.axis.extent)}:{atom.axis.kind}"
    return _spell_atom(atom, "dim.")


def _monomial_key(monomial: Monomial) -> tuple[tuple[str, int], ...]:
    return tuple((key(a), p) for a, p in monomial)


def _spell_atom(atom: Atom, prefix: str) -> str:
    def sub(i: Index) -> str:
        return _spelt(i, prefix)

    match atom:
        case Symbol(name):
            return prefix + name
        case Position(axis):
            return axis.name
        case Read(name, indices):
            return f"{name}[{', '.join(map(sub, indices))}]"
        case Floor(a, b):
            return f"({_operand(sub(a))} // {_operand(sub(b))})"
        case Mod(a, b):
            return f"({_operand(sub(a))} % {_operand(sub(b))})"
        case Min(a, b):
            return f"min({sub(a)}, {sub(b)})"
        case Max(a, b):
            return f"max({sub(a)}, {sub(b)})"


def _operand(text: str) -> str:
    """In parentheses unless it is a name or a number."""
    return text if text.replace(".", "").replace("_", "").isalnum() else f"({text})"


@cache
def _spelt(expression: Index, prefix: str) -> str:
    if not expression.terms:
        return "0"
    out = ""
    for monomial, c in sorted(expression.terms, key=lambda term: term[1] < 0):
        factors = [_spell_atom(a, prefix) for a, p in monomial for _ in range(p)]
        body = "*".join(factors)
        size = abs(c)
        piece = str(size) if not body else body if size == 1 else f"{size}*{body}"
        out += (" - " if c < 0 else " + ") + piece if out else ("-" if c < 0 else "") + piece
    return out


def spell(expression: Index) -> str:
    """Python syntax that parses back: a dim is ``dim.t``, since axis t and dim t may meet in one expression."""
    return _spelt(expression, "dim.")


def show(expression: Index) -> str:
    """For people: dims without the prefix where no axis can be confused with them."""
    return _spelt(expression, "dim." if axes_of(expression) else "")


def show_pred(pred: Pred) -> str:
    match pred:
        case Compare(op, a, b):
            return f"{spell(a)} {op} {spell(b)}"
        case BoolRead(name, indices):
            return f"{name}[{', '.join(map(spell, indices))}]"
        case And(p, q):
            return f"({show_pred(p)}) & ({show_pred(q)})"
        case Or(p, q):
            return f"({show_pred(p)}) | ({show_pred(q)})"
        case Not(p):
            return f"~({show_pred(p)})"
