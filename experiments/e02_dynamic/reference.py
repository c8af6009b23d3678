"""Attention of a batch in float32, request by request, with the magnitude that the metric measures errors by.

    out = sum_t p_t v_t       size: sum_t p_t |v_t|
    lse = log2 sum_t exp s_t  size: (|max s| + log sum_t exp(s_t - max s)) / ln 2

A query sees the keys up to its own, aligned at the end of its request; one that sees none gives 0 and -inf. Sums of
float32 are a thousand times as exact as what the metric allows an output of bfloat16.
"""

from __future__ import annotations

from math import inf, log
from typing import Any

from experiments.e02_dynamic.batch import Batch

MOST_SCORES = 2**28
"""Of one product: 1 GB."""

Sized = tuple[Any, Any]
"""Values and their magnitudes."""


def reference(batch: Batch) -> dict[str, Sized]:
    """Outputs by name, each with its magnitude, in float64."""
    import torch

    made = {n: [torch.zeros_like(x, dtype=torch.float32) for _ in range(2)] for n, x in batch.outputs.items()}
    made["lse"][0].fill_(-inf)
    rows, ends = batch.queries.tolist(), batch.keys.tolist()
    x = batch.inputs
    q = torch.cat([x["q_nope"], x["q_pe"]], dim=-1) if "q_nope" in x else x["q"]
    for request in range(batch.point.requests):
        first, last = rows[request], rows[request + 1]
        begin, end, count = ends[request], ends[request + 1], batch.point.keys[request]
        if first == last or not count:
            continue
        k, v = (x[:count] for x in _keys(batch, begin, end))
        piece = max(1, MOST_SCORES // (q.shape[1] * count))
        seen = first if _sees_all(batch) else max(first, last - count)
        for start in range(seen, last, piece):
            stop = min(start + piece, last)
            ahead = None if _sees_all(batch) else start - last + count
            found = _attended(q[start:stop].float(), k, v, batch.point.scale, ahead)
            for name, values in zip(("out", "lse"), found, strict=True):
                for part, value in zip(made[name], values, strict=True):
                    part[start:stop] = value
    return {n: (value.double(), size.double()) for n, (value, size) in made.items()}


def _sees_all(batch: Batch) -> bool:
    """Of decode: the only query of a request is its last."""
    return "qo_indptr" not in batch.inputs


def _keys(batch: Batch, begin: int, end: int) -> tuple[Any, Any]:
    """Keys and values [t, heads, ..] of one request, to the end of its last page."""
    import torch

    x = batch.inputs
    if "k" in x:
        return x["k"][begin:end].float(), x["v"][begin:end].float()
    ids = x["kv_indices"][begin:end].long()
    if "k_cache" in x:
        return x["k_cache"][ids].flatten(0, 1).float(), x["v_cache"][ids].flatten(0, 1).float()
    latent = x["ckv_cache"][ids].flatten(0, 1).float()[:, None]
    return torch.cat([latent, x["kpe_cache"][ids].flatten(0, 1).float()[:, None]], dim=-1), latent


def _attended(q: Any, k: Any, v: Any, scale: float, ahead: int | None) -> tuple[Sized, Sized]:
    """Of q [s, heads, d]: query n sees the keys up to n + ``ahead``; all if that is None."""
    import torch

    s, heads, d = q.shape
    t, shared, e = v.shape
    folded = q.view(s, shared, heads // shared, d).permute(1, 0, 2, 3).reshape(shared, -1, d)
    scores = (folded @ k.permute(1, 2, 0)).view(shared, s, heads // shared, t) * scale
    if ahead is not None:
        last = torch.arange(s, device=q.device)[:, None, None] + ahead
        scores.masked_fill_(torch.arange(t, device=q.device) > last, -inf)
    peak = scores.amax(-1, keepdim=True)
    weights = (scores - peak).exp_()
    total = weights.sum(-1, keepdim=True)
    weights = (weights / total).view(shared, -1, t)

    def rows(x: Any, last: int) -> Any:
        return x.view(shared, s, heads // shared, last).permute(1, 0, 2, 3).reshape(s, heads, last)

    values = v.permute(1, 0, 2)
    out = rows(weights @ values, e), rows(weights @ values.abs(), e)
    lse = (peak + total.log()) / log(2), (peak.abs() + total.log()) / log(2)
    return out, (rows(lse[0], 1)[..., 0], rows(lse[1], 1)[..., 0])
