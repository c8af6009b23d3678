"""Abstract expressions, after Mirage (Wu et al., 2025): what a term is a product and sum of, whatever its axes.

    abstract    a set of monomials; a sum over an axis is what it sums
    monomial    atoms with exponents
    atom        a leaf; e^m of a monomial m; 1 / x, max x or another function of an abstract x

A partial graph can be completed only if each of its monomials divides one that the goal, or an argument of one of its
functions, has. That prunes: it gives up identities that are not those of rings and of exponentials.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

Atom = tuple[Any, ...]
Monomial = frozenset[tuple[Atom, int]]
Abstract = frozenset[Monomial]

ONE: Monomial = frozenset()
MOST_MONOMIALS = 8


def leaf(number: int) -> Abstract:
    return _single(("leaf", number))


def _single(atom: Atom) -> Abstract:
    return frozenset({frozenset({(atom, 1)})})


def abstract(name: str, args: tuple[Abstract, ...]) -> Abstract | None:
    """Of a node from its operands; None if it is too long."""
    match name, args:
        case (("product" | "mul"), (a, b)):
            return times(a, b)
        case (("add" | "sub"), (a, b)):
            return a | b if len(a | b) <= MOST_MONOMIALS else None
        case "sq", (a,):
            return times(a, a)
        case (("sum" | "neg"), (a,)):
            return a
        case "exp", (a,):
            return _exponential(a, 1)
        case "exp_diff", (a, b):
            up, down = _exponential(a, 1), _exponential(b, -1)
            return times(up, down)
        case _ if name.startswith("quotient"):
            return times(args[0], _single(("inverse", args[1])))
        case (("max" | "min"), (a,)) if _is_single(a, name):
            return a
        case (("recip" | "recip0"), (a,)):
            return _single(("inverse", a))
        case _:
            return _single((name, *args))


def _is_single(a: Abstract, op: str) -> bool:
    """Whether a is a maximum already: that of maxima is the maximum."""
    return len(a) == 1 and [(atom[0], e) for atom, e in next(iter(a))] == [(op, 1)]


@cache
def times(a: Abstract, b: Abstract) -> Abstract | None:
    out = {_joined(m, n) for m in a for n in b}
    return frozenset(out) if len(out) <= MOST_MONOMIALS else None


@cache
def _joined(a: Monomial, b: Monomial) -> Monomial:
    exponents = dict(a)
    for atom, e in b:
        exponents[atom] = exponents.get(atom, 0) + e
    return frozenset((atom, e) for atom, e in exponents.items() if e)


def _exponential(a: Abstract, sign: int) -> Abstract:
    """e^(m + n) = e^m e^n."""
    return frozenset({frozenset((("e", m), sign) for m in a)})


# ---- what may be part of a goal


def monomials(a: Abstract) -> frozenset[Monomial]:
    """Those of an abstract and of all arguments in it."""
    out: set[Monomial] = set()
    waiting: list[Monomial] = list(a)
    while waiting:
        m = waiting.pop()
        if m not in out:
            out.add(m)
            waiting += [n for atom, _ in m for n in _arguments(atom)]
    return frozenset(out)


def _arguments(atom: Atom) -> Iterable[Monomial]:
    match atom:
        case ("leaf", _):
            return ()
        case ("e", m):
            return (m,)
        case _:
            return [m for x in atom[1:] for m in x]


def fits(a: Abstract, goals: frozenset[Monomial]) -> bool:
    """Whether each monomial divides one of the goal's."""
    return all(any(_divides(m, dict(g)) for g in goals) for m in a)


def _divides(m: Monomial, of: dict[Atom, int]) -> bool:
    return all((0 < e <= of.get(atom, 0)) or (0 > e >= of.get(atom, 0)) for atom, e in m)
