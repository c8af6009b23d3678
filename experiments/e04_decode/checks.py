"""Correctness: every way to split and merge, compiled once, at every batch and length of the grid, in float64.

Whole outputs meet softmax(q k) v in float64 on the GPU, computed once for all ways; small ones meet the NumPy
interpreter as well. A graph of each way is replayed with other lengths, which lie on the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cleave.candidate import Candidate
from cleave.errors import CleaveError
from cleave.pipeline import emit
from cleave.records import Outcome, Record
from cleave.runtime import cuda
from cleave.tile.plan import Schedule
from cleave.tune.description import described
from cleave.verify import check_executable
from experiments.e04_decode.config import GRID, LENGTHS, REPLAYED, TARGET, Operator, Shape
from experiments.e04_decode.search import candidate_of
from experiments.tally import Checked

FROBENIUS = 1e-3
"""Allowed distance of FP16 outputs from float64."""
LSE = 2e-3
"""Allowed absolute error of the log sum exp."""
INTERPRETED = 150_000
"""Elements of K up to which the NumPy interpreter checks too."""
MARGIN = 4096
"""Elements of a pool beyond the longest keys: what lies past an array is finite junk, so that reading it shows."""

Plan = Schedule | str
"""A schedule, or why there is none."""


@dataclass(frozen=True)
class Running:
    """An operator of the grid, compiled."""

    op: Operator
    candidate: Candidate
    plan: Schedule
    run: Any


def check_grid(ops: Sequence[Operator], plans: Sequence[Plan], replayed: Sequence[Plan]) -> Checked:
    """Operators of one head form: the grid, then replays. ``plans`` and ``replayed``: with and without the LSE."""
    import torch

    out = Checked()
    most = max(s["b"] * s["t"] for s in (*GRID, REPLAYED)) * ops[0].kv_heads * ops[0].d
    pool = [torch.empty(most + MARGIN, device="cuda", dtype=torch.float16).normal_() for _ in range(2)]
    ways = list(_running(ops, plans, "attention_lse", out))
    compiles = sum(w.run.compiles for w in ways)
    for number, shape in enumerate(GRID if ways else ()):
        out.records += _rows(ways, shape, pool, seed=number)
    if ways:
        out.records[-1].details["compiles_after_first_call"] = sum(w.run.compiles for w in ways) - compiles
    for w in _running(ops, replayed, "attention_by_length", out):
        out.records.append(_replays(w, pool))
    out.lines += [_summary(op, out.records, plans[n]) for n, op in enumerate(ops)]
    pool.clear()
    torch.cuda.empty_cache()
    return out


def _rows(ways: Sequence[Running], shape: Shape, pool: Sequence[Any], *, seed: int) -> Iterator[Record]:
    """One shape, its reference computed once."""
    q, k, v = drawn_inputs(ways[0].op, shape, pool, seed=seed)
    wanted = attention64(q.view(*k.shape[:2], -1, k.shape[3]), k, v)
    for w in ways:
        yield _row(w, shape, (q, k, v), wanted, seed=seed)


def _running(ops: Sequence[Operator], plans: Sequence[Plan], graph: str, out: Checked) -> Iterator[Running]:
    for op, plan in zip(ops, plans, strict=True):
        try:
            if isinstance(plan, str):
                raise CleaveError(plan)
            candidate = candidate_of(graph, *(["t"] if op.splits > 1 else []))
            yield Running(op, candidate, plan, emit(plan))
        except CleaveError as error:
            row = {"operator": op.name, "kind": graph}
            out.records.append(Record(workload=row, outcome=Outcome.REFUSED, check={"error": str(error)}))


def _summary(op: Operator, records: Sequence[Record], plan: Plan) -> str:
    own = [r for r in records if r.workload["operator"] == op.name]
    right = sum(r.outcome is Outcome.OK for r in own)
    worst = max((r.check.get("frobenius", 0.0) for r in own), default=0.0)
    shown = plan if isinstance(plan, str) else described(plan)
    return f"{op.name}: {right} of {len(own)} right, worst {worst:.1e}; {shown}"


def _record(w: Running, workload: Shape | Mapping[str, Any], outcome: Outcome, check: dict[str, Any]) -> Record:
    k = w.plan.kernels[0]
    return Record(
        workload={"operator": w.op.name, **workload},
        outcome=outcome,
        candidate={"name": w.candidate.name, "rules": list(w.candidate.rules)},
        schedule={
            "target": TARGET,
            "merge": w.plan.merge,
            "bind": dict(w.plan.bind),
            "skeleton": k.skeleton,
            "feed": k.feed,
            "plan": described(w.plan),
        },
        check=check,
        details={"resources": [str(r) for r in w.run.resources]},
    )


# ---- the grid


def drawn_inputs(op: Operator, shape: Shape, pool: Sequence[Any], *, seed: int) -> tuple[Any, Any, Any]:
    """(q, k, v) of a shape; keys and values lie at another place of the pool for each seed."""
    import torch

    b, t = shape["b"], shape["t"]
    size = b * op.kv_heads * t * op.d
    start = 8 * (seed % (MARGIN // 8))
    k, v = (x[start : start + size].view(b, op.kv_heads, t, op.d) for x in pool)
    q = torch.randn((b, op.kv_heads * op.bind()["group"], 1, op.d), device="cuda").to(torch.float16)
    q[:, ::3] *= 4.0
    return q, k, v


def _row(w: Running, shape: Shape, given: tuple[Any, Any, Any], wanted: tuple[Any, Any], *, seed: int) -> Record:
    dims = w.op.bind(**shape)
    check: dict[str, Any] = {}
    try:
        outcome = compared(w.run, given, wanted, check)
        if dims["b"] * dims["t"] * w.op.kv_heads * w.op.d <= INTERPRETED and outcome is Outcome.OK:
            outcome = interpreted(w, dims, check, seed=seed)
    except CleaveError as error:
        outcome, check = Outcome.REFUSED, {"error": str(error)}
    return _record(w, {"kind": "grid", **dims}, outcome, check)


def compared(run: Any, given: tuple[Any, Any, Any], wanted: tuple[Any, Any], check: dict[str, Any]) -> Outcome:
    """Whole outputs against float64 on the GPU; they start as NaN."""
    import torch

    q, k, v = given
    out = {
        "out": torch.full_like(q, float("nan")),
        "lse": torch.full(q.shape[:3], float("nan"), device="cuda", dtype=torch.float32),
    }
    run(q=q, k=k, v=v, out=out)
    torch.cuda.synchronize()
    check["frobenius"] = found = frobenius(out["out"], wanted[0])
    lse = out["lse"].double().view_as(wanted[1])
    infinite = torch.isinf(wanted[1])
    same = bool((lse[infinite] == wanted[1][infinite]).all())
    check["lse"] = error = float((lse - wanted[1])[~infinite].abs().max()) if k.shape[2] else 0.0
    return Outcome.OK if found < FROBENIUS and error < LSE and same else Outcome.WRONG


def frobenius(found: Any, wanted: Any) -> float:
    """The relative distance; where everything is 0, the absolute one. NaN if something was not written."""
    size = float(wanted.norm())
    away = float((found.double().view_as(wanted) - wanted).norm())
    return away / size if size else away


def attention64(q: Any, k: Any, v: Any, lengths: Sequence[int] | None = None) -> tuple[Any, Any]:
    """(out, lse) of q [b, kv, group, d], one batch element at a time; 0 and -inf without keys."""
    import torch

    outs, lses = [], []
    for b in range(q.shape[0]):
        n = k.shape[2] if lengths is None else lengths[b]
        scores = torch.matmul(q[b].double(), k[b, :, :n].double().transpose(-1, -2)) * q.shape[-1] ** -0.5
        lses.append(torch.logsumexp(scores, -1) if n else torch.full(q.shape[1:3], -torch.inf).to(scores))
        outs.append(torch.matmul(torch.softmax(scores, -1), v[b, :, :n].double()))
    return torch.stack(outs), torch.stack(lses)


def interpreted(w: Running, dims: Mapping[str, int], check: dict[str, Any], *, seed: int) -> Outcome:
    names = {s.name for s in w.candidate.origin.symbols}
    found = check_executable(
        lambda inputs, outputs: w.run(**inputs, out=outputs),
        w.candidate.origin,
        None,
        {n: v for n, v in dims.items() if n in names},
        seed=seed,
    )
    check["interpreter"] = found.as_dict()
    return Outcome.WRONG if found.outcome.failed else Outcome.OK


# ---- replays


def _replays(w: Running, pool: Sequence[Any]) -> Record:
    """One captured call, replayed for every set of lengths: each request's number of keys is read by the kernel."""
    workload = {"kind": "replay with changed lengths", **w.op.bind(**REPLAYED), "lengths": [list(x) for x in LENGTHS]}
    check: dict[str, Any] = {}
    try:
        outcome = _replayed(w, pool, check)
    except CleaveError as error:
        outcome, check = Outcome.REFUSED, {"error": str(error)}
    return _record(w, workload, outcome, check)


def _replayed(w: Running, pool: Sequence[Any], check: dict[str, Any]) -> Outcome:
    import torch

    q, k, v = drawn_inputs(w.op, REPLAYED, pool, seed=1)
    q = q.view(*k.shape[:2], -1, k.shape[3])
    lengths = torch.tensor(LENGTHS[0], device="cuda", dtype=torch.int32)
    out = torch.empty_like(q)
    stream = cuda.new_stream()
    side = torch.cuda.ExternalStream(int(stream.ptr))
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        w.run(q=q, k=k, v=v, lengths=lengths, out=out)  # loads the kernels: a capture may not
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        w.run(q=q, k=k, v=v, lengths=lengths, out=out)
    found: list[float] = []
    for given in (*LENGTHS, LENGTHS[0]):
        lengths.copy_(torch.tensor(given, dtype=torch.int32))
        out.fill_(float("nan"))
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        found.append(frobenius(out, attention64(q, k, v, given)[0]))
    check["frobenius of each replay"] = found
    return Outcome.OK if all(x < FROBENIUS for x in found) else Outcome.WRONG
