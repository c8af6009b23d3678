"""Attention of one query row a request, keys masked by a length for each request that the kernel reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import cleave
from cleave import ops
from cleave.ir.graph import Graph
from tests.cases.reference import Array, attend, rn


def attention_by_length(*, d: int = 16, scale: float = 0.25) -> Graph:
    """q [b, kv_heads, group, d], k and v [b, kv_heads, t, d], lengths [b]: key t is visible where t < lengths[b]."""

    def program(q: Any, k: Any, v: Any, lengths: Any) -> Any:
        scores = ops.einsum("b kv_heads group d, b kv_heads t d -> b kv_heads group t", q, k) * scale
        scores = ops.where(ops.position("t") < lengths, scores, -np.inf)
        weights = ops.softmax(scores, axis="t")
        return ops.einsum("b kv_heads group t, b kv_heads t e -> b kv_heads group e", weights, v)

    return cleave.trace(
        program,
        name="attention by length",
        q=f"b kv_heads group d={d}",
        k="b kv_heads t d",
        v=f"b kv_heads t e={d}",
        lengths="int32[b]",
    )


def inputs(rng: np.random.Generator, *, b: int, kv_heads: int, group: int, t: int, d: int = 16) -> dict[str, Array]:
    """Everything but the lengths."""
    return {"q": rn(rng, b, kv_heads, group, d), "k": rn(rng, b, kv_heads, t, d), "v": rn(rng, b, kv_heads, t, d)}


def expected(x: Mapping[str, Array], *, scale: float = 0.25) -> dict[str, Array]:
    """A request of length 0 gives 0."""
    q, k, v = x["q"], x["k"], x["v"]
    out = np.zeros(q.shape)
    for r, n in enumerate(x["lengths"]):
        for h in range(q.shape[1]):
            out[r, h] = attend(q[r, h], k[r, h, :n], v[r, h, :n], None, scale)[0]
    return {"out": out}
