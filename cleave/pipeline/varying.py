"""One operator for calls of many shapes: a few schedules, and the comparisons of dims that pick one at each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
    candidates: Iterable[Candidate],
    target: Target,
    shapes: Iterable[Mapping[str, int]],
    *,
    config: Config | None = None,
    most: int = MOST,
) -> Variants:
    """At most ``most`` schedules of candidates of one graph for calls of different shapes, by the cost model.

    ``f = cleave.emit(cleave.variants(result.candidates, target, [{"m": 1}, {"m": 64}, {"m": 4096}]))`` compiles all of
    them at its first need; every later call, of any shape, runs the one that its dims pick. ``print(variants)`` shows
    the rule. Errors (ScheduleError): no shape or candidate, candidates of different graphs, fewer than one variant, no
    schedule that runs at all shapes.
    """
    cs, dims_of = _listed(candidates, shapes, most)
    tried, why = dict[object, Schedule](), dict[str, None]()
    for c in cs:
        for dims in dims_of:
            try:
                for s in schedule(c, target, dims, config=config or Config(), keep=_KEPT):
                    tried.setdefault((s.candidate, s.merge, described(s), *sorted(s.bind.items())), s)
            except ScheduleError as error:
                why[str(error)] = None
    if not tried:
        raise ScheduleError("; ".join(why))
    schedules = list(tried.values())
    return choose_variants(schedules, [_sample(cs[0], schedules, dims) for dims in dims_of], most)


def _listed(
    candidates: Iterable[Candidate], shapes: Iterable[Mapping[str, int]], most: int
) -> tuple[list[Candidate], list[Mapping[str, int]]]:
    listed = all(isinstance(x, Iterable) and not isinstance(x, Mapping) for x in (candidates, shapes))  # pyright: ignore[reportUnnecessaryIsInstance]
    if not listed:
        raise ScheduleError("candidates and shapes: a list of each is expected")
    cs, dims_of = list(candidates), list(shapes)
    for found, kind, what in ((cs, Candidate, "a candidate"), (dims_of, Mapping, "a shape as dims by name")):
        other = next((x for x in found if not isinstance(x, kind)), None)  # pyright: ignore[reportUnnecessaryIsInstance]
        if other is not None:
            raise ScheduleError(f"{other!r}: {what} is expected")
    if not cs or not dims_of:
        raise ScheduleError(f"{len(cs)} candidates and {len(dims_of)} shapes: allowed is at least one of each")
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ScheduleError(f"{most!r} variants: an integer from 1 is expected")
    other = next((c for c in cs if c.origin != cs[0].origin), None)
    if other is not None:
        raise ScheduleError(f"candidates of {cs[0].origin.name} and {other.origin.name}: they have to be of one graph")
    return cs, dims_of


def _sample(c: Candidate, schedules: list[Schedule], dims: Mapping[str, int]) -> Sample:
    """The shape with every dim that a call tells apart. Left out are schedules whose constraints it does not meet, or
    that have another of its dims compiled in."""
    bound = bind_dims(c.origin, {}, dims)
    able = {
        n: s
        for n, s in enumerate(schedules)
        if all(s.bind.get(name, value) == value for name, value in bound.items())
        and all(evaluate_pred(p, {**s.bind, **bound}) for p in s.constraints)
    }
    return Sample(bound, {n: modelled_at(s, bound).microseconds / 1e6 for n, s in able.items()})
