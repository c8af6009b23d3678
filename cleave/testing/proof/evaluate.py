"""A side of a rule as a normal form, at a generic position of every axis in scope.

A term variable is an unknown function of *all* positions in scope, but for those that a guard excludes. A reduction
binds the positions of its axis; a free place in a chunk stays what it is when the chunk index is bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from cleave.rewrite.rule import Signature
from cleave.rewrite.sexp import Sexp, show
from cleave.testing.proof.arithmetic import Numbers, Outside
from cleave.testing.proof.axes import Ax, Case
from cleave.testing.proof.functions import KNOWN, TOTAL, choose, is_above_zero, reciprocal_or_zero
from cleave.testing.proof.guards import Guards
from cleave.testing.proof.normal import (
    ONE,
    Applied,
    Atom,
    Binder,
    Extent,
    Fold,
    Holds,
    Polynomial,
    Value,
    constant,
    fresh,
    of_atom,
    rename,
)


@dataclass(frozen=True, slots=True)
class Scope:
    """Positions by slot. ``kinds``: of a position its slot, with ? where it need not exist.

    A free place in a chunk is where it is when the chunk index is bound, and a chunk may end before it.
    """

    positions: Mapping[Ax, str]
    kinds: Mapping[str, str]

    def bind(self, slot: Ax, case: Case) -> tuple[Scope, Binder]:
        owners = tuple(self.positions[owner] for owner in case.extent_slots(slot))
        position = fresh(str(slot))
        owned = {p: f"{other}?" for other, p in self.positions.items() if slot in case.extent_slots(other)}
        scope = Scope({**self.positions, slot: position}, {**self.kinds, **owned, position: str(slot)})
        return scope, Binder(position, str(slot), owners)

    def is_free(self, position: str) -> bool:
        return "~" not in position and not self.kinds[position].endswith("?")


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
    monoids: Mapping[str, str]
    existing: frozenset[Ax] = frozenset()  # slots whose free position exists
    finite: frozenset[Polynomial] = frozenset()  # what is known to be finite, as in ``infinite``
    infinite: set[Polynomial] = field(default_factory=set[Polynomial])  # what may be infinite, positions by their kind

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
                return choose(self.numbers, holds, self.value(x, scope), self.value(y, scope))
            case ("Red", op, ax, body):
                return self._fold(self.monoid(op), self.case.resolve(ax), body, scope)
            case ("Cast", dtype, x):
                return self._noted(of_atom(Applied(f"Cast {show(dtype)}", (self.value(x, scope),))), scope)
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
        if monoid == "Sum" or self._is_over_something(binders, scope):
            return out
        return self._noted(out, scope)

    def _is_over_something(self, binders: list[Binder], scope: Scope) -> bool:
        """Whether the position in scope is among those that are bound. A maximum over nothing is -inf."""
        bound = {b.position for b in binders}
        owners = {owner for b in binders for owner in b.owners} - bound
        slots = {str(slot) for slot in self.existing if scope.is_free(scope.positions[slot])}
        return all(b.axis in slots for b in binders) and all(map(scope.is_free, owners))

    def _apply(self, pattern: tuple[Sexp, ...], scope: Scope) -> Polynomial:
        head = show(pattern[0])
        sort, sorts = self.signature.get(head, ("", ()))
        if sort != "E" or set(sorts) != {"E"}:
            raise Outside(f"the constructor {head}")
        arguments = [self.value(part, scope) for part in pattern[1:]]
        if head == "Recip0":
            return reciprocal_or_zero(arguments[0], partial(self._is_finite, scope))
        out = KNOWN[head](self.numbers, *arguments) if head in KNOWN else of_atom(Applied(head, tuple(arguments)))
        if head == "Rsqrt":
            self._noted(of_atom(Applied("Sqrt", tuple(arguments))), scope)  # finite where its reciprocal is
        return out if head in TOTAL else self._noted(out, scope)

    def _is_finite(self, scope: Scope, p: Polynomial) -> bool:
        return rename(p, scope.kinds) in self.finite

    def _noted(self, p: Polynomial, scope: Scope) -> Polynomial:
        """Note what may be infinite in a value. A product is not 0 if no factor is."""
        for m, _ in p.terms:
            if not m.binders:  # else noted below the sum
                self.infinite |= {rename(of_atom(*part), scope.kinds) for part in map(_not_total, m.powers) if part}
        return p


def _not_total(factor: tuple[Atom, int]) -> tuple[Atom, int] | None:
    """What of a power may be infinite: 1/0, a fold over nothing, a function that is not defined everywhere."""
    atom, power = factor
    match atom:
        case Applied("Exp", _):
            return None
        case Applied("Recip", (divisor,)) if is_above_zero(divisor):
            return None
        case _ if power < 0:
            return atom, -1
        case Fold():
            return atom, 1
        case Applied(function, _) if function not in TOTAL:
            return atom, 1
        case _:
            return None
