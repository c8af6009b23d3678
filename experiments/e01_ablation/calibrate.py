"""The cost model's constants, fitted to schedules that were timed; needs no GPU.

Schedules of the points in the records are planned again; those whose plan has a record are samples. What is minimised
is how differently the model errs on schedules of one point, which is what their order depends on, and a little of how
much it errs at all; constants leave their values only for what they gain. Whether a fit helps is seen on subgraphs that
it has not seen: each is held out in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.cost.constants import H200, Constants
from cleave.cost.program import Work
from cleave.cost.roofline import chunk_count, works_of
from cleave.cost.time import modelled
from cleave.errors import CleaveError
from cleave.records import Record
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Binding, Merge
from cleave.tune.description import described
from cleave.tune.rank import spearman
from experiments.e01_ablation.config import SETS, TARGET, Point, points
from experiments.e01_ablation.plans import candidates_of
from experiments.e01_ablation.rank import LEAST
from experiments.e01_ablation.summary import is_schedule

Array = NDArray[np.float64]

KEPT = 64
"""Schedules of each candidate that are looked at for those in the records."""
SIZE_WEIGHT, CHANGE_WEIGHT = 0.05, 0.002
"""Of the error that all schedules of a point share, and of a constant's distance from its value, both as logarithms."""
MOST_CHANGE = 3.0
"""Times by which a constant may change."""
ROUNDS = 3
"""Of the search along all constants one after the other."""


@dataclass(frozen=True)
class Sample:
    """A schedule that was timed: what the model knows of it, and microseconds."""

    kernels: tuple[tuple[Work, Binding], ...]
    merge: Merge
    chunks: int
    measured: float

    def error(self, constants: Constants) -> float:
        """Logarithm of the modelled over the measured time."""
        target = Target(TARGET)
        found = modelled(self.kernels, target, merge=self.merge, chunks=self.chunks, constants=constants)
        return float(np.log(found.microseconds / self.measured))


@dataclass(frozen=True)
class Group:
    """Samples of one point."""

    point: Point
    samples: tuple[Sample, ...]

    def errors(self, constants: Constants) -> Array:
        return np.array([s.error(constants) for s in self.samples])

    def correlation(self, constants: Constants) -> float | None:
        """Between measured and modelled times; None for fewer than ``LEAST`` samples."""
        measured = [s.measured for s in self.samples]
        if len(measured) < LEAST:
            return None
        return spearman(list(self.errors(constants) + np.log(measured)), measured)


def groups(records: Iterable[Record], *, processes: int | None = None) -> list[Group]:
    """Samples of all points that have records; schedules that are planned otherwise today are left out."""
    times = times_of(records)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = [(p, pool.submit(samples, p, times[p.name])) for p in points(SETS["all"]) if p.name in times]
        made = [Group(p, job.result()) for p, job in jobs]
    return [g for g in made if g.samples]


def times_of(records: Iterable[Record]) -> dict[str, dict[str, float]]:
    """Name of a point -> plan -> microseconds, from its newest record."""
    times: dict[str, dict[str, float]] = {}
    for r in records:
        if is_schedule(r):
            times.setdefault(r.workload["point"], {})[r.schedule["plan"]] = r.quantiles["q50"]
    return times


def samples(point: Point, times: Mapping[str, float]) -> tuple[Sample, ...]:
    """Schedules of a point that have a time."""
    found: dict[str, Sample] = {}
    for c in candidates_of(point):
        try:
            every = schedule(c, Target(TARGET), point.dims, keep=KEPT)
        except CleaveError:
            continue
        for s in every:
            plan = f"{s.candidate}: {described(s)}"
            if plan in times and plan not in found:
                pairs = tuple(zip(works_of(s), (k.binding for k in s.kernels), strict=True))
                found[plan] = Sample(pairs, s.merge, chunk_count(s), times[plan])
    return tuple(found.values())


# ---- the fit


def loss(given: Sequence[Group], constants: Constants) -> float:
    """Mean over points: variance of the error within a point, and a little of its mean."""
    errors = [g.errors(constants) for g in given]
    return float(np.mean([e.var() + SIZE_WEIGHT * e.mean() ** 2 for e in errors]))


def fit(given: Sequence[Group], start: Constants = H200) -> Constants:
    """Constants that err less, found along one after the other (``scipy.optimize.minimize_scalar``, bounded)."""
    from scipy.optimize import minimize_scalar

    names = [f.name for f in fields(Constants)]
    moved = dict.fromkeys(names, 0.0)
    for _ in range(ROUNDS):
        for name in names:
            along = partial(_moved_loss, given, start, moved, name)
            best = minimize_scalar(along, bounds=(-np.log(MOST_CHANGE), np.log(MOST_CHANGE)), options={"maxiter": 12})
            if best.fun < along(moved[name]):
                moved[name] = float(best.x)
    return _changed(start, moved)


def _moved_loss(given: Sequence[Group], start: Constants, moved: Mapping[str, float], name: str, to: float) -> float:
    new = {**moved, name: to}
    return loss(given, _changed(start, new)) + CHANGE_WEIGHT * sum(x * x for x in new.values()) / len(new)


def _changed(start: Constants, moved: Mapping[str, float]) -> Constants:
    return replace(start, **{n: getattr(start, n) * float(np.exp(x)) for n, x in moved.items()})


# ---- report


def calibration_table(given: Sequence[Group], *, processes: int | None = None) -> list[str]:
    """Rank correlation of each subgraph: as the model is, fitted to all, and fitted to all others.

    Errors: nothing to fit to.
    """
    if not given:
        raise CleaveError("no record is of a schedule that is planned today: measure first", location="calibrate")
    names = list(dict.fromkeys(g.point.subgraph for g in given))
    without = [[g for g in given if g.point.subgraph != name] for name in names]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        everything, *held_out = pool.map(fit, [given, *without])
    lines = [f"{'':24}{'points':>7}{'samples':>8}{'as it is':>10}{'fitted':>8}{'held out':>10}   rank correlation"]
    kept: list[tuple[Group, Constants]] = []
    for name, constants in zip(names, held_out, strict=True):
        own = [g for g in given if g.point.subgraph == name]
        kept += [(g, constants) for g in own]
        lines.append(_row(name, own, everything, [constants] * len(own)))
    lines.append(_row("all", [g for g, _ in kept], everything, [c for _, c in kept]))
    lines.append(f"{'':24}{'as it is':>12}{'fitted':>12}")
    for f in fields(Constants):
        lines.append(f"{f.name:24}{getattr(H200, f.name):12.4g}{getattr(everything, f.name):12.4g}")
    return lines


def _row(name: str, own: Sequence[Group], everything: Constants, held_out: Sequence[Constants]) -> str:
    counts = f"{len(own):7}{sum(len(g.samples) for g in own):8}"
    now, fitted = (_mean([g.correlation(c) for g in own]) for c in (H200, everything))
    apart = _mean([g.correlation(c) for g, c in zip(own, held_out, strict=True)])
    return f"{name:24}{counts}{now:>10}{fitted:>8}{apart:>10}"


def _mean(found: Sequence[Any]) -> str:
    known = [x for x in found if x is not None]
    return f"{np.mean(known):.2f}" if known else "-"
