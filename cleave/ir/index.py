"""Integer expressions over dims, axes and integer inputs, and predicates over them.

    Index  ::= canonical polynomial: integer coefficients over products of atoms
    Atom   ::= Symbol name | Position axis | Read input [Index ..] | Floor a b | Mod a b | Min a b | Max a b
    Pred   ::= Compare (< <= ==) a b | BoolRead input [Index ..] | And p q | Or p q | Not p

A *dim* is an Index without axes and inputs (see ``dim.py``). Equal polynomials are the same object, so ``(kv * R + r) // R``
with r an axis of extent R simply *is* ``kv``. Ceil division is ``-(-a // b)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from typing import TYPE_CHECKING, Any, Union, cast

import numpy as np
from numpy.typing import NDArray

from cleave.errors import GraphError
from cleave.ir.intern import Interned, Node

if TYPE_CHECKING:
    from cleave.ir.axis import Axis

node = dataclass(frozen=True, eq=False, repr=False)
Environment = Mapping[Any, Any]
"""Values of symbols (by name) and positions of axes (by Axis object): integers or integer arrays that broadcast."""


@node
class Symbol(Node, metaclass=Interned):
    """A named non-negative integer with what is known about it: ``minimum <= value <= maximum``, ``value % multiple == 0``."""

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


Atom = Union[Symbol, Position, Read, Floor, Mod, Min, Max]
Monomial = tuple[tuple[Atom, int], ...]
IndexLike = Union["Index", "Axis", int, str]


@node
class Index(Node, metaclass=Interned):
    """A polynomial: ``terms`` are (monomial, coefficient) pairs in canonical order, the constant under the empty monomial."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: IndexLike) -> Index:
        return _sum((self, 1), (index(other), 1))

    def __radd__(self, other: IndexLike) -> Index:
        return index(other) + self

    def __sub__(self, other: IndexLike) -> Index:
        return _sum((self, 1), (index(other), -1))

    def __rsub__(self, other: IndexLike) -> Index:
        return index(other) - self

    def __neg__(self) -> Index:
        return _sum((self, -1))

    def __mul__(self, other: IndexLike) -> Index:
        return _product(self, index(other))

    def __rmul__(self, other: IndexLike) -> Index:
        return index(other) * self

    def __floordiv__(self, other: IndexLike) -> Index:
        return _floor(self, index(other))

    def __rfloordiv__(self, other: IndexLike) -> Index:
        return index(other) // self

    def __mod__(self, other: IndexLike) -> Index:
        return _mod(self, index(other))

    def __rmod__(self, other: IndexLike) -> Index:
        return index(other) % self

    def __lt__(self, other: IndexLike) -> Pred:
        return compare("<", self, index(other))

    def __le__(self, other: IndexLike) -> Pred:
        return compare("<=", self, index(other))

    def __gt__(self, other: IndexLike) -> Pred:
        return compare("<", index(other), self)

    def __ge__(self, other: IndexLike) -> Pred:
        return compare("<=", index(other), self)

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
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1 and self.terms[0][0][0][1] == 1:
            return self.terms[0][0][0][0]
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


Pred = Union[Compare, BoolRead, And, Or, Not]


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
    (divisor, factor), quotient, rest = b.terms[0], {}, {}
    for monomial, c in a.terms:
        powers = dict(monomial)
        fits = all(powers.get(atom, 0) >= power for atom, power in divisor)
        q = c // factor if fits else 0
        if q:
            left = tuple((x, p - dict(divisor).get(x, 0)) for x, p in monomial if p > dict(divisor).get(x, 0))
            quotient[left] = quotient.get(left, 0) + q
        if c - q * factor:
            rest[monomial] = c - q * factor
    return _make(quotient), _make(rest)


def _within(a: Index, b: Index) -> bool:
    """0 <= a < b for sure: zero, a small constant, or a position on an axis of exactly that extent."""
    from cleave.ir.axis import Axis

    atom = a.atom
    if isinstance(atom, Position):
        axis: Axis = atom.axis
        return axis.extent is b
    return a.constant is not None and b.constant is not None and 0 <= a.constant < b.constant


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


# ---- reading


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
    """Whether the value of an atom can change with another; a position does not change with what its axis' extent reads."""
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


@cache
def symbols_of(expression: Index) -> frozenset[Symbol]:
    """Symbols in the value, those of the axes' extents not counted."""
    found: set[Symbol] = set()
    for atom in expression.atoms():
        if isinstance(atom, Symbol):
            found.add(atom)
        elif not isinstance(atom, Position):
            found.update(*(symbols_of(p) for p in parts(atom)))
    return frozenset(found)


@cache
def inputs_of(expression: Index) -> frozenset[str]:
    """Integer inputs that the value reads."""
    found: set[str] = set()
    for atom in expression.atoms():
        if isinstance(atom, Read):
            found.add(atom.input)
        if not isinstance(atom, Position):
            found.update(*(inputs_of(p) for p in parts(atom)))
    return frozenset(found)


def indices_of(pred: Pred) -> tuple[Index, ...]:
    match pred:
        case Compare(_, a, b):
            return (a, b)
        case BoolRead(_, indices):
            return indices
        case And(p, q) | Or(p, q):
            return indices_of(p) + indices_of(q)
        case Not(p):
            return indices_of(p)


def pred_axes(pred: Pred) -> frozenset[Axis]:
    return frozenset[Any]().union(*(axes_of(i) for i in indices_of(pred)))


def pred_inputs(pred: Pred) -> frozenset[str]:
    """Integer and boolean inputs that a predicate reads."""
    own = frozenset[str]().union(*(inputs_of(i) for i in indices_of(pred)))
    match pred:
        case BoolRead(name, _):
            return own | {name}
        case And(p, q) | Or(p, q):
            return pred_inputs(p) | pred_inputs(q)
        case Not(p):
            return pred_inputs(p)
        case Compare():
            return own


# ---- substitution and evaluation


def substitute(expression: Index, mapping: Mapping[Atom, Index]) -> Index:
    """Replace atoms; the arithmetic is redone, so the result is canonical."""
    if not mapping:
        return expression
    total = index(0)
    for monomial, c in expression.terms:
        factors = (_power(_substitute_atom(a, mapping), p) for a, p in monomial)
        total = total + reduce(_product, factors, index(c))
    return total


def _power(base: Index, exponent: int) -> Index:
    return reduce(_product, [base] * exponent, index(1))


def _substitute_atom(atom: Atom, mapping: Mapping[Atom, Index]) -> Index:
    if atom in mapping:
        return mapping[atom]
    match atom:
        case Read(name, indices):
            return of(Read(name, tuple(substitute(i, mapping) for i in indices)))
        case Floor(a, b):
            return substitute(a, mapping) // substitute(b, mapping)
        case Mod(a, b):
            return substitute(a, mapping) % substitute(b, mapping)
        case Min(a, b):
            return minimum(substitute(a, mapping), substitute(b, mapping))
        case Max(a, b):
            return maximum(substitute(a, mapping), substitute(b, mapping))
        case Position() | Symbol():
            return of(atom)


def substitute_pred(pred: Pred, mapping: Mapping[Atom, Index]) -> Pred:
    match pred:
        case Compare(op, a, b):
            return Compare(op, substitute(a, mapping), substitute(b, mapping))
        case BoolRead(name, indices):
            return BoolRead(name, tuple(substitute(i, mapping) for i in indices))
        case And(p, q):
            return both(substitute_pred(p, mapping), substitute_pred(q, mapping))
        case Or(p, q):
            return Or(substitute_pred(p, mapping), substitute_pred(q, mapping))
        case Not(p):
            return Not(substitute_pred(p, mapping))


_ATOM_FUNCTIONS: dict[type[Any], Callable[[Any, Any], Any]] = {
    Floor: lambda a, b: a // b,
    Mod: lambda a, b: a % b,
    Min: np.minimum,
    Max: np.maximum,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {"<": np.less, "<=": np.less_equal, "==": np.equal}


def evaluate(expression: Index, environment: Environment, inputs: Mapping[str, NDArray[Any]] | None = None) -> Any:
    """Value under an environment: an int, or an integer array if positions are arrays.

    A read outside its input gives the nearest element: whoever evaluates at invalid positions must mask, see ``interp``.
    """
    total: Any = 0
    for monomial, c in expression.terms:
        product: Any = c
        for atom, power in monomial:
            product = product * _evaluate_atom(atom, environment, inputs) ** power
        total = total + product
    return total


def _evaluate_atom(atom: Atom, environment: Environment, inputs: Mapping[str, NDArray[Any]] | None) -> Any:
    match atom:
        case Symbol(name):
            if name in environment:
                return environment[name]
            if atom.value is None:
                raise GraphError(f"dim {name} has no value: bind it ({name}=...)")
            return atom.value
        case Position(axis):
            if axis not in environment:
                raise GraphError(f"axis {axis.name} has no position here")
            return environment[axis]
        case Read(name, indices):
            return read_clipped((inputs or {})[name], [evaluate(i, environment, inputs) for i in indices])
        case _:
            left, right = (evaluate(p, environment, inputs) for p in parts(atom))
            return _ATOM_FUNCTIONS[type(atom)](left, right)


def read_clipped(array: NDArray[Any], positions: Iterable[Any]) -> Any:
    where = [np.clip(p, 0, max(n - 1, 0)) for p, n in zip(positions, array.shape, strict=True)]
    if any(n == 0 for n in array.shape):
        return np.zeros(np.broadcast_shapes(*(np.shape(w) for w in where)), dtype=array.dtype)
    return array[tuple(np.broadcast_arrays(*where))] if where else array[()]


def evaluate_pred(pred: Pred, environment: Environment, inputs: Mapping[str, NDArray[Any]] | None = None) -> Any:
    match pred:
        case Compare(op, a, b):
            return _COMPARISONS[op](evaluate(a, environment, inputs), evaluate(b, environment, inputs))
        case BoolRead(name, indices):
            return read_clipped((inputs or {})[name], [evaluate(i, environment, inputs) for i in indices]) != 0
        case And(p, q):
            return evaluate_pred(p, environment, inputs) & evaluate_pred(q, environment, inputs)
        case Or(p, q):
            return evaluate_pred(p, environment, inputs) | evaluate_pred(q, environment, inputs)
        case Not(p):
            return ~np.asarray(evaluate_pred(p, environment, inputs))


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
            return f"({sub(a)}) // ({sub(b)})"
        case Mod(a, b):
            return f"({sub(a)}) % ({sub(b)})"
        case Min(a, b):
            return f"min({sub(a)}, {sub(b)})"
        case Max(a, b):
            return f"max({sub(a)}, {sub(b)})"


@cache
def _spelt(expression: Index, prefix: str) -> str:
    if not expression.terms:
        return "0"
    out = ""
    for monomial, c in sorted(expression.terms, key=lambda term: term[1] < 0):
        factors = [_spell_atom(a, prefix) for a, p in monomial for _ in range(p)]
        body = "*".join(f"({f})" if "//" in f or "%" in f else f for f in factors)
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
            return f"{name}[{', '.join(map(show, indices))}]"
        case And(p, q):
            return f"({show_pred(p)}) & ({show_pred(q)})"
        case Or(p, q):
            return f"({show_pred(p)}) | ({show_pred(q)})"
        case Not(p):
            return f"~({show_pred(p)})"
