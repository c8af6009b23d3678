"""Decode attention and matmuls of few rows on the skeleton warp-ring: checked at every shape, timed against torch."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from cleave.errors import CleaveError
from experiments.e03_decode.config import DRAWN, GRID, MATMULS, OPERATORS, RECORDS, TIMED, Timed
from experiments.tally import Tally

PARTS = ("times", "drawn", "matmuls", "host", "checks")


def measure(minutes: float, parts: Sequence[str], tried: int) -> int:
    """Time, then check; ends by itself before the limit. The table comes last."""
    from cleave.runtime.device import properties
    from cleave.runtime.watchdog import Worker
    from experiments.e03_decode.checks import check_operator
    from experiments.e03_decode.host import time_host
    from experiments.e03_decode.timing import time_decode, time_matmul

    start = time.monotonic()
    command = f"python -m experiments run e03 measure --minutes {minutes:g} --parts {','.join(parts)} --tried {tried}"
    tally = Tally(RECORDS, properties().as_dict(), command, start + 60 * minutes - 10)
    table: list[str] = []
    points = (*(TIMED if "times" in parts else ()), *(drawn_points() if "drawn" in parts else ()))
    with Worker() as worker:
        for p in points:
            table += tally.run(worker, "times.jsonl", f"decode {p}", time_decode, p, tried)
        for dims in MATMULS if "matmuls" in parts else ():
            table += tally.run(worker, "times.jsonl", f"matmul {dims}", time_matmul, dims, tried)
        if "host" in parts:
            table += tally.run(worker, "times.jsonl", "host time", time_host, TIMED[0])
        for op in OPERATORS if "checks" in parts else ():
            tally.run(worker, "checks.jsonl", op.name, check_operator, op, GRID)
    print(f"{tally.rows} rows, {tally.bad} bad, {tally.compiles} compiles after the first call of an operator")
    print(f"{time.monotonic() - start:.0f} s, {tally.left_out} jobs left out for want of time")
    print("\n".join(line for line in table if not line.startswith(" ")))
    return 1 if tally.bad or tally.left_out or tally.compiles else 0


def drawn_points() -> Iterator[Timed]:
    """Shapes drawn from the hash of the commit."""
    from cleave.environment import commit

    stamp = commit() or {"id": "0"}
    rng = np.random.default_rng(int(str(stamp["id"])[:12], 16))
    for _ in range(DRAWN):
        b, t = int(rng.integers(1, 65)), int(rng.integers(500, 16385))
        yield Timed(b, 8, 128, t, 1.0)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments run e03", description=__doc__)
    parser.add_argument("stage", choices=("search", "measure"))
    parser.add_argument("--minutes", type=float, default=9.0, help="measure ends by itself before this")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}, separated by commas")
    parser.add_argument("--tried", type=int, default=6, help="schedules compiled and timed at each shape")
    options = parser.parse_args(argv)
    parts = options.parts.split(",")
    try:
        if not set(parts) <= set(PARTS):
            raise CleaveError(f"parts {options.parts!r}: allowed are {', '.join(PARTS)}", location="e03")
        if options.stage == "measure":
            return measure(options.minutes, parts, options.tried)
        from experiments.e03_decode.search import search

        return search()
    except CleaveError as error:
        print(f"e03: {error}", file=sys.stderr)
        return error.exit_code
