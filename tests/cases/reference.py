"""References of the cases in plain NumPy: inputs as a user has them, answers in float64, nothing shared with cleave.

An attention row with no visible key gives 0 and lse -inf; lse is the natural logarithm; causal is aligned at the last
query: key j is visible to row i iff j <= i + Sk - Sq.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
INF = float("inf")


def f16(a: ArrayLike) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(a, dtype=np.float16)


def f64(a: ArrayLike) -> Array:
    return np.asarray(a, dtype=np.float64)


def rn(rng: np.random.Generator, *shape: int, s: float = 1.0) -> Array:
    return f16(rng.standard_normal(shape) * s)


def softmax(x: ArrayLike, axis: int = -1) -> Array:
    x = f64(x)
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)


def attend(
    q: Array, k: Array, v: Array, keep: Array | None = None, scale: float = 1.0, bias: Array | None = None
) -> tuple[Array, Array]:
    """One head. Hidden keys are never touched, so garbage in them cannot matter."""
    q, k, v = f64(q), f64(k), f64(v)
    sq, sk = q.shape[0], k.shape[0]
    keep = np.ones((sq, sk), bool) if keep is None else np.broadcast_to(keep, (sq, sk))
    out, lse = np.zeros((sq, v.shape[1])), np.full(sq, -INF)
    for i in range(sq):
        idx = np.flatnonzero(keep[i])
        if idx.size == 0:
            continue
        s = (k[idx] @ q[i]) * scale
        if bias is not None:
            s = s + f64(bias)[i, idx]
        m = s.max()
        p = np.exp(s - m)
        out[i], lse[i] = (p @ v[idx]) / p.sum(), m + math.log(p.sum())
    return out, lse


def causal(sq: int, sk: int) -> Array:
    return np.arange(sk)[None, :] <= np.arange(sq)[:, None] + sk - sq


def ol(t: tuple[Array, Array]) -> dict[str, Array]:
    return {"out": t[0], "lse": t[1]}
