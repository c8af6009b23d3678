"""Values of terms in finite fields: exact tests of equality, with exponentials in the field of another prime.

    a value      its residues modulo p, q, ..; the next modulus divides the one before it less 1
    + - * 1/     in each field by itself
    exp(x)       w ^ (x modulo q) modulo p, w a q-th root of unity: exp(a + b) = exp(a) * exp(b) holds, the residue
                 modulo the last modulus is used up
    -inf         a flag: exp gives 0, a maximum passes it over
    max, min     by the order of residues: associative, commutative, idempotent, and nothing else
    top-k        by the same order; a rank that no position has gives −inf
    the rest     a random function of the residue modulo p, by name: equal arguments, equal values

What is allowed. Mirage has two moduli: sums, products, quotients, and one exponential on the way from an input to an
output. Here a third one allows an exponential in another, and stand-ins (order, random functions) let other operations
through: terms that are equal by the laws above still have equal values, but different values refute an equation only
where every operation has all its laws (``EXACT``). What is compared and not decided is left open, with the reason.

Error. Equal terms always have equal values, but for accidents: a sum that is 0 modulo a prime and is divided by. A
difference of degree d, cleared of divisions, is missed at one element of one draw with a chance of at most

    d / p              without exponentials (Schwartz 1980, Zippel 1979)
    d / q + d / p      for f exp(g) + h exp(k): residues modulo p and q are drawn independently, and for given f and h
                       one value of g - k modulo q at most gives 0

With more exponents a bound is proved that is weaker, and about the same is conjectured (Li and Wu 2026). p is 2.1e9, q
8.2e6 and, for what is in two exponentials, 3.3e4; several hundred elements of fresh draws have to agree.

Source: Wu et al., Mirage, OSDI 2025 (arXiv 2405.05751), section 5; Li and Wu, Identity testing for circuits with
exponentiation gates, ITCS 2026 (arXiv 2506.04529).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.errors import GraphError
from cleave.ir.graph import Cast, Const, IndexValue, Load, Map, Reduce, Term, TopK, Where, children, free, walk
from cleave.ir.index import evaluate
from cleave.ir.interp import Space, load_value, pred_value, ranks
from cleave.ir.top_k import position_of_rank
from cleave.verify.sample import mixed

Array = NDArray[Any]

MODULI = (2110375759, 8179751, 32719)
"""Primes, each dividing the one before it less 1, each 3 modulo 4; products of two residues fit 64 bits."""
_ROOTS = (33582286, 7924554)
"""Roots of unity modulo each modulus, of the order of the next."""
EXACT = frozenset(
    {"add", "sub", "mul", "neg", "sq", "exp", "exp_diff", "recip", "recip0", "sigmoid", "silu", "tanh", "sum"}
)
"""Operations all of whose laws over the reals hold in the fields."""
_EXPONENTIAL = frozenset({"exp", "exp_diff", "sigmoid", "silu", "tanh"})
_KNOWN = EXACT | {"maximum", "minimum", "sqrt", "rsqrt", "log", "abs"}


@dataclass(frozen=True)
class Residues:
    """Residues by modulus; where the value is −inf; where it has none (1 / 0, +inf)."""

    parts: tuple[Array, ...]
    low: Array
    lost: Array

    def map(self, change: Callable[[Array], Array]) -> Residues:
        return Residues(tuple(map(change, self.parts)), change(self.low), change(self.lost))


def levels(*roots: Term) -> int:
    """Moduli that terms need: one, and one for each exponential in another."""
    depth: dict[Term, int] = {}
    for t in walk(*roots):
        inner = max((depth[c] for c in children(t)), default=0)
        opaque = isinstance(t, Cast) or (isinstance(t, Map) and t.op not in _KNOWN - {"log", "abs"})
        depth[t] = 0 if opaque else inner + (isinstance(t, Map) and t.op in _EXPONENTIAL)
    return 1 + max(depth.values(), default=0)


def inexact(*roots: Term) -> frozenset[str]:
    """Operations of terms for which something stands in."""
    out: set[str] = set()
    for t in walk(*roots):
        match t:
            case Map(op, _) | Reduce(op, _, _):
                out.add(op)
            case Cast(dtype, _):
                out.add(f"cast to {dtype}")
            case TopK():
                out.add("top-k")
            case _:
                pass
    return frozenset(out) - EXACT


def draw(shape: tuple[int, ...], count: int, rng: np.random.Generator) -> list[Array]:
    """Residues of an input, one array a modulus, as numbers that an input holds."""
    return [rng.integers(0, m, shape).astype(np.float64) for m in MODULI[:count]]


def residues(root: Term, space: Space, drawn: Mapping[str, Sequence[Array]], memo: dict[Term, Residues]) -> Residues:
    """The residues of a term everywhere in a space; ``drawn``: residues of the floating inputs.

    Errors: a term that has no meaning in a field (GraphError).
    """
    with np.errstate(all="ignore"):
        for t in walk(root):
            if t not in memo:
                memo[t] = _node(t, space, drawn, memo)
    return memo[root]


def _node(t: Term, space: Space, drawn: Mapping[str, Sequence[Array]], memo: Mapping[Term, Residues]) -> Residues:
    count = len(next(iter(drawn.values()), MODULI))
    match t:
        case Load(name, indices):
            arrays = drawn.get(name, [space.inputs[name]] * count)
            every = free(t)
            valid = space.valid_for(every)
            read = [load_value(name, indices, valid, {**space.inputs, name: a}, space.environment) for a in arrays]
            return _integers(read, space)
        case Const(value):
            return _constant(value, count, space)
        case IndexValue(i):
            return _integers([np.asarray(evaluate(i, space.environment, space.inputs))] * count, space)
        case Map(op, args):
            return _mapped(op, args, [memo[a] for a in args])
        case Where(pred, a, b):
            return _chosen(pred_value(pred, space), memo[a], memo[b])
        case Cast(dtype, a):
            return _random(f"cast {dtype}", (memo[a],), count)
        case TopK(part, axis, _, body):
            exists = space.valid[axis]
            return _of_rank(part, memo[body], exists, ranks(t, space), space.number(axis))
        case Reduce(op, axis, body):
            return _reduced(op, memo[body], space.number(axis), space.environment[axis], space.valid[axis])
        case _:
            raise GraphError(f"{type(t).__name__} has no meaning in a finite field")


def _flags(like: Array) -> tuple[Array, Array]:
    return np.zeros(like.shape, dtype=bool), np.zeros(like.shape, dtype=bool)


def _integers(values: Sequence[Array], space: Space) -> Residues:
    shape = [1] * len(space.order)
    arrays = [v.reshape(shape) if v.ndim == 0 else v for v in values]
    return Residues(tuple(a.astype(np.int64) % m for a, m in zip(arrays, MODULI, strict=False)), *_flags(arrays[0]))


def _constant(value: float, count: int, space: Space) -> Residues:
    shape = [1] * len(space.order)
    low, lost = np.full(shape, value == -np.inf), np.full(shape, value == np.inf or np.isnan(value))
    exact = Fraction(value) if np.isfinite(value) else Fraction(0)
    parts = (exact.numerator * pow(exact.denominator, -1, m) % m for m in MODULI[:count])
    return Residues(tuple(np.full(shape, p, dtype=np.int64) for p in parts), low, lost)


def _chosen(where: Array, a: Residues, b: Residues) -> Residues:
    parts = tuple(np.where(where, x, y) for x, y in zip(a.parts, b.parts, strict=False))
    return Residues(parts, np.where(where, a.low, b.low), np.where(where, a.lost, b.lost))


# ---- pointwise


def _mapped(op: str, args: Sequence[Term], x: Sequence[Residues]) -> Residues:
    match op:
        case "add":
            return _add(*x)
        case "sub":
            return _add(x[0], _negative(x[1]))
        case "neg":
            return _negative(x[0])
        case "mul":
            return _product(args, x)
        case "sq":
            return _product((), (x[0], x[0]))
        case "recip" | "recip0":
            return _reciprocal(x[0], zero=op == "recip0")
        case "maximum" | "minimum":
            return _extreme(op, *x)
        case _:
            return _function(op, x)


def _function(op: str, x: Sequence[Residues]) -> Residues:
    match op:
        case "exp":
            return _exp(x[0])
        case "exp_diff":
            return _exp_diff(*x)
        case "sigmoid":
            return _sigmoid(x[0])
        case "silu":
            return _product((), (x[0], _sigmoid(x[0])))
        case "tanh":
            two = _sigmoid(_add(x[0], x[0]))  # tanh x = 2 sigmoid(2 x) - 1
            return Residues(tuple((2 * p - 1) % m for p, m in _paired(two)), two.low, two.lost)
        case "sqrt" | "rsqrt":
            root = Residues(tuple(_power(p, (m + 1) // 4, m) for p, m in _paired(x[0])), x[0].low, x[0].lost | x[0].low)
            return _reciprocal(root, zero=False) if op == "rsqrt" else root
        case "log":
            made = _random(op, x, len(MODULI))
            return Residues(made.parts, _is_zero(x[0]), x[0].lost | x[0].low)
        case "abs":
            even = Residues(tuple(np.minimum(p, (m - p) % m) for p, m in _paired(x[0])), x[0].low, x[0].lost | x[0].low)
            return _random(op, (even,), len(MODULI))
        case _:
            return _random(op, x, len(MODULI))


def _paired(x: Residues) -> list[tuple[Array, int]]:
    return list(zip(x.parts, MODULI, strict=False))


def _add(a: Residues, b: Residues) -> Residues:
    parts = tuple((x + y) % m for x, y, m in zip(a.parts, b.parts, MODULI, strict=False))
    return Residues(parts, a.low | b.low, a.lost | b.lost)


def _negative(a: Residues) -> Residues:
    return Residues(tuple((m - x) % m for x, m in _paired(a)), np.zeros_like(a.low), a.lost | a.low)


def _product(terms: Sequence[Term], x: Sequence[Residues]) -> Residues:
    """−inf keeps its sign under a positive constant; otherwise nothing is known of it."""
    a, b = x
    parts = tuple(p * q % m for p, q, m in zip(a.parts, b.parts, MODULI, strict=False))
    either = a.low | b.low
    positive = any(isinstance(t, Const) and t.value > 0 for t in terms)
    unknown: Array = np.zeros_like(either) if positive else either
    return Residues(parts, either & ~unknown, a.lost | b.lost | unknown)


def _is_zero(x: Residues) -> Array:
    return reduce(np.logical_and, (p == 0 for p in x.parts)) & ~x.low


def _reciprocal(x: Residues, *, zero: bool) -> Residues:
    """1 / −inf is 0; 1 / 0 is 0 if ``zero``. A residue that is 0 by accident has no reciprocal."""
    parts = tuple(np.where(x.low, 0, _power(p, m - 2, m)) for p, m in _paired(x))
    accident = reduce(np.logical_or, (p == 0 for p in x.parts)) & ~x.low
    lost = accident & ~_is_zero(x) if zero else accident
    return Residues(parts, np.zeros_like(x.low), x.lost | lost)


def _power(base: Array, exponent: int | Array, modulus: int) -> Array:
    """base ^ exponent, by repeated squaring."""
    powers: Array = np.asarray(exponent, dtype=np.int64)
    out: Array = np.ones(np.broadcast_shapes(base.shape, powers.shape), dtype=np.int64)
    while powers.any():
        out = np.where(powers & 1, out * base % modulus, out)
        base = base * base % modulus
        powers = powers >> 1
    return out


def _exp(x: Residues) -> Residues:
    if len(x.parts) < 2:
        raise GraphError("more exponentials in one another than there are moduli")
    parts = tuple(
        np.where(x.low, 0, _power(np.asarray(w), p, m)) for w, p, m in zip(_ROOTS, x.parts[1:], MODULI, strict=False)
    )
    return Residues(parts, np.zeros_like(x.low), x.lost & ~x.low)


def _exp_diff(a: Residues, b: Residues) -> Residues:
    """exp(a − b), and 0 where a is −inf, whatever b."""
    found = _exp(_add(a, _negative(b)))
    parts = tuple(np.where(a.low, 0, p) for p in found.parts)
    return Residues(parts, np.zeros_like(found.low), np.where(a.low, False, found.lost))


def _sigmoid(x: Residues) -> Residues:
    """1 / (1 + exp(−x)), as exp(x) / (1 + exp(x)), so that it is 0 at −inf."""
    e = _exp(x)
    one = Residues(tuple((p + 1) % m for p, m in _paired(e)), e.low, e.lost)
    return _product((), (e, _reciprocal(one, zero=False)))


def _extreme(op: str, a: Residues, b: Residues) -> Residues:
    """By the order of residues modulo p; −inf is the least."""
    first = np.where(a.low, -1, a.parts[0]) >= np.where(b.low, -1, b.parts[0])
    found = _chosen(first if op == "maximum" else ~first, a, b)
    return Residues(found.parts, found.low, a.lost | b.lost)


def _random(name: str, args: Sequence[Residues], count: int) -> Residues:
    """A random function of the residues modulo p."""
    state: Array = np.asarray(zlib.crc32(name.encode()), dtype=np.uint64)
    for x in args:
        state = mixed(state ^ np.where(x.low, MODULI[0], x.parts[0]).astype(np.uint64))
    parts = tuple((mixed(state + np.uint64(k)) % np.uint64(m)).astype(np.int64) for k, m in enumerate(MODULI[:count]))
    lost = reduce(np.logical_or, (x.lost for x in args))
    return Residues(parts, np.zeros_like(lost), lost)


# ---- reductions


def _reduced(op: str, body: Residues, number: int, positions: Array, valid: Array) -> Residues:
    """Over the positions that exist; the identity of a sum is 0, of a maximum −inf, of a minimum nothing."""
    size = positions.shape[number]

    def whole(x: Array) -> Array:
        return np.broadcast_to(x, [size if k == number else n for k, n in enumerate(x.shape)])

    shape = np.broadcast_shapes(valid.shape, body.low.shape)
    wide = body.map(lambda x: np.broadcast_to(whole(x), np.broadcast_shapes(shape, whole(x).shape)))
    inside = np.broadcast_to(valid, wide.low.shape)
    lost, low = _any(wide.lost & inside, number), wide.low & inside
    if op == "sum":
        kept = inside & ~low
        parts = tuple(np.where(kept, p, 0).sum(axis=number, keepdims=True) % m for p, m in _paired(wide))
        return Residues(parts, _any(low, number), lost)
    return _extreme_of(op, wide, inside, number, lost)


def _of_rank(part: str, body: Residues, exists: Array, rank: Array, number: int) -> Residues:
    shape = np.broadcast_shapes(body.low.shape, exists.shape)
    key = np.broadcast_to(np.where(body.low, -1, body.parts[0]), shape).astype(np.float64)
    inside = np.broadcast_to(exists, shape)
    position, there = position_of_rank(key, inside, rank, number)
    lost = np.broadcast_to(_any(np.broadcast_to(body.lost, shape) & inside, number), there.shape)
    if part == "index":
        index = np.where(there, position, inside.sum(axis=number, keepdims=True))
        return Residues(tuple(index % m for m, _ in zip(MODULI, body.parts, strict=False)), np.zeros_like(lost), lost)
    if not shape[number]:
        zero: Array = np.zeros(there.shape, dtype=np.int64)
        return Residues(tuple(zero for _ in body.parts), ~there, lost)
    wide = tuple(n if k == number else m for k, (n, m) in enumerate(zip(shape, there.shape, strict=True)))
    at = body.map(lambda x: np.take_along_axis(np.broadcast_to(x, wide), position, axis=number))
    return Residues(at.parts, at.low | ~there, lost)


def _any(x: Array, number: int) -> Array:
    return np.asarray(x.any(axis=number, keepdims=True))


def _extreme_of(op: str, x: Residues, inside: Array, number: int, lost: Array) -> Residues:
    if op not in ("max", "min"):
        raise GraphError(f"a reduction by {op} has no meaning in a finite field")
    shape = [1 if k == number else n for k, n in enumerate(inside.shape)]
    if inside.shape[number] == 0:
        zero = tuple(np.zeros(shape, dtype=np.int64) for _ in x.parts)
        return Residues(zero, np.full(shape, op == "max"), np.full(shape, op == "min"))
    key = np.where(x.low, -1, x.parts[0])
    key = np.where(inside, key, -2 if op == "max" else MODULI[0])
    chosen = (np.argmax if op == "max" else np.argmin)(key, axis=number, keepdims=True)
    at = x.map(lambda a: np.take_along_axis(a, chosen, axis=number))
    none = ~_any(inside, number)
    return Residues(at.parts, at.low | none, lost) if op == "max" else Residues(at.parts, at.low, lost | none)


@cache
def constants(*roots: Term) -> frozenset[float]:
    """Constants of terms that are no short binary fractions: whoever computes with them in float64 rounds."""
    values = {t.value for t in walk(*roots) if isinstance(t, Const) and np.isfinite(t.value)}
    return frozenset(v for v in values if not float(v * 1024).is_integer() or abs(v) > 2**20)
