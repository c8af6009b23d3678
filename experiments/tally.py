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
        from cleave.runtime.watchdog import Outcome as Ended

        left = self.deadline - time.monotonic()
        if left < 5:
            self.left_out += 1
            return []
        ended = worker.run(job, *arguments, seconds=min(seconds, left))
        if ended.outcome is Ended.TIMEOUT and left < seconds:  # the run's time was over, not the job's
            self.left_out += 1
            return []
        if ended.outcome is not Ended.OK:
            outcome = {Ended.TIMEOUT: Outcome.TIMEOUT, Ended.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY}.get(ended.outcome)
            error = {"error": f"{ended.outcome.value}: {ended.message}"}
            failed = {"operator": name} if workload is None else dict(workload)
            self.add(file, Record(workload=failed, outcome=outcome or Outcome.CRASHED, check=error))
            return []
        for record in ended.value.records:
            self.add(file, record)
        print("\n".join(ended.value.lines) + f" ({ended.seconds:.1f} s)", flush=True)
        return list(ended.value.lines)
