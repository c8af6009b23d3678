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
from experiments.e01_ablation.ablation import Ablated, plan_ablations, time_ablations
from experiments.e01_ablation.config import Point
from experiments.e01_ablation.plans import plan
from experiments.e01_ablation.point import Mode, check_point, time_point
from experiments.tally import Tally

BATCH = {"times": 32, "checks": 32, "ablations": 12}
"""Points that are planned and compiled before any of them is measured."""
SECONDS_A_POINT: dict[Mode, float] = {"off": 120.0, "default": 300.0, "max-autotune": 600.0}
SECONDS_AN_ABLATION = 240.0
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

    @property
    def seconds(self) -> float:
        return SECONDS_AN_ABLATION if self.part == "ablations" else SECONDS_A_POINT[self.mode]

    @property
    def job(self) -> Any:
        return time_ablations if self.part == "ablations" else time_point

    def plan(self, batch: Sequence[Point]) -> Sequence[Planned | Ablated]:
        make = plan_ablations if self.part == "ablations" else plan
        return make(self.pool, batch, self.tried)

    def run(self, job: Any, point: Point, planned: Planned | Ablated, seconds: float, **more: object) -> list[str]:
        """Lines of a job; none if it failed, which is a record, or if there was no time for it."""
        row = {**point.row, "compile": self.mode, **more}
        return self.tally.run(
            self.worker, self.file, point.name, job, point, planned, self.mode, seconds=seconds, workload=row
        )


def run_points(loop: Loop, chosen: Sequence[Point]) -> list[str]:
    """All points until time is over. Returns their lines, and of checks those that say what is not fused."""
    left, lines = iter(chosen), list[str]()
    while batch := list(islice(left, BATCH[loop.part])):
        if loop.tally.deadline - time.monotonic() < 5:
            loop.tally.left_out += len(batch)
            continue
        began = time.monotonic()
        plans = loop.plan(batch)
        print(f"planned and compiled {len(batch)} points in {time.monotonic() - began:.0f} s", flush=True)
        for point, planned in zip(batch, plans, strict=True):
            lines += _point(loop, point, planned)
    return lines


def _point(loop: Loop, point: Point, planned: Planned | Ablated) -> Iterator[str]:
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


def _timed(loop: Loop, point: Point, planned: Planned | Ablated) -> list[str]:
    """A crash or a hang takes all contenders with it: once more without the schedule, or torch.compile, that did it."""
    left_out = loop.tally.left_out
    shown = loop.run(loop.job, point, planned, loop.seconds)
    if shown or loop.tally.left_out > left_out:
        return shown
    sound = tuple(
        number
        for number in range(len(planned.tried))
        if loop.run(check_point, point, _alone(planned, number), SECONDS_A_SCHEDULE, schedule=number)
    )
    if len(sound) == len(planned.tried) and loop.mode != "off":
        return replace(loop, mode="off").run(time_point, point, planned, SECONDS_A_POINT["off"])
    if not sound or len(sound) == len(planned.tried):
        return []
    left = planned.only(sound) if isinstance(planned, Ablated) else _only(planned, sound)
    return loop.run(loop.job, point, left, loop.seconds)


def _alone(planned: Planned | Ablated, number: int) -> Planned:
    return planned.alone(number) if isinstance(planned, Ablated) else _only(planned, [number])


def _only(planned: Planned, numbers: Sequence[int]) -> Planned:
    return replace(planned, tried=tuple(planned.tried[n] for n in numbers))
