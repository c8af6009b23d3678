"""The algebra alone: searches of every workload, with and without constraint, beside enumeration; and verification."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cleave.environment import environment
from cleave.errors import CleaveError
from cleave.records import Record, read
from experiments.e03_search.config import (
    CASES,
    CHECK_SECONDS,
    ENUMERATED,
    ENUMERATION_SECONDS,
    FILE,
    PARTS,
    PATIENCE,
    README,
    RECORDS,
    REDUCIBILITY_SECONDS,
    VERIFICATION_SECONDS,
    Case,
)
from experiments.e03_search.table import tables, write_page
from experiments.tally import Tally

MINUTES = 60.0
_MOST_SPLITS = 1


def seconds_for(part: str, case: Case) -> float:
    """When a job is ended from outside, whatever it is doing."""
    match part:
        case "search":
            return PATIENCE * case.goal
        case "reducibility":
            return max(REDUCIBILITY_SECONDS, 2 * PATIENCE * case.goal)
        case "enumeration":
            return (1 + _MOST_SPLITS) * (2 * ENUMERATION_SECONDS + 2 * CHECK_SECONDS)
        case _:
            return PATIENCE * case.goal + VERIFICATION_SECONDS


def recorded(records: Iterable[Record], commit: dict[str, Any] | None) -> set[tuple[str, str]]:
    """Parts and workloads that were measured at a commit; none where the checkout differs from it."""
    if commit is None or commit["dirty"]:
        return set()
    known = [r for r in records if r.environment.get("commit") == commit]
    return {(r.workload["part"], r.workload["name"]) for r in known}


def chosen(parts: Sequence[str], words: Sequence[str], done: set[tuple[str, str]]) -> list[tuple[str, Case]]:
    """What is to be measured: every part of each workload whose name has one of the words in it. Enumerations are for
    one workload of each kind.
    """
    cases = [c for c in CASES.values() if not words or any(w in c.name for w in words)]
    jobs = [(part, c) for part in parts for c in cases if (part, c.name) not in done]
    return [(part, c) for part, c in jobs if part != "enumeration" or c.name in ENUMERATED]


def measure(minutes: float, parts: Sequence[str], words: Sequence[str], *, again: bool) -> int:
    """Measure what is missing, one job after another, and end before the limit; then print the tables."""
    from cleave.runtime.watchdog import Worker
    from experiments.e03_search.jobs import measured, workload_of

    start = time.monotonic()
    stamp = environment(apart_from=(str(RECORDS), str(README)))
    known = records_of(RECORDS / FILE)
    done = set[tuple[str, str]]() if again else recorded(known, stamp["commit"])
    jobs = chosen(parts, words, done)
    print(f"{len(jobs)} measurements, {len(done)} are recorded for this commit", flush=True)
    only = f" --workloads {','.join(words)}" if words else ""
    command = f"python -m experiments run e03 --minutes {minutes:g} --parts {','.join(parts)}{only}"
    tally = Tally(RECORDS, None, command, start + 60 * minutes, stamp)
    with Worker() as worker:
        for part, case in jobs:
            limit, workload = seconds_for(part, case), workload_of(part, case)
            tally.run(worker, FILE, case.name, measured, part, case.name, seconds=limit, workload=workload)
    print(tables(records_of(RECORDS / FILE)))
    print(f"{tally.rows} rows, {tally.bad} bad, {tally.left_out} left out for want of time")
    return 1 if tally.bad or tally.left_out else 0


def records_of(path: Path) -> list[Record]:
    return list(read(path)) if path.exists() else []


def _listed(allowed: Iterable[str] | None = None) -> Any:
    def read_list(text: str) -> list[str]:
        words = [w.strip() for w in text.split(",") if w.strip()]
        unknown = [w for w in words if allowed is not None and w not in allowed]
        if unknown or not words:
            raise argparse.ArgumentTypeError(f"{text!r}: allowed are {', '.join(allowed or ('any words',))}")
        return words

    return read_list


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: a positive number of minutes is expected")
    return value


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments run e03", description=__doc__)
    parser.add_argument("--parts", type=_listed(PARTS), default=list(PARTS), help=f"of {','.join(PARTS)}")
    parser.add_argument("--workloads", type=_listed(), default=[], help="words; those whose name has one in it")
    parser.add_argument("--minutes", type=_minutes, default=MINUTES, help="ends by itself before this")
    parser.add_argument("--again", action="store_true", help="measure what is recorded for this commit once more")
    parser.add_argument("--table", action="store_true", help="measure nothing: print the tables of what is recorded")
    parser.add_argument("--write", action="store_true", help="put the tables into the README of the experiment as well")
    options = parser.parse_args(argv)
    try:
        code = 0
        if options.table:
            print(tables(records_of(RECORDS / FILE)), end="")
        else:
            code = measure(options.minutes, options.parts, options.workloads, again=options.again)
        if options.write:
            write_page(README, tables(records_of(RECORDS / FILE)))
        return code
    except CleaveError as error:
        print(f"e03: {error}", file=sys.stderr)
        return error.exit_code
