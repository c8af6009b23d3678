"""Arithmetic on normal forms. Each step is one of the lemmas of ``lemmas.py``, or a law of the numbers that it is for.

Real numbers: every law of a field. Extended numbers, where -inf may occur: the sum and the product are commutative and
associative, and that is all: a product with a sum is not multiplied out (-inf * (3 - 1)), nothing cancels (-inf + inf),
and a constant is not pulled out of a sum over what may be empty (0 against -inf * 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from cleave.testing.proof.normal import (
    Applied,
    Atom,
    Binder,
    Extent,
    Fold,
    Holds,
    Monomial,
    Polynomial,
    Value,
    constant,
    fold,
    monomial,
    of_atom,
    opened,
    polynomial,
    positions,
    single,
)


class Outside(Exception):
    """A term or a step that the prover knows nothing about; never leaves this package."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Which numbers the unknown values are: real ones, or extended ones but for what is known to be ``finite``."""

    extended: bool = False
    finite: frozenset[str] = frozenset()  # variables
    finite_atoms: frozenset[Atom] = frozenset()

    def is_real(self, m: Monomial) -> bool:
        """Whether the value of a product is a real number."""
        return all(self.is_real_atom(atom) for atom, _ in m.powers)

    def is_real_atom(self, atom: Atom) -> bool:
        match atom:
            case _ if not self.extended or atom in self.finite_atoms:
                return True
            case Value(name, _):
                return name in self.finite
            case Extent() | Holds():
                return True
            case _:
                return False

    def is_positive(self, atom: Atom, power: int) -> bool:
        """Whether a power of an atom is a real number above 0."""
        match atom:
            case Applied("Exp"):
                return not self.extended
            case Applied("Sqrt"):
                return power < 0
            case Applied("Rsqrt"):
                return self.is_real_atom(atom)
            case _:
                return False

    # ---- sums and products

    def add(self, *summands: Polynomial) -> Polynomial:
        terms = [term for p in summands for term in p.terms]
        signs: dict[Monomial, bool] = {}
        for m, c in terms:
            if signs.setdefault(m, c > 0) is not (c > 0) and not self.is_real(m):
                raise Outside("a value that may be infinite is subtracted from itself")
        return polynomial(terms)

    def negative(self, p: Polynomial) -> Polynomial:
        return self.multiply(p, constant(Fraction(-1)))

    def square(self, p: Polynomial) -> Polynomial:
        return self.multiply(p, p)

    def subtract(self, p: Polynomial, q: Polynomial) -> Polynomial:
        if self.extended and not all(self.is_real(m) for m, _ in q.terms):
            return of_atom(Applied("Sub", (p, q)))
        return polynomial([*p.terms, *((m, -c) for m, c in q.terms)])

    def multiply(self, p: Polynomial, q: Polynomial) -> Polynomial:
        """Multiplied out: products of sums over different axes are sums over all of them."""
        if self.extended:
            p, q = self._factor(p), self._factor(q)
        return polynomial(self._product(m, n, c * d) for m, c in p.terms for n, d in q.terms)

    def _factor(self, p: Polynomial) -> Polynomial:
        return p if single(p) is not None else of_atom(Applied("of", (p,)))

    def _product(self, m: Monomial, n: Monomial, c: Fraction) -> tuple[Monomial, Fraction]:
        m, n = opened(m), opened(n)
        powers = dict(m.powers)
        for atom, power in n.powers:
            powers[atom] = powers.get(atom, 0) + power
        return self._without_extents((*m.binders, *n.binders), powers, c)

    def _without_extents(
        self, binders: tuple[Binder, ...], powers: dict[Atom, int], c: Fraction
    ) -> tuple[Monomial, Fraction]:
        """A sum of terms that are all the same is their number times one of them; [p] is its own square."""
        powers = {a: min(n, 1) if isinstance(a, Holds) else n for a, n in powers.items()}
        if all(map(self.is_real_atom, powers)):
            for b in binders:
                others = tuple(other for other in binders if other is not b)
                if b.position not in positions(Monomial(others, tuple(powers.items()))):
                    extent = Extent(b.axis, b.owners)
                    return self._without_extents(others, {**powers, extent: powers.get(extent, 0) + 1}, c)
        return monomial(binders, powers), c

    # ---- folds

    def fold_over(self, monoid: str, binder: Binder, p: Polynomial) -> Polynomial:
        """A fold of folds is one fold over both axes; what does not vary comes out of a maximum or minimum."""
        if monoid == "Sum":
            return self._sum_over(binder, p)
        match p.terms:
            case ((Monomial((), ((Fold(inner, binders, body), 1),)), c),) if inner == monoid and c == 1:
                return of_atom(fold(monoid, (*binders, binder), body))
            case _:
                pass
        if monoid not in ("MaxOf", "MinOf"):
            return of_atom(fold(monoid, (binder,), p))
        return self._shifted(monoid, binder, p)

    def _shifted(self, monoid: str, binder: Binder, p: Polynomial) -> Polynomial:
        same = [(m, c) for m, c in p.terms if binder.position not in positions(m) and self.is_real(m)]
        varying = Polynomial(tuple(term for term in p.terms if term not in same))
        if not varying.terms:
            return of_atom(fold(monoid, (binder,), p))  # of a constant too: the axis may be empty
        if same:
            return self.add(self.fold_over(monoid, binder, varying), Polynomial(tuple(same)))
        return self._scaled(monoid, binder, varying)

    def _scaled(self, monoid: str, binder: Binder, p: Polynomial) -> Polynomial:
        """A factor that does not vary comes out if it is positive."""
        term = single(p)
        if term is None:
            return of_atom(fold(monoid, (binder,), p))
        m, c = term
        out = {a: n for a, n in m.powers if self.is_positive(a, n) and binder.position not in positions(a)}
        if not out and c in (1, -1):
            return of_atom(fold(monoid, (binder,), p))
        kept = {a: n for a, n in m.powers if a not in out}
        rest = polynomial([(monomial((), kept), Fraction(1 if c > 0 else -1))])
        return self.multiply(polynomial([(monomial((), out), abs(c))]), self.fold_over(monoid, binder, rest))

    def _sum_over(self, binder: Binder, p: Polynomial) -> Polynomial:
        """The sum of sums is the sum of all; a sum over what is no sum of sums is one more binder above each term."""
        out: list[tuple[Monomial, Fraction]] = []
        for m, c in p.terms:
            term = opened(m)
            out.append(self._without_extents((*term.binders, binder), dict(term.powers), c))
        return self.add(*(Polynomial((term,)) for term in out))
