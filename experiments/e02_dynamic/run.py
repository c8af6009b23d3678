"""e02: paged and ragged attention, compiled once an operator, at the shapes of FlashInfer-Bench, against FlashInfer."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from cleave.environment import environment
from cleave.errors import CleaveError
from cleave.records import Record
from experiments import kept
from experiments.e02_dynamic.config import RECORDS
from experiments.e02_dynamic.workloads import Point, operators, points
from experiments.tally import Tally

if TYPE_CHECKING:
    from experiments.e02_dynamic.loop import Loop
    from experiments.e02_dynamic.plans import Tried

AT_POINTS, APART = ("times", "checks", "first"), ("large", "replay", "evaluator")
PARTS = (*AT_POINTS, *APART)
SECONDS_A_JOB = 60.0
TRIED = 6
"""Schedules of an operator without a split, and as many with one, that are tried unless somebody says otherwise."""


def measure(chosen: Sequence[Point], options: argparse.Namespace) -> int:
    """Plan and compile every operator once, try its schedules, go through its points; then parts that have shapes of
    their own. Ends by itself before the limit."""
    from cleave.runtime.device import properties
    from cleave.runtime.watchdog import Worker
    from experiments.e02_dynamic.loop import Loop
    from experiments.e02_dynamic.plans import plan

    start = time.monotonic()
    gpu = properties().as_dict()
    stamp = environment(gpu, apart_from=[kept.relative(RECORDS.parent)])
    command = f"python -m experiments run e02 measure {' '.join(options.given)}"
    tally = Tally(RECORDS, gpu, command, start + 60 * options.minutes - 10, stamp)
    at_points = [part for part in options.parts if part in AT_POINTS]
    names = list(operators(tuple(chosen))) if at_points else []
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:  # done before the first time is taken
        plans = plan(pool, points(), names, options.tried) if names else []
        jobs = [job for part in options.parts if part in APART for job in _jobs(part, pool, chosen)]
    print(f"planned and compiled in {time.monotonic() - start:.0f} s: {len(names)} operators of points", flush=True)
    with Worker() as worker:
        for part in at_points:
            known = options.resume or part != at_points[0]
            _part(Loop(part, tally, worker), plans, chosen, resume=options.resume, known=known)
        for file, row, job, *arguments in jobs:
            tally.answered(worker, file, job, *arguments, seconds=SECONDS_A_JOB, workload={**row, "contender": "all"})
    print(f"{tally.rows} rows, {tally.bad} bad, {tally.compiles} compiles after the first call of an operator")
    print(f"{time.monotonic() - start:.0f} s, {tally.left_out} jobs left out for want of time")
    if "times" in options.parts:
        print("\n".join(_added_up(_of_commit(kept.records(RECORDS / "times.jsonl"), stamp))))
    return 1 if tally.bad or tally.left_out or tally.compiles else 0


def _jobs(part: str, pool: Executor, chosen: Sequence[Point]) -> list[tuple[Any, ...]]:
    """Jobs of a part with shapes or schedules of its own, planned: file, row of one that fails, function, arguments."""
    from experiments.e02_dynamic import evaluator, large, replay

    file = f"{part}.jsonl"
    if part == "evaluator":
        plans = evaluator.plan(pool, list(operators(tuple(chosen))))
        return [(file, p.row, evaluator.evaluate, p, t) for p, t in evaluator.in_rounds(plans, chosen)]
    if part == "replay":
        found = replay.consts(operators(points()))
        plans = replay.plan(pool, found)
        return [(file, {"operator": t.operator}, replay.replay, t, found[t.operator]) for t in plans]
    every = large.points()
    known = large.plan(pool, every)
    return [
        (file, x.point.row, large.time_large, x, known[x.operator, b], known[x.dense.operator, b], every)
        for x in every
        for b in (x.point.requests,)
    ]


def _part(loop: Loop, plans: Sequence[Tried], chosen: Sequence[Point], *, resume: bool, known: bool) -> None:
    """One part over all operators. ``known``: schedules that this commit has tried are not tried again."""
    from experiments.e02_dynamic.loop import TRIED_FILE, is_measured
    from experiments.e02_dynamic.search import middle

    every, stamp = points(), loop.tally.environment
    tried_before = _of_commit(kept.records(RECORDS / TRIED_FILE), stamp) if known else []
    done = _of_commit(kept.records(RECORDS / loop.file), stamp) if resume else []
    measured = {(r.workload["operator"], r.workload["uuid"]) for r in done if is_measured(r)}
    for tried in plans:
        own = [p for p in chosen if p.operator == tried.operator]
        if loop.part == "first":
            own = [middle(every, tried.operator)]
        left = [p for p in own if (p.operator, p.uuid) not in measured]
        contenders = loop.choose(tried, every, tried_before) if left else None
        if contenders is not None:
            loop.points(contenders, left)


def _of_commit(records: Sequence[Record], stamp: Mapping[str, Any]) -> list[Record]:
    return [r for r in records if r.environment.get("commit") == stamp["commit"]]


def _added_up(records: Sequence[Record]) -> list[str]:
    from experiments.e02_dynamic.summary import ratios, table

    return table(ratios(records))


def report() -> int:
    """Print what the records of the commit that was measured last add up to."""
    records = kept.records(RECORDS / "times.jsonl")
    if not records:
        raise CleaveError(f"no records: {kept.relative(RECORDS / 'times.jsonl')} is not there")
    stamp = records[-1].environment["commit"]
    print(f"times of commit {stamp and stamp['id']}")
    print("\n".join(_added_up(_of_commit(records, records[-1].environment))))
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m experiments run e02", description=__doc__)
    made.add_argument("stage", choices=("search", "measure", "report"))
    made.add_argument("--points", default="", help="an expression that is looked for in names of points")
    made.add_argument("--minutes", type=float, default=9.0, help="measure ends by itself before this")
    made.add_argument(
        "--tried",
        type=int,
        default=TRIED,
        help="schedules of each operator that are tried, without and with a split: so many of each",
    )
    made.add_argument("--parts", default="times", help=f"of {', '.join(PARTS)}, separated by commas")
    made.add_argument("--resume", action="store_true", help="skip what this commit has measured")
    return made


def main(argv: Sequence[str]) -> int:
    options = parser().parse_args(argv)
    options.given = list(argv)[1:]
    options.parts = options.parts.split(",")
    try:
        if not set(options.parts) <= set(PARTS):
            raise CleaveError(f"parts {','.join(options.parts)!r}: allowed are {', '.join(PARTS)}")
        if options.tried < 1:
            raise CleaveError(f"tried {options.tried}: allowed is >= 1")
        if options.stage == "measure":
            return measure(kept.select(options.points, points()), options)
        if options.stage == "report":
            return report()
        from experiments.e02_dynamic.search import search

        return search()
    except CleaveError as error:
        print(f"e02: {error}", file=sys.stderr)
        return error.exit_code
