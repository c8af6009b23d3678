"""Part large: decode of up to 8 M keys in pages of 1, 16 and 64, beside decode of the same keys in one piece.

    paged        pages of all requests in one pool of 2^32 elements a cache, whose numbers exceed 32 bits
    contiguous   the graph ``nn.attention`` with one query, over a copy of the keys [b, kv_heads, t, d]

Both are scheduled at the shape that is timed. Of each the fastest of the schedules that are right meets the other in
a run of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from cleave import nn
from cleave.ir.graph import Graph
from cleave.records import Outcome
from experiments.e02_dynamic.batch import Batch, drawn
from experiments.e02_dynamic.bench import Bench, Laboratory, Prepared, bench_of
from experiments.e02_dynamic.config import compiled_in
from experiments.e02_dynamic.plans import Rule, Tried, plan_at
from experiments.e02_dynamic.point import GPU, SAMPLES, TRIAL_SAMPLES, Entered, bad, enter_ours, recorded, timed
from experiments.e02_dynamic.reference import reference
from experiments.e02_dynamic.workloads import Point
from experiments.tally import Checked

CONST: Mapping[str, Any] = {"kind": "gqa_paged_decode", "num_qo_heads": 32, "num_kv_heads": 4, "head_dim": 128}
PAGES = (1, 16, 64)
BATCHES = ((1, 2**17), (256, 2**15))
"""Requests, and keys of each."""
POOL_KEYS = 2**23 + 2**10
ORDERS: Mapping[str, Sequence[int]] = {"shuffled": PAGES, "in order": (1,)}
"""Of the pages of all requests, and the page sizes that are timed so."""
CONTIGUOUS = "contiguous_decode_h32_kv4_d128"
GOAL = 0.92
"""Time of contiguous decode over that of paged decode."""
TRIED = 3
FAR = 2**31
"""Elements that 32-bit numbers reach."""


@dataclass(frozen=True)
class Large:
    """A point with its order of pages, and what decodes its keys in one piece."""

    point: Point
    order: str

    @property
    def operator(self) -> str:
        return self.point.operator

    @property
    def dense(self) -> Point:
        p = self.point
        axes = {"len_indptr": p.requests + 1, "t": p.keys[0]}
        return Point(CONTIGUOUS, p.const, p.uuid, axes, p.scale, p.lengths, p.keys, p.queries)


def operator(page: int) -> str:
    return f"gqa_paged_decode_h32_kv4_d128_ps{page}"


def contiguous_graph(const: Mapping[str, Any] = CONST) -> Graph:
    """One query a request against keys [b, kv_heads, t, d]; the scale is that of the points."""
    d = const["head_dim"]
    sizes = {"h": const["num_qo_heads"], "kv_heads": const["num_kv_heads"], "s": 1, "d": d, "e": d}
    return compiled_in(nn.instantiate("attention", sizes, dtype="bfloat16", lse=True, base2=True))


def points(const: Mapping[str, Any] = CONST, pool_keys: int = POOL_KEYS) -> tuple[Large, ...]:
    """Those of one page size after another, since pools of two do not fit."""
    return tuple(
        Large(_point(const, page, b, t, pool_keys, order), order)
        for page in PAGES
        for b, t in BATCHES
        for order in ORDERS
        if page in ORDERS[order]
    )


def _point(const: Mapping[str, Any], page: int, b: int, t: int, pool_keys: int, order: str) -> Point:
    axes = {"len_indptr": b + 1, "num_pages": pool_keys // page, "num_kv_indices": b * -(-t // page)}
    own, scale = {**const, "page_size": page}, const["head_dim"] ** -0.5
    return Point(operator(page), own, f"{b} x {t} {order}", axes, scale, "synthetic", (t,) * b, (1,) * b)


def plan(pool: Executor, every: Sequence[Large]) -> dict[tuple[str, int], Tried]:
    """Schedules by operator and number of requests."""
    shapes = {(p.operator, p.requests): p.dims for x in every for p in (x.point, x.dense)}
    found = plan_at(pool, [(name, [dims]) for (name, _), dims in shapes.items()], TRIED)
    return dict(zip(shapes, found, strict=True))


# ---- a job of the process that has the GPU


def time_large(x: Large, paged: Tried, dense: Tried, every: Sequence[Large], lab: Laboratory = GPU) -> Checked:
    """Check both kinds, choose the fastest of each, time those two against each other."""
    p, out = x.point, Checked()
    bench = bench_of(p.operator, lab, [o.point for o in every if o.operator == p.operator])
    ids = page_table(p, x.order, lab.device)
    batch = drawn(p, bench.pools, lab.device, seed=p.requests, ids=ids)
    ready = Prepared(batch, reference(batch))
    kinds = {"paged": (ready, paged), "contiguous": (Prepared(contiguous(batch, x.dense), ready.wanted), dense)}
    chosen = Entered()
    for kind, (given, tried) in kinds.items():
        entered = _right(bench, given, tried)
        chosen.records += entered.records
        if entered.ours:
            times = timed(entered, bench, TRIAL_SAMPLES)
            best = min(entered.ours, key=lambda name: times[name].median)
            chosen.ours[kind] = entered.ours[best]
    out.records += chosen.records
    if chosen.ours.keys() != kinds.keys():
        out.records.append(bad(p, "both", Outcome.REFUSED, f"no schedule of {kinds.keys() - chosen.ours.keys()}"))
        return out
    times = timed(chosen, bench, SAMPLES)
    again = ready.called(chosen.ours["paged"].call, lab, ours=True)
    if not again.passed:
        out.records.append(bad(p, "paged", Outcome.WRONG, f"after timing: {again}"))
    moved = 2 * sum(p.keys) * 2 * p.const["num_kv_heads"] * p.const["head_dim"]
    ratio = times["contiguous"].median / times["paged"].median
    for kind, e in chosen.ours.items():
        r = recorded(p, kind, e, times[kind], {})
        r.details.update(page=p.page, order=x.order, far_keys=far_keys(batch), contiguous_over_paged=ratio)
        out.records.append(r)
    columns = ", ".join(f"{k} {1e6 * t.median:.1f} us ({moved / t.median / 1e12:.2f} TB/s)" for k, t in times.items())
    missed = "" if ratio >= GOAL else f"  missed: {GOAL}"
    out.lines.append(f"{p.operator} {p.uuid}: {columns}, contiguous / paged {ratio:.3f}{missed}")
    return out


def _right(bench: Bench, given: Prepared, tried: Tried) -> Entered:
    entered = Entered()
    for number, made in enumerate(tried.made):
        enter_ours(entered, bench, given, f"schedule {number}", Rule((made,)))
    return entered


def page_table(p: Point, order: str, device: str) -> Any:
    """The last pages of the pool."""
    import torch

    count, pages = p.axes["num_kv_indices"], p.pages
    torch.manual_seed(count)
    own = torch.randperm(count, device=device) if order == "shuffled" else torch.arange(count, device=device)
    return (pages - count + own).to(torch.int32)


def far_keys(batch: Batch) -> int:
    """How many keys lie, whole, beyond what 32 bits number."""
    cache = batch.inputs["k_cache"]
    return int((batch.inputs["kv_indices"].long() * cache[0].numel() >= FAR).sum()) * batch.point.page


def contiguous(batch: Batch, dense: Point) -> Batch:
    """The same queries over the same keys [b, kv_heads, t, d], a copy, into the same outputs."""
    import torch

    p, x = batch.point, batch.inputs
    ids = x["kv_indices"].long().view(p.requests, -1)
    t = p.keys[0]

    def gathered(cache: Any) -> Any:
        whole = torch.empty((p.requests, cache.shape[2], t, cache.shape[3]), dtype=cache.dtype, device=cache.device)
        for request in range(p.requests):
            whole[request] = cache[ids[request]].flatten(0, 1)[:t].transpose(0, 1)
        return whole

    inputs = {"q": x["q"][:, :, None], "k": gathered(x["k_cache"]), "v": gathered(x["v_cache"])}
    outputs = {name: o[:, :, None] for name, o in batch.outputs.items()}
    return Batch(dense, contiguous_graph(p.const), inputs, outputs, batch.queries, batch.keys, batch.pools)
