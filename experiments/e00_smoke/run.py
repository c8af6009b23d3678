"""Attention and matmul from graph to checked CUDA, at every shape, and against cuDNN."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cleave.errors import CleaveError
from cleave.records import Outcome, Record, append
from experiments.e00_smoke.config import OPERATORS, RECORDS, TIMED

DRAWN = 20
SECONDS_A_JOB = 150.0


@dataclass
class Tally:
    """Appends rows and counts them by outcome; knows when to stop."""

    gpu: Mapping[str, Any]
    command: str
    deadline: float
    rows: int = 0
    bad: int = 0
    compiles: int = 0
    left_out: int = 0

    def add(self, file: str, record: Record) -> None:
        record.details["command"] = self.command
        append(RECORDS / file, record, self.gpu)
        self.rows += 1
        self.compiles += record.details.get("compiles_after_first_call", 0)
        if record.outcome is not Outcome.OK:
            self.bad += 1
            print(f"BAD {record.outcome} {record.workload} {record.check}", flush=True)

    def run(self, worker: Any, file: str, name: str, job: Callable[..., Any], *arguments: Any) -> list[str]:
        """Run one job in the worker and keep its rows; how it failed is a row as well."""
        from cleave.runtime.watchdog import Outcome as Ended

        left = self.deadline - time.monotonic()
        if left < 5:
            self.left_out += 1
            return []
        ended = worker.run(job, *arguments, seconds=min(SECONDS_A_JOB, left))
        if ended.outcome is not Ended.OK:
            outcome = {Ended.TIMEOUT: Outcome.TIMEOUT, Ended.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY}.get(ended.outcome)
            error = {"error": f"{ended.outcome.value}: {ended.message}"}
            self.add(file, Record(workload={"operator": name}, outcome=outcome or Outcome.CRASHED, check=error))
            return []
        for record in ended.value.records:
            self.add(file, record)
        print("\n".join(ended.value.lines) + f" ({ended.seconds:.1f} s)", flush=True)
        return list(ended.value.lines)


def measure(minutes: float) -> int:
    """Time prefill, then check every shape; ends by itself before the limit."""
    from cleave.runtime.device import properties
    from cleave.runtime.watchdog import Worker
    from experiments.e00_smoke.checks import check_ablations, check_operator
    from experiments.e00_smoke.prefill import time_prefill

    start = time.monotonic()
    command = f"python -m experiments run e00 measure --minutes {minutes:g}"
    tally = Tally(properties().as_dict(), command, start + 60 * minutes - 10)
    drawn = list(drawn_shapes())
    timed: list[str] = []
    with Worker() as worker:
        for shape in TIMED:
            for graph in ("attention", "attention_causal"):
                timed += tally.run(worker, "times.jsonl", "prefill", time_prefill, graph, shape)
        tally.run(worker, "checks.jsonl", "ablations", check_ablations)
        for op in OPERATORS:
            more = [shape for name, shape in drawn if name == op.name]
            tally.run(worker, "checks.jsonl", op.name, check_operator, op.name, op.shapes, more)
    print(f"{tally.rows} rows, {tally.bad} bad, {tally.compiles} compiles after the first call of an operator")
    print(f"{time.monotonic() - start:.0f} s, {tally.left_out} jobs left out for want of time")
    print("\n".join(timed))
    return 1 if tally.bad or tally.left_out or tally.compiles else 0


def drawn_shapes() -> Iterator[tuple[str, dict[str, int]]]:
    """20 (operator, shape) drawn from the hash of the commit."""
    from cleave.environment import commit

    stamp = commit() or {"id": "0"}
    rng = np.random.default_rng(int(str(stamp["id"])[:12], 16))
    for _ in range(DRAWN):
        op = OPERATORS[int(rng.integers(len(OPERATORS)))]
        if op.graph == "matmul":
            yield op.name, {n: int(rng.integers(1, 1500)) for n in ("m", "n", "k")}
        else:
            lengths = {n: int(rng.integers(1, 1500)) for n in ("s", "t")}
            yield op.name, {"b": int(rng.integers(1, 4)), "kv_heads": int(rng.integers(1, 4)), **lengths}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments run e00", description=__doc__)
    parser.add_argument("stage", choices=("search", "measure"))
    parser.add_argument("--minutes", type=float, default=9.0, help="measure ends by itself before this")
    options = parser.parse_args(argv)
    try:
        if options.stage == "measure":
            return measure(options.minutes)
        from experiments.e00_smoke.search import search

        return search()
    except CleaveError as error:
        print(f"e00: {error}", file=sys.stderr)
        return error.exit_code
