"""Jobs of one operator in a process that has the GPU: its schedules are tried, its points checked and timed.

A call is checked first, into outputs that hold NaN, against float32 by the metric of ``cleave.verify``; what is wrong
is not timed. Then all contenders take turns, each in one CUDA graph, with caches that are emptied before each call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import exp, log, nan
from statistics import fmean, median
from typing import Any

from cleave.errors import CleaveError, LaunchError
from cleave.ir.index import show
from cleave.records import Outcome, Record
from cleave.runtime.timing import Contender, Timing
from cleave.tune.description import microseconds, row
from cleave.tune.variants import Sample, rule
from cleave.verify import Comparison
from experiments.e02_dynamic import baselines
from experiments.e02_dynamic.bench import (
    PLANNED_TIMES,
    Bench,
    Laboratory,
    Prepared,
    Times,
    bench_of,
    microseconds_of,
    prepared,
)
from experiments.e02_dynamic.plans import OURS, Chosen, Rule, Tried, shown
from experiments.e02_dynamic.workloads import Point
from experiments.tally import Checked

SAMPLES, TRIAL_SAMPLES = 8, 4

_LOST = re.compile("cuda.?error|illegal memory access", re.IGNORECASE)

GPU = Laboratory()


@dataclass
class Entrant:
    """A contender that is right: its call, and what the host does before it when lengths or tables change."""

    call: Callable[[], object]
    check: Comparison
    plan_us: float
    rule: Rule | None = None
    details: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Entered:
    ours: dict[str, Entrant] = field(default_factory=dict[str, Entrant])
    theirs: dict[str, Entrant] = field(default_factory=dict[str, Entrant])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    records: list[Record] = field(default_factory=list[Record])


@dataclass
class Trial(Checked):
    """``samples``: what schedules take at each shape, by number, of those that are right at all shapes."""

    samples: list[Sample] = field(default_factory=list[Sample])

    @property
    def seconds(self) -> dict[int, float]:
        """Of each schedule the geometric mean over the shapes."""
        first = self.samples[0].seconds if self.samples else {}
        known = [n for n in first if all(n in s.seconds for s in self.samples)]
        return {n: exp(fmean(log(s.seconds[n]) for s in self.samples)) for n in known}

    def chosen(self, tried: Tried) -> Chosen:
        """The best rule of each kind."""
        right = self.seconds
        numbers = {name: [n for n in own if n in right] for name, own in tried.kinds().items()}
        rules = {name: rule([_among(s, own) for s in self.samples]) for name, own in numbers.items() if own}
        return Chosen(tried.operator, tried.made, rules)


def told_apart(p: Point) -> dict[str, int]:
    """Dims that a rule may compare: all but the size of the pool that pages lie in."""
    return {n: v for n, v in p.dims.items() if n != "num_pages"}


def _among(s: Sample, numbers: Sequence[int]) -> Sample:
    return Sample(s.dims, {n: s.seconds[n] for n in numbers})


# ---- what a process is asked for


def try_schedules(
    tried: Tried, shapes: Sequence[Point], numbers: Sequence[int] | None = None, lab: Laboratory = GPU
) -> Trial:
    """Check and time schedules of an operator at some shapes; all, unless ``numbers`` says which."""
    bench, out = bench_of(tried.operator, lab), Trial()
    left = list(range(len(tried.made)) if numbers is None else numbers)
    for p in shapes:
        entered, ready = Entered(), prepared(bench, p)
        for number in left:
            enter_ours(entered, bench, ready, str(number), Rule((tried.made[number],)))
        out.records += entered.records
        left = [int(n) for n in entered.ours]
        times = timed(entered, bench, TRIAL_SAMPLES) if left else {}
        out.samples.append(Sample(told_apart(p), {n: times[str(n)].median for n in left}))
        out.records += [_tried_record(p, tried, n, times[str(n)]) for n in left]
    asked = len(tried.made if numbers is None else numbers)
    out.lines.append(f"{tried.operator}: {len(left)} of {asked} schedules are right")
    out.lines += [
        f"    {1e6 * s:8.2f} us {shown(tried.made[n])} (modelled {microseconds(tried.made[n].schedule):.1f})"
        for n, s in sorted(out.seconds.items(), key=lambda pair: pair[1])
    ]
    out.lines += [f"    refused: {why}" for why in tried.refused]
    return out


def time_point(p: Point, chosen: Chosen, without: Mapping[str, str], lab: Laboratory = GPU) -> Checked:
    """Check all contenders at a point and time those that are right. ``without``: baselines that are left out, and
    why."""
    bench, entered, out = bench_of(p.operator, lab), Entered(refused=dict(without)), Checked()
    ready = prepared(bench, p)
    for name in chosen.rules:
        enter_ours(entered, bench, ready, name, chosen[name])
    for name in baselines.names(p.const["kind"]):
        if name not in without:
            _enter_theirs(entered, bench, ready, name)
    out.records += entered.records
    if OURS not in entered.ours:
        out.lines.append(f"{p.name} is wrong: {[r.check for r in entered.records]}")
        return out
    times = timed(entered, bench, SAMPLES)
    again = ready.called(entered.ours[OURS].call, lab, ours=True)
    if not again.passed:
        out.records.append(bad(p, OURS, Outcome.WRONG, f"after timing: {again}"))
    for name, e in (*entered.ours.items(), *entered.theirs.items()):
        out.records.append(recorded(p, name, e, times[name], entered.refused))
    out.lines += _lines(p, entered, times)
    return out


def check_point(p: Point, chosen: Chosen, lab: Laboratory = GPU) -> Checked:
    """Only check ours."""
    bench, entered, out = bench_of(p.operator, lab), Entered(), Checked()
    ready = prepared(bench, p)
    for name in chosen.rules:
        enter_ours(entered, bench, ready, name, chosen[name])
    out.records += entered.records + [recorded(p, n, e, None, {}) for n, e in entered.ours.items()]
    out.lines.append(f"{p.name}: " + ", ".join(f"{n} {e.check.frobenius:.1e}" for n, e in entered.ours.items()))
    return out


# ---- contenders


def enter_ours(entered: Entered, bench: Bench, ready: Prepared, name: str, own: Rule) -> None:
    p = ready.batch.point
    failed = [m.error for m in own.made if m.source is None]
    if failed:
        entered.records.append(bad(p, name, Outcome.COMPILE_FAILED, "; ".join(failed), own))
        return
    for other in entered.ours.values():
        if other.rule == own:  # one that is two contenders
            entered.ours[name] = other
            return
    try:
        run = bench.executable(own)
        call = partial(run, **ready.batch.inputs, out=dict(ready.batch.outputs))
        check = ready.called(call, bench.lab, ours=True)
        compiles = bench.compiles(run)
        plan_us = _new_shape(run, ready, bench.lab)
    except CleaveError as error:
        entered.records.append(bad(p, name, Outcome.REFUSED, str(error), own))
        return
    if not check.passed:
        entered.records.append(bad(p, name, Outcome.WRONG, str(check), own))
        return
    details = {"compiles_after_first_call": compiles, "resources": [str(r) for r in run.resources]}
    entered.ours[name] = Entrant(call, check, plan_us, own, details)


def _new_shape(run: Any, ready: Prepared, lab: Laboratory) -> float:
    """What a call at a shape that was not seen before costs the host, all checks included: longer and longer tables of
    pages, or keys and values. They hold nothing, and nothing is launched. NaN where keys are in one piece."""
    batch = ready.batch
    x, out = batch.inputs, dict(batch.outputs)
    of_keys = [n for n in batch.point.dims if n in ("num_kv_indices", "total_kv")]
    if not of_keys:
        return nan
    longer = [i.name for i in batch.graph.inputs if i.shape and show(i.shape[0]) in of_keys]
    calls: list[Callable[[], object]] = []
    for more in range(1, PLANNED_TIMES + 1):
        made = {n: x[n].new_empty((len(x[n]) + more, *x[n].shape[1:])) for n in longer}
        calls.append(partial(run.prepare, **{**x, **made}, out=out))
    return median(microseconds_of(call, lab, count=1) for call in calls)


def _enter_theirs(entered: Entered, bench: Bench, ready: Prepared, name: str) -> None:
    """A baseline that is wrong while unused pages hold NaN has another try when they hold zeros."""
    lab = bench.lab
    try:
        made = bench.baselines.baseline(name, ready.batch)
        made.plan()
        plan_us = microseconds_of(made.plan, lab)
        check = ready.called(made.run, lab, ours=False)
        reads_unused = not check.passed and bool(ready.batch.pools.arrays)
        if reads_unused:
            ready.batch.pools.finite()
            check = ready.called(made.run, lab, ours=False)
    except Exception as error:  # of torch or FlashInfer, which have many kinds; a baseline less is a row
        raise_if_lost(str(error), name)
        entered.refused[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        return
    if check.passed:
        entered.theirs[name] = Entrant(made.run, check, plan_us, details={"reads_unused_pages": reads_unused})
    else:
        entered.refused[name] = f"is wrong: {check}"


def raise_if_lost(message: str, location: str) -> None:
    """LaunchError, after which the process is replaced, if this is an error of CUDA: by torch, CuPy or the driver."""
    if _LOST.search(message):
        raise LaunchError(f"CUDA_ERROR: {message}", location=location)


def timed(entered: Entered, bench: Bench, samples: int) -> Times:
    """Times by name; a schedule that is two contenders is timed once."""
    every = {**entered.ours, **entered.theirs}
    first = {id(e): name for name, e in reversed(every.items())}
    contenders = [Contender(name, [every[name].call]) for name in sorted(first.values(), key=list(every).index)]
    found = bench.lab.time(contenders, samples=samples, before=bench.empty_caches)
    return {name: found[first[id(e)]] for name, e in every.items()}


# ---- rows


def recorded(p: Point, name: str, e: Entrant, timing: Timing | None, refused: Mapping[str, str]) -> Record:
    details: dict[str, Any] = {"plan_us": e.plan_us, **e.details}
    if refused:
        details["refused"] = dict(refused)
    if timing is not None:
        details |= {"regime": timing.regime, "samples": len(timing.samples)}
    made = None if e.rule is None else e.rule.at(p.dims)
    if e.rule is not None and len(e.rule.made) > 1:
        details["variants"] = e.rule.text
    return Record(
        workload={**p.row, "contender": name, "cold": True},
        outcome=Outcome.OK,
        candidate={} if made is None else {"name": made.schedule.candidate},
        schedule={} if made is None else {**row(made.schedule), "plan": shown(made)},
        check={"frobenius": e.check.frobenius, "worst": e.check.worst},
        quantiles={} if timing is None else _quantiles(timing),
        details=details,
    )


def _quantiles(timing: Timing) -> dict[str, float]:
    return {q: 1e6 * v for q, v in timing.as_dict().items() if q.startswith("q")}


def _tried_record(p: Point, tried: Tried, number: int, timing: Timing) -> Record:
    made = tried.made[number]
    return Record(
        workload={**p.row, "contender": f"schedule {number}", "cold": True},
        outcome=Outcome.OK,
        candidate={"name": made.schedule.candidate},
        schedule={**row(made.schedule), "plan": shown(made)},
        quantiles=_quantiles(timing),
    )


def bad(p: Point, name: str, outcome: Outcome, why: str, own: Rule | None = None) -> Record:
    plan = {} if own is None else {"plan": own.text}
    return Record(workload={**p.row, "contender": name}, outcome=outcome, schedule=plan, check={"error": why})


def _lines(p: Point, entered: Entered, times: Times) -> list[str]:
    columns = ", ".join(
        f"{name} {1e6 * times[name].median:.2f} (plan {e.plan_us:.0f})"
        for name, e in (*entered.ours.items(), *entered.theirs.items())
    )
    refused = "".join(f"; {name} {why}" for name, why in entered.refused.items())
    return [f"{p.name} b{p.requests} q{sum(p.queries)} k{sum(p.keys)}: {columns} us{refused}"]
