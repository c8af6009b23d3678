"""Multi-head latent attention in decode: all heads read one cached latent vector per key.

In prefill it is ``attention`` with heads of size 128 + 64. Source: DeepSeek-V2, arXiv 2405.04434.
"""

from __future__ import annotations

from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.nn.attention import log_sum_exp
from cleave.nn.scores import ScoreOptions
from cleave.nn.spec import extent

SCALE = 192**-0.5
"""1/√d of the heads that the latent ones stand for: 128 elements and 64 rotated ones."""


def mla_decode(
    *, lse: bool = False, scale: float = SCALE, dtype: str = "float16", r: int | None = None, p: int | None = None
) -> Graph:
    """out = softmax((q kvᵀ + q_pe k_peᵀ) · scale) kv: the latent cache is both key and value.

    Shapes: q and out [b, h, r], kv [b, t, r], q_pe [b, h, p], k_pe [b, t, p], lse [b, h]. The key projection is
    absorbed in q, that of the values follows the output. ``scale`` is 1/√192 unless given.
    """
    options = ScoreOptions("mla_decode", scale)

    def graph(q: Tensor, kv: Tensor, q_pe: Tensor, k_pe: Tensor) -> dict[str, Tensor]:
        scores = ops.einsum("b h r, b t r -> b h t", q, kv) + ops.einsum("b h p, b t p -> b h t", q_pe, k_pe)
        scores = scores * options.factor(q.shape[-1])
        out = ops.einsum("b h t, b t r -> b h r", ops.softmax(scores, axis="t"), kv)
        return {"out": out, "lse": log_sum_exp(scores, "e")} if lse else {"out": out}

    rank, rotated = extent("r", r), extent("p", p)
    return trace(
        graph,
        name="mla_decode",
        q=f"b h {rank}",
        kv=f"b t {rank}",
        q_pe=f"b h {rotated}",
        k_pe=f"b t {rotated}",
        dtype=dtype,
        outputs={"lse": "float32[b h]"} if lse else None,
    )


def mla_projected(
    *,
    scale: float = SCALE,
    dtype: str = "float16",
    d: int | None = None,
    e: int | None = None,
    r: int | None = None,
    p: int | None = None,
) -> Graph:
    """out = softmax((q (kv wk)ᵀ + q_pe k_peᵀ) · scale) (kv wv): keys and values are projected from the latent cache.

    Equal to the absorbed form softmax(((q wkᵀ) kvᵀ + q_pe k_peᵀ) · scale) kv wv, which never makes them. Shapes: q [b,
    h, d], kv [b, t, r], wk [h, r, d], wv [h, r, e], q_pe [b, h, p], k_pe [b, t, p], out [b, h, e].
    """
    options = ScoreOptions("mla_projected", scale)

    def graph(q: Tensor, kv: Tensor, wk: Tensor, wv: Tensor, q_pe: Tensor, k_pe: Tensor) -> Tensor:
        keys = ops.einsum("b t r, h r d -> b h t d", kv, wk)
        values = ops.einsum("b t r, h r e -> b h t e", kv, wv)
        scores = ops.einsum("b h d, b h t d -> b h t", q, keys) + ops.einsum("b h p, b t p -> b h t", q_pe, k_pe)
        weights = ops.softmax(scores * options.factor(q.shape[-1]), axis="t")
        return ops.einsum("b h t, b h t e -> b h e", weights, values)

    rank, rotated, head = extent("r", r), extent("p", p), extent("d", d)
    return trace(
        graph,
        name="mla_projected",
        q=f"b h {head}",
        kv=f"b t {rank}",
        wk=f"h {rank} {head}",
        wv=f"h {rank} {extent('e', e)}",
        q_pe=f"b h {rotated}",
        k_pe=f"b t {rotated}",
        dtype=dtype,
    )
