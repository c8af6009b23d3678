"""Scaled dot-product attention; many heads, grouped heads and one shared key head are one graph."""

from __future__ import annotations

from math import inf, isfinite

from cleave.errors import GraphError
from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.nn.elementary import extent


def attention(
    *,
    causal: bool = False,
    lse: bool = False,
    scale: float | None = None,
    dtype: str = "float16",
    d: int | None = None,
    e: int | None = None,
    group: int | None = None,
) -> Graph:
    """out = softmax(q kᵀ · scale) v per head; lse = log sum exp of the scores, natural, in float32.

    Shapes: q [b, kv_heads · group, s, d], k [b, kv_heads, t, d], v [b, kv_heads, t, e], out [b, kv_heads · group, s,
    e], lse [b, kv_heads · group, s]; query head h = kv_head · group + g reads key head kv_head. ``d``, ``e`` and
    ``group`` fix those extents. ``scale`` is 1/√d unless given. ``causal``: query i sees key j where j <= i + t − s
    (aligned at the last query); a row that sees no key gives 0, and lse −inf.
    """

    if scale is not None and not isfinite(scale):
        raise GraphError(f"scale = {scale}: a finite number is expected", location="attention")

    def graph(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
        scores = ops.einsum("b kv_heads group s d, b kv_heads t d -> b kv_heads group s t", q, k)
        scores = scores * (ops.rsqrt(q.shape[-1]) if scale is None else scale)
        if causal:
            scores = ops.where(ops.causal(scores, "s", "t"), scores, -inf)
        weights = ops.softmax(scores, axis="t")
        out = ops.einsum("b kv_heads group s t, b kv_heads t e -> b kv_heads group s e", weights, v)
        return {"out": out, "lse": ops.logsumexp(scores, axis="t")} if lse else {"out": out}

    heads = f"({extent('kv_heads', None)} {extent('group', group)})"
    stored = {"out": "b (kv_heads group) s e", "lse": "float32[b (kv_heads group) s]"}
    return trace(
        graph,
        name="attention",
        q=f"b {heads} s {extent('d', d)}",
        k="b kv_heads t d",
        v=f"b kv_heads t {extent('e', e)}",
        dtype=dtype,
        outputs=stored if lse else {"out": stored["out"]},
    )
