"""Scaled dot-product attention; many heads, grouped heads and one shared key head are one graph."""

from __future__ import annotations

from math import log
from typing import Any

from cleave.errors import GraphError
from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.nn.norm import rms_normed
from cleave.nn.scores import ScoreOptions, Window
from cleave.nn.spec import extent, not_negative

SCORES = "b kv_heads group s d, b kv_heads t d -> b kv_heads group s t"
VALUES = "b kv_heads group s t, b kv_heads t e -> b kv_heads group s e"


def attention(
    *,
    causal: bool = False,
    window: Window = None,
    soft_cap: float | None = None,
    bias: bool = False,
    alibi: bool = False,
    lse: bool = False,
    base2: bool = False,
    scale: float | None = None,
    dtype: str = "float16",
    d: int | None = None,
    e: int | None = None,
    group: int | None = None,
    kv_heads: int | None = None,
) -> Graph:
    """out = softmax(q kᵀ · scale) v per head; lse = log sum exp of the scores in float32.

    Shapes: q [b, kv_heads · group, s, d], k [b, kv_heads, t, d], v [b, kv_heads, t, e], out [b, kv_heads · group, s,
    e], lse [b, kv_heads · group, s]; query head h = kv_head · group + g reads key head kv_head. ``d``, ``e``,
    ``group`` and ``kv_heads`` fix those extents. ``scale`` is 1/√d unless given. What else happens to scores, in this
    order, p = i + t − s being the position of query i (aligned at the last query):

    soft_cap c     c · tanh(scores / c)
    alibi          + slopes[h] · (j − p), slopes [kv_heads · group] an input. Source: Press et al., arXiv 2108.12409
    bias           + bias[h, i, j], an input [kv_heads · group, s, t] that may hold −inf
    causal         query i sees key j where j <= p
    window w       query i sees key j where p − w < j <= p; (left, right): where p − left <= j <= p + right

    A row that sees no key gives 0, and lse −inf. ``lse`` is natural, or in base 2 with ``base2``.
    """
    return _attention(
        "attention",
        ScoreOptions("attention", scale, causal, window, soft_cap, bias, alibi),
        eps=None,
        lse=_lse_base("attention", lse=lse, base2=base2),
        dtype=dtype,
        extents={"d": d, "e": e, "group": group, "kv_heads": kv_heads},
    )


def qk_norm_attention(
    *,
    causal: bool = False,
    lse: bool = False,
    eps: float = 1e-6,
    scale: float | None = None,
    dtype: str = "float16",
    d: int | None = None,
    e: int | None = None,
    group: int | None = None,
) -> Graph:
    """Attention over queries and keys with an RMS norm along the head: q' = q / sqrt(mean over d of q² + eps) · gain.

    Shapes: as in ``attention``, gain_q and gain_k [d]. The keys are the unnormalised ones, as a cache may hold them.
    Source: Henry et al., arXiv 2010.04245; with RMS norms as in Qwen3.
    """
    return _attention(
        "qk_norm_attention",
        ScoreOptions("qk_norm_attention", scale, causal),
        eps=not_negative("qk_norm_attention", "eps", eps),
        lse=_lse_base("qk_norm_attention", lse=lse),
        dtype=dtype,
        extents={"d": d, "e": e, "group": group},
    )


def _lse_base(operator: str, *, lse: bool, base2: bool = False) -> str | None:
    if base2 and not lse:
        raise GraphError("base2 is the base of lse: ask for lse too", location=operator)
    return ("2" if base2 else "e") if lse else None


def attended(scores: Tensor, v: Tensor, values: str = VALUES) -> Tensor:
    """softmax(scores) v, the softmax along t."""
    return ops.einsum(values, ops.softmax(scores, axis="t"), v)


def log_sum_exp(scores: Tensor, base: str) -> Tensor:
    """log sum exp of the scores along t, in base e or 2."""
    natural = ops.logsumexp(scores, axis="t")
    return natural * (1.0 / log(2.0)) if base == "2" else natural


def _attention(
    name: str, options: ScoreOptions, eps: float | None, lse: str | None, dtype: str, extents: dict[str, int | None]
) -> Graph:
    def graph(q: Tensor, k: Tensor, v: Tensor, **more: Tensor) -> dict[str, Tensor]:
        if eps is not None:
            q, k = (rms_normed(x, eps) * more.pop(gain) for x, gain in ((q, "gain_q"), (k, "gain_k")))
        scores = options.applied(ops.einsum(SCORES, q, k), q.shape[-1], **more)
        out = attended(scores, v)
        return {"out": out, "lse": log_sum_exp(scores, lse)} if lse else {"out": out}

    axes = {axis: extent(axis, extents.get(axis)) for axis in ("kv_heads", "group", "d", "e")}
    heads = f"({axes['kv_heads']} {axes['group']})"
    more: dict[str, Any] = options.inputs(heads)
    if eps is not None:
        more |= {"gain_q": axes["d"], "gain_k": axes["d"]}
    stored = {"out": f"b {heads} s e", "lse": f"float32[b {heads} s]"}
    return trace(
        graph,
        name=name,
        q=f"b {heads} s {axes['d']}",
        k=f"b {axes['kv_heads']} t d",
        v=f"b {axes['kv_heads']} t {axes['e']}",
        dtype=dtype,
        outputs=stored if lse else {"out": stored["out"]},
        **more,
    )
