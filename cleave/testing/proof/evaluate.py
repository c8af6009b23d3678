"""A side of a rule as a normal form, at a generic position of every axis in scope.

A term variable is an unknown function of *all* positions in scope, but for those that a guard excludes. A reduction
binds the positions of its axis; a free place in a chunk stays what it is when the chunk index is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from cleave.rewrite.rule import Signature
from cleave.rewrite.sexp import Sexp, show
from cleave.testing.proof.arithmetic import Numbers, Outside, symmetric
from cleave.testing.proof.axes import Ax, Case
from cleave.testing.proof.guards import Guards
from cleave.testing.proof.normal import (
    ONE,
    Applied,
    Binder,
    Extent,
    Holds,
    Polynomial,
    Value,
    constant,
    fresh,
    of_atom,
    rename,
)

TOTAL = frozenset({"Exp", "Tanh", "Abs", "Sigmoid", "Silu", "Recip0", "Maximum", "Minimum"})
"""Functions whose value is finite wherever that of their arguments is. Others may create infinite values."""

KNOWN: dict[str, Callable[..., Polynomial]] = {
    "Add": Numbers.add,
    "Sub": Numbers.subtract,
    "Mul": Numbers.multiply,
    "Neg": Numbers.negative,
    "Sq": Numbers.square,
    "Exp": Numbers.exponential,
    "ExpDiff": Numbers.exponential_of_difference,
    "Recip0": Numbers.reciprocal_or_zero,
    "Maximum": partial(symmetric, "Maximum"),
    "Minimum": partial(symmetric, "Minimum"),
}


@dataclass(frozen=True, slots=True)
class Scope:
    """Positions by slot, and the constants that are put for variables of monoids."""

    positions: Mapping[Ax, str]
    kinds: Mapping[str, str]  # position -> its slot, with * where it is bound, and those that its extent depends on

    def bind(self, slot: Ax, case: Case) -> tuple[Scope, Binder]:
        owners = tuple(self.positions[owner] for owner in case.extent_slots(slot))
        position = fresh(str(slot))
        kind = f"{slot}*({', '.join(self.kinds[p] for p in owners)})"
        scope = Scope({**self.positions, slot: position}, {**self.kinds, position: kind})
        return scope, Binder(position, str(slot), owners)


def free_scope(case: Case) -> Scope:
    bases = dict.fromkeys(Ax(ax.base) for ax in case.axes.values())
    slots = [slot for base in bases for slot in case.slots(base)]
    names = {slot: str(slot) for slot in slots}
    return Scope(names, {name: name for name in names.values()})


@dataclass
class Evaluation:
    """Evaluates patterns in one case. ``monoids``: what a variable for a monoid stands for."""

    case: Case
    guards: Guards
    numbers: Numbers
    signature: Signature
    variables: Mapping[str, str]  # name -> sort
    monoids: Mapping[str, str]
    infinite: set[Polynomial] = field(default_factory=set[Polynomial])  # what may be infinite, bound names replaced

    def value(self, pattern: Sexp, scope: Scope) -> Polynomial:
        """The normal form. Outside: the pattern holds what the prover does not know."""
        if isinstance(pattern, str):
            return of_atom(Value(pattern, self.seen(pattern, scope)))
        match pattern:
            case ("Const", str(number)):
                return self._constant(number)
            case ("Size", ax):
                return self._size(self.case.resolve(ax), scope)
            case ("Where", str(predicate), x, y):
                holds = Holds(predicate, self.seen(predicate, scope))
                return self.numbers.choose(holds, self.value(x, scope), self.value(y, scope))
            case ("Red", op, ax, body):
                return self._fold(self.monoid(op), self.case.resolve(ax), body, scope)
            case ("Cast", dtype, x):
                return self._partial(of_atom(Applied(f"Cast {show(dtype)}", (self.value(x, scope),))), scope)
            case _:
                return self._apply(pattern, scope)

    def seen(self, name: str, scope: Scope) -> tuple[tuple[str, str], ...]:
        """The positions that a variable may depend on."""
        hidden: set[Ax] = set()
        for ax in self.guards.about(name, inside=False):
            hidden |= self.case.whole(self.case.resolve(ax))
        return tuple((str(slot), position) for slot, position in scope.positions.items() if slot not in hidden)

    def monoid(self, op: Sexp) -> str:
        return self.monoids[op] if isinstance(op, str) else show(op[0])

    def bind(self, ax: Ax, scope: Scope) -> tuple[Scope, list[Binder]]:
        binders: list[Binder] = []
        for slot in self.case.slots(ax):
            scope, binder = scope.bind(slot, self.case)
            binders.append(binder)
        return scope, binders

    def _constant(self, number: str) -> Polynomial:
        try:
            return constant(Fraction(number))
        except ValueError:
            return of_atom(Value(number, ()))  # a variable for a number

    def _size(self, ax: Ax, scope: Scope) -> Polynomial:
        slots = self.case.slots(ax)
        if len(slots) == 1:
            return of_atom(Extent(str(ax), tuple(scope.positions[o] for o in self.case.extent_slots(ax))))
        _, binders = self.bind(ax, scope)
        out = ONE
        for binder in reversed(binders):
            out = self.numbers.fold_over("Sum", binder, out)
        return out

    def _fold(self, monoid: str, ax: Ax, body: Sexp, scope: Scope) -> Polynomial:
        inside, binders = self.bind(ax, scope)
        out = self.value(body, inside)
        for binder in reversed(binders):
            out = self.numbers.fold_over(monoid, binder, out)
        return out if monoid == "Sum" else self._partial(out, scope)  # a maximum over nothing is -inf

    def _apply(self, pattern: tuple[Sexp, ...], scope: Scope) -> Polynomial:
        head = show(pattern[0])
        sort, sorts = self.signature.get(head, ("", ()))
        if sort != "E" or set(sorts) != {"E"}:
            raise Outside(f"the constructor {head}")
        arguments = [self.value(part, scope) for part in pattern[1:]]
        if head == "Recip":
            return self._inverse(self.numbers.reciprocal(arguments[0]), scope)
        if head in KNOWN:
            return KNOWN[head](self.numbers, *arguments)
        out = of_atom(Applied(head, tuple(arguments)))
        return out if head in TOTAL else self._partial(out, scope)

    def _inverse(self, p: Polynomial, scope: Scope) -> Polynomial:
        """A product is not 0 if no factor is."""
        for m, _ in p.terms:
            for atom, power in m.powers:
                self._partial(of_atom(atom, -1 if power < 0 else 1), scope)
        return p

    def _partial(self, p: Polynomial, scope: Scope) -> Polynomial:
        self.infinite.add(rename(p, scope.kinds))
        return p
