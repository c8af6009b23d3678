"""Pieces that are one tensor at several places, and rotations of pairs among them.

    cat(−x₁, x₀)                                  ->  ∓ x[1 − p]
    x · cos + cat(−x₁, x₀) · sin                  ->  sum over u of x[u] · T[u, p]
    stack(x₀ · cos − x₁ · sin, x₀ · sin + x₁ · cos)  ->  sum over u of x[u] · T[u, p]

with T = cos if u = p, sin if u < p, −sin if u > p, as ``cleave.ops.rotary`` writes it. A rotary embedding that slices
its projection would compute the projection once for each slice: here it stays one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from cleave.frontend.reduce import bind
from cleave.frontend.torch.array import new_axis
from cleave.ir.axis import Axis
from cleave.ir.dim import is_dim
from cleave.ir.graph import (
    Cast,
    Const,
    IndexValue,
    Load,
    Map,
    Reduce,
    Term,
    Where,
    apply,
    children,
    free,
    product_factors,
    rebuild,
    substitute_axes,
)
from cleave.ir.index import Index, compare

_PAIR = 2


# ---- one term at several places


def common(terms: Sequence[Term], piece: Axis) -> Term | None:
    """The term that is ``terms[n]`` where ``piece`` is n, if they differ in evenly spaced positions only."""
    first = terms[0]
    if all(t is first for t in terms):
        return first
    if not all(_alike(first, t) for t in terms[1:]):
        return None
    match first:
        case Load(name, _):
            columns = zip(*(t.indices for t in terms if isinstance(t, Load)), strict=True)
            found = [_spaced(column, piece) for column in columns]
            kept = [i for i in found if i is not None]
            return Load(name, tuple(kept)) if len(kept) == len(found) else None
        case IndexValue():
            place = _spaced([t.index for t in terms if isinstance(t, IndexValue)], piece)
            return None if place is None else IndexValue(place)
        case _:
            parts = [common(column, piece) for column in zip(*map(children, terms), strict=True)]
            whole = [part for part in parts if part is not None]
            return rebuild(first, whole) if whole and len(whole) == len(parts) else None


def _alike(a: Term, b: Term) -> bool:
    """Whether two terms are the same operation, whatever it is of."""
    match a, b:
        case Load(one, _), Load(other, _):
            return one == other
        case IndexValue(), IndexValue():
            return True
        case Map(one, x), Map(other, y):
            return one == other and len(x) == len(y)
        case Reduce(one, x, _), Reduce(other, y, _):
            return one == other and x is y
        case Where(one, _, _), Where(other, _, _):
            return one is other
        case Cast(one, _), Cast(other, _):
            return one == other
        case _:
            return False


def _spaced(places: Sequence[Index], piece: Axis) -> Index | None:
    first, step = places[0], places[1] - places[0]
    even = is_dim(step) and all(place is first + step * n for n, place in enumerate(places))
    return first + step * piece.position if even else None


def repeated(terms: Sequence[Term], piece: Axis) -> Term | None:
    """As ``common``, of terms some of which are negated."""
    negated = [isinstance(t, Map) and t.op == "neg" for t in terms]
    found = common([children(t)[0] if minus else t for t, minus in zip(terms, negated, strict=True)], piece)
    if found is None or not any(negated):
        return found
    signed = [apply("neg", found) if minus else found for minus in negated]
    out = signed[-1]
    for n in reversed(range(len(terms) - 1)):
        out = out if signed[n] is out else Where(compare("==", piece.position, n), signed[n], out)
    return out


# ---- rotations


@dataclass(frozen=True)
class _Product:
    """``± x · weight``"""

    minus: bool
    x: Term
    weight: Term


def rotated_halves(left: Term, right: Term) -> Term | None:
    """``x · cos + (∓ x[1 − p]) · sin``, the halves p of x being an axis of extent 2."""
    for one in _products(left):
        for p in sorted((a for a in free(one.x) if a.extent.constant == _PAIR), key=lambda a: a.name):
            opposite = substitute_axes(one.x, {p: 1 - p.position})
            far = _turned(right, p, opposite)
            if far is not None:
                return _rotation(one.x, p, one.weight, far)
    return None


def _turned(t: Term, p: Axis, x: Term) -> Term | None:
    """The weight of ``where(p == 0, −x, x) · weight``."""
    factors = product_factors(t)
    for n, factor in enumerate(factors):
        match factor:
            case Where(pred, Map("neg", (minus,)), plus) if minus is plus is x and pred is compare("==", p.position, 0):
                return _product([*factors[:n], *factors[n + 1 :]])
            case _:
                continue
    return None


def rotated_pair(terms: Sequence[Term], piece: Axis) -> Term | None:
    """``x₀ · cos − x₁ · sin`` and ``x₁ · cos + x₀ · sin`` as pieces 0 and 1."""
    if len(terms) != _PAIR:
        return None
    (a, b), (c, d) = (_signed(t) or (None, None) for t in terms)
    if a is None or b is None or c is None or d is None:
        return None
    for first in _choices(a, b):
        for second in _choices(c, d):
            found = _pair(*first, *second, piece)
            if found is not None:
                return found
    return None


def _signed(t: Term) -> tuple[tuple[bool, Term], tuple[bool, Term]] | None:
    match t:
        case Map("add", (a, b)):
            return (False, a), (False, b)
        case Map("sub", (a, b)):
            return (False, a), (True, b)
        case _:
            return None


def _choices(a: tuple[bool, Term], b: tuple[bool, Term]) -> list[tuple[_Product, _Product]]:
    """Both orders of two products, with each factor as x."""
    ours, theirs = ([_Product(minus, p.x, p.weight) for p in _products(t)] for minus, t in (a, b))
    return [pair for x in ours for y in theirs for pair in ((x, y), (y, x))]


def _pair(a: _Product, b: _Product, c: _Product, d: _Product, piece: Axis) -> Term | None:
    """a − b and c + d with a = x₀ cos, b = x₁ sin, c = x₁ cos, d = x₀ sin."""
    signs = (a.minus, b.minus, c.minus, d.minus) == (False, True, False, False)
    if not signs or a.x is not d.x or b.x is not c.x or a.weight is not c.weight or b.weight is not d.weight:
        return None
    source = common([a.x, b.x], piece)
    return None if source is None or a.x is b.x else _rotation(source, piece, a.weight, b.weight)


def _rotation(x: Term, p: Axis, near: Term, far: Term) -> Term:
    u = new_axis(p.extent)
    opposite = Where(compare("<", u.position, p.position), far, apply("neg", far))
    table = Where(compare("==", u.position, p.position), near, opposite)
    return bind("sum", u, apply("mul", substitute_axes(x, {p: u.position}), table))


def _products(t: Term) -> list[_Product]:
    factors = product_factors(t)
    return [_Product(False, x, _product([*factors[:n], *factors[n + 1 :]])) for n, x in enumerate(factors)]


def _product(factors: Sequence[Term]) -> Term:
    return reduce(lambda a, b: apply("mul", a, b), factors) if factors else Const(1.0)


__all__ = ["common", "repeated", "rotated_halves", "rotated_pair"]
