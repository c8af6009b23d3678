"""Plans of points: the candidates of their workloads, scheduled together at their sizes (``cleave.tune.plan``)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from functools import cache
from pathlib import Path

from cleave.candidate import Candidate, load_candidates
from cleave.target import Target
from cleave.tune.plan import Planned, Request
from cleave.tune.plan import plan as plan_requests
from experiments.e01_ablation.config import TARGET, Point, file_of


@cache
def candidates(path: Path) -> tuple[Candidate, ...]:
    return load_candidates(path)


def candidates_of(point: Point) -> tuple[Candidate, ...]:
    """Those that the point's configuration may use: without algebra the graph as it was written."""
    found = candidates(file_of(point.workload, point.configuration))
    return found if point.configuration.ablation.algebra else tuple(c for c in found if not c.steps)


def plan(pool: Executor, points: Sequence[Point], tried: int) -> list[Planned]:
    """Plans of some points, in their order."""
    return plan_requests(pool, [request(p, tried) for p in points])


def request(point: Point, tried: int) -> Request:
    return Request(candidates_of(point), Target(TARGET), point.dims, tried, point.configuration.config)
