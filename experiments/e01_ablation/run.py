"""The nine subgraphs of the paper and others: every point checked, and timed against the best of all baselines."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from cleave.environment import environment
from cleave.errors import CleaveError
from cleave.records import Record
from experiments import kept
from experiments.e01_ablation.ablation_summary import ablation_table, shares
from experiments.e01_ablation.config import IN_ORDER, RECORDS, SETS, Point, is_ablated, points
from experiments.e01_ablation.rank import orders, rank_table
from experiments.e01_ablation.summary import in_order_lines, measured_points, ratios, table
from experiments.tally import Tally

PARTS = ("times", "checks", "ablations")
MODES = ("off", "default", "max-autotune")
TRIED = {"measure": 6, "tune": 12}
"""Schedules at a point, by stage, unless somebody says otherwise."""


def measure(chosen: Sequence[Point], options: argparse.Namespace) -> int:
    """Plan and compile some points, measure them, go on with the next; ends by itself before the limit."""
    from cleave.runtime.device import properties
    from cleave.runtime.watchdog import Worker

    start = time.monotonic()
    gpu = properties().as_dict()
    stamp = environment(gpu, apart_from=[kept.relative(RECORDS.parent)])
    command = f"python -m experiments run e01 measure {' '.join(options.given)}"
    tally = Tally(RECORDS, gpu, command, start + 60 * options.minutes - 10, stamp)
    lines: list[str] = []
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool, Worker() as worker:
        for part in options.parts:
            lines += _part(part, chosen, options, tally, pool, worker)
    print(f"{tally.rows} rows, {tally.bad} bad; {tally.left_out} points left out for want of time")
    print(f"{time.monotonic() - start:.0f} s\n" + "\n".join(lines))
    return 1 if tally.bad or tally.left_out else 0


def _part(
    part: str, chosen: Sequence[Point], options: argparse.Namespace, tally: Tally, pool: Any, worker: Any
) -> list[str]:
    """One part over all points. Returns the lines that come last."""
    from experiments.e01_ablation.loop import Loop, run_points

    checks = part == "checks"
    mode = options.compile if part == "times" else "off"
    loop = Loop(part, mode, 1 if checks else options.tried, tally, pool, worker)
    chosen = [p for p in chosen if part != "ablations" or is_ablated(p)]
    if not chosen:
        raise CleaveError(f"--parts {part}: no chosen point is one of those at which configurations are compared")
    stamp = tally.environment["commit"]
    done = measured_points(kept.records(RECORDS / loop.file), stamp, loop.mode) if options.resume else set[str]()
    lines = run_points(loop, [p for p in chosen if p.name not in done])
    if checks:
        return lines or ["the model's first choice is the most fused one at every point"]
    return [*lines, *_added_up(part, kept.records(RECORDS / loop.file), stamp)]


def _added_up(part: str, records: Sequence[Record], stamp: Mapping[str, object] | None) -> list[str]:
    if part == "ablations":
        return ablation_table(shares(records, stamp))
    alone = in_order_lines(ratios(records, stamp, IN_ORDER))
    return [*rank_table(orders(records, stamp)), *table(ratios(records, stamp)), *alone]


def report() -> int:
    """Print what the records of the commit that was measured last add up to, of every part that has any."""
    found = {part: kept.records(RECORDS / f"{part}.jsonl") for part in ("times", "ablations")}
    if not any(found.values()):
        raise CleaveError(f"no records: {kept.relative(RECORDS / 'times.jsonl')} is not there")
    for part, records in found.items():
        if records:
            stamp = records[-1].environment["commit"]
            print("\n".join([f"{part} of commit {stamp and stamp['id']}", *_added_up(part, records, stamp)]))
    return 0


def calibrate() -> int:
    """Print how well the cost model orders the schedules in the records, and what a fit of its constants would give."""
    from experiments.e01_ablation.calibrate import calibration_table, groups

    print("\n".join(calibration_table(groups(kept.records(RECORDS / "times.jsonl")))))
    return 0


def selected(options: argparse.Namespace) -> tuple[Point, ...]:
    return kept.select(options.points, points(SETS[options.set]))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m experiments run e01", description=__doc__)
    made.add_argument("stage", choices=("search", "tune", "measure", "report", "calibrate"))
    made.add_argument("--set", choices=tuple(SETS), default="nine", help="the paper's subgraphs, the others, or all")
    made.add_argument("--points", default="", help="an expression that is looked for in names of points")
    made.add_argument("--minutes", type=float, default=9.0, help="measure ends by itself before this")
    made.add_argument("--tried", type=int, help="schedules compiled and timed at each point: 6, of tune 12")
    made.add_argument("--parts", default="times", help=f"of {', '.join(PARTS)}, separated by commas")
    made.add_argument("--compile", choices=MODES, default="default", help="torch.compile of baselines")
    made.add_argument("--resume", action="store_true", help="skip points that this commit has measured")
    return made


def main(argv: Sequence[str]) -> int:
    options = parser().parse_args(argv)
    options.given = list(argv)[1:]
    options.parts = options.parts.split(",")
    options.tried = options.tried if options.tried is not None else TRIED.get(options.stage, TRIED["measure"])
    try:
        if not set(options.parts) <= set(PARTS):
            raise CleaveError(f"parts {','.join(options.parts)!r}: allowed are {', '.join(PARTS)}")
        if options.tried < 1:
            raise CleaveError(f"tried {options.tried}: allowed is >= 1")
        if options.stage in ("report", "calibrate"):
            return report() if options.stage == "report" else calibrate()
        if options.stage == "measure":
            return measure(selected(options), options)
        if options.stage == "tune":
            from experiments.e01_ablation.tune import tune_operators

            return tune_operators(
                selected(options),
                options.tried,
                options.minutes,
                resume=options.resume,
            )
        from experiments.e01_ablation.search import search

        return search(tuple({str(p.workload): p.workload for p in selected(options)}.values()))
    except CleaveError as error:
        print(f"e01: {error}", file=sys.stderr)
        return error.exit_code
