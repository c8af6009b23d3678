"""Part replay: a CUDA graph of one call, captured once, replayed while lengths, page tables and values change.

What is captured has room for a batch; each step writes another batch, of as many requests, into the same memory: keys
and queries of every request, its pages, all values. Behind them tables hold nonsense, arrays NaN. Outputs hold NaN
before a replay, and rows of no request after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from cleave.errors import CleaveError
from cleave.records import Outcome, Record
from cleave.tune.plan import Made
from experiments.e02_dynamic.batch import Batch, Pools, drawn
from experiments.e02_dynamic.bench import Laboratory, Prepared, bench_of
from experiments.e02_dynamic.config import Const
from experiments.e02_dynamic.large import CONST, operator
from experiments.e02_dynamic.plans import Rule, Tried, plan_at, shown
from experiments.e02_dynamic.point import GPU, bad
from experiments.e02_dynamic.reference import reference
from experiments.e02_dynamic.workloads import Point
from experiments.tally import Checked

CAPTURED = ((700, 64, 33, 1, 300, 129), (130, 64, 8, 3, 17, 1))
"""Keys and queries of every request when the graph is captured: no step has more of either in all."""
STEPS = (
    CAPTURED,
    ((1, 900, 0, 17, 64, 200), (1, 100, 4, 17, 64, 33)),
    ((0, 0, 0, 0, 0, 0), (0, 0, 5, 0, 0, 0)),  # no keys, and queries that see none
    ((1227, 0, 0, 0, 0, 0), (200, 0, 0, 0, 0, 7)),
    ((15, 16, 17, 63, 64, 65), (0, 16, 20, 1, 0, 65)),
    CAPTURED,
)
GARBAGE = (-7, 10**6, 2**31 - 1, 0)
TRIED = 1


def names() -> tuple[str, ...]:
    """Operators, one of each kind, and decode of pages with several keys."""
    return (
        operator(1),
        operator(16),
        "gqa_paged_prefill_causal_h32_kv4_d128_ps1",
        "gqa_ragged_prefill_causal_h32_kv4_d128",
        "mla_paged_decode_h16_ckv512_kpe64_ps1",
    )


def consts(known: Mapping[str, Const]) -> dict[str, Const]:
    """Constant extents of these operators; ``known``: of those that were captured."""
    return {n: {**CONST, "page_size": 16} if n == operator(16) else known[n] for n in names()}


def point(name: str, const: Const, keys: Sequence[int], queries: Sequence[int], pool_pages: int = 0) -> Point:
    """A batch; ``pool_pages``: of the cache, at least as many as are used."""
    kind = const["kind"]
    queries = (1,) * len(keys) if "decode" in kind else tuple(queries)
    axes = {"len_indptr": len(keys) + 1} | ({} if "decode" in kind else {"total_q": sum(queries)})
    if "paged" in kind:
        used = sum(-(-k // const["page_size"]) for k in keys)
        axes |= {"num_kv_indices": used, "num_pages": max(pool_pages, used + 5)}
    else:
        axes["total_kv"] = sum(keys)
    return Point(name, const, f"keys {sum(keys)}", axes, 0.1, "synthetic", tuple(keys), queries)


def steps(name: str, const: Const) -> tuple[Point, tuple[Point, ...]]:
    """What is captured, and what comes after it."""
    first = point(name, const, *CAPTURED)
    return first, tuple(point(name, const, *s, first.pages) for s in STEPS)


def plan(pool: Executor, found: Mapping[str, Const]) -> list[Tried]:
    return plan_at(pool, [(name, [steps(name, const)[0].dims]) for name, const in found.items()], TRIED)


# ---- a job of the process that has the GPU


def replay(tried: Tried, const: Const, lab: Laboratory = GPU) -> Checked:
    """One record a schedule and step."""
    out, (first, every) = Checked(), steps(tried.operator, const)
    for made in tried.made:
        bench = bench_of(tried.operator, lab, (first,))
        name = "unsplit" if made.schedule.merge == "none" else f"split, {made.schedule.merge}"
        if made.source is None:
            out.records.append(bad(first, name, Outcome.COMPILE_FAILED, made.error, Rule((made,))))
            continue
        batch = drawn(first, bench.pools, lab.device, seed=1, ids=_table(first, 1, lab.device))
        try:
            run = bench.executable(Rule((made,)))
            again = lab.captured(partial(run, **batch.inputs, out=dict(batch.outputs)))
        except CleaveError as error:
            out.records.append(bad(first, name, Outcome.REFUSED, str(error), Rule((made,))))
            continue
        compiles = run.compiles
        for number, p in enumerate(every):
            r = _step(batch, p, number, again, bench.pools, lab)
            r.workload.update(contender=name, step=number, empty=sum(not k for k in p.keys))
            r.schedule["plan"] = shown(made)
            r.details["compiles_after_first_call"] = run.compiles - compiles
            out.records.append(r)
        out.lines.append(_line(tried.operator, name, made, out.records[-len(every) :]))
    return out


def _step(captured: Batch, p: Point, number: int, again: Callable[[], object], pools: Pools, lab: Laboratory) -> Record:
    step = drawn(p, pools, lab.device, seed=number + 2, ids=_table(p, number + 2, lab.device))
    ready = Prepared(step, reference(step))
    for name, x in step.inputs.items():
        if name not in pools.arrays and name != "sm_scale":
            _write(captured.inputs[name], x)
    captured.poison()
    lab.synchronize()
    again()
    lab.synchronize()
    rows = {n: len(x) for n, x in step.outputs.items()}
    check = ready.compared({n: captured.outputs[n][:count] for n, count in rows.items()})
    untouched = all(bool(captured.outputs[n][count:].isnan().all()) for n, count in rows.items())
    said = {"frobenius": check.frobenius, "worst": check.worst}
    if check.passed and untouched:
        return Record(workload=dict(p.row), outcome=Outcome.OK, check=said)
    why = str(check) if not check.passed else "rows of no request were written"
    return Record(workload=dict(p.row), outcome=Outcome.WRONG, check={"error": why})


def _write(to: Any, x: Any) -> None:
    """Fill memory that was captured with fewer rows; what is behind them is not to be used."""
    import torch

    to[: len(x)] = x
    rest = len(to) - len(x)
    if to.dtype == torch.int32:
        to[len(x) :] = torch.tensor((GARBAGE * (rest // len(GARBAGE) + 1))[:rest], dtype=to.dtype, device=to.device)
    else:
        to[len(x) :] = torch.nan


def _table(p: Point, seed: int, device: str) -> Any:
    """Page ids, other ones at every step; None where there are no pages."""
    import torch

    if not p.pages:
        return None
    made = torch.Generator().manual_seed(seed)
    return torch.randperm(p.pages, generator=made)[: p.axes["num_kv_indices"]].to(torch.int32).to(device)


def _line(operator: str, name: str, made: Made, rows: Sequence[Record]) -> str:
    right = sum(r.outcome is Outcome.OK for r in rows)
    return f"{operator} {name}: {right} of {len(rows)} replays are right ({shown(made)})"
