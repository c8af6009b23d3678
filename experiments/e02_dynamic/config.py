"""What e02 runs: operators of FlashInfer-Bench, and the shapes at which they were captured or are stood in for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cleave import nn
from cleave.ir.graph import Graph

HERE = Path(__file__).parent
DATA = HERE / "data"
CANDIDATES = HERE / "candidates"
RECORDS = HERE.parent / "records" / "e02_dynamic"

TARGET = "sm_90a"

CAPTURED = DATA / "flashinfer_bench_attention_workloads.json"
COMPLETED = DATA / "flashinfer_bench_attention_lengths_SYNTHETIC.json"

BASELINES = ("fa2", "fa3")
"""FlashInfer's back ends that ratios are taken over; the better of the ways to decode with one counts."""
GOALS: Mapping[str, float] = {"fa2": 1.4, "fa3": 1.7}
"""Of the geometric mean over the captured operators' means."""
OPERATOR_GOAL, LATENT_GOAL = 1.0, 1.1
"""Of each operator's mean over either baseline; of latent attention's over the better of both."""

Const = Mapping[str, Any]
"""Constant extents of an operator and its ``kind``, as in the files of workloads."""


def graph_of(const: Const, dtype: str = "bfloat16") -> Graph:
    """The graph that an operator is compiled from, once for all shapes: heads, head sizes and pages are compiled in."""
    heads = const["num_qo_heads"]
    given: dict[str, Any] = {"dtype": dtype, "scale": "sm_scale"}
    sizes: dict[str, int] = {"h": heads}
    match const["kind"]:
        case "ragged_prefill" as name:
            sizes |= {"kv_heads": const["num_kv_heads"], "d": const["head_dim_qk"], "e": const["head_dim_vo"]}
        case "gqa_paged_decode" | "gqa_paged_prefill" as kind:
            name = kind.removeprefix("gqa_")
            sizes |= {"kv_heads": const["num_kv_heads"], "d": const["head_dim"], "page": const["page_size"]}
        case "mla_paged_decode" | "mla_paged_prefill" as name:
            sizes |= {"r": const["head_dim_ckv"], "p": const["head_dim_kpe"], "page": const["page_size"]}
        case kind:
            raise ValueError(f"{kind}: no such operator")
    if "prefill" in name:
        given["causal"] = True
    return compiled_in(nn.instantiate(name, sizes, **given))


def compiled_in(built: tuple[Graph, dict[str, int]]) -> Graph:
    from cleave.ir.generic import fixed_graph

    return fixed_graph(*built)
