"""Correctness: one compiled operator at every batch and length of the grid, whole outputs in float64.

Small shapes meet the NumPy interpreter; at all shapes whole outputs meet softmax(q k) v in float64 on the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cleave.candidate import Candidate
from cleave.errors import CleaveError
from cleave.pipeline import emit
from cleave.records import Outcome, Record
from cleave.tile.plan import Schedule
from cleave.verify import check_executable
from experiments.e03_decode.config import TARGET, Operator
from experiments.e03_decode.search import described, operator_schedule
from experiments.tally import Checked

FROBENIUS = 1e-3
"""Allowed distance of FP16 outputs from float64."""
LSE = 2e-3
"""Allowed absolute error of the log sum exp."""
INTERPRETED = 300_000
"""Elements of K up to which the NumPy interpreter checks too."""


def check_operator(op: Operator, shapes: Sequence[Mapping[str, int]]) -> Checked:
    """Compile an operator once, call it at every shape, compare."""
    import torch

    candidate, plan = operator_schedule(op)
    run = emit(plan)
    out = Checked()
    most = max(s["b"] * s["t"] for s in shapes) * op.kv_heads * op.d
    # Lengths beyond what was asked for are finite junk: a read beyond the end would show.
    pool = [torch.empty(most + 4096, device="cuda", dtype=torch.float16).normal_() for _ in range(2)]
    compiles: int | None = None
    for number, shape in enumerate(shapes):
        record = check_row(op, candidate, plan, run, shape, pool, seed=number)
        compiles = run.compiles if compiles is None else compiles
        record.details["compiles_after_first_call"] = run.compiles - compiles
        out.records.append(record)
    bad = sum(r.outcome is not Outcome.OK for r in out.records)
    worst = max((r.check.get("frobenius", 0.0) for r in out.records), default=0.0)
    out.lines.append(
        f"{op.name}: {len(shapes) - bad} of {len(shapes)} right, worst {worst:.1e}; "
        f"{described(plan, op.bind())}; {'; '.join(map(str, run.resources))}"
    )
    del pool
    torch.cuda.empty_cache()
    return out


def check_row(
    op: Operator, candidate: Candidate, plan: Schedule, run: Any, shape: Mapping[str, int], pool: Any, *, seed: int
) -> Record:
    dims = op.bind(**shape)
    check: dict[str, Any] = {}
    try:
        outcome = compared(op, run, dims, pool, check, seed=seed)
        if dims["b"] * dims["t"] * op.kv_heads * op.d <= INTERPRETED and outcome is Outcome.OK:
            outcome = interpreted(candidate, run, dims, check, seed=seed)
    except CleaveError as error:
        outcome, check = Outcome.REFUSED, {"error": str(error)}
    return Record(
        workload={"operator": op.name, "kind": "grid", **dims},
        outcome=outcome,
        candidate={"name": candidate.name, "rules": list(candidate.rules)},
        schedule={"target": TARGET, "merge": plan.merge, "bind": dict(plan.bind), "skeleton": plan.kernels[0].skeleton},
        check=check,
        details={"resources": [str(r) for r in run.resources]},
    )


def interpreted(
    candidate: Candidate, run: Any, dims: Mapping[str, int], check: dict[str, Any], *, seed: int
) -> Outcome:
    names = {s.name for s in candidate.origin.symbols}
    found = check_executable(
        lambda inputs, outputs: run(**inputs, out=outputs),
        candidate.origin,
        None,
        {n: v for n, v in dims.items() if n in names},
        seed=seed,
    )
    check["interpreter"] = found.as_dict()
    return Outcome.WRONG if found.outcome.failed else Outcome.OK


def compared(
    op: Operator, run: Any, dims: Mapping[str, int], pool: Any, check: dict[str, Any], *, seed: int
) -> Outcome:
    """Whole outputs against float64 on the GPU."""
    import torch

    b, t, d, group = dims["b"], dims["t"], op.d, dims["group"]
    size = b * op.kv_heads * t * d
    start = 8 * (seed % 500)  # another place of the pool for each shape
    k, v = (x[start : start + size].view(b, op.kv_heads, t, d) for x in pool)
    q = torch.randn((b, op.kv_heads * group, 1, d), device="cuda").to(torch.float16)
    q[:, ::3] *= 4.0
    out = {
        "out": torch.full_like(q, float("nan")),
        "lse": torch.full(q.shape[:3], float("nan"), device="cuda", dtype=torch.float32),
    }
    run(q=q, k=k, v=v, out=out)
    torch.cuda.synchronize()
    wanted, lse = attention64(q.view(b, op.kv_heads, group, d), k, v)
    got = out["out"].double().view_as(wanted)
    distance = float((got - wanted).norm() / wanted.norm()) if t else float(got.abs().max())
    infinite = torch.isinf(lse)
    got_lse = out["lse"].double().view_as(lse)
    same = bool((got_lse[infinite] == lse[infinite]).all())
    error = float((got_lse - lse)[~infinite].abs().max()) if t else 0.0
    check |= {"frobenius": distance, "lse": error}
    return Outcome.OK if distance < FROBENIUS and error < LSE and same else Outcome.WRONG


def attention64(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """(out, lse) of q [b, kv, group, d], one batch element at a time; 0 and -inf without keys."""
    import torch

    outs, lses = [], []
    for b in range(q.shape[0]):
        scores = torch.matmul(q[b].double(), k[b].double().transpose(-1, -2)) * q.shape[-1] ** -0.5
        lses.append(torch.logsumexp(scores, -1) if k.shape[2] else torch.full(q.shape[1:3], -torch.inf).to(scores))
        outs.append(torch.matmul(torch.softmax(scores, -1), v[b].double()))
    return torch.stack(outs), torch.stack(lses)
