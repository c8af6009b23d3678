"""Configurations against one another at one point: planned together, each program checked and timed once.

The programs of a configuration are tried briefly, and the fastest of each meet in one interleaved run, with the graph
as a user writes it in torch beside them. What two configurations have in common is one program, timed once.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from cleave.ir.index import evaluate
from cleave.ir.op import DTYPES
from cleave.kernel import OperatorSource
from cleave.records import Outcome, Record
from cleave.runtime.timing import Contender
from cleave.tune.description import parts
from cleave.tune.plan import Made, Planned
from experiments.e01_ablation.baselines import baselines
from experiments.e01_ablation.config import Point
from experiments.e01_ablation.configurations import CONFIGURATIONS, FULL
from experiments.e01_ablation.plans import plan
from experiments.e01_ablation.point import (
    Bench,
    Entered,
    Entrant,
    Laboratory,
    Mode,
    Times,
    bad_record,
    brief_times,
    check_again,
    contender_record,
    enter,
    enter_ours,
    forget_compiled,
    prepared,
    shown,
)
from experiments.tally import Checked

ANCHORS = ("eager", "cublas")
"""The baseline that is timed beside the configurations, first choice first."""
WORKSPACE_BYTES = 20 * 2**30
"""What the temporaries of programs that are tried beside one another take at most; a program has them twice."""


@dataclass(frozen=True)
class Ablated:
    """What the configurations try at a point.

    tried    programs, each once
    chosen   numbers of a configuration's programs in ``tried``, the model's first choice first
    reasons  why a configuration has none
    """

    tried: tuple[Made, ...]
    chosen: Mapping[str, tuple[int, ...]]
    reasons: Mapping[str, str]

    @property
    def unfused(self) -> str:
        """Why there is nothing to try."""
        return "" if self.tried else "no schedule: " + "; ".join(self.reasons.values())

    def alone(self, number: int) -> Planned:
        made = self.tried[number]
        return Planned((made,), {made.schedule.candidate: len(parts(made.schedule))})

    def only(self, numbers: Sequence[int]) -> Ablated:
        """Without the programs that crashed."""
        place = {n: k for k, n in enumerate(numbers)}
        left = {name: tuple(place[n] for n in own if n in place) for name, own in self.chosen.items()}
        lost = {name: "every program crashed" for name, own in left.items() if not own}
        kept = {name: own for name, own in left.items() if own}
        return Ablated(tuple(self.tried[n] for n in numbers), kept, {**self.reasons, **lost})


def plan_ablations(pool: Executor, points: Sequence[Point], tried: int) -> list[Ablated]:
    """All configurations of some points, planned and compiled beside one another."""
    every = [replace(p, configuration=c) for p in points for c in CONFIGURATIONS]
    made = iter(plan(pool, every, tried))
    return [merged({c.name: next(made) for c in CONFIGURATIONS}) for _ in points]


def merged(plans: Mapping[str, Planned]) -> Ablated:
    """Plans by configuration, with what they have in common once."""
    programs: dict[str, Made] = {}
    chosen: dict[str, tuple[int, ...]] = {}
    reasons = {name: p.unfused for name, p in plans.items() if not p.tried}
    for name, planned in plans.items():
        if planned.tried:
            keys = [program(m) for m in planned.tried]
            for key, made in zip(keys, planned.tried, strict=True):
                programs.setdefault(key, made)
            places = list(programs)
            chosen[name] = tuple(dict.fromkeys(places.index(k) for k in keys))
    return Ablated(tuple(programs.values()), chosen, reasons)


def program(made: Made) -> str:
    """A name of what runs: texts but for the kernels' own names, launches, what is compiled in. Two candidates, or two
    ways to cut a graph, may give one program."""
    source = made.source
    if source is None:
        return f"not compiled: {shown(made.schedule)}: {made.error}"
    launches = [replace(k, text=k.text.replace(k.entry, "kernel"), entry="kernel") for k in source.kernels]
    derived = [str(index) for _, index in source.derived]
    fixed = sorted(source.fixed.items())
    return hashlib.sha256(repr((launches, derived, fixed)).encode()).hexdigest()


# ---- on the GPU


def time_ablations(point: Point, planned: Ablated, mode: Mode) -> Checked:
    """Check and time all configurations on the GPU."""
    return ablated(point, planned, Laboratory())


def ablated(point: Point, planned: Ablated, lab: Laboratory) -> Checked:
    bench, out = prepared(point, lab), Checked()
    trials: dict[int, float] = {}
    for group in groups(planned, bench):
        trials |= _trials(planned, group, bench, lab, out)
        gc.collect()  # the temporaries of what was tried
    best = {
        name: min((n for n in own if n in trials), key=trials.__getitem__)
        for name, own in planned.chosen.items()
        if any(n in trials for n in own)
    }
    last = Entered()
    numbers = list(dict.fromkeys(best.values()))
    enter_ours(last, bench, [planned.tried[n] for n in numbers], lab)
    out.records += last.records
    _enter_anchor(last, bench)
    entrants = {n: e for e in last.ours for n in numbers if planned.tried[n] is e.made}
    times = lab.time([Contender(e.name, e.calls) for e in (*last.ours, *last.theirs)])
    for n, e in list(entrants.items()):
        again = check_again(bench, e)
        if not again.passed:
            out.records.append(bad_record(bench, e.made, Outcome.WRONG, {"error": f"after timing: {again}"}))
            del entrants[n]
    _write(out, bench, planned, {name: entrants[n] for name, n in best.items() if n in entrants}, last.theirs, times)
    return out


def groups(planned: Ablated, bench: Bench) -> Iterator[list[int]]:
    """Programs that are tried beside one another, for as much memory as there is."""
    group: list[int] = []
    held = 0
    for number, made in enumerate(planned.tried):
        own = 0 if made.source is None else workspace_bytes(made.source, {**bench.dims, **made.schedule.bind})
        if group and held + own > WORKSPACE_BYTES:
            yield group
            group, held = [], 0
        group.append(number)
        held += own
    if group:
        yield group


def workspace_bytes(source: OperatorSource, dims: Mapping[str, int]) -> int:
    """Of the temporaries between kernels."""
    known = dict(dims)
    for symbol, value in source.derived:
        known[symbol.name] = int(evaluate(value, known))
    shapes = [(DTYPES[w.dtype], [int(evaluate(e, known)) for e in w.shape]) for w in source.workspaces]
    return sum(size * prod(shape) for size, shape in shapes)


def _trials(planned: Ablated, group: Sequence[int], bench: Bench, lab: Laboratory, out: Checked) -> dict[int, float]:
    """Median seconds of the programs of a group that are right."""
    entered = Entered()
    enter_ours(entered, bench, [planned.tried[n] for n in group], lab)
    times = brief_times(entered, bench, lab) if entered.ours else {}
    out.records += entered.records
    return {n: times[e.name].median for e in entered.ours for n in group if planned.tried[n] is e.made}


def _enter_anchor(entered: Entered, bench: Bench) -> None:
    workload = bench.point.workload
    forget_compiled()
    found = baselines(workload.operator, workload.options, bench.dims)
    for name in (n for n in ANCHORS if n in found):
        enter(entered, bench, name, bench.sets, found[name].run)


# ---- rows


def _write(
    out: Checked,
    bench: Bench,
    planned: Ablated,
    best: Mapping[str, Entrant],
    anchors: Sequence[Entrant],
    times: Times,
) -> None:
    """One record a configuration, and one of the anchor."""
    full = times[best[FULL.name].name].median if FULL.name in best else None
    first: dict[str, str] = {}
    shares: list[str] = []
    for name in (c.name for c in CONFIGURATIONS):
        if name not in best:
            out.records.append(_missing(bench, planned, name))
            shares.append(f"{name} none")
            continue
        e = best[name]
        record = contender_record(bench, e, "off", None, timing=times[e.name])
        same = first.setdefault(e.name, name)
        details = {"tried": len(planned.chosen[name])} | ({} if same == name else {"same_program_as": same})
        relative = None if full is None else full / times[e.name].median
        record.workload["configuration"] = name
        record.details.update(details, relative=relative)
        out.records.append(record)
        shares.append(f"{name} " + ("-" if relative is None else f"{relative:.3f}") + " =" * (same != name))
    for e in anchors:
        record = contender_record(bench, e, "off", None, title=e.name, timing=times[e.name])
        record.workload["configuration"] = e.name
        record.details["relative"] = None if full is None else full / times[e.name].median
        out.records.append(record)
        shares.append(f"{e.name} " + ("-" if full is None else f"{full / times[e.name].median:.3f}"))
    shown_full = "no full system" if full is None else f"full {1e6 * full:.2f} us"
    out.lines.append(f"{bench.point.name:34} {shown_full} | relative: {', '.join(shares)}")
    out.lines += [f"    {1e6 * times[e.name].median:9.2f} {n}: {_plan(e)}" for n, e in best.items()]


def _missing(bench: Bench, planned: Ablated, name: str) -> Record:
    """A configuration that has nothing to time."""
    why = planned.reasons.get(name) or "no program is right"
    workload: dict[str, Any] = {**bench.point.row, "configuration": name, "compile": "off", "contender": "cleave"}
    return Record(workload=workload, outcome=Outcome.SKIPPED, check={"error": why})


def _plan(e: Entrant) -> str:
    assert e.made is not None
    return shown(e.made.schedule)
