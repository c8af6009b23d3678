"""Schedules that a measurement asks for, and their machine code: made beside each other, before the GPU is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from cleave.codegen.compile import compile_many
from cleave.codegen.generate import generate
from cleave.config import Ablation, Config
from cleave.errors import CleaveError
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Feed, Merge, Schedule
from cleave.tile.skeleton import SKELETONS
from experiments.e03_decode.config import TARGET, Operator, Shape
from experiments.e03_decode.search import candidate_of, described, split_counts

MERGES: tuple[Merge, ...] = tuple(m for m in get_args(Merge) if m != "none")

WORTH_TRYING = 1.2
"""The best schedule of a skeleton and merge is measured if it is modelled at most so much slower than the first."""


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


def compiled(plans: Sequence[Schedule]) -> None:
    """Fill the cache; what does not compile is found again, and named, where it is used."""
    for plan in plans:
        try:
            compile_many([(k, TARGET) for k in generate(plan).kernels], processes=1)
        except CleaveError:
            continue


def contenders(graph: str, axis: str, dims: Shape, count: int) -> list[Schedule]:
    """The model's choice, the best of each skeleton and merge near it, and of each feed; then others, by modelled
    time."""
    ranked = sorted(around(graph, axis, dims), key=microseconds)
    limit = WORTH_TRYING * microseconds(ranked[0])
    leading = [s for s in different(ranked, form) if microseconds(s) <= limit]
    leading += different(ranked, lambda s: s.kernels[0].feed)
    rest = different(ranked, lambda s: described(s, dims))
    return list({id(s): s for s in (ranked[0], *leading, *rest)}.values())[:count]


def around(graph: str, axis: str, dims: Shape) -> Iterator[Schedule]:
    """What the model ranks first, in all and of each skeleton and feed; every merge at half, once and twice their
    counts."""
    c, target = candidate_of(graph, axis), Target(TARGET)
    skeletons = [k.name for k in SKELETONS.values() if TARGET in k.architectures]
    first: list[Schedule] = [*schedule(c, target, dims)]
    for skeleton in skeletons:
        feeds: list[Feed] = [f for f in SKELETONS[skeleton].feeds if {f} <= target.facts.features]
        for feed in feeds:
            first += schedule(c, target, dims, skeleton=skeleton, feed=feed)
    yield from first
    best = {n for s in different(sorted(first, key=microseconds), form) for n in split_counts(s, dims)}
    counts = {m for n in best for m in (n // 2, n, 2 * n) if 1 < m <= dims[axis]}
    for n in sorted(counts):
        for merge in MERGES:
            for skeleton in skeletons:
                try:
                    yield from schedule(c, target, dims, split={axis: n}, merge=merge, skeleton=skeleton)[:2]
                except CleaveError:
                    continue  # a merge that does not take so many chunks


def microseconds(s: Schedule) -> float:
    return s.modelled.microseconds if s.modelled else 0.0


def form(s: Schedule) -> tuple[str, ...]:
    return (s.kernels[0].skeleton, s.merge)


def different(ranked: Sequence[Schedule], key: Callable[[Schedule], object]) -> list[Schedule]:
    """The first of each key."""
    kept: dict[object, Schedule] = {}
    for s in ranked:
        kept.setdefault(key(s), s)
    return list(kept.values())
