"""Normal forms: sums of products of atoms, each product below one sum over all axes that its factors are summed over.

    Polynomial = coefficient * Monomial + ...
    Monomial   = sum over binders of a product of powers of atoms
    Atom       = Value | Holds | Extent | Fold | Applied

A position is a name: that of an axis where it is free, a name made from the shape of the term where it is bound, so
that two forms that differ in the names of bound axes are one object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, permutations, product
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Binder:
    """A bound position of an axis. Its extent depends on the positions ``owners``."""

    position: str
    axis: str
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Value:
    """An unknown function of positions, one for each axis that it may depend on."""

    name: str
    at: tuple[tuple[str, str], ...]  # (axis, position)


@dataclass(frozen=True, slots=True)
class Holds:
    """1 where a predicate holds, else 0."""

    name: str
    at: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Extent:
    axis: str
    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """A fold with a monoid other than the sum; nested folds of one monoid are one fold over all their axes."""

    monoid: str
    binders: tuple[Binder, ...]
    body: Polynomial


@dataclass(frozen=True, slots=True)
class Applied:
    """A function of which no more is known than that equal arguments give equal values."""

    function: str
    arguments: tuple[Polynomial, ...]


Atom: TypeAlias = "Value | Holds | Extent | Fold | Applied"


@dataclass(frozen=True, slots=True)
class Monomial:
    binders: tuple[Binder, ...] = ()
    powers: tuple[tuple[Atom, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Polynomial:
    terms: tuple[tuple[Monomial, Fraction], ...] = ()


Powers: TypeAlias = tuple[tuple[Atom, int], ...]
Form: TypeAlias = "Atom | Binder | Monomial | Polynomial"

_fresh = count()


def fresh(axis: str) -> str:
    """A position that occurs nowhere else."""
    return f"{axis}~{next(_fresh)}"


# ---- names of positions -----------------------------------------------------------------------------------------


def rename_atom(atom: Atom, names: Mapping[str, str]) -> Atom:
    """The atom with positions renamed, in canonical form again. Bound names are never among the new ones."""
    match atom:
        case Value(name, at):
            return Value(name, tuple((axis, names.get(p, p)) for axis, p in at))
        case Holds(name, at):
            return Holds(name, tuple((axis, names.get(p, p)) for axis, p in at))
        case Extent(axis, owners):
            return Extent(axis, tuple(names.get(p, p) for p in owners))
        case Fold(monoid, binders, body):
            return fold(monoid, rename_binders(binders, names), rename(body, names))
        case Applied(function, arguments):
            return Applied(function, tuple(rename(a, names) for a in arguments))


def rename_binders(binders: Iterable[Binder], names: Mapping[str, str]) -> tuple[Binder, ...]:
    return tuple(
        Binder(names.get(b.position, b.position), b.axis, tuple(names.get(p, p) for p in b.owners)) for b in binders
    )


def rename(p: Polynomial, names: Mapping[str, str]) -> Polynomial:
    terms = (
        (monomial(rename_binders(m.binders, names), {rename_atom(a, names): n for a, n in m.powers}), c)
        for m, c in p.terms
    )
    return polynomial(terms)


def positions(form: Form) -> frozenset[str]:
    """Every position that a form mentions, bound ones too."""
    return frozenset(_positions(form))


def _positions(form: Form) -> Iterator[str]:
    match form:
        case Value(_, at) | Holds(_, at):
            yield from (p for _, p in at)
        case Extent(_, owners):
            yield from owners
        case Binder(position, _, owners):
            yield position
            yield from owners
        case Fold(_, binders, body):
            yield from _all(binders)
            yield from _positions(body)
        case Applied(_, arguments):
            yield from _all(arguments)
        case Monomial(binders, powers):
            yield from _all(binders)
            yield from _all(atom for atom, _ in powers)
        case Polynomial(terms):
            yield from _all(m for m, _ in terms)


def _all(forms: Iterable[Form]) -> Iterator[str]:
    for form in forms:
        yield from _positions(form)


def height(form: Form) -> int:
    """How deep binders are nested. Bound names carry it, so those of one binder differ from all below it."""
    match form:
        case Fold(_, _, body):
            return 1 + height(body)
        case Applied(_, arguments):
            return max((height(a) for a in arguments), default=0)
        case Monomial(binders, powers):
            return bool(binders) + max((height(a) for a, _ in powers), default=0)
        case Polynomial(terms):
            return max((height(m) for m, _ in terms), default=0)
        case _:
            return 0


def opened(m: Monomial) -> Monomial:
    """The monomial with fresh bound positions."""
    names = {b.position: fresh(b.axis) for b in m.binders}
    return Monomial(rename_binders(m.binders, names), tuple((rename_atom(a, names), n) for a, n in m.powers))


# ---- canonical forms --------------------------------------------------------------------------------------------


def monomial(binders: Iterable[Binder], powers: Mapping[Atom, int]) -> Monomial:
    """The one monomial of all that differ in the order of factors and in bound names."""
    found, kept = tuple(binders), tuple((a, n) for a, n in powers.items() if n)
    level = 1 + max((height(a) for a, _ in kept), default=0)
    return min((_named(found, kept, names) for names in _namings(found, level)), key=repr)


def fold(monoid: str, binders: tuple[Binder, ...], body: Polynomial) -> Fold:
    """As ``monomial``, for another monoid."""
    return min(
        (
            Fold(monoid, _order(rename_binders(binders, names)), rename(body, names))
            for names in _namings(binders, 1 + height(body))
        ),
        key=repr,
    )


def polynomial(terms: Iterable[tuple[Monomial, Fraction]]) -> Polynomial:
    """Equal monomials are added up."""
    found: dict[Monomial, Fraction] = {}
    for m, c in terms:
        found[m] = found.get(m, Fraction(0)) + c
    return Polynomial(tuple(sorted(((m, c) for m, c in found.items() if c), key=repr)))


def _named(binders: Iterable[Binder], powers: Powers, names: Mapping[str, str]) -> Monomial:
    factors = ((rename_atom(a, names), n) for a, n in powers)
    return Monomial(_order(rename_binders(binders, names)), tuple(sorted(factors, key=repr)))


def _order(binders: Iterable[Binder]) -> tuple[Binder, ...]:
    return tuple(sorted(binders, key=repr))


def _namings(binders: tuple[Binder, ...], level: int) -> Iterator[dict[str, str]]:
    """Every way to number the binders of each axis."""
    by_axis: dict[str, list[str]] = {}
    for b in binders:
        by_axis.setdefault(b.axis, []).append(b.position)
    names = [[f"{axis}'{level}.{i}" for i in range(len(held))] for axis, held in by_axis.items()]
    for chosen in product(*(permutations(held) for held in by_axis.values())):
        yield {old: new for olds, news in zip(chosen, names, strict=True) for old, new in zip(olds, news, strict=True)}


# ---- building blocks --------------------------------------------------------------------------------------------


def of_atom(atom: Atom, power: int = 1) -> Polynomial:
    return Polynomial(((Monomial((), ((atom, power),)), Fraction(1)),))


def constant(c: Fraction) -> Polynomial:
    return Polynomial(((Monomial(), c),) if c else ())


ONE = constant(Fraction(1))


def single(p: Polynomial) -> tuple[Monomial, Fraction] | None:
    """The only term, if there is one and no sum stands above it."""
    if len(p.terms) == 1 and not p.terms[0][0].binders:
        return p.terms[0]
    return None


# ---- text -------------------------------------------------------------------------------------------------------


def text(form: Form) -> str:
    """For messages: ``-1 * a[k] * |k| + sum{k'1.0} b[k'1.0]``."""
    match form:
        case Value(name, at):
            return name + (f"[{', '.join(p for _, p in at)}]" if at else "")
        case Holds(name, at):
            return f"[{name}({', '.join(p for _, p in at)})]"
        case Extent(axis, owners):
            return f"|{axis}" + (f" at {', '.join(owners)}|" if owners else "|")
        case Binder(position, _, owners):
            return position + (f" of {', '.join(owners)}" if owners else "")
        case Fold(monoid, binders, body):
            return f"{monoid}{{{', '.join(map(text, binders))}}} ({text(body)})"
        case Applied(function, arguments):
            return f"{function}({', '.join(map(text, arguments))})"
        case Monomial(binders, powers):
            above = f"sum{{{', '.join(map(text, binders))}}} " if binders else ""
            return above + (" * ".join(text(a) + (f"^{n}" if n != 1 else "") for a, n in powers) or "1")
        case Polynomial(terms):
            return " + ".join((f"{c} * " if c != 1 else "") + text(m) for m, c in terms) or "0"
