"""The loop over points: some are planned and compiled beside one another, then measured one by one, and so on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from cleave.records import Outcome, Record
from cleave.tune.plan import Planned
from experiments.e01_ablation.config import Point
from experiments.e01_ablation.plans import plan
from experiments.e01_ablation.point import Mode, check_point, time_point
from experiments.tally import Tally

BATCH = 32
"""Points that are planned and compiled before any of them is measured."""
SECONDS_A_POINT: dict[Mode, float] = {"off": 120.0, "default": 300.0, "max-autotune": 600.0}
SECONDS_A_SCHEDULE = 45.0


@dataclass(frozen=True)
class Loop:
    """One part of a measurement: a pool that plans, a worker that has the GPU, and what is kept of it."""

    part: str
    mode: Mode
    tried: int
    tally: Tally
    pool: Executor
    worker: Any

    @property
    def file(self) -> str:
        return f"{self.part}.jsonl"

    def run(self, job: Any, point: Point, planned: Planned, seconds: float, **more: object) -> list[str]:
        """Lines of a job; none if it failed, which is a record, or if there was no time for it."""
        row = {**point.row, "compile": self.mode, **more}
        return self.tally.run(
            self.worker, self.file, point.name, job, point, planned, self.mode, seconds=seconds, workload=row
        )


def run_points(loop: Loop, chosen: Sequence[Point]) -> list[str]:
    """All points until time is over. Returns their lines, and of checks those that say what is not fused."""
    left, lines = iter(chosen), list[str]()
    while batch := list(islice(left, BATCH)):
        if loop.tally.deadline - time.monotonic() < 5:
            loop.tally.left_out += len(batch)
            continue
        began = time.monotonic()
        plans = plan(loop.pool, batch, loop.tried)
        print(f"planned and compiled {len(batch)} points in {time.monotonic() - began:.0f} s", flush=True)
        for point, planned in zip(batch, plans, strict=True):
            lines += _point(loop, point, planned)
    return lines


def _point(loop: Loop, point: Point, planned: Planned) -> Iterator[str]:
    if loop.part == "checks" and planned.unfused:
        yield f"not fused: {point.name}: {planned.unfused}"
    if not planned.tried:
        row = {**point.row, "compile": loop.mode}
        refused = Record(workload=row, outcome=Outcome.REFUSED, check={"error": planned.unfused})
        loop.tally.add(loop.file, refused)
    elif loop.part == "checks":
        loop.run(check_point, point, planned, SECONDS_A_POINT["off"])
    else:
        yield from (line for line in _timed(loop, point, planned) if not line.startswith(" "))


def _timed(loop: Loop, point: Point, planned: Planned) -> list[str]:
    """A crash or a hang takes all contenders with it: once more without the schedule, or torch.compile, that did it."""
    left_out = loop.tally.left_out
    shown = loop.run(time_point, point, planned, SECONDS_A_POINT[loop.mode])
    if shown or loop.tally.left_out > left_out:
        return shown
    sound = tuple(
        made
        for number, made in enumerate(planned.tried)
        if loop.run(check_point, point, replace(planned, tried=(made,)), SECONDS_A_SCHEDULE, schedule=number)
    )
    if sound == planned.tried and loop.mode != "off":
        return replace(loop, mode="off").run(time_point, point, planned, SECONDS_A_POINT["off"])
    if not sound or sound == planned.tried:
        return []
    return loop.run(time_point, point, replace(planned, tried=sound), SECONDS_A_POINT[loop.mode])
