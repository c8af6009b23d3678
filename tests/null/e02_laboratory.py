"""A laboratory for e02 without a GPU: contenders copy the reference, a table says how long they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import experiments.e02_dynamic.bench as benches
from cleave.runtime.timing import Contender, Timing
from experiments.e02_dynamic.baselines import Baseline
from experiments.e02_dynamic.batch import Batch, drawn
from experiments.e02_dynamic.bench import Laboratory
from experiments.e02_dynamic.reference import reference
from experiments.e02_dynamic.workloads import Point

GQA = {"num_qo_heads": 4, "num_kv_heads": 2}
LATENT = {"num_qo_heads": 3, "head_dim_ckv": 6, "head_dim_kpe": 4, "page_size": 1}
SMALL: Mapping[str, Mapping[str, Any]] = {
    "gqa_paged_decode": {"kind": "gqa_paged_decode", **GQA, "head_dim": 8, "page_size": 1},
    "gqa_paged_prefill": {"kind": "gqa_paged_prefill", **GQA, "head_dim": 8, "page_size": 1},
    "gqa_ragged_prefill": {"kind": "ragged_prefill", **GQA, "head_dim_qk": 6, "head_dim_vo": 4},
    "mla_paged_decode": {"kind": "mla_paged_decode", **LATENT},
    "mla_paged_prefill": {"kind": "mla_paged_prefill", **LATENT},
}
"""Constant extents of small operators of every kind, by their names."""
LATEST: list[Batch] = []
"""The batch that was drawn last: what a contender is called with."""


def small_point(operator: str, keys: Sequence[int] = (9, 0, 3), queries: Sequence[int] = (4, 2, 5)) -> Point:
    """Fewer keys than queries, no key, and no query unless somebody says otherwise."""
    axes = {"len_indptr": len(keys) + 1}
    paged = "paged" in operator
    axes |= {"num_kv_indices": sum(keys), "num_pages": sum(keys) + 5} if paged else {"total_kv": sum(keys)}
    queries = (1,) * len(keys) if "decode" in operator else tuple(queries)
    axes |= {} if "decode" in operator else {"total_q": sum(queries)}
    return Point(operator, SMALL[operator], f"u{sum(keys)}", axes, 0.37, "exact", tuple(keys), queries)


class Ours:
    """An executable that is right, but for what ``spoil`` does to its outputs."""

    def __init__(self, spoil: Callable[[Mapping[str, Any]], object] = lambda out: None) -> None:
        self.compiles, self.resources, self.spoil, self.prepared = 1, (), spoil, list[dict[str, int]]()

    def __call__(self, out: Mapping[str, Any], **inputs: Any) -> None:
        assert {n: id(x) for n, x in inputs.items()} == {n: id(x) for n, x in LATEST[-1].inputs.items()}
        for name, x in out.items():
            x.copy_(reference(LATEST[-1])[name][0])
        self.spoil(out)

    def prepare(self, out: Mapping[str, Any], **inputs: Any) -> None:
        before = LATEST[-1].inputs
        assert inputs.keys() == before.keys()
        self.prepared.append({n: len(x) for n, x in inputs.items() if x is not before[n]})


class Wrappers:
    """FlashInfer as it behaves: its log-sum-exp of no key is a large number, another one of FA3, FA3 is wrong for more
    than three requests, and FA2 here reads pages that no table names."""

    def __init__(self, device: str) -> None:
        self.device, self.plans = device, 0

    def baseline(self, name: str, batch: Batch) -> Baseline:
        def plan() -> None:
            self.plans += 1

        def run() -> None:
            for n, x in batch.outputs.items():
                x.copy_(reference(batch)[n][0])
            batch.outputs["lse"].clamp_(min=-6369.2866 if name == "fa3" else -5e4)
            if name == "fa3" and batch.point.requests > 3:
                batch.outputs["out"][0] += 1.0
            if name == "fa2" and any(bool(x.isnan().any()) for x in batch.pools.arrays.values()):
                batch.outputs["out"][-1] = float("nan")

        return Baseline(plan, run)


def clock(seconds: Mapping[str, float]) -> Callable[..., dict[str, Timing]]:
    def time_contenders(contenders: Sequence[Contender], *, samples: int, before: Any) -> dict[str, Timing]:
        before()
        for c in contenders:
            c.calls[0]()
        return {c.name: Timing(c.name, "burst", 1, (seconds.get(c.name, 9e-6),) * samples) for c in contenders}

    return time_contenders


def laboratory(
    monkeypatch: pytest.MonkeyPatch,
    shapes: Sequence[Point],
    seconds: Mapping[str, float] | None = None,
    executable: Callable[[Any], Any] = lambda made: Ours(),
) -> Laboratory:
    """For operators of these shapes."""

    def recorded(*arguments: Any, **more: Any) -> Batch:
        LATEST.append(drawn(*arguments, **more))
        return LATEST[-1]

    LATEST.clear()
    monkeypatch.setattr(benches, "drawn", recorded)
    monkeypatch.setattr(benches, "every_point", lambda: tuple(shapes))
    return Laboratory("cpu", executable, clock(seconds or {}), lambda: lambda: None, Wrappers)  # type: ignore[arg-type]
