"""Attention over batches of requests of different lengths, whose keys lie in pages or packed one after another.

The graphs are ordinary ones: a cache is read through its page table, the extents of queries and keys are differences
of neighbours in index pointers, and rows are stored where their request begins. A request may have no query or no key,
and page tables may be longer than what they hold: what is beyond, and unused slots of a page, are never read.

    qo_indptr [b + 1], kv_indptr [b + 1]   where the rows, keys or pages of each request begin; the last is their end
    kv_indices [num_kv_indices]            page table: position t of request b is slot t % page of page
                                           kv_indices[kv_indptr[b] + t // page]
    kv_last_page_len [b]                   keys in the last page of each request; no input where a page is one key
    out, lse                               rows of the batch; lse in float32 and base 2; rows of no request left alone

Tables that are wrong do no harm, and nothing tells: a kernel reads 0 from a place that is outside an array, page 0 from
behind the end of ``kv_indices``, and writes nothing outside of outputs. A request whose tables are wrong has a value
without a meaning, NaN if it meets unused slots, and takes as long as it claims to have keys; those of others are right.
``check_tables`` refuses such tables on the host.

``scale`` is a number, or the name of a float32 input. Options are those of ``attention``. Masks are aligned at the last
query and the last key of each request. Source: FlashInfer, arXiv 2501.01005.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from cleave.frontend import ops
from cleave.frontend.placed import Placed
from cleave.frontend.spec import SpecLike, fixed_value
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.dim import dim
from cleave.ir.graph import Graph
from cleave.nn.attention import log_sum_exp
from cleave.nn.mla import SCALE
from cleave.nn.scores import Scale, ScoreOptions, Window
from cleave.nn.spec import extent

B = dim("b")
"""Requests."""

Specs: TypeAlias = Mapping[str, SpecLike]
Tensors: TypeAlias = Mapping[str, Tensor]

_POINTERS: SpecLike = (B + 1,)
_QUERIES: Specs = {"qo_indptr": _POINTERS}
_PACKED: Specs = {"kv_indptr": _POINTERS}

_SCORES = "b s kv_heads group d, b t kv_heads d -> b kv_heads group s t"
_VALUES = "b kv_heads group s t, b t kv_heads e -> b s kv_heads group e"


def paged_decode(
    *,
    window: Window = None,
    soft_cap: float | None = None,
    scale: Scale = None,
    dtype: str = "float16",
    d: int | None = None,
    group: int | None = None,
    kv_heads: int | None = None,
    page: int | None = None,
) -> Graph:
    """Attention of one query a request over keys in pages.

    Shapes: q and out [b, kv_heads · group, d], k_cache and v_cache [num_pages, page, kv_heads, d], kv_indptr,
    kv_indices and, unless page = 1, kv_last_page_len, lse [b, kv_heads · group]. See ``cleave.nn.paged``.
    """
    options = ScoreOptions("paged_decode", scale, window=window, soft_cap=soft_cap)
    return _multi_head(options, {}, _paged(page), dtype, d, d, group, kv_heads, page)


def paged_prefill(
    *,
    causal: bool = False,
    window: Window = None,
    soft_cap: float | None = None,
    scale: Scale = None,
    dtype: str = "float16",
    d: int | None = None,
    group: int | None = None,
    kv_heads: int | None = None,
    page: int | None = None,
) -> Graph:
    """Attention of packed queries of several requests over keys in pages.

    Shapes: q and out [total_q, kv_heads · group, d], k_cache and v_cache [num_pages, page, kv_heads, d], qo_indptr,
    kv_indptr, kv_indices and, unless page = 1, kv_last_page_len, lse [total_q, kv_heads · group]. See
    ``cleave.nn.paged``.
    """
    options = ScoreOptions("paged_prefill", scale, causal, window, soft_cap)
    return _multi_head(options, _QUERIES, _paged(page), dtype, d, d, group, kv_heads, page)


def ragged_prefill(
    *,
    causal: bool = False,
    window: Window = None,
    soft_cap: float | None = None,
    scale: Scale = None,
    dtype: str = "float16",
    d: int | None = None,
    e: int | None = None,
    group: int | None = None,
    kv_heads: int | None = None,
) -> Graph:
    """Attention of packed queries of several requests over their packed keys.

    Shapes: q [total_q, kv_heads · group, d], k [total_kv, kv_heads, d], v [total_kv, kv_heads, e], qo_indptr,
    kv_indptr, out [total_q, kv_heads · group, e], lse [total_q, kv_heads · group]. See ``cleave.nn.paged``.
    """
    options = ScoreOptions("ragged_prefill", scale, causal, window, soft_cap)
    return _multi_head(options, _QUERIES, _PACKED, dtype, d, e, group, kv_heads)


def mla_paged_decode(
    *,
    window: Window = None,
    soft_cap: float | None = None,
    scale: Scale = SCALE,
    dtype: str = "float16",
    r: int | None = None,
    p: int | None = None,
    page: int | None = None,
) -> Graph:
    """Latent attention of one query a request over a latent cache in pages, which is both key and value.

    Shapes: q_nope and out [b, h, r], q_pe [b, h, p], ckv_cache [num_pages, page, r], kpe_cache [num_pages, page, p],
    kv_indptr, kv_indices and, unless page = 1, kv_last_page_len, lse [b, h]. See ``mla_decode``, ``cleave.nn.paged``.
    """
    options = ScoreOptions("mla_paged_decode", scale, window=window, soft_cap=soft_cap)
    return _latent(options, {}, dtype, r, p, page)


def mla_paged_prefill(
    *,
    causal: bool = False,
    window: Window = None,
    soft_cap: float | None = None,
    scale: Scale = SCALE,
    dtype: str = "float16",
    r: int | None = None,
    p: int | None = None,
    page: int | None = None,
) -> Graph:
    """Latent attention of packed queries over a latent cache in pages, which is both key and value.

    Shapes: q_nope and out [total_q, h, r], q_pe [total_q, h, p], ckv_cache [num_pages, page, r], kpe_cache [num_pages,
    page, p], qo_indptr, kv_indptr, kv_indices and, unless page = 1, kv_last_page_len, lse [total_q, h]. See
    ``cleave.nn.paged``.
    """
    options = ScoreOptions("mla_paged_prefill", scale, causal, window, soft_cap)
    return _latent(options, _QUERIES, dtype, r, p, page)


# ---- heads


def _multi_head(
    options: ScoreOptions,
    queries: Specs,
    keys: Specs,
    dtype: str,
    d: int | None,
    e: int | None,
    group: int | None,
    kv_heads: int | None,
    page: int | None = None,
) -> Graph:
    paged = "kv_indices" in keys
    k_name, v_name = ("k_cache", "v_cache") if paged else ("k", "v")

    def graph(q: Tensor, **x: Tensor) -> Stored:
        at = _keys(x, x[k_name])
        scores = ops.einsum(_SCORES, _by_request(q, x), x[k_name][at])
        scores = options.applied(scores, q.shape[-1], **x)
        return _stored(ops.einsum(_VALUES, ops.softmax(scores, axis="t"), x[v_name][at]), scores, q, x)

    shared, own = extent("kv_heads", kv_heads), extent("group", group)
    head, last = extent("d", d), extent("d", d) if paged else extent("e", e)
    where = _pool(page) if paged else "total_kv"
    arrays = {
        "q": f"{_row(queries)} ({shared} {own}) {head}",
        k_name: f"{where} {shared} {head}",
        v_name: f"{where} {shared} {last}",
    }
    return _traced(graph, options, arrays, {**queries, **keys}, dtype, f"({shared} {own})")


def _latent(options: ScoreOptions, queries: Specs, dtype: str, r: int | None, p: int | None, page: int | None) -> Graph:
    def graph(q_nope: Tensor, q_pe: Tensor, **x: Tensor) -> Stored:
        at = _keys(x, x["ckv_cache"])
        latent = x["ckv_cache"][at]
        scores = ops.einsum("b s h r, b t r -> b h s t", _by_request(q_nope, x), latent)
        scores = scores + ops.einsum("b s h p, b t p -> b h s t", _by_request(q_pe, x), x["kpe_cache"][at])
        scores = options.applied(scores, q_nope.shape[-1], **x)
        out = ops.einsum("b h s t, b t e -> b s h e", ops.softmax(scores, axis="t"), latent)
        return _stored(out, scores, q_nope, x)

    rank, rotated, where = extent("r", r), extent("p", p), _pool(page)
    arrays = {
        "q_nope": f"{_row(queries)} h {rank}",
        "q_pe": f"{_row(queries)} h {rotated}",
        "ckv_cache": f"{where} {rank}",
        "kpe_cache": f"{where} {rotated}",
    }
    return _traced(graph, options, arrays, {**queries, **_paged(page)}, dtype, "h")


Stored: TypeAlias = Mapping[str, "Tensor | Placed"]


def _traced(
    graph: Callable[..., Stored], options: ScoreOptions, arrays: Specs, tables: Specs, dtype: str, heads: str
) -> Graph:
    rows = _row(tables)
    inputs: dict[str, Any] = {**arrays, **tables, **options.inputs(heads)}
    return trace(
        graph,
        name=options.operator,
        dtype={**dict.fromkeys(arrays, dtype), **dict.fromkeys(tables, "int32")},
        outputs={"out": f"{dtype}[{rows} {heads} e]", "lse": f"float32[{rows} {heads}]"},
        **inputs,
    )


# ---- where queries and keys of a request are


def _paged(page: int | None) -> Specs:
    tables: Specs = {"kv_indptr": _POINTERS, "kv_indices": "num_kv_indices"}
    return tables if page == 1 else {**tables, "kv_last_page_len": "b"}


def _pool(page: int | None) -> str:
    return f"num_pages {1 if page == 1 else extent('page', page)}"


def _row(tables: Specs) -> str:
    """The axis of rows: packed, or one a request."""
    return "total_q" if "qo_indptr" in tables else "b"


def _requests() -> Tensor:
    return ops.arange(B, "b")


def _count(pointers: Tensor) -> Tensor:
    """How many each request has."""
    return pointers[_requests() + 1] - pointers[_requests()]


def _rows(pointers: Tensor, axis: str, x: Tensor) -> Tensor:
    """The rows of each request in a packed tensor, over (b, axis).

    No request has more than there are: said in the extent, it bounds a grid that the host launches before it knows.
    """
    return pointers[_requests()] + ops.arange(ops.minimum(_count(pointers), x.shape[0]), axis)


def _by_request(x: Tensor, tables: Tensors) -> Tensor:
    """Queries over (b, s, ..)."""
    return x[_rows(tables["qo_indptr"], "s", x)] if "qo_indptr" in tables else x[:, None]


def _keys(tables: Tensors, cache: Tensor) -> tuple[Tensor, ...]:
    """Where a cache, or packed keys, hold each key, over (b, t)."""
    pointers = tables["kv_indptr"]
    if "kv_indices" not in tables:
        return (_rows(pointers, "t", cache),)
    page = fixed_value(cache.shape[1]) or cache.shape[1]
    count = _count(pointers)
    if "kv_last_page_len" in tables:
        count = ops.maximum((count - 1) * page + tables["kv_last_page_len"][_requests()], 0)
    t = ops.arange(count, "t")
    return tables["kv_indices"][pointers[_requests()] + t // page], t % page


def _stored(out: Tensor, scores: Tensor, q: Tensor, tables: Tensors) -> Stored:
    lse = log_sum_exp(scores, "2")
    if "qo_indptr" not in tables:
        return {"out": out.sum("s"), "lse": lse.sum("s")}
    rows = _rows(tables["qo_indptr"], "s", q)
    return {"out": ops.place(out, total_q=rows), "lse": ops.place(lse, total_q=rows)}
