"""Baselines of attention: eager, torch's cuDNN and FlashAttention-2 backends, FlexAttention for windows and soft caps.

Query heads of a group may be passed as they are, or folded: as further queries of their key head, where no mask depends
on the position of a query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import inf
from typing import Any

from cleave.errors import CleaveError
from experiments.e01_ablation.baseline import Baseline, Function, Given, side_by_side

ATTENTIONS = ("attention", "mha", "gqa", "mqa", "mla", "qk_norm_attention", "rope_attention", "qkv_attention")
BACKENDS = {"cudnn": "CUDNN_ATTENTION", "fa2": "FLASH_ATTENTION"}
_OPTIONS = ("causal", "window", "soft_cap")
_QK_NORM_EPS = 1e-6


Attend = Callable[[Any, Any, Any], Any]
Prepare = Callable[[Given], tuple[Any, Any, Any]]


@dataclass(frozen=True)
class _Scores:
    """What happens to scores."""

    causal: bool = False
    window: int | None = None
    soft_cap: float | None = None

    @property
    def plain(self) -> bool:
        return self.window is None and self.soft_cap is None

    @property
    def masked(self) -> bool:
        return self.causal or self.window is not None


def attention_baselines(operator: str, options: Mapping[str, Any], dims: Mapping[str, int]) -> dict[str, Baseline]:
    """Baselines by name. What comes before attention is compiled, attention itself only as it is written.

    Errors: an option that no baseline here knows.
    """
    unknown = [n for n in options if n not in _OPTIONS]
    if unknown:
        raise CleaveError(f"no baseline has the option {unknown[0]!r}", location=operator)
    scores, prepare, prepared = _Scores(**options), _PREPARED.get(operator, _as_they_are), operator in _PREPARED
    attends = _attends(scores, grouped=dims.get("group", 1) > 1)
    out = {"eager": Baseline(_called(partial(eager, scores), prepare), compiled=True)}
    for name, attend in attends.items():
        out[name] = Baseline(_called(attend, prepare), compiled=prepared)
        if operator == "qkv_attention":
            together = side_by_side("wkv", "wk", "wv", flat=True)
            out[f"{name}, wk, wv side by side"] = Baseline(_called(attend, projected_at_once), together, compiled=True)
    return out


def _attends(scores: _Scores, *, grouped: bool) -> dict[str, Attend]:
    """The libraries' attentions by name."""
    if not scores.plain:
        return {"flex": partial(flex, scores)}
    out: dict[str, Attend] = {n: partial(fused, b, causal=scores.causal) for n, b in BACKENDS.items()}
    if grouped and not scores.causal:
        out |= {f"{n} folded": partial(folded, b) for n, b in BACKENDS.items()}
    return out


def _called(attend: Attend, prepare: Prepare) -> Function:
    return partial(_run, attend, prepare)


def _run(attend: Attend, prepare: Prepare, x: Given) -> Any:
    q, k, v = prepare(x)
    out = attend(q, k, v)
    return out if "q" in x else out[0]  # what is projected has no axis of requests


# ---- where queries, keys and values come from


def _as_they_are(x: Given) -> tuple[Any, Any, Any]:
    return x["q"], x["k"], x["v"]


def normed(x: Given) -> tuple[Any, Any, Any]:
    from torch.nn.functional import rms_norm

    q, k = (rms_norm(x[n], x[g].shape, x[g], _QK_NORM_EPS) for n, g in (("q", "gain_q"), ("k", "gain_k")))
    return q, k, x["v"]


def rotated(x: Given) -> tuple[Any, Any, Any]:
    start = x["k"].shape[2] - x["q"].shape[2]
    return _rotated(x["q"], x["cos"][start:], x["sin"][start:]), _rotated(x["k"], x["cos"], x["sin"]), x["v"]


def _rotated(x: Any, cos: Any, sin: Any) -> Any:
    import torch

    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def projected(x: Given) -> tuple[Any, Any, Any]:
    q, k, v = (_heads(x[a] @ x[w].flatten(1), x[w].shape[1:]) for a, w in (("x", "wq"), ("y", "wk"), ("y", "wv")))
    return q, k, v


def projected_at_once(x: Given) -> tuple[Any, Any, Any]:
    h, d = x["wk"].shape[1:]
    both = x["y"] @ x["wkv"]
    k, v = both[:, : h * d], both[:, h * d :]
    return _heads(x["x"] @ x["wq"].flatten(1), (h, d)), _heads(k, (h, d)), _heads(v, x["wv"].shape[1:])


def _heads(x: Any, shape: tuple[int, int]) -> Any:
    return x.unflatten(1, shape).transpose(0, 1)[None]


_PREPARED: Mapping[str, Prepare] = {
    "qk_norm_attention": normed,
    "rope_attention": rotated,
    "qkv_attention": projected,
}


# ---- attention


def eager(scores: _Scores, q: Any, k: Any, v: Any) -> Any:
    import torch

    b, h, s, d = q.shape
    kv_heads, t = k.shape[1:3]
    found = (q.reshape(b, kv_heads, -1, d) @ k.mT).view(b, kv_heads, h // kv_heads, s, t) * d**-0.5
    if scores.soft_cap is not None:
        found = torch.tanh(found / scores.soft_cap) * scores.soft_cap
    if scores.masked:
        query = torch.arange(s, device=q.device)[:, None] + (t - s)
        key = torch.arange(t, device=q.device)
        found = found.masked_fill(~_visible(scores, query, key), -inf)
    return (found.softmax(-1).view(b, kv_heads, -1, t) @ v).view(b, h, s, -1)


def _visible(scores: _Scores, query: Any, key: Any) -> Any:
    """A window ends with the query's own key."""
    seen = key <= query
    return seen if scores.window is None else seen & (key > query - scores.window)


def fused(backend: str, q: Any, k: Any, v: Any, *, causal: bool = False) -> Any:
    import torch.nn.attention as backends
    from torch.nn.functional import scaled_dot_product_attention

    with backends.sdpa_kernel([getattr(backends.SDPBackend, backend)]):
        return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def folded(backend: str, q: Any, k: Any, v: Any) -> Any:
    """A group's heads as queries of their key head."""
    b, h, s, d = q.shape
    out = fused(backend, q.reshape(b, k.shape[1], -1, d), k, v)
    return out.reshape(b, h, s, -1)


def flex(scores: _Scores, q: Any, k: Any, v: Any) -> Any:
    block_mask = _block_mask(scores, q.shape[2], k.shape[2], str(q.device)) if scores.masked else None
    capped = None if scores.soft_cap is None else _capped(scores.soft_cap)
    return compiled_flex()(q, k, v, score_mod=capped, block_mask=block_mask, enable_gqa=q.shape[1] != k.shape[1])


@cache
def compiled_flex() -> Any:
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


@cache
def _block_mask(scores: _Scores, s: int, t: int, device: str) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    def mask(b: Any, h: Any, query: Any, key: Any) -> Any:
        return _visible(scores, query + (t - s), key)

    return create_block_mask(mask, None, None, s, t, device=device)


@cache
def _capped(cap: float) -> Any:
    import torch

    def capped(score: Any, b: Any, h: Any, query: Any, key: Any) -> Any:
        return torch.tanh(score / cap) * cap

    return capped
