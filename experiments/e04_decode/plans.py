"""Schedules that a measurement asks for, and their machine code: made beside each other, before the GPU is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cleave.config import Ablation, Config
from cleave.errors import CleaveError, ScheduleError
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Feed, Schedule
from cleave.tile.skeleton import SKELETONS
from cleave.tune.description import microseconds, split_counts
from cleave.tune.distinct import different, tiling
from experiments.e04_decode.config import TARGET, Operator, Shape
from experiments.e04_decode.search import candidate_of
from experiments.schedules import compiled


@dataclass(frozen=True)
class Planned:
    """Schedules to choose from by measuring, the model's first one first; and the best one without a split."""

    plans: tuple[Schedule, ...]
    split_off: Schedule


def plan_timed(graph: str, axis: str, dims: Shape, count: int) -> Planned | str:
    """Plans of one shape, compiled into the cache; or why there are none."""
    try:
        off = schedule(candidate_of(graph), Target(TARGET), dims, Config(ablation=Ablation(split=False)))[0]
        planned = Planned(tuple(contenders(graph, axis, dims, count)), off)
    except CleaveError as error:
        return str(error)
    compiled([*planned.plans, off])
    return planned


def plan_operator(op: Operator, graph: str) -> Schedule | str:
    """The plan of an operator of the grid, of the skeleton under test, compiled into the cache; or why not."""
    is_split = op.splits > 1
    forced: dict[str, Any] = {"split": {"t": op.splits}, "merge": op.merge} if is_split else {}
    # without a split a batch fills the device: the schedule that is best then is one kernel
    dims = op.bind(b=1 if is_split else 64)
    try:
        c = candidate_of(graph, *(["t"] if is_split else []))
        names = {s.name for s in c.origin.symbols}
        bind = {n: v for n, v in dims.items() if n in names}
        plan = schedule(c, Target(TARGET), bind, skeleton="warp-ring", **forced)[0]
    except CleaveError as error:
        return str(error)
    compiled([plan])
    return plan


def contenders(graph: str, axis: str, dims: Shape, count: int) -> list[Schedule]:
    """The first ones by modelled time, rings aside: two fifths of the skeleton that the model prefers, a quarter of the
    other one; the best of each feed and of each instruction; and the best of them with other rings."""
    ranked = sorted(around(graph, axis, dims, count), key=microseconds)
    shapes = different(ranked, lambda s: (s.kernels[0].skeleton, s.merge, *split_counts(s), tiling(s.kernels[0])))
    preferred = [s for s in shapes if s.kernels[0].skeleton == ranked[0].kernels[0].skeleton]
    others = [s for s in shapes if s.kernels[0].skeleton != ranked[0].kernels[0].skeleton]
    mixed = [*preferred[: 2 * count // 5], *others[: count // 4], *ranked]
    each = [*different(ranked, lambda s: s.kernels[0].feed), *different(ranked, lambda s: s.kernels[0].binding.mma)]
    return list({id(s): s for s in (*each, *mixed)}.values())[:count]


def around(graph: str, axis: str, dims: Shape, count: int) -> Iterator[Schedule]:
    """What the model ranks first, for each skeleton and feed."""
    c, target = candidate_of(graph, axis), Target(TARGET)
    for skeleton in (k for k in SKELETONS.values() if TARGET in k.architectures):
        feeds: list[Feed] = [f for f in skeleton.feeds if {f} <= target.facts.features]
        for feed in feeds:
            with suppress(ScheduleError):  # few rows are not for every skeleton
                yield from schedule(c, target, dims, skeleton=skeleton.name, feed=feed, keep=2 * count)
