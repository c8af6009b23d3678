"""Time: prefill attention against torch's cuDNN and FlashAttention-2 backends, contenders interleaved, cold inputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from cleave.errors import CleaveError
from cleave.pipeline import emit
from cleave.records import Outcome, Record
from cleave.runtime.timing import Contender, rotation, time_contenders
from experiments.e00_smoke.checks import check_row
from experiments.e00_smoke.config import Operator
from experiments.e00_smoke.search import candidate_of, schedule_of
from experiments.tally import Checked

D = 128
WHOLE_ERROR = 2e-3
"""Allowed distance of whole outputs, ours from cuDNN's: both are FP16 results."""


def time_prefill(graph: str, shape: Mapping[str, int]) -> Checked:
    """Check one shape of one graph of candidates, then time it; one record a contender."""
    causal = graph.endswith("causal")
    dims = {**shape, "d": D, "e": D}
    op = Operator("prefill causal" if causal else "prefill", graph, dims)
    candidate = candidate_of(op)
    plan = schedule_of(op, candidate)
    run = emit(plan)
    checked = check_row(op, candidate, (plan,), run, dims, "time", seed=0)
    if checked.outcome is not Outcome.OK:
        return Checked([checked], [f"{op.name} {dims}: {checked.check}"])
    times = interleaved(run, dims, causal=causal)
    tiles = {a.name: n for a, n in sorted(plan.kernels[0].binding.tiles.items(), key=lambda item: item[0].name)}
    out = Checked()
    for name, t in times.items():
        ours = name == "cleave"
        record = Record(
            workload={"operator": op.name, "contender": name, "cold": True, **dims},
            outcome=Outcome.OK,
            candidate=checked.candidate if ours else {},
            schedule={**checked.schedule, "tiles": tiles} if ours else {},
            check=checked.check if ours else {},
            quantiles={q: 1e6 * v for q, v in t.as_dict().items() if q.startswith("q")},
            details={"regime": t.regime, "ratio": times["cudnn"].median / t.median},
        )
        out.records.append(record)
    flops = 4 * dims["b"] * dims["kv_heads"] * dims["group"] * dims["s"] * dims["t"] * D * (0.5 if causal else 1.0)
    shown = ", ".join(f"{n} {1e6 * t.median:.1f} us ({flops / t.median / 1e12:.0f} TF/s)" for n, t in times.items())
    ratio = times["cudnn"].median / times["cleave"].median
    out.lines.append(f"{op.name} b{dims['b']} kv_heads {dims['kv_heads']}: {shown}; cuDNN / cleave {ratio:.3f}")
    return out


def interleaved(run: Any, dims: Mapping[str, int], *, causal: bool) -> dict[str, Any]:
    """Times by contender; whole outputs are compared with cuDNN's for every set of inputs."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as attention

    heads = dims["kv_heads"] * dims["group"]
    like: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}
    kv_shape, q_shape = (dims["b"], dims["kv_heads"], dims["t"], D), (dims["b"], heads, dims["s"], D)
    sets = rotation(4 * (int(np.prod(kv_shape)) + int(np.prod(q_shape))))
    calls: dict[str, list[Any]] = {"cleave": [], "cudnn": [], "fa2": []}
    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}
    grouped = heads != dims["kv_heads"]

    def baseline(backend: Any, q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel([backend]):
            return attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    worst = 0.0
    for _ in range(sets):
        q, k, v = torch.randn(q_shape, **like), torch.randn(kv_shape, **like), torch.randn(kv_shape, **like)
        lse = torch.empty(q_shape[:3], device="cuda", dtype=torch.float32)
        out = {"out": torch.full(q_shape, float("nan"), **like), "lse": lse}
        calls["cleave"].append(partial(run, q=q, k=k, v=v, out=out))
        for name, backend in backends.items():
            calls[name].append(partial(baseline, backend, q, k, v))
        run(q=q, k=k, v=v, out=out)
        reference = baseline(SDPBackend.CUDNN_ATTENTION, q, k, v).float()
        worst = max(worst, float((out["out"].float() - reference).norm() / reference.norm()))
    if not worst < WHOLE_ERROR:
        raise CleaveError(
            f"the output differs from cuDNN's by {worst:.2e}, allowed is {WHOLE_ERROR}", location="prefill"
        )
    return time_contenders([Contender(n, c) for n, c in calls.items()])
