"""What is known of functions: how each is written in normal form.

Of a function that is not here it is known that equal arguments give equal values.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

from cleave.testing.proof.arithmetic import Numbers
from cleave.testing.proof.normal import (
    ONE,
    Applied,
    Atom,
    Extent,
    Holds,
    Polynomial,
    constant,
    monomial,
    of_atom,
    polynomial,
    single,
)

TOTAL = frozenset(
    {"Add", "Sub", "Mul", "Neg", "Sq", "Exp", "ExpDiff", "Tanh", "Abs", "Round", "Sigmoid", "Silu", "Recip0"}
    | {"Maximum", "Minimum"}
)
"""Functions whose value is finite wherever that of their arguments is. Others may create infinite values."""


def negative(n: Numbers, p: Polynomial) -> Polynomial:
    return n.multiply(p, constant(Fraction(-1)))


def square(n: Numbers, p: Polynomial) -> Polynomial:
    return n.multiply(p, p)


def exponential(n: Numbers, p: Polynomial) -> Polynomial:
    """exp(a + b) = exp a * exp b, of real numbers."""
    if n.extended:
        return of_atom(Applied("Exp", (p,)))
    out = ONE
    for m, c in p.terms:
        whole = int(c) if c.denominator == 1 else 1
        argument = Polynomial(((m, c / whole),))
        out = n.multiply(out, of_atom(Applied("Exp", (argument,)), whole))
    return out


def exponential_of_difference(n: Numbers, p: Polynomial, q: Polynomial) -> Polynomial:
    if n.extended:
        return of_atom(Applied("ExpDiff", (p, q)))
    return exponential(n, n.subtract(p, q))


def logarithm(n: Numbers, p: Polynomial) -> Polynomial:
    """log(exp a * b) = a + log b, of real numbers."""
    term = None if n.extended else single(p)
    if term is None:
        return of_atom(Applied("Log", (p,)))
    m, c = term
    out = n.add()
    rest: dict[Atom, int] = {}
    for atom, power in m.powers:
        match atom:
            case Applied("Exp", (argument,)):
                out = n.add(out, n.multiply(argument, constant(Fraction(power))))
            case _:
                rest[atom] = power
    argument = polynomial([(monomial((), rest), c)])
    return out if argument == ONE else n.add(out, of_atom(Applied("Log", (argument,))))


def absolute(n: Numbers, p: Polynomial) -> Polynomial:
    """|a * b| = |a| * |b|, of real numbers; what is not negative stays what it is."""
    term = single(p)
    if term is None or (n.extended and (len(term[0].powers) != 1 or term[1] < 0)):
        return of_atom(Applied("Abs", (p,)))
    m, c = term
    powers: dict[Atom, int] = {}
    for atom, power in m.powers:
        plain = power % 2 == 0 or _is_not_negative(atom)
        powers[atom if plain else Applied("Abs", (of_atom(atom),))] = power
    return polynomial([(monomial((), powers), abs(c))])


def _is_not_negative(atom: Atom) -> bool:
    """Whether a value that is a number is not negative."""
    match atom:
        case Applied(function, _):
            return function in ("Exp", "ExpDiff", "Sqrt", "Rsqrt", "Abs", "Sigmoid")
        case Extent() | Holds():
            return True
        case _:
            return False


def is_above_zero(p: Polynomial) -> bool:
    """Whether a sum of real numbers is positive: of what is not negative, an exponential or a constant among it."""
    summands = [(m, c > 0 and all(_is_not_negative(a) for a, _ in m.powers)) for m, c in p.terms]
    return all(known for _, known in summands) and any(
        not m.binders and all(isinstance(a, Applied) and a.function == "Exp" for a, _ in m.powers) for m, _ in summands
    )


def reciprocal(n: Numbers, p: Polynomial) -> Polynomial:
    """1 / p, where p is not 0."""
    term = None if n.extended else single(p)
    if term is None:
        return of_atom(Applied("Recip", (p,)))
    m, c = term
    return polynomial([(monomial((), {a: -power for a, power in m.powers}), 1 / c)])


def reciprocal_or_zero(p: Polynomial, is_finite: Callable[[Polynomial], bool]) -> Polynomial:
    """recip0(a * b) = recip0 a * recip0 b, 0 where either is; 1/a where that is known to be finite."""
    term = single(p)
    if term is None or any(power < 0 for _, power in term[0].powers):
        inverse = of_atom(Applied("Recip", (p,)))
        return inverse if is_finite(inverse) else of_atom(Applied("Recip0", (p,)))
    m, c = term
    powers: dict[Atom, int] = {}
    for atom, power in m.powers:
        if is_finite(of_atom(atom, -1)):
            powers[atom] = -power
        else:
            powers[Applied("Recip0", (of_atom(atom),))] = power
    return polynomial([(monomial((), powers), 1 / c)])


def root(n: Numbers, p: Polynomial) -> Polynomial:
    """sqrt(a^2) = |a|, of real numbers."""
    term = None if n.extended else single(p)
    if term is None or term[1] != 1 or len(term[0].powers) != 1 or term[0].powers[0][1] != 2:
        return of_atom(Applied("Sqrt", (p,)))
    return absolute(n, of_atom(term[0].powers[0][0]))


def reciprocal_root(n: Numbers, p: Polynomial) -> Polynomial:
    """rsqrt a = 1 / sqrt a, of real numbers."""
    return of_atom(Applied("Rsqrt", (p,))) if n.extended else reciprocal(n, root(n, p))


def sigmoid(n: Numbers, p: Polynomial) -> Polynomial:
    """sigmoid a = 1 / (1 + exp(-a)), of real numbers: the divisor is above 1."""
    if n.extended:
        return of_atom(Applied("Sigmoid", (p,)))
    return reciprocal(n, n.add(ONE, exponential(n, negative(n, p))))


def silu(n: Numbers, p: Polynomial) -> Polynomial:
    """silu a = a * sigmoid a, of real numbers."""
    return of_atom(Applied("Silu", (p,))) if n.extended else n.multiply(p, sigmoid(n, p))


def choose(n: Numbers, holds: Holds, p: Polynomial, q: Polynomial) -> Polynomial:
    """where(h, p, q) = [h] p + (1 - [h]) q, of real numbers."""
    h = of_atom(holds)
    if n.extended:
        return of_atom(Applied("Where", (h, p, q)))
    return n.add(n.multiply(h, p), q, negative(n, n.multiply(h, q)))


def symmetric(function: str, _: Numbers, *arguments: Polynomial) -> Polynomial:
    """A commutative function of which no more is known."""
    return of_atom(Applied(function, tuple(sorted(arguments, key=repr))))


KNOWN: dict[str, Callable[..., Polynomial]] = {
    "Add": Numbers.add,
    "Sub": Numbers.subtract,
    "Mul": Numbers.multiply,
    "Neg": negative,
    "Sq": square,
    "Abs": absolute,
    "Exp": exponential,
    "ExpDiff": exponential_of_difference,
    "Log": logarithm,
    "Recip": reciprocal,
    "Sqrt": root,
    "Rsqrt": reciprocal_root,
    "Sigmoid": sigmoid,
    "Silu": silu,
    "Maximum": partial(symmetric, "Maximum"),
    "Minimum": partial(symmetric, "Minimum"),
}
