"""The loop over operators: schedules are tried at a few shapes, then the chosen ones meet the baselines at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cleave.records import Outcome, Record
from cleave.tune.variants import Sample
from experiments.e02_dynamic.baselines import names
from experiments.e02_dynamic.first import first_calls
from experiments.e02_dynamic.plans import OURS, Chosen, Tried, shown
from experiments.e02_dynamic.point import Trial, check_point, time_point, told_apart, try_schedules
from experiments.e02_dynamic.search import sampled
from experiments.e02_dynamic.workloads import Point
from experiments.tally import Tally

TRIED_FILE = "tried.jsonl"
SECONDS_A_TRIAL, SECONDS_A_SCHEDULE, SECONDS_A_POINT = 150.0, 45.0, 60.0
RISKY = "fa3"


@dataclass(frozen=True)
class Loop:
    """One part of a measurement, ``times``, ``checks`` or ``first``, and a worker that has the GPU."""

    part: str
    tally: Tally
    worker: Any

    @property
    def file(self) -> str:
        return f"{self.part}.jsonl"

    def _run(self, file: str, job: Any, *arguments: Any, row: Mapping[str, Any], seconds: float, is_last: bool) -> Any:
        return self.tally.answered(self.worker, file, job, *arguments, seconds=seconds, workload=row, is_last=is_last)

    # ---- schedules

    def choose(self, tried: Tried, every: tuple[Point, ...], known: Sequence[Record]) -> Chosen | None:
        """The contenders of an operator, from what was measured before or by trying; None if no schedule is right."""
        shapes = sampled(every, tried.operator)
        trial = remembered(tried, shapes, known) or self._tried(tried, shapes)
        if not trial.seconds:
            return None
        chosen = trial.chosen(tried)
        print(f"{tried.operator}: {chosen[OURS].text}", flush=True)
        return chosen

    def _tried(self, tried: Tried, shapes: Sequence[Point]) -> Trial:
        """All together; a schedule that hangs or crashes takes the others with it: then each alone."""
        row = {"operator": tried.operator, "contender": "schedules"}
        if not tried.made:
            why = {"error": "; ".join(tried.refused) or "no candidate has a schedule"}
            self.tally.add(TRIED_FILE, Record(workload=row, outcome=Outcome.REFUSED, check=why))
            return Trial()
        found = self._run(TRIED_FILE, try_schedules, tried, shapes, row=row, seconds=SECONDS_A_TRIAL, is_last=False)
        if found is not None:
            return found
        alone_right: list[list[Sample]] = []
        for number in range(len(tried.made)):
            alone = {**row, "contender": f"schedule {number}", "plan": shown(tried.made[number])}
            more = (tried, shapes, (number,))
            one = self._run(TRIED_FILE, try_schedules, *more, row=alone, seconds=SECONDS_A_SCHEDULE, is_last=True)
            if one is not None:
                alone_right.append(one.samples)
        return Trial(samples=[joined(s) for s in zip(*alone_right, strict=True)])

    # ---- points

    def points(self, chosen: Chosen, shapes: Sequence[Point]) -> None:
        """All points of one operator."""
        lost: dict[str, str] = {}
        for p in shapes:
            if self.part == "times":
                self._timed(p, chosen, lost)
            else:
                self._asked(p, chosen)

    def _asked(self, p: Point, chosen: Chosen) -> None:
        job = check_point if self.part == "checks" else first_calls
        self._run(self.file, job, p, chosen, row=p.row, seconds=SECONDS_A_POINT, is_last=True)

    def _timed(self, p: Point, chosen: Chosen, lost: dict[str, str]) -> None:
        """With all baselines; if that ends the process, without FA3, which reads beyond the keys of a request that has
        fewer of them than queries; then without any. FA3 is not run at further shapes of that kind."""
        every = names(p.const["kind"])
        without = {} if is_even(p) else dict(lost)
        left_out = self.tally.left_out
        for more in ((), (RISKY,), every):
            if more and set(more) <= set(without):
                continue
            without |= {n: f"ends the process: {self.tally.failure}" for n in more if n not in without}
            row, is_last = {**p.row, "contender": "all", "without": [*without]}, more == every
            given = p, chosen, dict(without)
            found = self._run(self.file, time_point, *given, row=row, seconds=SECONDS_A_POINT, is_last=is_last)
            if found is not None or self.tally.left_out > left_out:
                break
        else:
            return
        if RISKY in without and not lost:
            lost[RISKY] = f"not run, for at {p.uuid} it {without[RISKY]}"


def is_even(p: Point) -> bool:
    """Whether no request has fewer keys than queries."""
    return all(k >= q for q, k in zip(p.queries, p.keys, strict=True))


def remembered(tried: Tried, shapes: Sequence[Point], known: Sequence[Record]) -> Trial | None:
    """A trial of the same schedules at the same shapes, from its records."""
    seconds = [dict[int, float]() for _ in shapes]
    for number, made in enumerate(tried.made):
        found = {
            r.workload["uuid"]: r.quantiles["q50"]
            for r in known
            if r.workload["operator"] == tried.operator
            and r.workload.get("contender") == f"schedule {number}"
            and r.schedule.get("plan") == shown(made)
            and r.quantiles
        }
        if found.keys() == {p.uuid for p in shapes}:
            for own, p in zip(seconds, shapes, strict=True):
                own[number] = found[p.uuid] / 1e6
    samples = [Sample(told_apart(p), own) for p, own in zip(shapes, seconds, strict=True)]
    return Trial(samples=samples) if all(seconds) else None


def joined(samples: Sequence[Sample]) -> Sample:
    """Of one shape, from trials of different schedules."""
    return Sample(samples[0].dims, {n: t for s in samples for n, t in s.seconds.items()})


def is_measured(r: Record) -> bool:
    return r.workload.get("contender") == OURS and r.outcome is Outcome.OK
