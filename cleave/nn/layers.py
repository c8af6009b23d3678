"""Whole decoder layers in prefill: one sequence after another, causal, no cache."""

from __future__ import annotations

from math import inf, pi, sqrt
from typing import Any

from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.nn.norm import layer_normed, rms_normed
from cleave.nn.spec import extent, not_negative


def llama_layer(
    *,
    qk_norm: bool = False,
    eps: float = 1e-5,
    dtype: str = "float16",
    freq: int | None = None,
    group: int | None = None,
) -> Graph:
    """A layer of Llama 3: y = x + attention(norm x), out = y + mlp(norm y); with ``qk_norm``, one of Qwen3.

    attention  causal, grouped heads, rotary queries and keys, scale 1/√d, then wo
    mlp        (silu(h w1) · (h w3)) w2

    Shapes: x and out [b, s, m], cos and sin [s, freq] in float32 with d = 2 · freq, norm1 and norm2 [m], wq [m,
    kv_heads · group · d], wk and wv [m, kv_heads · d], wo [kv_heads · group · d, m], w1 and w3 [m, f], w2 [f, m];
    with ``qk_norm`` gain_q and gain_k [d]. Source: Llama 3, arXiv 2407.21783; Qwen3, arXiv 2505.09388.
    """
    not_negative("llama_layer", "eps", eps)

    def graph(
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        norm1: Tensor,
        wq: Tensor,
        wk: Tensor,
        wv: Tensor,
        wo: Tensor,
        norm2: Tensor,
        w1: Tensor,
        w3: Tensor,
        w2: Tensor,
        gain_q: Tensor | None = None,
        gain_k: Tensor | None = None,
    ) -> Tensor:
        h = rms_normed(x, eps) * norm1
        q = ops.einsum("b s m, m kv_heads group pair freq -> b kv_heads group s pair freq", h, wq)
        k = ops.einsum("b s m, m kv_heads pair freq -> b kv_heads s pair freq", h, wk)
        v = ops.einsum("b s m, m kv_heads pair freq -> b kv_heads s pair freq", h, wv)
        if gain_q is not None and gain_k is not None:
            q, k = (rms_normed(a, eps, ("pair", "freq")) * gain for a, gain in ((q, gain_q), (k, gain_k)))
        q, k = (ops.rotary(a, cos, sin, "pair") for a in (q, k))
        scores = ops.einsum("b kv_heads group s pair freq, b kv_heads t pair freq -> b kv_heads group s t", q, k)
        weights = _causal_weights(scores * ops.rsqrt(2 * q.shape[-1]))
        heads = ops.einsum("b kv_heads group s t, b kv_heads t pair freq -> b kv_heads group s pair freq", weights, v)
        y = x + ops.einsum("b kv_heads group s pair freq, kv_heads group pair freq m -> b s m", heads, wo)
        h = rms_normed(y, eps) * norm2
        gate, up = (ops.einsum("b s m, m f -> b s f", h, w) for w in (w1, w3))
        return y + ops.einsum("b s f, f m -> b s m", ops.silu(gate) * up, w2)

    half = extent("freq", freq)
    head = f"pair=2 {half}"
    heads = f"kv_heads {extent('group', group)} {head}"
    gain: dict[str, Any] = {"gain_q": f"({head})", "gain_k": f"({head})"} if qk_norm else {}
    return trace(
        graph,
        name="llama_layer",
        x="b s m",
        cos=f"float32[s {half}]",
        sin=f"float32[s {half}]",
        norm1="m",
        wq=f"m ({heads})",
        wk=f"m (kv_heads {head})",
        wv=f"m (kv_heads {head})",
        wo=f"({heads}) m",
        norm2="m",
        w1="m f",
        w3="m f",
        w2="f m",
        dtype=dtype,
        outputs="b s m",
        **gain,
    )


def gpt2_layer(
    *,
    eps: float = 1e-5,
    dtype: str = "float16",
    d: int | None = None,
) -> Graph:
    """A layer of GPT-2: y = x + attention(norm x), out = y + mlp(norm y), layer norms with gain and shift.

    attention  causal, a key head for every query head, scale 1/√d; biases on the projections
    mlp        gelu(h w1 + b1) w2 + b2, gelu(a) = a/2 · (1 + tanh(√(2/π) (a + 0.044715 a³)))

    Shapes: x and out [b, s, m], gain1, shift1, gain2 and shift2 [m], wq, wk and wv [m, h · d], bq, bk and bv [h · d],
    wo [h · d, m], bo [m], w1 [m, f], b1 [f], w2 [f, m], b2 [m]. Source: Radford et al. 2019.
    """
    not_negative("gpt2_layer", "eps", eps)

    def graph(**p: Tensor) -> Tensor:
        x = p["x"]
        normed = layer_normed(x, eps) * p["gain1"] + p["shift1"]
        q, k, v = (ops.einsum("b s m, m h d -> b h s d", normed, p[f"w{a}"]) + p[f"b{a}"][:, None, :] for a in "qkv")
        weights = _causal_weights(ops.einsum("b h s d, b h t d -> b h s t", q, k) * ops.rsqrt(q.shape[-1]))
        heads = ops.einsum("b h s t, b h t d -> b h s d", weights, v)
        y = x + ops.einsum("b h s d, h d m -> b s m", heads, p["wo"]) + p["bo"]
        normed = layer_normed(y, eps) * p["gain2"] + p["shift2"]
        inner = gelu(ops.einsum("b s m, m f -> b s f", normed, p["w1"]) + p["b1"])
        return y + ops.einsum("b s f, f m -> b s m", inner, p["w2"]) + p["b2"]

    heads = f"(h {extent('d', d)})"
    shapes: dict[str, Any] = {"x": "b s m", "wo": f"{heads} m", "w1": "m f", "b1": "f", "w2": "f m"}
    shapes |= dict.fromkeys(("gain1", "shift1", "gain2", "shift2", "bo", "b2"), "m")
    shapes |= dict.fromkeys(("wq", "wk", "wv"), f"m {heads}") | dict.fromkeys(("bq", "bk", "bv"), heads)
    return trace(graph, name="gpt2_layer", dtype=dtype, outputs="b s m", **shapes)


def gelu(x: Tensor) -> Tensor:
    """x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    return 0.5 * x * (1.0 + ops.tanh(sqrt(2.0 / pi) * (x + 0.044715 * (x * ops.square(x)))))


def _causal_weights(scores: Tensor) -> Tensor:
    return ops.softmax(ops.where(ops.causal(scores, "s", "t"), scores, -inf), axis="t")
