"""Attention and matmul from graph to checked CUDA, at every shape, and against cuDNN."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from cleave.errors import CleaveError
from experiments.e00_smoke.config import OPERATORS, RECORDS, TIMED
from experiments.kept import select
from experiments.tally import Tally

DRAWN = 20
PARTS = ("times", "checks")


def measure(minutes: float, parts: Sequence[str], pattern: str) -> int:
    """Time prefill, then check every shape; ends by itself before the limit. ``pattern``: of operators' names."""
    from cleave.runtime.device import properties
    from cleave.runtime.watchdog import Worker
    from experiments.e00_smoke.checks import check_ablations, check_operator
    from experiments.e00_smoke.prefill import time_prefill

    start = time.monotonic()
    command = f"python -m experiments run e00 measure --minutes {minutes:g} --parts {','.join(parts)}"
    command += f" --operators {pattern}" if pattern else ""
    operators = select(pattern, OPERATORS, "operator")
    tally = Tally(RECORDS, properties().as_dict(), command, start + 60 * minutes - 10)
    drawn = list(drawn_shapes())
    timed: list[str] = []
    with Worker() as worker:
        for shape in TIMED if "times" in parts else ():
            for graph in ("attention", "attention_causal"):
                timed += tally.run(worker, "times.jsonl", "prefill", time_prefill, graph, shape)
        if "checks" in parts and not pattern:
            tally.run(worker, "checks.jsonl", "ablations", check_ablations)
        for op in operators if "checks" in parts else ():
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
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}, separated by commas")
    parser.add_argument("--operators", default="", metavar="REGEX", help="check these only, and no ablations")
    options = parser.parse_args(argv)
    parts = options.parts.split(",")
    try:
        if not set(parts) <= set(PARTS):
            raise CleaveError(f"parts {options.parts!r}: allowed are {', '.join(PARTS)}")
        if options.stage == "measure":
            return measure(options.minutes, parts, options.operators)
        from experiments.e00_smoke.search import search

        return search()
    except CleaveError as error:
        print(f"e00: {error}", file=sys.stderr)
        return error.exit_code
