"""The tuner on the operators of the subgraphs, each at one size: how long it takes, and that nothing is measured twice.

Each operator is tuned with an empty cache and no records, and again with what that left. Measurements are kept in
``tune.jsonl``, a row for each operator in ``tuner.jsonl``.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cleave.codegen.cache import FOLDER_VARIABLE
from cleave.environment import environment
from cleave.records import Outcome, Record, append, append_all, read
from cleave.runtime.device import properties
from cleave.target import Target
from cleave.tune import Tuned, tune
from experiments.e01_ablation.config import RECORDS, TARGET, Point, file_of
from experiments.e01_ablation.plans import candidates
from experiments.e01_ablation.summary import is_of

FIRST_SECONDS, AGAIN_SECONDS = 60.0, 5.0
"""Goals: of a run that measures everything, and of one that finds everything in the records."""


def tune_operators(chosen: Sequence[Point], budget: int, minutes: float, *, resume: bool) -> int:
    """The middle one of the chosen sizes of every operator, until the time is over. Returns an exit code."""
    end, bad, left_out = time.monotonic() + 60 * minutes - 5, 0, 0
    stamp = environment(properties().as_dict(), apart_from=["experiments/records"])
    known = _tuned_before(stamp) if resume else set[str]()
    for point in _one_a_workload(chosen):
        if point.name in known:
            continue
        if end - time.monotonic() < FIRST_SECONDS + AGAIN_SECONDS:
            left_out += 1
            continue
        bad += not _tuned_twice(point, budget, stamp)
    print(f"{bad} missed a goal; {left_out} operators left out for want of time")
    return 1 if bad or left_out else 0


def _one_a_workload(chosen: Sequence[Point]) -> list[Point]:
    groups: dict[str, list[Point]] = {}
    for p in chosen:
        groups.setdefault(str(p.workload), []).append(p)
    return [group[len(group) // 2] for group in groups.values()]


def _tuned_before(stamp: dict[str, object]) -> set[str]:
    path = RECORDS / "tuner.jsonl"
    commit = stamp["commit"]
    records = read(path) if path.exists() else ()
    return {r.workload["point"] for r in records if is_of(r, commit if isinstance(commit, dict) else None)}


def _tuned_twice(point: Point, budget: int, stamp: dict[str, object]) -> bool:
    """Whether both runs met their goals."""
    with tempfile.TemporaryDirectory() as folder:
        usual = os.environ.get(FOLDER_VARIABLE)
        os.environ[FOLDER_VARIABLE] = f"{folder}/cache"
        try:
            records = Path(folder) / "records.jsonl"
            first, first_seconds = _timed(point, budget, records)
            again, again_seconds = _timed(point, budget, records)
        finally:
            if usual is None:
                del os.environ[FOLDER_VARIABLE]
            else:
                os.environ[FOLDER_VARIABLE] = usual
        if records.exists():
            append_all(RECORDS / "tune.jsonl", list(read(records)))
    quick = first_seconds < FIRST_SECONDS and again_seconds < AGAIN_SECONDS
    same = first.best is not None and again.best is not None and first.best.name == again.best.name
    right = quick and same and first.passed and again.measured == 0
    details = {
        "met": right,
        "first_seconds": first_seconds,
        "again_seconds": again_seconds,
        "phases": dict(first.seconds),
        "measured": first.measured,
        "measured_again": again.measured,
        "rank_correlation": first.rank_correlation,
        "outcomes": [str(r.outcome) for r in first.rows],
        "notes": list(first.notes),
    }
    best = first.best
    record = Record(
        workload={**point.row, "budget": budget},
        outcome=Outcome.REFUSED if best is None else Outcome.OK,
        candidate={} if best is None else {"name": best.schedule.candidate},
        schedule={} if best is None else {"plan": best.plan, "modelled_us": best.modelled},
        quantiles={} if best is None else dict(best.quantiles),
        environment=dict(stamp),
        details=details,
    )
    append(RECORDS / "tuner.jsonl", record)
    print(_line(point, first, first_seconds, again, again_seconds) + ("" if right else " | MISSED"), flush=True)
    for row in first.rows:
        if row.outcome is not Outcome.OK:
            print(f"    {row.outcome}: {row.schedule.candidate}: {row.plan}: {row.detail}", flush=True)
    return right


def _timed(point: Point, budget: int, records: Path) -> tuple[Tuned, float]:
    began = time.monotonic()
    found = tune(
        candidates(file_of(point.workload)),
        Target(TARGET),
        point.dims,
        budget=budget,
        seconds=FIRST_SECONDS,
        records=records,
    )
    return found, time.monotonic() - began


def _line(point: Point, first: Tuned, first_seconds: float, again: Tuned, again_seconds: float) -> str:
    phases = ", ".join(f"{name} {s:.1f}" for name, s in first.seconds.items() if name != "all")
    order = "-" if first.rank_correlation is None else f"{first.rank_correlation:.2f}"
    best = "none passed" if first.best is None else f"{first.best.measured:.2f} us {first.best.plan}"
    return (
        f"{point.name:34} {first_seconds:5.1f} s ({phases}), {first.measured} measured; again {again_seconds:4.1f} s,"
        f" {again.measured} measured | rank correlation {order} | {best}"
    )
