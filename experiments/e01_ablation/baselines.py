"""Baselines: what torch offers for each operator, as functions of its inputs by name.

``eager`` is the program as a user writes it; others are the libraries' kernels, weights or caches that lie side by
side, and the reassociated graph where the algebra has one. Nothing is computed before a call: only where weights and
caches lie in memory is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleave.nn.mla import SCALE
from experiments.e01_ablation import attention as heads
from experiments.e01_ablation.baseline import Baseline, Given, side_by_side

EPS = {"rmsnorm_matmul": 1e-6, "residual_rmsnorm": 1e-6, "norm_residual_norm": 1e-6, "layernorm_linear": 1e-5}


def baselines(operator: str, options: Mapping[str, Any], dims: Mapping[str, int]) -> Mapping[str, Baseline]:
    """Baselines of an operator by name; none for an operator without. ``dims``: of all symbols of its graph."""
    if operator in heads.ATTENTIONS:
        return heads.attention_baselines(operator, options, dims)
    return TABLE.get(operator, {})


# ---- products


def matmul(x: Given) -> Any:
    return x["a"] @ x["b"]


def matmul_matmul(x: Given) -> Any:
    return (x["q"] @ x["k"].mT) @ x["v"]


def matmul_matmul_reassociated(x: Given) -> Any:
    return x["q"] @ (x["k"].mT @ x["v"])


def matmul_rowsum(x: Given) -> Any:
    return (x["x"] @ x["w"]).sum(1)


def matmul_rowsum_reassociated(x: Given) -> Any:
    return x["x"] @ x["w"].sum(1)


def swiglu(x: Given) -> Any:
    from torch.nn.functional import silu

    return silu(x["x"] @ x["w1"]) * (x["x"] @ x["w2"])


def swiglu_concatenated(x: Given) -> Any:
    from torch.nn.functional import silu

    gate, up = (x["x"] @ x["w12"]).chunk(2, dim=-1)
    return silu(gate) * up


def lora(x: Given) -> Any:
    return x["x"] @ x["w"] + (x["x"] @ x["a"]) @ x["b"]


def lora_concatenated(x: Given) -> Any:
    import torch

    y = x["x"] @ x["wa"]
    n = x["w"].shape[1]
    return torch.addmm(y[:, :n], y[:, n:], x["b"])


def lora_reassociated(x: Given) -> Any:
    import torch

    return x["x"] @ torch.addmm(x["w"], x["a"], x["b"])


def quantised_matmul(x: Given) -> Any:
    """The scales of token and column stay behind the product, as they would in a library."""
    peak = x["x"].abs().amax(1, keepdim=True).float()
    rounded = (x["x"].float() * (127.0 / peak)).round().to(x["x"].dtype)
    return ((rounded * (peak / 127.0).to(x["x"].dtype)) @ x["w"]) * x["scale"]


def linear_attention(x: Given) -> Any:
    q, k = _features(x)
    weights = q @ k.mT
    return _quotient(weights @ x["v"], weights.float().sum(-1, keepdim=True))


def linear_attention_reassociated(x: Given) -> Any:
    q, k = _features(x)
    sums = k.float().sum(1, keepdim=True)
    return _quotient(q @ (k.mT @ x["v"]), (q.float() * sums).sum(-1, keepdim=True))


def _quotient(a: Any, b: Any) -> Any:
    """Sums over many keys are larger than half precision holds."""
    return (a.float() / b).to(a.dtype)


def _features(x: Given) -> tuple[Any, Any]:
    from torch.nn.functional import elu

    return elu(x["q"]) + 1.0, elu(x["k"]) + 1.0


# ---- norms


def rmsnorm_matmul(x: Given) -> Any:
    return (_rms(x["x"], EPS["rmsnorm_matmul"]) * x["gain"]) @ x["w"]


def rmsnorm_matmul_library(x: Given) -> Any:
    from torch.nn.functional import rms_norm

    return rms_norm(x["x"], x["gain"].shape, x["gain"], EPS["rmsnorm_matmul"]) @ x["w"]


def rmsnorm_matmul_reassociated(x: Given) -> Any:
    """The scale of a row behind the product."""
    scale = (x["x"].float().square().mean(-1, keepdim=True) + EPS["rmsnorm_matmul"]).rsqrt()
    return ((x["x"] * x["gain"]) @ x["w"]) * scale.to(x["x"].dtype)


def layernorm_linear(x: Given) -> Any:
    from torch.nn.functional import layer_norm

    return layer_norm(x["x"], x["gain"].shape, x["gain"], x["shift"], EPS["layernorm_linear"]) @ x["w"] + x["bias"]


def layernorm_linear_library(x: Given) -> Any:
    import torch
    from torch.nn.functional import layer_norm

    normed = layer_norm(x["x"], x["gain"].shape, x["gain"], x["shift"], EPS["layernorm_linear"])
    return torch.addmm(x["bias"], normed, x["w"])


def residual_rmsnorm(x: Given) -> Any:
    total = x["x"] + x["y"]
    return total, _rms(total, EPS["residual_rmsnorm"]) * x["gain"]


def residual_rmsnorm_library(x: Given) -> Any:
    from torch.nn.functional import rms_norm

    total = x["x"] + x["y"]
    return total, rms_norm(total, x["gain"].shape, x["gain"], EPS["residual_rmsnorm"])


def norm_residual_norm(x: Given) -> Any:
    eps = EPS["norm_residual_norm"]
    return _rms(x["x"] + x["alpha"] * (_rms(x["y"], eps) - x["x"]), eps)


def norm_residual_norm_library(x: Given) -> Any:
    import torch
    from torch.nn.functional import rms_norm

    shape, eps = x["alpha"].shape, EPS["norm_residual_norm"]
    return rms_norm(torch.lerp(x["x"], rms_norm(x["y"], shape, None, eps), x["alpha"]), shape, None, eps)


def _rms(x: Any, eps: float) -> Any:
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


# ---- softmax


def softmax(x: Given) -> Any:
    return x["x"].softmax(-1)


def softmax_matmul(x: Given) -> Any:
    return x["x"].softmax(-1) @ x["w"]


def softmax_matmul_reassociated(x: Given) -> Any:
    """The sum of a row behind the product."""
    powers = (x["x"].float() - x["x"].float().amax(-1, keepdim=True)).exp()
    return (powers.to(x["x"].dtype) @ x["w"]) * (1.0 / powers.sum(-1, keepdim=True)).to(x["x"].dtype)


# ---- latent attention in decode, projections


def mla_decode(x: Given) -> Any:
    scores = (x["q"] @ x["kv"].mT + x["q_pe"] @ x["k_pe"].mT) * SCALE
    return scores.softmax(-1) @ x["kv"]


def mla_decode_concatenated(x: Given) -> Any:
    """One product for the scores: the cache holds both parts of a key side by side."""
    import torch

    queries = torch.cat([x["q"], x["q_pe"]], dim=-1)
    return ((queries @ x["cache"].mT) * SCALE).softmax(-1) @ x["cache"][..., : x["q"].shape[-1]]


def mla_projected(x: Given) -> Any:
    import torch

    keys = torch.einsum("btr,hrd->bhtd", x["kv"], x["wk"])
    values = torch.einsum("btr,hre->bhte", x["kv"], x["wv"])
    scores = torch.einsum("bhd,bhtd->bht", x["q"], keys) + x["q_pe"] @ x["k_pe"].mT
    return torch.einsum("bht,bhte->bhe", (scores * SCALE).softmax(-1), values)


def mla_projected_reassociated(x: Given) -> Any:
    """The absorbed form: keys and values are never made."""
    import torch

    queries = torch.einsum("bhd,hrd->bhr", x["q"], x["wk"])
    scores = queries @ x["kv"].mT + x["q_pe"] @ x["k_pe"].mT
    latent = (scores * SCALE).softmax(-1) @ x["kv"]
    return torch.einsum("bhr,hre->bhe", latent, x["wv"])


TABLE: Mapping[str, Mapping[str, Baseline]] = {
    "matmul": {"cublas": Baseline(matmul, compiled=True)},
    "matmul_matmul": {
        "eager": Baseline(matmul_matmul, compiled=True),
        "reassociated": Baseline(matmul_matmul_reassociated, compiled=True),
    },
    "matmul_rowsum": {
        "eager": Baseline(matmul_rowsum, compiled=True),
        "reassociated": Baseline(matmul_rowsum_reassociated, compiled=True),
    },
    "swiglu": {
        "eager": Baseline(swiglu, compiled=True),
        "w1, w2 side by side": Baseline(swiglu_concatenated, side_by_side("w12", "w1", "w2"), compiled=True),
    },
    "lora": {
        "eager": Baseline(lora, compiled=True),
        "w, a side by side": Baseline(lora_concatenated, side_by_side("wa", "w", "a"), compiled=True),
        "reassociated": Baseline(lora_reassociated, compiled=True),
    },
    "quantised_matmul": {"eager": Baseline(quantised_matmul, compiled=True)},
    "linear_attention": {
        "eager": Baseline(linear_attention, compiled=True),
        "reassociated": Baseline(linear_attention_reassociated, compiled=True),
    },
    "rmsnorm_matmul": {
        "eager": Baseline(rmsnorm_matmul, compiled=True),
        "rms_norm, cublas": Baseline(rmsnorm_matmul_library),
        "reassociated": Baseline(rmsnorm_matmul_reassociated, compiled=True),
    },
    "layernorm_linear": {
        "eager": Baseline(layernorm_linear, compiled=True),
        "layer_norm, addmm": Baseline(layernorm_linear_library),
    },
    "residual_rmsnorm": {
        "eager": Baseline(residual_rmsnorm, compiled=True),
        "rms_norm": Baseline(residual_rmsnorm_library),
    },
    "norm_residual_norm": {
        "eager": Baseline(norm_residual_norm, compiled=True),
        "rms_norm, lerp": Baseline(norm_residual_norm_library),
    },
    "softmax": {"eager": Baseline(softmax, compiled=True)},
    "softmax_matmul": {
        "eager": Baseline(softmax_matmul, compiled=True),
        "reassociated": Baseline(softmax_matmul_reassociated, compiled=True),
    },
    "mla_decode": {
        "eager": Baseline(mla_decode, compiled=True),
        "kv, k_pe side by side": Baseline(mla_decode_concatenated, side_by_side("cache", "kv", "k_pe"), compiled=True),
    },
    "mla_projected": {
        "eager": Baseline(mla_projected, compiled=True),
        "reassociated": Baseline(mla_projected_reassociated, compiled=True),
    },
}
