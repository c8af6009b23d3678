"""FlashInfer's FA2 and FA3 on a batch: planned once for its lengths, then run into outputs of the caller.

    fa2       the back end of prefill, and of latent attention; decode on CUDA cores
    fa2 mma   decode as FA2's prefill with one query a request, on tensor cores; the better of the two counts
    fa3       for Hopper

Plans hold the tables of a batch, so they are made without FlashInfer's own mode for graphs, which pads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.e02_dynamic.batch import Batch

WORKSPACE_BYTES = 384 << 20
DEAD_LSE = -1e3
"""Below it a log-sum-exp may be of no key: FlashInfer writes a large finite number, FA2 -5e4 and FA3 -6369.28."""

TENSOR_CORES = "fa2 mma"


@dataclass(frozen=True)
class Baseline:
    """``plan``: what the host does when lengths or tables change; ``run``: the call, after it."""

    plan: Callable[[], object]
    run: Callable[[], object]


def names(kind: str) -> tuple[str, ...]:
    """Of an operator's kind."""
    return ("fa2", TENSOR_CORES, "fa3") if kind == "gqa_paged_decode" else ("fa2", "fa3")


@dataclass
class FlashInfer:
    """Wrappers of one operator, made once: each has its own plan, and all share one workspace."""

    device: str = "cuda"
    wrappers: dict[str, Any] = field(default_factory=dict[str, Any])
    workspace: Any = None

    def baseline(self, name: str, batch: Batch) -> Baseline:
        wrapper = self._wrapper(name, batch.point.const["kind"])
        arguments, arrays = _planned(batch), _arrays(batch)
        outputs = {"out": batch.outputs["out"], "lse": batch.outputs["lse"], "return_lse": True}
        return Baseline(lambda: wrapper.plan(**arguments), lambda: wrapper.run(*arrays, **outputs))

    def _wrapper(self, name: str, kind: str) -> Any:
        import torch

        if self.workspace is None:
            self.workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=self.device)
        if name not in self.wrappers:
            self.wrappers[name] = _made(name, kind, self.workspace)
        return self.wrappers[name]


def _made(name: str, kind: str, workspace: Any) -> Any:
    import flashinfer

    backend = "fa2" if name == TENSOR_CORES else name
    match kind:
        case "gqa_paged_decode":
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper
            return wrapper(workspace, "NHD", use_tensor_cores=name != "fa2", backend=backend)
        case "gqa_paged_prefill":
            return flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend=backend)
        case "ragged_prefill":
            return flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD", backend=backend)
        case _:
            return flashinfer.mla.BatchMLAPagedAttentionWrapper(workspace, backend=backend)


def _arrays(batch: Batch) -> tuple[Any, ...]:
    x = batch.inputs
    match batch.point.const["kind"]:
        case "gqa_paged_decode" | "gqa_paged_prefill":
            return x["q"], (x["k_cache"], x["v_cache"])
        case "ragged_prefill":
            return x["q"], x["k"], x["v"]
        case _:
            return x["q_nope"], x["q_pe"], x["ckv_cache"], x["kpe_cache"]


def _planned(batch: Batch) -> Mapping[str, Any]:
    """Arguments of ``plan``: pointers lie on the host, where it reads them, and page tables on the device."""
    import torch

    const = batch.point.const
    dtype = getattr(torch, batch.graph.inputs[0].dtype)
    given: dict[str, Any] = {"q_data_type": dtype, "kv_data_type": dtype, "sm_scale": batch.point.scale}
    heads = {"num_qo_heads": const["num_qo_heads"], "num_kv_heads": const.get("num_kv_heads")}
    ones = torch.ones(batch.point.requests, dtype=torch.int32)
    match const["kind"]:
        case "gqa_paged_decode":
            tables = {"indptr": batch.keys, "indices": batch.inputs["kv_indices"], "last_page_len": ones}
            return {**given, **heads, **tables, "head_dim": const["head_dim"], "page_size": const["page_size"]}
        case "gqa_paged_prefill":
            tables = {
                "qo_indptr": batch.queries,
                "paged_kv_indptr": batch.keys,
                "paged_kv_indices": batch.inputs["kv_indices"],
                "paged_kv_last_page_len": ones,
            }
            sizes = {"head_dim_qk": const["head_dim"], "page_size": const["page_size"], "causal": True}
            return {**given, **heads, **tables, **sizes}
        case "ragged_prefill":
            sizes = {"head_dim_qk": const["head_dim_qk"], "head_dim_vo": const["head_dim_vo"], "causal": True}
            return {**given, **heads, "qo_indptr": batch.queries, "kv_indptr": batch.keys, **sizes}
        case kind:
            tables = {
                "qo_indptr": batch.queries,
                "kv_indptr": batch.keys,
                "kv_indices": batch.inputs["kv_indices"],
                "kv_len_arr": batch.keys[1:] - batch.keys[:-1],
            }
            sizes = {"head_dim_ckv": const["head_dim_ckv"], "head_dim_kpe": const["head_dim_kpe"]}
            more = {"num_heads": const["num_qo_heads"], "page_size": const["page_size"], "causal": "prefill" in kind}
            return {**given, **tables, **sizes, **more}


def with_dead_rows(outputs: Mapping[str, Any], expected: Any) -> dict[str, Any]:
    """Outputs of FlashInfer as they are meant: the log-sum-exp of no key, where -inf is ``expected``, is any number
    below ``DEAD_LSE``. Others are left as they are."""
    import torch

    lse = outputs["lse"]
    dead = (expected == -torch.inf) & (lse < DEAD_LSE)
    return {**outputs, "lse": torch.where(dead, -torch.inf, lse)}
