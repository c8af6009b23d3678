"""Operators of ``cleave.nn`` in plain NumPy float64, written row by row and from the formulas, not from the graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = dict[str, Array]


def softmax_row(x: Array) -> Array:
    """0 where nothing is seen."""
    seen = x > -np.inf
    if not seen.any():
        return np.zeros_like(x)
    e = np.exp(np.where(seen, x - x[seen].max(), 0.0)) * seen
    return e / e.sum()


def softmax_rows(x: Array) -> Array:
    return np.stack([softmax_row(row) for row in x]) if len(x) else x


def lse_row(x: Array) -> float:
    return float(np.logaddexp.reduce(x)) if (x > -np.inf).any() else -np.inf


def visible(s: int, t: int, *, causal: bool, window: int | tuple[int, int] | None) -> NDArray[np.bool_]:
    """Which keys each query sees: position by position, aligned at the last query."""
    keep = np.ones((s, t), dtype=bool)
    for i, j in np.ndindex(s, t):
        p = i + t - s
        if causal and j > p:
            keep[i, j] = False
        if isinstance(window, int) and not p - window < j <= p:
            keep[i, j] = False
        if isinstance(window, tuple) and not p - window[0] <= j <= p + window[1]:
            keep[i, j] = False
    return keep


def attention(
    x: Arrays,
    *,
    causal: bool = False,
    window: int | tuple[int, int] | None = None,
    soft_cap: float | None = None,
    lse: bool = False,
    base2: bool = False,
    scale: float | None = None,
    **_: object,
) -> Arrays:
    q, k, v = x["q"], x["k"], x["v"]
    batch, heads, s, d = q.shape
    t, group = k.shape[2], heads // k.shape[1]
    keep = visible(s, t, causal=causal, window=window)
    out, log_sums = np.zeros((batch, heads, s, v.shape[3])), np.full((batch, heads, s), -np.inf)
    for b, h, i in np.ndindex(batch, heads, s):
        scores = k[b, h // group] @ q[b, h, i] * (d**-0.5 if scale is None else scale)
        if soft_cap is not None:
            scores = soft_cap * np.tanh(scores / soft_cap)
        if "slopes" in x:
            scores = scores + x["slopes"][h] * (np.arange(t) - (i + t - s))
        if "bias" in x:
            scores = scores + x["bias"][h, i]
        scores = np.where(keep[i], scores, -np.inf)
        out[b, h, i] = softmax_row(scores) @ v[b, h // group]
        log_sums[b, h, i] = lse_row(scores) / (np.log(2) if base2 else 1.0)
    return {"out": out, "lse": log_sums} if lse else {"out": out}


def moe_routing(x: Arrays, *, k: int = 8, normalised: bool = True) -> Arrays:
    weights = np.zeros((len(x["logits"]), k))
    experts = np.zeros((len(x["logits"]), k))
    for row, logits in enumerate(x["logits"]):
        left = dict(enumerate(softmax_row(logits)))
        for rank in range(k):
            best = max(left, key=lambda e: (left[e], -e))
            experts[row, rank], weights[row, rank] = best, left.pop(best)
        if normalised:
            weights[row] /= weights[row].sum() or 1.0
    return {"weights": weights, "experts": experts}


def rms(x: Array, eps: float) -> Array:
    return x / np.sqrt((x**2).sum(-1, keepdims=True) / x.shape[-1] + eps)


def qk_norm_attention(x: Arrays, *, eps: float = 1e-6, **options: Any) -> Arrays:
    normed = {"q": rms(x["q"], eps) * x["gain_q"], "k": rms(x["k"], eps) * x["gain_k"], "v": x["v"]}
    return attention(normed, **options)


def rotated(x: Array, cos: Array, sin: Array) -> Array:
    """As in Llama: x cos + rotate_half(x) sin, both tables written twice along the head."""
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * np.concatenate([cos, cos], axis=-1) + turned * np.concatenate([sin, sin], axis=-1)


def rope_attention(x: Arrays, **options: Any) -> Arrays:
    s, t = x["q"].shape[2], x["k"].shape[2]
    rows = np.arange(s) + t - s
    q = rotated(x["q"], x["cos"][rows], x["sin"][rows])
    return attention({"q": q, "k": rotated(x["k"], x["cos"], x["sin"]), "v": x["v"]}, **options)


def mla_decode(x: Arrays, *, lse: bool = False, scale: float = 192**-0.5) -> Arrays:
    out, log_sums = np.zeros(x["q"].shape), np.full(x["q"].shape[:2], -np.inf)
    for b, h in np.ndindex(*x["q"].shape[:2]):
        scores = (x["kv"][b] @ x["q"][b, h] + x["k_pe"][b] @ x["q_pe"][b, h]) * scale
        out[b, h] = softmax_row(scores) @ x["kv"][b]
        log_sums[b, h] = lse_row(scores)
    return {"out": out, "lse": log_sums} if lse else {"out": out}


def mla_projected(x: Arrays, *, scale: float = 192**-0.5) -> Arrays:
    """In the absorbed form."""
    absorbed = np.einsum("bhd,hrd->bhr", x["q"], x["wk"])
    latent = mla_decode({**x, "q": absorbed}, scale=scale)["out"]
    return {"out": np.einsum("bhr,hre->bhe", latent, x["wv"])}


def qkv_attention(x: Arrays, **options: Any) -> Arrays:
    q, k, v = (np.einsum("sm,mhd->hsd", x[a], x[w])[None] for a, w in (("x", "wq"), ("y", "wk"), ("y", "wv")))
    return {"out": attention({"q": q, "k": k, "v": v}, **options)["out"][0]}


def quantised_matmul(x: Arrays, *, levels: int = 127) -> Arrays:
    out = np.zeros((len(x["x"]), x["w"].shape[1]))
    for i, row in enumerate(x["x"]):
        peak = np.abs(row).max(initial=0.0)
        if peak:
            out[i] = np.round(row / peak * levels) @ x["w"] * x["scale"] * peak / levels
    return {"out": out}


def llama_layer(x: Arrays, *, qk_norm: bool = False, eps: float = 1e-5) -> Arrays:
    """Head by head, the usual names of the usual implementation."""
    half, size = x["cos"].shape[1], 2 * x["cos"].shape[1]
    q_heads, kv_heads = x["wq"].shape[1] // size, x["wk"].shape[1] // size
    out = []
    for rows in x["x"]:
        h = rms(rows, eps) * x["norm1"]
        q, k, v = ((h @ x[w]).reshape(len(rows), -1, 2 * half).swapaxes(0, 1) for w in ("wq", "wk", "wv"))
        if qk_norm:
            q, k = rms(q, eps) * x["gain_q"], rms(k, eps) * x["gain_k"]
        q, k = rotated(q, x["cos"], x["sin"]), rotated(k, x["cos"], x["sin"])
        assert len(q) == q_heads and len(k) == kv_heads
        o = attention({"q": q[None], "k": k[None], "v": v[None]}, causal=True)["out"][0]
        y = rows + o.swapaxes(0, 1).reshape(len(rows), -1) @ x["wo"]
        inner = swiglu({"x": rms(y, eps) * x["norm2"], "w1": x["w1"], "w2": x["w3"]})["out"]
        out.append(y + inner @ x["w2"])
    return {"out": np.stack(out)}


def layer_norm(x: Array, eps: float) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


def gpt2_layer(x: Arrays, *, eps: float = 1e-5, heads: int = 3) -> Arrays:
    out = []
    for rows in x["x"]:
        h = layer_norm(rows, eps) * x["gain1"] + x["shift1"]
        split = ((h @ x[f"w{a}"] + x[f"b{a}"]).reshape(len(rows), heads, -1).swapaxes(0, 1)[None] for a in "qkv")
        o = attention(dict(zip("qkv", split, strict=True)), causal=True)["out"][0]
        y = rows + o.swapaxes(0, 1).reshape(len(rows), -1) @ x["wo"] + x["bo"]
        h = (layer_norm(y, eps) * x["gain2"] + x["shift2"]) @ x["w1"] + x["b1"]
        gelu = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        out.append(y + gelu @ x["w2"] + x["b2"])
    return {"out": np.stack(out)}


def linear_attention(x: Arrays, *, normalised: bool = True) -> Arrays:
    q, k = (np.where(a > 0, a + 1, np.exp(a)) for a in (x["q"], x["k"]))
    state = np.einsum("htd,hte->hde", k, x["v"])
    out = np.einsum("hsd,hde->hse", q, state)
    if normalised and k.shape[1]:
        out = out / np.einsum("hsd,hd->hs", q, k.sum(1))[..., None]
    return {"out": out}


def layernorm(x: Arrays, *, eps: float = 1e-5) -> Arrays:
    centred = x["x"] - x["x"].mean(-1, keepdims=True)
    return {"out": centred / np.sqrt(x["x"].var(-1, keepdims=True) + eps) * x["gain"] + x["shift"]}


def layernorm_linear(x: Arrays, *, eps: float = 1e-5) -> Arrays:
    return {"out": layernorm(x, eps=eps)["out"] @ x["w"] + x["bias"]}


def swiglu(x: Arrays) -> Arrays:
    gate = x["x"] @ x["w1"]
    return {"out": gate / (1 + np.exp(-gate)) * (x["x"] @ x["w2"])}


def residual_rmsnorm(x: Arrays, *, eps: float = 1e-6) -> Arrays:
    total = x["x"] + x["y"]
    return {"total": total, "out": rms(total, eps) * x["gain"]}


def norm_residual_norm(x: Arrays, *, eps: float = 1e-6) -> Arrays:
    return {"out": rms(x["x"] + x["alpha"] * (rms(x["y"], eps) - x["x"]), eps)}


REFERENCES: dict[str, Callable[..., Arrays]] = {
    "attention": attention,
    "mha": attention,
    "gqa": attention,
    "mqa": attention,
    "qk_norm_attention": qk_norm_attention,
    "rope": lambda x: {"out": rotated(x["x"], x["cos"], x["sin"])},
    "rope_attention": rope_attention,
    "mla": attention,
    "mla_decode": mla_decode,
    "mla_projected": mla_projected,
    "moe_routing": moe_routing,
    "qkv_attention": qkv_attention,
    "quantised_matmul": quantised_matmul,
    "llama_layer": llama_layer,
    "gpt2_layer": gpt2_layer,
    "linear_attention": linear_attention,
    "matmul": lambda x: {"out": x["a"] @ x["b"]},
    "matmul_matmul": lambda x: {"out": x["q"] @ (x["k"].swapaxes(1, 2) @ x["v"])},
    "matmul_rowsum": lambda x: {"out": x["x"] @ x["w"].sum(1)},
    "lora": lambda x: {"out": x["x"] @ (x["w"] + x["a"] @ x["b"])},
    "softmax": lambda x: {"out": softmax_rows(x["x"])},
    "softmax_matmul": lambda x: {"out": softmax_rows(x["x"]) @ x["w"]},
    "swiglu": swiglu,
    "rmsnorm": lambda x, eps=1e-6: {"out": rms(x["x"], eps) * x["gain"]},
    "rmsnorm_matmul": lambda x, eps=1e-6: {"out": (rms(x["x"], eps) * x["gain"]) @ x["w"]},
    "layernorm": layernorm,
    "layernorm_linear": layernorm_linear,
    "residual_rmsnorm": residual_rmsnorm,
    "norm_residual_norm": norm_residual_norm,
}
"""Inputs by name and options -> outputs, for every operator."""
