"""Stage 1, without a GPU: search the graphs and write their candidates; and how candidates and schedules are named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import cleave
from cleave import nn, ops
from cleave.candidate import Candidate, load_candidates, save_candidates
from cleave.errors import CleaveError
from cleave.ir.graph import Graph
from cleave.tile.plan import Schedule
from experiments.e04_decode.config import CANDIDATES


def search() -> int:
    """Search the graphs and write their candidates."""
    from cleave.search import search as run_search

    CANDIDATES.mkdir(exist_ok=True)
    graphs = {
        "attention": nn.attention(),
        "attention_lse": nn.attention(lse=True),
        "attention_by_length": attention_by_length(),
        "matmul": nn.matmul(n=4096, k=4096),
    }
    for name, graph in graphs.items():
        found = run_search(graph)
        save_candidates(found.candidates, CANDIDATES / f"{name}.json")
        print(f"{name}: {found.report.stop}, {len(found.candidates)} candidates, {found.report.seconds.total:.2f} s")
    return 0


def attention_by_length() -> Graph:
    """One query a head; key t of request b is visible where t < lengths[b], which lies on the device.

    q [b, kv_heads, group, d], k [b, kv_heads, t, d], v [b, kv_heads, t, e], lengths [b]
    """

    def program(q: Any, k: Any, v: Any, lengths: Any) -> Any:
        scores = ops.einsum("b kv_heads group d, b kv_heads t d -> b kv_heads group t", q, k) * ops.rsqrt(q.shape[-1])
        scores = ops.where(ops.position("t") < lengths, scores, -np.inf)
        weights = ops.softmax(scores, axis="t")
        return ops.einsum("b kv_heads group t, b kv_heads t e -> b kv_heads group e", weights, v)

    return cleave.trace(
        program,
        name="attention_by_length",
        q="b kv_heads group d",
        k="b kv_heads t d",
        v="b kv_heads t e",
        lengths="int32[b]",
    )


def candidate_of(graph: str, *splits: str) -> Candidate:
    """The best candidate of a graph with exactly these splits."""
    for c in load_candidates(CANDIDATES / f"{graph}.json"):
        if {s.base for s in c.splits} == set(splits):
            return c
    raise CleaveError(f"no candidate that splits {', '.join(splits) or 'nothing'}", location=graph)


def split_counts(s: Schedule, dims: Mapping[str, int]) -> list[int]:
    """Values of the symbols that the schedule brings along: counts of splits."""
    return [n for name, n in s.bind.items() if name not in dims]


def described(s: Schedule, dims: Mapping[str, int]) -> str:
    """A schedule in a few words."""
    k = s.kernels[0]
    tiles = " ".join(f"{a.name}{n}" for a, n in sorted(k.binding.tiles.items(), key=lambda p: p[0].name) if n > 1)
    way = "" if s.merge == "none" else f" {s.merge} x {'.'.join(map(str, split_counts(s, dims)))}"
    warps = f"{k.binding.warps}w" + ("" if k.binding.row_tiles == 1 else f"x{16 * k.binding.row_tiles}")
    return f"{k.skeleton} {k.binding.mma} {k.feed} {k.binding.teams}/{warps} {k.binding.stages}st {tiles}{way}"
