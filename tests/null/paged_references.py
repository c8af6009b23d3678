"""Attention over requests in plain NumPy float64, request by request and row by row; and batches of requests.

The meaning is that of the references of FlashInfer-Bench: keys of a request are gathered through its page table, query
i of n sees key j of m where j <= i + m - n, the log-sum-exp is in base 2, a row that sees no key gives 0 and -inf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Requests:
    """Numbers of queries and keys of every request; ``unused`` page ids behind the last request's."""

    keys: Sequence[int]
    queries: Sequence[int] = ()
    unused: int = 0
    sizes: dict[str, int] = field(default_factory=dict)


def row(scores: Array, values: Array) -> tuple[Array, float]:
    """One query: scores over the keys that it sees."""
    if not len(scores):
        return np.zeros(values.shape[1]), -np.inf
    weights = np.exp(scores - scores.max())
    return weights @ values / weights.sum(), float((scores.max() + np.log(weights.sum())) / np.log(2))


def seen(n: int, queries: int, keys: int, *, causal: bool, window: int | None) -> Array:
    """The keys that query n of a request sees."""
    last = n + keys - queries
    j = np.arange(keys)
    keep = j <= last if causal or window is not None else j >= 0
    return j[keep & (j > last - window)] if window is not None else j[keep]


def capped(scores: Array, soft_cap: float | None) -> Array:
    return scores if soft_cap is None else soft_cap * np.tanh(scores / soft_cap)


def key_rows(x: Arrays, name: str, b: int) -> Array:
    """The keys of a request, one after another."""
    first, last = x["kv_indptr"][b], x["kv_indptr"][b + 1]
    if "kv_indices" not in x:
        return x[name][first:last]
    pages = x[name][x["kv_indices"][first:last]]
    rows = pages.reshape(-1, *pages.shape[2:])
    if "kv_last_page_len" not in x or last == first:
        return rows
    return rows[: (last - first - 1) * pages.shape[1] + x["kv_last_page_len"][b]]


def attended(
    x: Arrays,
    first: Array,
    shape: tuple[int, ...],
    score: Callable[[int, int, int], Array],
    values: Callable[[int, int], Array],
    *,
    causal: bool = False,
    window: int | None = None,
    soft_cap: float | None = None,
) -> Arrays:
    """``score(request, query row, head)`` over all keys, ``values(request, head)``; rows of no request stay NaN."""
    out, lse = np.full(shape, np.nan), np.full(shape[:2], np.nan)
    for b in range(len(first) - 1):
        for n, h in np.ndindex(first[b + 1] - first[b], shape[1]):
            v = values(b, h)
            keep = seen(n, first[b + 1] - first[b], len(v), causal=causal, window=window)
            at = first[b] + n
            out[at, h], lse[at, h] = row(capped(score(b, at, h)[keep], soft_cap), v[keep])
    return {"out": out, "lse": lse}


def multi_head(x: Arrays, scale: float | None = None, **options: Any) -> Arrays:
    q = x["q"]
    k, v = ("k_cache", "v_cache") if "k_cache" in x else ("k", "v")
    group = q.shape[1] // x[k].shape[-2]
    factor = x["sm_scale"] if "sm_scale" in x else q.shape[2] ** -0.5 if scale is None else scale
    first = x.get("qo_indptr", np.arange(len(q) + 1))

    def score(b: int, at: int, h: int) -> Array:
        return key_rows(x, k, b)[:, h // group] @ q[at, h] * factor

    return attended(
        x, first, (*q.shape[:2], x[v].shape[-1]), score, lambda b, h: key_rows(x, v, b)[:, h // group], **options
    )


def latent(x: Arrays, scale: float | None = None, **options: Any) -> Arrays:
    q = x["q_nope"]
    factor = x["sm_scale"] if "sm_scale" in x else 192**-0.5 if scale is None else scale
    first = x.get("qo_indptr", np.arange(len(q) + 1))

    def score(b: int, at: int, h: int) -> Array:
        return (key_rows(x, "ckv_cache", b) @ q[at, h] + key_rows(x, "kpe_cache", b) @ x["q_pe"][at, h]) * factor

    return attended(x, first, q.shape, score, lambda b, h: key_rows(x, "ckv_cache", b), **options)


REFERENCES: dict[str, Callable[..., Arrays]] = {
    "paged_decode": multi_head,
    "paged_prefill": multi_head,
    "ragged_prefill": multi_head,
    "mla_paged_decode": latent,
    "mla_paged_prefill": latent,
}


# ---- batches


def batch(name: str, requests: Requests, rng: np.random.Generator, page: int = 1, *, scalar: bool = False) -> Arrays:
    """Inputs of an operator; NaN in every slot of the caches that no request uses, garbage behind the tables."""
    sizes = {"kv_heads": 2, "group": 3, "d": 4, "e": 5, "h": 3, "r": 4, "p": 2, **requests.sizes}
    b, keys = len(requests.keys), np.asarray(requests.keys, dtype=int)
    x: Arrays = {}
    rows = b
    if "prefill" in name:
        x["qo_indptr"] = np.concatenate([[0], np.cumsum(requests.queries)]).astype(np.int32)
        rows = int(x["qo_indptr"][-1])
    if name == "ragged_prefill":
        x["kv_indptr"] = np.concatenate([[0], np.cumsum(keys)]).astype(np.int32)
    else:
        _tables(x, keys, page, requests.unused, rng)
    heads = sizes["kv_heads"] * sizes["group"]
    total = int(keys.sum())
    shapes = {
        "ragged_prefill": {
            "q": (rows, heads, sizes["d"]),
            "k": (total, sizes["kv_heads"], sizes["d"]),
            "v": (total, sizes["kv_heads"], sizes["e"]),
        }
    }
    if name.startswith("mla"):
        shapes[name] = {"q_nope": (rows, sizes["h"], sizes["r"]), "q_pe": (rows, sizes["h"], sizes["p"])}
        caches = {"ckv_cache": (sizes["r"],), "kpe_cache": (sizes["p"],)}
    else:
        shapes.setdefault(name, {"q": (rows, heads, sizes["d"])})
        last = (sizes["kv_heads"], sizes["d"])
        caches = {} if name == "ragged_prefill" else {"k_cache": last, "v_cache": last}
    x |= {n: rng.normal(size=shape) for n, shape in shapes[name].items()}
    x |= {n: _cache(x, keys, page, last, rng) for n, last in caches.items()}
    return x | ({"sm_scale": np.asarray(0.37)} if scalar else {})


def _tables(x: Arrays, keys: Array, page: int, unused: int, rng: np.random.Generator) -> None:
    pages = -(-keys // page)
    x["kv_indptr"] = np.concatenate([[0], np.cumsum(pages)]).astype(np.int32)
    used = int(pages.sum())
    ids = rng.permutation(used + 3)[:used]
    garbage = np.asarray([-7, 10**6, 2**31 - 1, 0] * unused)[:unused]
    x["kv_indices"] = np.concatenate([ids, garbage]).astype(np.int32)
    if page > 1:
        x["kv_last_page_len"] = np.where(pages > 0, keys - (pages - 1) * page, 0).astype(np.int32)


def _cache(x: Arrays, keys: Array, page: int, last: tuple[int, ...], rng: np.random.Generator) -> Array:
    used = int(x["kv_indptr"][-1])
    cache = np.full((used + 3, page, *last), np.nan)
    for b, count in enumerate(keys):
        for j in range(count):
            at = x["kv_indices"][x["kv_indptr"][b] + j // page]
            cache[at, j % page] = rng.normal(size=last)
    return cache
