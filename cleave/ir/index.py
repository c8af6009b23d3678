"""Integer expressions and predicates: what they depend on, substitution, and their values.

The nodes and their arithmetic are in ``polynomial.py`` and are importable from here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cleave.errors import GraphError
from cleave.ir.polynomial import (
    And,
    Atom,
    BoolRead,
    Compare,
    Floor,
    Index,
    IndexLike,
    Max,
    Min,
    Mod,
    Monomial,
    Not,
    Or,
    Position,
    Pred,
    Read,
    Symbol,
    axes_of,
    both,
    ceildiv,
    compare,
    conjuncts,
    index,
    key,
    maximum,
    mentions,
    minimum,
    of,
    parts,
    read,
    show,
    show_pred,
    spell,
)

if TYPE_CHECKING:
    from cleave.ir.axis import Axis

__all__ = [
    "And",
    "Atom",
    "BoolRead",
    "Compare",
    "Environment",
    "Floor",
    "Index",
    "IndexLike",
    "Max",
    "Min",
    "Mod",
    "Monomial",
    "Not",
    "Or",
    "Position",
    "Pred",
    "Read",
    "Symbol",
    "axes_of",
    "both",
    "ceildiv",
    "compare",
    "conjuncts",
    "evaluate",
    "evaluate_pred",
    "index",
    "indices_of",
    "inputs_of",
    "key",
    "maximum",
    "mentions",
    "minimum",
    "of",
    "parts",
    "pred_axes",
    "pred_inputs",
    "read",
    "read_clipped",
    "show",
    "show_pred",
    "spell",
    "substitute",
    "substitute_pred",
    "symbols_of",
]

Environment: TypeAlias = Mapping[Any, Any]
"""Values of symbols (by name) and positions of axes (by Axis object): integers or integer arrays that broadcast."""

# ---- what an expression depends on


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


def nonnegative(expression: Index) -> bool:
    """Surely not negative: plain division is floor division then."""
    return all(c > 0 and all(_nonnegative_atom(a) for a, _ in monomial) for monomial, c in expression.terms)


def _nonnegative_atom(atom: Atom) -> bool:
    match atom:
        case Symbol() | Position():
            return True
        case Max(a, b):
            return nonnegative(a) or nonnegative(b)
        case Min(a, b) | Floor(a, b) | Mod(a, b):
            return nonnegative(a) and nonnegative(b)
        case Read():
            return False


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
    if mapping.keys().isdisjoint(_all_atoms(expression)):
        return expression
    total = index(0)
    for monomial, c in expression.terms:
        factors = [_substitute_atom(a, mapping) for a, p in monomial for _ in range(p)]
        total = total + reduce(lambda a, b: a * b, factors, index(c))
    return total


@cache
def _all_atoms(expression: Index) -> frozenset[Atom]:
    """Atoms at any depth; the extents of axes are not looked into, as in ``_substitute_atom``."""
    inside = (p for a in expression.atoms() if not isinstance(a, Position) for p in parts(a))
    return frozenset[Atom](expression.atoms()).union(*map(_all_atoms, inside))


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

    A read outside its input gives the nearest element: whoever evaluates at invalid positions must mask.
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
    positions = list(positions)
    if type(array) is np.ndarray and array.size and all(isinstance(p, int) for p in positions):  # many times as quick
        return array.item(*(min(max(p, 0), n - 1) for p, n in zip(positions, array.shape, strict=True)))
    where = [np.clip(p, 0, max(n - 1, 0)) for p, n in zip(positions, array.shape, strict=True)]
    if any(n == 0 for n in array.shape):
        return np.zeros(np.broadcast_shapes(*(np.shape(w) for w in where)), dtype=array.dtype)
    return array[tuple(where)]


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
