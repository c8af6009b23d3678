"""Part evaluator: a schedule of every operator as a Solution, judged by FlashInfer-Bench's own evaluator.

Its settings are its own, but that nothing is timed: three draws of random values a workload; a value fails that is off
by more than 0.01 and by more than 0.01 of what is wanted; no value may fail, none may be infinite or NaN. The reference
of a definition is that of ``dataset``.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import redirect_stderr
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cleave.candidate import load_candidates
from cleave.errors import CleaveError
from cleave.export import to_solution
from cleave.records import Outcome, Record
from cleave.target import Target
from cleave.tune.plan import Made, Request
from cleave.tune.plan import plan as planned
from experiments.e02_dynamic import dataset
from experiments.e02_dynamic.bench import Laboratory
from experiments.e02_dynamic.config import CANDIDATES, TARGET
from experiments.e02_dynamic.plans import OURS, Rule, Tried, shown
from experiments.e02_dynamic.point import GPU, bad, raise_if_lost
from experiments.e02_dynamic.search import middle, sampled
from experiments.e02_dynamic.workloads import Point, points
from experiments.tally import Checked

PACKAGE = "flashinfer-bench==0.1.2"

_OUTCOMES = {
    "PASSED": Outcome.OK,
    "COMPILE_ERROR": Outcome.COMPILE_FAILED,
    "RUNTIME_ERROR": Outcome.CRASHED,
    "TIMEOUT": Outcome.TIMEOUT,
}
"""Of what it says; all else is wrong in one way or another."""


def evaluated(every: tuple[Point, ...], operator: str) -> tuple[Point, ...]:
    """Points of an operator, those at which schedules are tried first."""
    own = [p for p in every if p.operator == operator]
    return tuple({p.uuid: p for p in (*sampled(every, operator), *own)}.values())


def dead_rows(p: Point) -> int:
    """Queries that see no key."""
    return sum(max(0, q - k) for q, k in zip(p.queries, p.keys, strict=True))


def empty(p: Point) -> int:
    """Requests without a key."""
    return sum(not k for k in p.keys)


def plan(pool: Executor, operators: Sequence[str]) -> list[Tried]:
    """Of each operator the schedule that the model likes best at the shape that stands for it. Errors: no evaluator."""
    if find_spec("flashinfer_bench") is None:
        raise CleaveError(f"part evaluator: flashinfer_bench is not installed: pip install {PACKAGE}")
    every, target = points(), Target(TARGET)
    candidates = [load_candidates(CANDIDATES / f"{name}.json") for name in operators]
    shapes = [middle(every, name).dims for name in operators]
    wanted = [Request(c, target, dims, 1) for c, dims in zip(candidates, shapes, strict=True)]
    return [Tried(n, x.tried, x.refused) for n, x in zip(operators, planned(pool, wanted), strict=True)]


def in_rounds(plans: Sequence[Tried], chosen: Sequence[Point]) -> list[tuple[Point, Tried]]:
    """One point of every operator, then another of every one: where time ends, no operator is left out."""
    found = [(n, p, t) for t in plans for n, p in enumerate(evaluated(tuple(chosen), t.operator))]
    return [(p, t) for _, p, t in sorted(found, key=lambda x: x[0])]


# ---- a job of the process that has the GPU


def evaluate(p: Point, tried: Tried, lab: Laboratory = GPU) -> Checked:
    """One record: what the evaluator says of one point."""
    out = Checked()
    if not tried.made:
        out.records.append(bad(p, OURS, Outcome.REFUSED, "; ".join(tried.refused) or "no candidate has a schedule"))
        return out
    (made,) = tried.made
    if made.source is None:
        out.records.append(bad(p, OURS, made.outcome, made.error, Rule((made,))))
        return out
    record = _evaluated(p, made, lab)
    out.records.append(record)
    said = ", ".join(f"{n} {v}" for n, v in record.check.items())
    out.lines.append(f"{p.name} b{p.requests} q{sum(p.queries)} k{sum(p.keys)}: {said}")
    return out


def _evaluated(p: Point, made: Made, lab: Laboratory) -> Record:
    solution = to_solution(made.schedule, dataset.definition(p.operator, p.const))
    with redirect_stderr(io.StringIO()) as printed:
        try:
            found = _evaluation(p, solution, "cuda:0" if lab.device == "cuda" else lab.device)
        except Exception as error:  # of the reference, or of what it does with values: the row of the job says so
            raise_if_lost(str(error), p.name)
            raise
    status = found.status.value
    check: dict[str, Any] = {"status": status}
    if found.correctness is not None:
        for name in ("max_absolute_error", "max_relative_error"):
            value = getattr(found.correctness, name)
            check[name] = value if isfinite(value) else str(value)
    if why := _last_line(printed.getvalue()) if status == "RUNTIME_ERROR" else "":
        raise_if_lost(why, p.name)
        check["error"] = why
    return Record(
        workload={
            **p.row,
            "contender": OURS,
            "pages": dataset.pages(p),
            "dead_rows": dead_rows(p),
            "empty": empty(p),
        },
        outcome=_OUTCOMES.get(status, Outcome.WRONG),
        candidate={"name": made.schedule.candidate},
        schedule={"plan": shown(made)},
        check=check,
        details={"hardware": found.environment.hardware, "libs": dict(found.environment.libs)},
    )


def _evaluation(p: Point, solution: Mapping[str, Any], device: str) -> Any:
    """As its runners do it, in this process."""
    from flashinfer_bench.bench import BenchmarkConfig
    from flashinfer_bench.bench.evaluators import resolve_evaluator
    from flashinfer_bench.compile import BuilderRegistry
    from flashinfer_bench.data import TraceSet

    config = BenchmarkConfig(profile_baseline=False, warmup_runs=0, iterations=1)
    with TemporaryDirectory() as folder:
        dataset.write(Path(folder), p, solution)
        held = TraceSet.from_path(folder)
        definition, (read,), (trace,) = (x[p.operator] for x in (held.definitions, held.solutions, held.workloads))
        judge = resolve_evaluator(definition)
        wanted = judge.build_baseline(definition, trace.workload, config, device, Path(folder))
    run = BuilderRegistry.get_instance().build(definition, read)
    time_of_reference = wanted.mean_latency_ms
    return judge.evaluate(definition, run, wanted.inputs, wanted.outputs, time_of_reference, config, "", device)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
