"""Stage 1, without a GPU: search the graphs, write their candidates; and how a measurement finds the one it wants."""

from __future__ import annotations

from typing import Any

import numpy as np

import cleave
from cleave import nn, ops
from cleave.candidate import Candidate
from cleave.ir.graph import Graph
from experiments.candidates import search_and_save, with_splits
from experiments.e04_decode.config import CANDIDATES


def search() -> int:
    """Search the graphs and write their candidates."""
    graphs = {
        "attention": nn.attention(),
        "attention_lse": nn.attention(lse=True),
        "attention_by_length": attention_by_length(),
        "matmul": nn.matmul(n=4096, k=4096),
    }
    for name, graph in graphs.items():
        search_and_save(graph, CANDIDATES / f"{name}.json")
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
    return with_splits(CANDIDATES / f"{graph}.json", splits)
