"""The tuner: schedules of all candidates, compiled beside one another, checked and timed in turn on the GPU.

    plan        every candidate is scheduled in a process of its own; the best different schedules are kept
    compile     beside one another, while a worker makes inputs and their reference
    check       each schedule at the real shape, in the worker, under a time limit; what fails is a row
    race        all that passed take turns; who is clearly slower drops out; all are checked again

What is in the records is not measured again, so a run that was ended is resumed by running again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cleave.candidate import Candidate
from cleave.codegen.compile import is_compiled
from cleave.config import Config
from cleave.errors import CleaveError, LaunchError
from cleave.ir.hash import graph_hash
from cleave.records import Outcome, Record
from cleave.runtime import device as devices
from cleave.runtime.watchdog import Limited, Worker
from cleave.runtime.watchdog import Outcome as Ended
from cleave.schedule.request import Forced
from cleave.target import Target
from cleave.tune.bench import GPU, Device, Problem, Raced, Shown, check, prepare, problem_of, race
from cleave.tune.crew import NO_TIME, Crew, LostError
from cleave.tune.database import Database, is_final, key_of, machine_of, recorded, source_hash, usual_file
from cleave.tune.description import described, row
from cleave.tune.plan import Chosen, Made, Request, chosen_of, compiled, generated
from cleave.tune.remembered import recall, remember
from cleave.tune.tuned import Row, Tuned, in_order
from cleave.verify import Check

Progress = Callable[[str], None]

BUDGET = 12
SECONDS = 60.0

_PLANNED, _COMPILED, _CHECKED = 0.5, 0.65, 0.75
"""Shares of the time after which a phase ends with what it has."""


def _gpu() -> Mapping[str, Any]:
    return devices.properties().as_dict()


@dataclass(frozen=True)
class Laboratory:
    """Where a tuner measures: the GPU of this machine, unless a test says otherwise.

    ``check_seconds``, ``race_seconds``: what a schedule may take for its check, and all together for the race.
    """

    gpu: Callable[[], Mapping[str, Any]] = _gpu
    device: Device = GPU
    worker: Callable[[], Worker] = Worker
    processes: int | None = None
    check_seconds: float = 15.0
    race_seconds: float = 60.0


def tune(
    candidates: Sequence[Candidate],
    target: Target | None = None,
    bind: Mapping[str, int] | None = None,
    config: Config | None = None,
    *,
    forced: Forced | None = None,
    budget: int = BUDGET,
    seconds: float = SECONDS,
    records: str | Path | None = None,
    progress: Progress | None = None,
    laboratory: Laboratory | None = None,
) -> Tuned:
    """Measure the best schedules of all candidates of one graph at one shape, and choose the fastest.

    ``target``: the GPU found here. ``bind``: values of all dims. ``forced``: what the scheduler does not choose.
    ``budget``: schedules that are tried at most. ``seconds``: when to stop. ``records``: a file of JSON lines, by
    default one of the user's; schedules that it knows, for this GPU and compiler, are not measured again. What fails is
    a row. Errors: no GPU, no candidates, dims without a value, a file that can't be written.
    """
    _require(candidates, budget, seconds)
    began, laboratory = time.monotonic(), laboratory or Laboratory()
    gpu = _found(laboratory)
    target = target or devices.target()
    config = config or Config()
    problem = problem_of(candidates[0].origin, bind or {}, config.seed)
    free = {s.name for s in problem.origin.symbols if s.value is None}
    dims = {n: v for n, v in problem.dims if n in free}
    request = Request(tuple(candidates), target, dims, budget, config, forced or Forced())
    database = Database(Path(records) if records is not None else usual_file(), gpu)
    tuner = _Tuner(request, problem, database, gpu, laboratory, began, seconds, progress or _nothing)
    rows, chosen = tuner.run()
    if rows and all(r.reused and r.outcome is not Outcome.OK for r in rows):
        tuner.notes.append(f"all of them failed before; without their lines in {database.path} they are tried again")
    return Tuned(
        origin=problem.origin,
        target=target,
        dims=dims,
        gpu=str(gpu["name"]),
        rows=in_order(rows),
        records=database.path,
        seconds={**tuner.seconds, "all": time.monotonic() - began},
        refused=chosen.refused,
        notes=tuple(tuner.notes),
    )


def _require(candidates: Sequence[Candidate], budget: int, seconds: float) -> None:
    if not candidates:
        raise CleaveError("there are no candidates to tune", location="tune")
    if any(c.origin != candidates[0].origin for c in candidates):
        raise CleaveError("candidates of one graph are expected, these are of several", location="tune")
    if budget < 1:
        raise CleaveError(f"budget {budget}: allowed is >= 1", location="tune")
    if not (seconds > 0 and math.isfinite(seconds)):
        raise CleaveError(f"seconds {seconds}: a positive number is expected", location="tune")


def _found(laboratory: Laboratory) -> Mapping[str, Any]:
    try:
        return laboratory.gpu()
    except LaunchError as error:
        raise LaunchError(
            f"{error.message}; tuning measures, so it needs one. Without a GPU `cleave optimize` chooses by the cost "
            "model and `cleave explain` shows the alternatives",
            location="tune",
        ) from None


def _nothing(_: str) -> None:
    pass


@dataclass
class _Tuner:
    """One run: phases in order, each with its share of the time."""

    request: Request
    problem: Problem
    database: Database
    gpu: Mapping[str, Any]
    laboratory: Laboratory
    began: float
    limit: float
    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    notes: list[str] = field(default_factory=list[str])

    def run(self) -> tuple[list[Row], Chosen]:
        lab = self.laboratory
        with Crew(lab.processes) as crew, lab.worker() as worker, ThreadPoolExecutor(1) as beside:
            try:
                chosen = self._timed("plan", lambda: self._chosen(crew))
                made = self._timed("generate", lambda: self._different(chosen))
                rows, new = self._known(made)
                if new:
                    ready = beside.submit(worker.run, prepare, self.problem, self._device, seconds=self._left())
                    rows += self._measured(new, crew, worker, ready)
                return rows, chosen
            except BaseException:
                worker.end()
                raise

    @property
    def _device(self) -> Device:
        return self.laboratory.device

    def _left(self, share: float = 1.0) -> float:
        return max(self.began + share * self.limit - time.monotonic(), 0.0)

    def _timed(self, phase: str, work: Callable[[], Any]) -> Any:
        self.progress(phase)
        began = time.monotonic()
        try:
            return work()
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - began

    # ---- without a GPU

    def _chosen(self, crew: Crew) -> Chosen:
        found = recall(self.request)
        if found is not None:
            return found
        crew.deadline = self.began + _PLANNED * self.limit
        (found,) = chosen_of(crew, [self.request])
        if found.is_whole:
            remember(self.request, found)
        else:
            self.notes.append("not all candidates were scheduled in time")
        return found

    def _different(self, chosen: Chosen) -> dict[str, Made]:
        """What was generated, by its key: schedules of the same text are one. What was not, by its number."""
        out: dict[str, Made] = {}
        machine = machine_of(self.gpu)
        for number, s in enumerate(chosen.schedules):
            made = generated(s)
            key = str(number)
            if made.source is not None:
                key = key_of(self.problem, made.source, self.request.target.arch, machine)
            out.setdefault(key, made)
        return out

    def _known(self, every: Mapping[str, Made]) -> tuple[list[Row], dict[str, Made]]:
        """Rows of what the records know or nothing can be generated for, and the rest."""
        rows: list[Row] = []
        new: dict[str, Made] = {}
        for key, made in every.items():
            found = self.database.find(key)
            if made.source is None:
                rows.append(Row(key, made.schedule, made.outcome, made.error))
            elif found is not None:
                rows.append(_row_of(key, made.schedule, found))
            else:
                new[key] = made
        return rows, new

    def _compiled(self, new: Mapping[str, Made], crew: Crew) -> tuple[list[Row], dict[str, Made]]:
        crew.deadline = self.began + _COMPILED * self.limit
        rows: list[Row] = []
        sound = {key: made for key, made in new.items() if _is_compiled(made)}
        futures = {key: crew.submit(compiled, made) for key, made in new.items() if key not in sound}
        for key, future in futures.items():
            made = _compiled_one(future, new[key])
            if made.outcome is Outcome.OK:
                sound[key] = made
            else:
                rows.append(self._ended(key, new[key], made.outcome, made.error))
        return rows, {key: sound[key] for key in new if key in sound}

    # ---- on the GPU

    def _measured(self, new: Mapping[str, Made], crew: Crew, worker: Worker, ready: Future[Limited]) -> list[Row]:
        rows, sound = self._timed("compile", lambda: self._compiled(new, crew))
        answer = self._timed("inputs", ready.result)
        if not self._is_ready(answer):
            return [*rows, *(_skipped(key, made) for key, made in sound.items())]
        failed, right = self._timed("check", lambda: self._checked(sound, worker))
        return [*rows, *failed, *self._timed("race", lambda: self._raced(right, worker))]

    def _is_ready(self, answer: Limited) -> bool:
        """Whether the bench was made in time. Errors: it can't be made."""
        if answer.outcome not in (Ended.OK, Ended.TIMEOUT):
            raise LaunchError(f"inputs can't be made: {answer.outcome.value}: {answer.message}", location="tune")
        return answer.outcome is Ended.OK

    def _call(self, worker: Worker, job: Callable[..., Any], *arguments: Any, most: float, share: float) -> Limited:
        """A job that has the bench, which a new worker makes first. Late is what ends because the run does."""
        if self._left(share) <= 0 or not self._is_ready(
            worker.run(prepare, self.problem, self._device, seconds=self._left(share))
        ):
            return _LATE
        left = self._left(share)
        answer = worker.run(job, *arguments, seconds=min(most, left)) if left > 0 else _LATE
        return _LATE if answer.outcome is Ended.TIMEOUT and left < most else answer

    def _checked(self, sound: Mapping[str, Made], worker: Worker) -> tuple[list[Row], dict[str, Made]]:
        """Nothing is timed before it passes."""
        rows: list[Row] = []
        right: dict[str, Made] = {}
        for key, made in sound.items():
            arguments = (self.problem, self._shown(key, made), self._device)
            answer = self._call(worker, check, *arguments, most=self.laboratory.check_seconds, share=_CHECKED)
            if answer.outcome is Ended.OK and not answer.value.outcome.failed:
                right[key] = made
            else:
                rows.append(self._failed(key, made, answer))
        return rows, right

    def _raced(self, right: Mapping[str, Made], worker: Worker) -> list[Row]:
        """One race of all. A crash or a hang takes all with it: then each alone, and once more without who did it."""
        if not right:
            return []
        together = self._race(right, worker)
        if together.outcome is Ended.OK:
            return self._finished(right, together.value)
        if together is _LATE:
            return [_skipped(key, made) for key, made in right.items()]
        alone = {key: self._race({key: made}, worker) for key, made in right.items()}
        rows = [self._failed(k, right[k], a) for k, a in alone.items() if a.outcome is not Ended.OK]
        rest = {k: made for k, made in right.items() if alone[k].outcome is Ended.OK}
        again = self._race(rest, worker) if rest else _LATE
        if again.outcome is Ended.OK:
            return [*rows, *self._finished(rest, again.value)]
        if rest:
            self.notes.append("schedules were timed one by one: together they failed")
        raced = {key: raced for k in rest for key, raced in alone[k].value.items()}
        return [*rows, *self._finished(rest, raced)]

    def _race(self, entered: Mapping[str, Made], worker: Worker) -> Limited:
        shown = [self._shown(key, made) for key, made in entered.items()]
        return self._call(worker, race, self.problem, shown, self._device, most=self.laboratory.race_seconds, share=1.0)

    def _shown(self, key: str, made: Made) -> Shown:
        assert made.source is not None
        return Shown(key, made.source, self.request.target.arch)

    # ---- rows and records

    def _finished(self, entered: Mapping[str, Made], raced: Mapping[str, Raced]) -> list[Row]:
        rows = [_row_raced(key, made, raced[key]) for key, made in entered.items()]
        self._record([(r, entered[r.name]) for r in rows])
        return rows

    def _failed(self, key: str, made: Made, answer: Limited) -> Row:
        """Of an answer that is no success, or a check that failed."""
        if answer is _LATE:
            return _skipped(key, made)
        if answer.outcome is not Ended.OK:
            failed = Row(key, made.schedule, recorded(answer), f"{answer.outcome.value}: {answer.message}")
            if is_final(answer):
                self._record([(failed, made)])
            return failed
        found: Check = answer.value
        return self._ended(key, made, Outcome.WRONG, found.detail, found.as_dict())

    def _ended(
        self, key: str, made: Made, outcome: Outcome, detail: str, found: Mapping[str, Any] | None = None
    ) -> Row:
        ended = Row(key, made.schedule, outcome, detail, found or {})
        if outcome is not Outcome.SKIPPED:
            self._record([(ended, made)])
        return ended

    def _record(self, rows: Sequence[tuple[Row, Made]]) -> None:
        self.database.add([(r.name, self._record_of(r, made)) for r, made in rows])

    def _record_of(self, r: Row, made: Made) -> Record:
        assert made.source is not None
        g, s = self.problem.origin, made.schedule
        return Record(
            workload={"graph": g.name, "hash": graph_hash(g), "dims": dict(self.problem.dims)},
            candidate={"name": s.candidate},
            schedule={"target": s.target.arch, **row(s), "plan": described(s), "text": source_hash(made.source)},
            outcome=r.outcome,
            check=dict(r.check),
            quantiles=dict(r.quantiles),
            details={"error": r.detail, "samples": r.samples, "regime": "burst"},
        )


_LATE = Limited(Ended.TIMEOUT, message=NO_TIME)
"""What the end of the run's own time leaves of a call."""


def _skipped(key: str, made: Made) -> Row:
    return Row(key, made.schedule, Outcome.SKIPPED, NO_TIME)


def _is_compiled(made: Made) -> bool:
    return made.source is not None and is_compiled(made.source.kernels, made.schedule.target.arch)


def _compiled_one(future: Future[Any], made: Made) -> Made:
    try:
        return future.result()
    except LostError as error:
        outcome = Outcome.SKIPPED if error.is_late else Outcome.COMPILE_FAILED
        return replace(made, outcome=outcome, error=str(error))


def _row_raced(key: str, made: Made, raced: Raced) -> Row:
    if raced.timing is None or raced.check is None:
        return Row(key, made.schedule, Outcome.REFUSED, raced.refused)
    if raced.check.outcome.failed:
        return Row(key, made.schedule, Outcome.WRONG, f"after timing: {raced.check.detail}", raced.check.as_dict())
    quantiles = {q: 1e6 * v for q, v in raced.timing.as_dict().items() if q.startswith("q")}
    return Row(key, made.schedule, Outcome.OK, "", raced.check.as_dict(), quantiles, len(raced.timing.samples))


def _row_of(key: str, s: Any, r: Record) -> Row:
    """A row of the records."""
    error, samples = str(r.details.get("error", "")), int(r.details.get("samples", 0))
    return Row(key, s, r.outcome, error, r.check, r.quantiles, samples, reused=True)
