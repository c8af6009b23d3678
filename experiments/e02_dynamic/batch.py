"""The tensors of a point: requests as they were captured, in pools of pages that are allocated once an operator.

What no request uses holds NaN: pages that no table names, and outputs before they are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.ir.graph import Graph
from cleave.ir.index import evaluate
from experiments.e02_dynamic.config import graph_of
from experiments.e02_dynamic.workloads import Point

Integers = NDArray[np.int32]


def pointers(lengths: Sequence[int]) -> Integers:
    """Where each request begins, and the end of the last."""
    return np.asarray([0, *accumulate(lengths)], dtype=np.int32)


def page_ids(keys: Sequence[int], *, decode: bool) -> Integers:
    """Pages of all requests in their order, as a server that was captured gave them out.

    All share the page of the start token, prompts lie one after another, and tokens that were decoded together lie side
    by side: a step of all requests after the one before.
    """
    steps = max(0, min(keys) - 2) if decode and len(keys) > 1 else 0
    prompts = [max(0, k - 1 - steps) for k in keys]
    starts = 2 + np.concatenate([[0], np.cumsum(prompts)]).astype(np.int64)
    found: list[NDArray[np.int64]] = []
    for request, (k, prompt) in enumerate(zip(keys, prompts, strict=True)):
        if k:
            decoded = starts[-1] + request + len(keys) * np.arange(k - 1 - prompt)
            found += [np.asarray([1]), starts[request] + np.arange(prompt), decoded]
    return np.concatenate(found).astype(np.int32) if found else np.zeros(0, dtype=np.int32)


@dataclass
class Pools:
    """Caches of an operator, as long as its longest; ``used``: the pages that hold numbers, all others NaN."""

    arrays: dict[str, Any]
    used: Any = None

    def refill(self, ids: Any, ends: Any = None) -> None:
        """Numbers in these pages, drawn anew, and in no other; ``ends`` (page, slot): from there on a page has none."""
        import torch

        for x in self.arrays.values():
            if self.used is None:
                x.fill_(nan)
            else:
                x[self.used] = nan
            x[ids] = torch.randn((len(ids), *x.shape[1:]), device=x.device).to(x.dtype)
            for page, slot in ends or ():
                x[page, slot:] = nan
        self.used = ids

    def finite(self) -> None:
        """Zeros in the place of NaN, for who reads what no table names."""
        for x in self.arrays.values():
            x.nan_to_num_(nan=0.0)
        self.used = None


@dataclass(frozen=True)
class Batch:
    """Inputs and outputs of a point by their names in the graph; ``queries`` and ``keys``: pointers on the host, of
    pages where keys lie in such."""

    point: Point
    graph: Graph
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    queries: Any
    keys: Any
    pools: Pools = field(default_factory=lambda: Pools({}))

    def poison(self) -> None:
        for x in self.outputs.values():
            x.fill_(nan)


def pools_of(points: Sequence[Point], device: str) -> Pools:
    """Caches that are long enough for all points of one operator."""
    import torch

    longest = max(points, key=lambda p: p.pages)
    g = graph_of(longest.const)
    shapes = {i.name: (_shape(i.shape, longest, g), getattr(torch, i.dtype)) for i in g.inputs if _is_cache(i.name)}
    return Pools({n: torch.empty(shape, dtype=dtype, device=device) for n, (shape, dtype) in shapes.items()})


def _is_cache(name: str) -> bool:
    return name.endswith("_cache")


def drawn(p: Point, pools: Pools, device: str, *, seed: int, ids: Any = None) -> Batch:
    """A point's batch. The one before, of the same pools, is lost. ``ids``: its page table, if it is not that of a
    server, which has pages of one key."""
    import torch

    torch.manual_seed(seed)
    g = graph_of(p.const)
    keys, queries = torch.from_numpy(pointers(p.pages_of_requests)), torch.from_numpy(pointers(p.queries))
    given: dict[str, Any] = {"sm_scale": p.scale, "kv_indptr": keys.to(device), "qo_indptr": queries.to(device)}
    if pools.arrays:
        if ids is None:
            ids = torch.from_numpy(page_ids(p.keys, decode="decode" in p.const["kind"])).to(device)
        rests = [k - (n - 1) * p.page if n else 0 for k, n in zip(p.keys, p.pages_of_requests, strict=True)]
        ends = zip(keys[1:].tolist(), rests, strict=True)
        pools.refill(ids.long(), [(int(ids[end - 1]), rest) for end, rest in ends if 0 < rest < p.page])
        given["kv_last_page_len"] = torch.tensor(rests, dtype=torch.int32, device=device)
        given |= {"kv_indices": ids} | {n: x[: p.pages] for n, x in pools.arrays.items()}
    for i in g.inputs:
        if i.name not in given:
            given[i.name] = torch.randn(_shape(i.shape, p, g), device=device).to(getattr(torch, i.dtype))
    outputs = {
        o.name: torch.full(_shape(o.shape, p, g), nan, dtype=getattr(torch, o.dtype), device=device) for o in g.outputs
    }
    return Batch(p, g, {i.name: given[i.name] for i in g.inputs}, outputs, queries, keys, pools)


def _shape(extents: Sequence[Any], p: Point, g: Graph) -> tuple[int, ...]:
    every = {**p.dims, **{s.name: s.value for s in g.symbols if s.value is not None}}
    return tuple(int(evaluate(e, every)) for e in extents)
