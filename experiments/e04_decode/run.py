"""Decode attention and matmuls of few rows on the skeleton warp-ring: checked at every shape, timed against torch."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from cleave.errors import CleaveError
from cleave.records import Outcome, Record
from experiments.e04_decode.config import (
    DRAWN,
    HEAD_FORMS,
    MATMULS,
    PAPER,
    RECORDS,
    SWEPT,
    SWEPT_MATMULS,
    TIMED,
    Operator,
    Shape,
    Timed,
    operators,
)
from experiments.tally import Tally

PARTS = ("times", "drawn", "paper", "matmuls", "host", "checks", "sweep")


@dataclass(frozen=True)
class Points:
    """What the chosen parts measure: shapes of attention and matmul that are timed, and at which split counts are;
    operators that are checked."""

    decode: tuple[Timed, ...]
    matmuls: tuple[Shape, ...]
    checked: tuple[tuple[Operator, ...], ...]
    swept: tuple[Timed, ...] = ()
    swept_matmuls: tuple[Shape, ...] = ()


def points(parts: Sequence[str]) -> Points:
    decode = (
        *(TIMED if "times" in parts else ()),
        *(drawn_points() if "drawn" in parts else ()),
        *(PAPER if "paper" in parts else ()),
    )
    checked = tuple(operators(*form) for form in HEAD_FORMS) if "checks" in parts else ()
    swept = (SWEPT, SWEPT_MATMULS) if "sweep" in parts else ((), ())
    return Points(decode, MATMULS if "matmuls" in parts else (), checked, *swept)


def measure(minutes: float, parts: Sequence[str], tried: int) -> int:
    """Plan and compile everything, time, then check; ends by itself before the limit. The table comes last."""
    from cleave.runtime.device import properties
    from cleave.runtime.watchdog import Worker
    from experiments.e04_decode.host import time_host

    start = time.monotonic()
    command = f"python -m experiments run e04 measure --minutes {minutes:g} --parts {','.join(parts)} --tried {tried}"
    tally = Tally(RECORDS, properties().as_dict(), command, start + 60 * minutes - 10)
    chosen = points(parts)
    table: list[str] = []
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:  # done before the first time is taken
        timed, checked = planned(pool, chosen, tried)
        sweeps = planned_sweeps(pool, chosen)
    print(f"planned and compiled in {time.monotonic() - start:.0f} s", flush=True)
    with Worker() as worker:
        table += _timed(tally, worker, chosen, timed)
        table += _swept(tally, worker, chosen, sweeps)
        if "host" in parts:
            table += tally.run(worker, "times.jsonl", "host time", time_host, TIMED[0])
        _checked(tally, worker, chosen, checked)
    print(f"{tally.rows} rows, {tally.bad} bad, {tally.compiles} compiles after the first call of an operator")
    print(f"{time.monotonic() - start:.0f} s, {tally.left_out} jobs left out for want of time")
    print("\n".join(line for line in table if not line.startswith(" ")))
    return 1 if tally.bad or tally.left_out or tally.compiles else 0


Futures = list["Future[Any]"]


def planned(pool: ProcessPoolExecutor, chosen: Points, tried: int) -> tuple[Futures, list[tuple[Futures, Futures]]]:
    """Plans to come: of every shape that is timed; of the operators of each head form, for the grid and for replays."""
    from experiments.e04_decode.plans import plan_operator, plan_timed

    timed = [pool.submit(plan_timed, "attention", "t", p.dims, tried) for p in chosen.decode]
    timed += [pool.submit(plan_timed, "matmul", "k", dims, 2 * tried) for dims in chosen.matmuls]

    def of(graph: str, ops: Sequence[Operator]) -> Futures:
        return [pool.submit(plan_operator, op, graph) for op in ops]

    return timed, [(of("attention_lse", ops), of("attention_by_length", ops)) for ops in chosen.checked]


def planned_sweeps(pool: ProcessPoolExecutor, chosen: Points) -> Futures:
    """Plans of every split count to come."""
    from experiments.e04_decode.sweep import plan_sweep

    decode = [pool.submit(plan_sweep, "attention", "t", p.dims) for p in chosen.swept]
    return [*decode, *(pool.submit(plan_sweep, "matmul", "k", dims) for dims in chosen.swept_matmuls)]


def _timed(tally: Tally, worker: Any, chosen: Points, plans: Futures) -> Iterator[str]:
    from experiments.e04_decode.timing import time_decode, time_matmul

    jobs = [*((time_decode, p.name, p) for p in chosen.decode), *((time_matmul, str(d), d) for d in chosen.matmuls)]
    yield from _run(tally, worker, "times.jsonl", jobs, plans)


def _swept(tally: Tally, worker: Any, chosen: Points, plans: Futures) -> Iterator[str]:
    from experiments.e04_decode.sweep import sweep_decode, sweep_matmul

    jobs = [*((sweep_decode, p.name, p) for p in chosen.swept)]
    jobs += [(sweep_matmul, str(d), d) for d in chosen.swept_matmuls]
    yield from _run(tally, worker, "sweep.jsonl", jobs, plans)


def _run(tally: Tally, worker: Any, file: str, jobs: Sequence[tuple[Any, str, Any]], plans: Futures) -> Iterator[str]:
    for (job, name, point), plan in zip(jobs, plans, strict=True):
        found = plan.result()
        if isinstance(found, str):
            row = Record(workload={"operator": name}, outcome=Outcome.REFUSED, check={"error": found})
            tally.add(file, row)
        else:
            yield from tally.run(worker, file, name, job, point, found)


def _checked(tally: Tally, worker: Any, chosen: Points, plans: Sequence[tuple[Futures, Futures]]) -> None:
    from experiments.e04_decode.checks import check_grid

    for ops, (grid, replayed) in zip(chosen.checked, plans, strict=True):
        name = f"kv_heads {ops[0].kv_heads}, d {ops[0].d}"
        given = [[f.result() for f in futures] for futures in (grid, replayed)]
        tally.run(worker, "checks.jsonl", name, check_grid, ops, *given)


def drawn_points() -> Iterator[Timed]:
    """Shapes drawn from the hash of the commit."""
    from cleave.environment import commit

    stamp = commit() or {"id": "0"}
    rng = np.random.default_rng(int(str(stamp["id"])[:12], 16))
    for _ in range(DRAWN):
        b, t = int(rng.integers(1, 65)), int(rng.integers(500, 16385))
        yield Timed(b, 8, 128, t, 1.0)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments run e04", description=__doc__)
    parser.add_argument("stage", choices=("search", "measure"))
    parser.add_argument("--minutes", type=float, default=9.0, help="measure ends by itself before this")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}, separated by commas")
    parser.add_argument("--tried", type=int, default=32, help="schedules compiled and timed at each shape")
    options = parser.parse_args(argv)
    parts = options.parts.split(",")
    try:
        if not set(parts) <= set(PARTS):
            raise CleaveError(f"parts {options.parts!r}: allowed are {', '.join(PARTS)}")
        if options.stage == "measure":
            return measure(options.minutes, parts, options.tried)
        from experiments.e04_decode.search import search

        return search()
    except CleaveError as error:
        print(f"e04: {error}", file=sys.stderr)
        return error.exit_code
