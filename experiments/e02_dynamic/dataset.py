"""Operators and points as a dataset of FlashInfer-Bench, which its evaluator reads.

    definitions/NAME.json     an operator: axes, inputs and outputs as published, and a reference
    solutions/NAME.json       a schedule, as ``cleave.export`` writes it
    workloads/NAME.jsonl      a point: axes, the scale, and where lengths and page ids are
    blob/UUID.safetensors     those

The reference is written here, not FlashInfer-Bench's: attention in float32, request by request. Query i of a request
sees the keys up to i + keys - queries; the log-sum-exp has base 2; a query that sees no key gives 0 and -inf.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.e02_dynamic.batch import page_ids, pointers
from experiments.e02_dynamic.config import Const
from experiments.e02_dynamic.workloads import Point

Json = dict[str, Any]

MOST_SCORES = 2**27
"""Of one product in the reference: 512 MB."""

_REFERENCE = """import math

import torch


@torch.no_grad()
def run({inputs}):
    queries = {queries}
    rows, heads, _ = queries.shape
    output = torch.zeros(rows, heads, {values}.shape[-1], device=queries.device)
    lse = torch.full((rows, heads), -math.inf, device=queries.device)
    first, begin = {first}, kv_indptr.tolist()
    for start, stop, left, right in zip(first, first[1:], begin, begin[1:]):
        keys = right - left
        if start == stop or not keys:
            continue
{gathered}
        group = heads // k_own.shape[1]
        k_own, v_own = (x.float().repeat_interleave(group, dim=1) for x in (k_own, v_own))
        step = max(1, {most} // (heads * keys))
        for low in range(start, stop, step):
            high = min(low + step, stop)
            last = torch.arange(low, high, device=queries.device)[:, None] + keys - stop
            scores = torch.einsum("qhd,khd->hqk", queries[low:high].float(), k_own) * sm_scale
            scores = scores.masked_fill(torch.arange(keys, device=queries.device) > last, -math.inf)
            total = scores.logsumexp(dim=-1, keepdim=True)
            weights = torch.where(total == -math.inf, 0.0, (scores - total).exp())
            output[low:high] = torch.einsum("hqk,khd->qhd", weights, v_own)
            lse[low:high] = total[..., 0].T / math.log(2)
    return output.to(torch.bfloat16), lse
"""

_GATHERED = {
    "gqa_paged": (
        "ids = kv_indices[left:right].long()",
        "k_own, v_own = k_cache[ids].flatten(0, 1), v_cache[ids].flatten(0, 1)",
    ),
    "mla_paged": (
        "ids = kv_indices[left:right].long()",
        "v_own = ckv_cache[ids].flatten(0, 1)[:, None]",
        "k_own = torch.cat([v_own, kpe_cache[ids].flatten(0, 1)[:, None]], dim=-1)",
    ),
    "ragged": ("k_own, v_own = k[left:right], v[left:right]",),
}
"""Keys and values [keys, heads, ..] of one request, in lines of the reference."""


def definition(operator: str, const: Const) -> Json:
    """An operator, with the name and the axes that it was published with; pages hold one key."""
    arrays = {**_arrays(const), **_tables(const)}
    axes = list(dict.fromkeys(a for shape in arrays.values() for a in shape))
    queries = arrays.get("q_nope") or arrays["q"]
    last = (arrays.get("v") or queries)[-1]
    inputs: Json = {n: {"shape": s, "dtype": "int32" if "ind" in n else "bfloat16"} for n, s in arrays.items()}
    return {
        "name": operator,
        "op_type": "_".join(operator.split("_")[:2]),
        "description": f"{const['kind']} at the extents that FlashInfer-Bench has captured; the reference is another",
        "axes": {a: {"type": "const", "value": const[a]} if a in const else {"type": "var"} for a in axes},
        "inputs": {**inputs, "sm_scale": {"shape": None, "dtype": "float32"}},
        "outputs": {
            "output": {"shape": [*queries[:2], last], "dtype": "bfloat16"},
            "lse": {"shape": queries[:2], "dtype": "float32"},
        },
        "reference": _reference([*inputs, "sm_scale"], const["kind"]),
    }


def _arrays(const: Const) -> dict[str, list[str]]:
    """Axes of queries, keys and values."""
    rows = ["batch_size" if _is_decode(const) else "total_q", "num_qo_heads"]
    if "head_dim_ckv" in const:
        caches = {"ckv_cache": "head_dim_ckv", "kpe_cache": "head_dim_kpe"}
        return {
            "q_nope": [*rows, "head_dim_ckv"],
            "q_pe": [*rows, "head_dim_kpe"],
            **{n: ["num_pages", "page_size", last] for n, last in caches.items()},
        }
    if "page_size" in const:
        cache = ["num_pages", "page_size", "num_kv_heads", "head_dim"]
        return {"q": [*rows, "head_dim"], "k_cache": cache, "v_cache": cache}
    keys = ["total_kv", "num_kv_heads"]
    return {"q": [*rows, "head_dim_qk"], "k": [*keys, "head_dim_qk"], "v": [*keys, "head_dim_vo"]}


def _tables(const: Const) -> dict[str, list[str]]:
    queries = {} if _is_decode(const) else {"qo_indptr": ["len_indptr"]}
    return {
        **queries,
        "kv_indptr": ["len_indptr"],
        **({"kv_indices": ["num_kv_indices"]} if "page_size" in const else {}),
    }


def _is_decode(const: Const) -> bool:
    return "decode" in const["kind"]


def _reference(inputs: list[str], kind: str) -> str:
    latent = "q_nope" in inputs
    found = _GATHERED["ragged" if kind.startswith("ragged") else kind[: len("gqa_paged")]]
    return _REFERENCE.format(
        inputs=", ".join(inputs),
        queries="torch.cat([q_nope, q_pe], dim=-1)" if latent else "q",
        values="ckv_cache" if latent else "v" if "v" in inputs else "v_cache",
        first="qo_indptr.tolist()" if "qo_indptr" in inputs else "list(range(rows + 1))",
        gathered="\n".join(8 * " " + line for line in found),
        most=MOST_SCORES,
    )


def tables(p: Point) -> Mapping[str, Any]:
    """Where requests begin, and the pages of their keys, by name: int32."""
    found = {
        "qo_indptr": pointers(p.queries),
        "kv_indptr": pointers(p.keys),
        "kv_indices": page_ids(p.keys, decode=_is_decode(p.const)),
    }
    return {n: found[n] for n in _tables(p.const)}


def pages(p: Point) -> int:
    """Of a cache that has as many as the point's table names, not as many as the server had: up to 2.9 GB."""
    found = tables(p).get("kv_indices")
    return 0 if found is None else int(found.max(initial=0)) + 1


def workload(p: Point) -> Json:
    """A point, in caches of ``pages``."""
    named = tables(p)
    axes = {"len_indptr": p.requests + 1}
    axes |= {"batch_size": p.requests} if _is_decode(p.const) else {"total_q": sum(p.queries)}
    if "kv_indices" in named:
        axes |= {"num_kv_indices": sum(p.keys), "num_pages": pages(p)}
    else:
        axes |= {"total_kv": sum(p.keys)}
    inputs: Json = {n: {"type": "random"} for n in _arrays(p.const)}
    inputs |= {n: {"type": "safetensors", "path": f"blob/{p.uuid}.safetensors", "tensor_key": n} for n in named}
    inputs["sm_scale"] = {"type": "scalar", "value": p.scale}
    return {"definition": p.operator, "workload": {"uuid": p.uuid, "axes": axes, "inputs": inputs}}


def write(root: Path, p: Point, solution: Mapping[str, Any]) -> None:
    """A dataset of one point."""
    from safetensors.numpy import save_file

    _write(root / "definitions" / f"{p.operator}.json", definition(p.operator, p.const))
    _write(root / "solutions" / f"{p.operator}.json", solution)
    _write(root / "workloads" / f"{p.operator}.jsonl", workload(p))
    (root / "blob").mkdir()
    save_file(dict(tables(p)), root / "blob" / f"{p.uuid}.safetensors")


def _write(path: Path, value: Mapping[str, Any]) -> None:
    """One line, as both kinds of files may be."""
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(value) + "\n", encoding="utf-8")
