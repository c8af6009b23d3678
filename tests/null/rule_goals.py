"""Terms of the rule language that the rules must reach: what cannot be traced, since it speaks of chunks."""

from __future__ import annotations

from dataclasses import dataclass

AXES = {"i": "", "k": "S", "d": "", "e": "", "r": ""}  # axis -> count, if it may be split


def ax(name: str) -> str:
    return f'(A "{name}")'


def outer(name: str) -> str:
    return f'(Outer {ax(name)} (DSym "{AXES[name]}"))'


def inner(name: str) -> str:
    return f'(Inner {ax(name)} (DSym "{AXES[name]}"))'


def total(axis: str, body: str) -> str:
    return f"(Red (Sum) {axis} {body})"


def greatest(axis: str, body: str) -> str:
    return f"(Red (MaxOf) {axis} {body})"


def mul(*factors: str) -> str:
    """Product, associated to the left."""
    first, *rest = factors
    for factor in rest:
        first = f"(Mul {first} {factor})"
    return first


LEAVES = {
    "q": "id",
    "key": "kd",
    "v": "ke",
    "x": "ik",
    "w": "kr",
    "gain": "k",
    "a": "kd",
    "b": "dr",
    "scale": "",
    "u": "kr",
    "mask": "ik",
}
PARAMS = {"w", "gain", "a", "b", "u"}
Q, KEY, V, X, W, GAIN, A, B, SCALE, U, MASK = (f"(Leaf {number})" for number in range(len(LEAVES)))
K, OUT, IN = ax("k"), outer("k"), inner("k")

SCORE = mul(total(ax("d"), mul(Q, KEY)), SCALE)
WEIGHT = f"(ExpDiff {SCORE} {greatest(K, SCORE)})"
ATTENTION = total(K, mul(WEIGHT, f"(Recip0 {total(K, WEIGHT)})", V))
MEAN_SQUARE = mul(f"(Recip (Size {K}))", total(K, f"(Sq {X})"))
MEAN = mul(f"(Recip (Size {K}))", total(K, X))
CAPPED = f"(Where 0 {mul(f'(Tanh {mul(X, SCALE)})', '(Const 30.0)')} (NegInf))"


def weights(score: str) -> str:
    """Exponentials of the score, relative to its maximum."""
    return f"(ExpDiff {score} {greatest(K, score)})"


def chunk_weights(score: str) -> str:
    return f"(ExpDiff {score} {greatest(IN, score)})"


def joined(score: str, partial: str) -> str:
    """Sum over chunks of what one chunk gives, rescaled from its maximum to the maximum of all."""
    best = greatest(IN, score)
    return total(OUT, mul(f"(ExpDiff {best} {greatest(OUT, best)})", total(IN, partial)))


@dataclass(frozen=True)
class Goal:
    source: str
    target: str
    families: tuple[str, ...]


GOALS = {
    "attention: the division behind the second matmul": Goal(
        ATTENTION, mul(total(K, mul(WEIGHT, V)), f"(Recip0 {total(K, WEIGHT)})"), ("products",)
    ),
    "attention: flash decoding": Goal(
        ATTENTION,
        mul(joined(SCORE, mul(chunk_weights(SCORE), V)), f"(Recip0 {joined(SCORE, chunk_weights(SCORE))})"),
        ("products", "split", "shift"),
    ),
    "attention without a maximum: flash decoding, safe": Goal(
        mul(total(K, mul(f"(Exp {SCORE})", V)), f"(Recip {total(K, f'(Exp {SCORE})')})"),
        mul(joined(SCORE, mul(chunk_weights(SCORE), V)), f"(Recip0 {joined(SCORE, chunk_weights(SCORE))})"),
        ("products", "split", "shift"),
    ),
    "attention with a mask and a soft cap: flash decoding": Goal(
        total(K, mul(weights(CAPPED), f"(Recip0 {total(K, weights(CAPPED))})", V)),
        mul(joined(CAPPED, mul(chunk_weights(CAPPED), V)), f"(Recip0 {joined(CAPPED, chunk_weights(CAPPED))})"),
        ("products", "split", "shift"),
    ),
    "safe sum of exponentials in two levels": Goal(
        total(K, WEIGHT), joined(SCORE, chunk_weights(SCORE)), ("products", "split", "shift")
    ),
    "log-sum-exp in two levels": Goal(
        f"(Add {greatest(K, SCORE)} (Log {total(K, WEIGHT)}))",
        f"(Add {greatest(OUT, greatest(IN, SCORE))} (Log {joined(SCORE, chunk_weights(SCORE))}))",
        ("products", "split", "shift"),
    ),
    "sum in chunks": Goal(total(K, X), total(OUT, total(IN, X)), ("split",)),
    "maximum in chunks": Goal(greatest(K, X), greatest(OUT, greatest(IN, X)), ("split",)),
    "a reciprocal of a product": Goal(f"(Recip0 {mul(X, W)})", mul(f"(Recip0 {X})", f"(Recip0 {W})"), ("products",)),
    "sum of a constant": Goal(total(K, SCALE), mul(f"(Size {K})", SCALE), ("reductions",)),
    "two contractions of one axis: Split-K of both": Goal(
        f"(Add {total(K, mul(X, W))} {total(K, mul(MASK, U))})",
        f"(Add {total(OUT, total(IN, mul(X, W)))} {total(OUT, total(IN, mul(MASK, U)))})",
        ("split",),
    ),
    "matmul: Split-K": Goal(total(K, mul(X, W)), total(OUT, total(IN, mul(X, W))), ("split",)),
    "RMSNorm behind the matmul, the gain in the weight": Goal(
        total(K, mul(X, f"(Rsqrt {MEAN_SQUARE})", GAIN, W)),
        mul(f"(Rsqrt {MEAN_SQUARE})", total(K, mul(X, f"(Mul {GAIN} {W})"))),
        ("products",),
    ),
    "LoRA merged into the weight": Goal(
        f"(Add {total(K, mul(X, W))} {total(ax('d'), mul(total(K, mul(X, A)), B))})",
        total(K, mul(X, f"(Add {W} {total(ax('d'), mul(A, B))})")),
        ("products", "contract", "gather"),
    ),
    "variance in one pass": Goal(
        total(K, f"(Sq (Sub {X} {MEAN}))"),
        f"(Add {total(K, f'(Sq {X})')} (Mul (Const -1.0) (Mul (Size {K}) (Sq {MEAN}))))",
        ("products", "expand"),
    ),
    "layer norm: the mean behind the matmul": Goal(
        total(K, mul(f"(Sub {X} {MEAN})", W)),
        f"(Sub {total(K, mul(X, W))} {mul(MEAN, total(K, W))})",
        ("products", "reductions"),
    ),
}


def facts() -> str:
    """Axes, splits, leaves and weights, as the encoder of a graph would state them."""
    lines: list[str] = []
    refined = {name: [ax(name), outer(name), inner(name)] if count else [ax(name)] for name, count in AXES.items()}
    for name, count in AXES.items():
        lines += [f"(Axis {ax(name)})", f"(set (whole {ax(name)}) (set-of {' '.join(refined[name])}))"]
        lines.append(f"(set (exts {ax(name)}) (set-empty))")
        if count:
            lines.append(f'(Splittable {ax(name)} (DSym "{count}"))')
            lines += [f"(set (whole {piece}) (set-of {piece}))" for piece in (outer(name), inner(name))]
            lines.append(f"(set (exts {outer(name)}) (set-empty))")
            lines.append(f"(set (exts {inner(name)}) (set-of {ax(name)} {outer(name)}))")
    for number, (name, axes) in enumerate(LEAVES.items()):
        inside = " ".join(piece for axis in axes for piece in refined[axis])
        lines.append(f"(set (axes (Leaf {number})) {f'(set-of {inside})' if inside else '(set-empty)'})")
        lines += [f"(Param (Leaf {number}))"] * (name in PARAMS)
    lines.append(f"(set (paxes 0) (set-of {' '.join([*refined['i'], *refined['k']])}))")
    return "\n".join(lines)


FACTS = facts()
