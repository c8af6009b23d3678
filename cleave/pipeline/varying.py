"""One operator for calls of many shapes: a few schedules, and the comparisons of dims that pick one at each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleave.candidate import Candidate
from cleave.config import Config
from cleave.cost.roofline import modelled_at
from cleave.errors import ScheduleError
from cleave.ir.bind import bind_dims
from cleave.ir.index import evaluate_pred
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.tune.description import described
from cleave.tune.variants import MOST, Sample, Variants, choose_variants

_KEPT = 2
"""Schedules of a candidate at a shape that are looked at for all shapes."""


def variants(
    candidates: Sequence[Candidate],
    target: Target,
    shapes: Sequence[Mapping[str, int]],
    *,
    config: Config | None = None,
    most: int = MOST,
) -> Variants:
    """At most ``most`` schedules of candidates of one graph for calls of different shapes, by the cost model.

    ``f = cleave.emit(cleave.variants(result.candidates, target, [{"m": 1}, {"m": 64}, {"m": 4096}]))`` compiles all of
    them at its first need; every later call, of any shape, runs the one that its dims pick. ``print(variants)`` shows
    the rule. Errors (ScheduleError): no shape, fewer than one variant, no schedule that runs at all shapes.
    """
    if not shapes or most < 1:
        raise ScheduleError(f"{len(shapes)} shapes and {most} variants: allowed is at least one of each")
    tried, why = dict[object, Schedule](), dict[str, None]()
    for c in candidates:
        for dims in shapes:
            try:
                for s in schedule(c, target, dims, config=config or Config(), keep=_KEPT):
                    tried.setdefault((s.candidate, s.merge, described(s), *sorted(s.bind.items())), s)
            except ScheduleError as error:
                why[str(error)] = None
    if not tried:
        raise ScheduleError("; ".join(why))
    schedules = list(tried.values())
    return choose_variants(schedules, [_sample(candidates[0], schedules, dims) for dims in shapes], most)


def _sample(c: Candidate, schedules: Sequence[Schedule], dims: Mapping[str, int]) -> Sample:
    """The shape with every dim that a call tells apart; schedules whose constraints it does not meet are left out."""
    bound = bind_dims(c.origin, {}, dims)
    able = {n: s for n, s in enumerate(schedules) if all(evaluate_pred(p, {**bound, **s.bind}) for p in s.constraints)}
    return Sample(bound, {n: modelled_at(s, bound).microseconds / 1e6 for n, s in able.items()})
