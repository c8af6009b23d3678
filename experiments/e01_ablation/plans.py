"""Schedules of a point over every candidate of its search, and their machine code: made before the GPU is needed.

Candidates are scheduled beside one another, then the chosen schedules compiled beside one another, so that nothing
else runs while times are taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cleave.candidate import Candidate, load_candidates
from cleave.codegen.compile import Failed, compile_many
from cleave.codegen.generate import generate
from cleave.errors import CleaveError
from cleave.kernel import OperatorSource
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Schedule
from experiments.e01_ablation.config import TARGET, Point, file_of
from experiments.schedules import different, launches, microseconds, parts, tiling

SAME_FAMILY = 2
"""Schedules of the same kernels and tiles that are tried: they differ in rings, feeds, split counts."""


@dataclass(frozen=True)
class Made:
    """A schedule with its CUDA text, which is compiled into the cache; or why that can't be."""

    schedule: Schedule
    source: OperatorSource | None
    error: str = ""


@dataclass(frozen=True)
class Planned:
    """What is tried at a point, the model's first choice first.

    ``fewest``: kernels of the most fused schedule of each candidate. ``refused``: why a candidate has no schedule.
    """

    tried: tuple[Made, ...]
    fewest: Mapping[str, int]
    refused: tuple[str, ...] = ()

    @property
    def unfused(self) -> str:
        """How the model's first choice is not the most fused schedule, or why there is none; empty if it is."""
        if not self.tried:
            return "no schedule: " + ("; ".join(self.refused) or "no candidate has one")
        first = self.tried[0].schedule
        count, own, least = len(parts(first)), self.fewest[first.candidate], min(self.fewest.values())
        if count == least:
            return ""
        other = next(name for name, n in self.fewest.items() if n == least)
        where = f"of {other!r}" if own > least else "of the same candidate"
        return f"{count} kernels of {first.candidate!r}, a schedule {where} has {least}"


@cache
def candidates(path: Path) -> tuple[Candidate, ...]:
    return load_candidates(path)


def plan(pool: Executor, points: Sequence[Point], tried: int) -> list[Planned]:
    """Plans of some points, in their order."""
    counts = [len(candidates(file_of(p.workload))) for p in points]
    wanted = [[pool.submit(scheduled, p, n, tried) for n in range(c)] for p, c in zip(points, counts, strict=True)]
    found = [[f.result() for f in futures] for futures in wanted]
    chosen = [best([s for f in of_point if not isinstance(f, str) for s in f], tried) for of_point in found]
    made = [[pool.submit(prepared, s) for s in schedules] for schedules in chosen]
    return [
        Planned(
            tuple(f.result() for f in futures),
            {f[0].candidate: min(len(parts(s)) for s in f) for f in of_point if not isinstance(f, str)},
            tuple(f for f in of_point if isinstance(f, str)),
        )
        for futures, of_point in zip(made, found, strict=True)
    ]


def scheduled(point: Point, number: int, tried: int) -> tuple[Schedule, ...] | str:
    """Schedules of one candidate, or why there are none."""
    c = candidates(file_of(point.workload))[number]
    try:
        return schedule(c, Target(TARGET), point.dims, keep=max(2 * tried, 8))
    except CleaveError as error:
        return str(error)


def best(found: Sequence[Schedule], tried: int) -> list[Schedule]:
    """The first ones by modelled time over all candidates, few of one family.

    A candidate that is split into one chunk is the one without a split, if that has schedules too.
    """
    whole = [s for s in found if not s.chunks or s.merge != "none"]
    offered = whole if any(not s.chunks for s in whole) else found
    ranked = different(sorted(offered, key=lambda s: (microseconds(s), launches(s))), _program)
    return different(ranked, _family, SAME_FAMILY)[:tried]


def _family(s: Schedule) -> tuple[object, ...]:
    return (s.merge, *((k.skeleton, tiling(k)) for k in s.kernels))


def _program(s: Schedule) -> tuple[object, ...]:
    """Candidates that give the same loops are one after scheduling."""
    rings = tuple((k.feed, k.chain, k.binding.stages, k.binding.multicast, k.program.text()) for k in s.kernels)
    return (_family(s), rings, tuple(sorted(s.bind.items())))


def prepared(s: Schedule) -> Made:
    """Text and machine code of a schedule."""
    try:
        source = generate(s)
        for made in compile_many([(k, s.target.arch) for k in source.kernels], processes=1):
            if isinstance(made, Failed):
                return Made(s, None, f"{made.entry}: {made.reason}")
    except CleaveError as error:
        return Made(s, None, str(error))
    return Made(s, source)
