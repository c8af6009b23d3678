"""Jobs of an experiment in a worker process: their rows are recorded and counted, and so is how a job failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cleave.records import Outcome, Record, append

SECONDS_A_JOB = 150.0


@dataclass
class Checked:
    """Rows of one job, and what to print of it."""

    records: list[Record] = field(default_factory=list[Record])
    lines: list[str] = field(default_factory=list[str])


@dataclass
class Tally:
    """Appends rows to files of a folder and counts them by outcome; knows when to stop.

    ``environment`` is that of all rows, if it is given: else each is stamped when it is written.
    """

    folder: Path
    gpu: Mapping[str, Any] | None
    command: str
    deadline: float
    environment: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rows: int = 0
    bad: int = 0
    compiles: int = 0
    left_out: int = 0
    failure: str = ""
    """How the job ended that failed last."""

    def add(self, file: str, record: Record) -> None:
        record.details["command"] = self.command
        made = msgspec.structs.replace(record, environment=record.environment or dict(self.environment))
        append(self.folder / file, made, self.gpu)
        self.rows += 1
        self.compiles += record.details.get("compiles_after_first_call", 0)
        if record.outcome not in (Outcome.OK, Outcome.SKIPPED):
            self.bad += 1
            print(f"BAD {record.outcome} {record.workload} {record.check}", flush=True)

    def run(
        self,
        worker: Any,
        file: str,
        name: str,
        job: Callable[..., Any],
        *arguments: Any,
        seconds: float = SECONDS_A_JOB,
        workload: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Run one job in the worker and keep its rows; how it failed is a row of its ``workload`` as well."""
        row = {"operator": name} if workload is None else workload
        found = self.answered(worker, file, job, *arguments, seconds=seconds, workload=row)
        return [] if found is None else list(found.lines)

    def answered(
        self,
        worker: Any,
        file: str,
        job: Callable[..., Checked],
        *arguments: Any,
        seconds: float = SECONDS_A_JOB,
        workload: Mapping[str, Any],
        is_last: bool = True,
    ) -> Checked | None:
        """The same, and what the job found; None if it failed or there was no time for it.

        ``is_last``: there is no other try, with less in it; else a failure is a row that says so, and is not bad.
        """
        from cleave.runtime.watchdog import Outcome as Ended

        left = self.deadline - time.monotonic()
        if left < 5:
            self.left_out += 1
            return None
        ended = worker.run(job, *arguments, seconds=min(seconds, left))
        if ended.outcome is Ended.TIMEOUT and left < seconds:  # the run's time was over, not the job's
            self.left_out += 1
            return None
        if ended.outcome is not Ended.OK:
            known = {Ended.TIMEOUT: Outcome.TIMEOUT, Ended.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY}
            outcome = known.get(ended.outcome, Outcome.CRASHED) if is_last else Outcome.SKIPPED
            self.failure = f"{ended.outcome.value}: {ended.message}"
            self.add(file, Record(workload=dict(workload), outcome=outcome, check={"error": self.failure}))
            return None
        for record in ended.value.records:
            self.add(file, record)
        print("\n".join(ended.value.lines) + f" ({ended.seconds:.1f} s)", flush=True)
        return ended.value
