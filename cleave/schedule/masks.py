"""What a value is where an axis has no element, or where a predicate is false, by abstract interpretation.

    a number    exactly that
    FINITE      unknown and surely finite, at every position: 0 times it is 0
    ANY         may be infinite or NaN

Inputs are taken as finite. Facts belong to emitted values, not to terms: one term can be emitted before and after
its mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

import numpy as np

from cleave.ir.axis import Axis
from cleave.ir.graph import Cast, Const, IndexValue, Load, Map, Reduce, Ref, Term, TopK, Where, free, walk
from cleave.ir.index import Pred, conjuncts
from cleave.ir.op import MAPS, MONOIDS
from cleave.tile.program import Contract, TileTerm


class Unknown(Enum):
    FINITE = "finite"
    ANY = "any"


Fact = float | Unknown
FINITE, ANY = Unknown.FINITE, Unknown.ANY

_TOTAL_ON_FINITE = frozenset(
    {"add", "sub", "mul", "maximum", "minimum", "neg", "abs", "sq", "round", "tanh", "sigmoid", "silu"}
)
"""Operations that are finite on finite operands; overflow of the storage type is the verifier's business."""


def beyond(term: TileTerm, a: Axis, known: Callable[[Term], Fact | None]) -> Fact:
    """The value of a term at positions beyond the end of an axis; ``known`` answers for values that were emitted
    already."""
    return _fact(term, known, lambda load: 0.0 if a in free(load) else FINITE, lambda w: None, a)


def without(term: Term, pred: Pred) -> Fact:
    """The value of a graph term where a predicate is false."""

    def branch(where: Where) -> Term | None:
        return where.otherwise if pred in conjuncts(where.pred) else None

    memo: dict[Term, Fact] = {}

    def known(t: Term) -> Fact | None:
        return memo.get(t, ANY if isinstance(t, Ref) else None)

    for t in walk(term):
        memo[t] = _fact(t, known, lambda load: FINITE, branch, None)
    return memo[term]


def is_identity(fact: Fact, op: str) -> bool:
    return fact == MONOIDS[op].identity


def is_finite(fact: Fact) -> bool:
    return fact is FINITE or (isinstance(fact, float) and bool(np.isfinite(fact)))


def join(facts: Sequence[Fact]) -> Fact:
    """What is known of a value that is one of several."""
    if all(f == facts[0] for f in facts):
        return facts[0]
    return FINITE if all(map(is_finite, facts)) else ANY


def _fact(
    term: TileTerm,
    known: Callable[[Term], Fact | None],
    load: Callable[[Load], Fact],
    branch: Callable[[Where], Term | None],
    a: Axis | None,
) -> Fact:
    def sub(t: Term) -> Fact:
        found = known(t)
        return _fact(t, known, load, branch, a) if found is None else found

    match term:
        case Load() | Const() | IndexValue() | Ref() | TopK():
            return _leaf_fact(term, known, load)
        case Cast(_, operand):
            fact = sub(operand)
            return ANY if fact is FINITE else fact
        case Where(_, then, otherwise):
            taken = branch(term)
            return join((sub(then), sub(otherwise))) if taken is None else sub(taken)
        case Map(op, args):
            return _map_fact(op, [sub(t) for t in args])
        case Reduce(op, axis, body):
            return _reduce_fact(op, sub(body), own=axis is a)
        case Contract(axis, left, right):
            return _reduce_fact("sum", _map_fact("mul", [sub(left), sub(right)]), own=axis is a)


def _leaf_fact(
    term: Load | Const | IndexValue | Ref | TopK,
    known: Callable[[Term], Fact | None],
    load: Callable[[Load], Fact],
) -> Fact:
    match term:
        case Load():
            return load(term)
        case Const(value):
            return value
        case IndexValue():
            return FINITE
        case Ref():
            found = known(term)
            return ANY if found is None else found
        case TopK():
            return ANY


def _map_fact(op: str, facts: Sequence[Fact]) -> Fact:
    if op == "mul" and 0.0 in facts and all(map(is_finite, facts)):
        return 0.0
    if op == "exp_diff" and facts[0] == -np.inf:
        return 0.0
    numbers = [np.float64(f) for f in facts if isinstance(f, float)]
    if len(numbers) == len(facts):
        with np.errstate(all="ignore"):
            return float(MAPS[op].meaning(*numbers))
    return FINITE if op in _TOTAL_ON_FINITE and all(map(is_finite, facts)) else ANY


def _reduce_fact(op: str, body: Fact, *, own: bool) -> Fact:
    """A reduction forgets what its body is beyond its own axis; a fold of identities is the identity."""
    if not own and is_identity(body, op):
        return MONOIDS[op].identity
    return FINITE if op == "sum" and is_finite(body) else ANY


class Facts:
    """What emitted values are beyond the ends of axes, by name."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Axis], Fact] = {}

    def of(self, t: Term, a: Axis) -> Fact | None:
        """None for anything but a reference."""
        return self._found.get((t.name, a), ANY) if isinstance(t, Ref) else None

    def derive(self, term: TileTerm, a: Axis) -> Fact:
        return beyond(term, a, lambda t: self.of(t, a))

    def set(self, name: str, a: Axis, fact: Fact) -> None:
        self._found[name, a] = fact
