"""Schedules of a graph over every candidate of its search, and their machine code: made before a GPU is needed.

    (planned,) = plan(pool, [Request(candidates, target, dims)], count)

Candidates are scheduled beside one another, then the chosen schedules compiled beside one another, so that nothing
else runs while times are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from cleave.candidate import Candidate
from cleave.codegen.compile import Failed, compile_many
from cleave.codegen.generate import generate
from cleave.config import Config
from cleave.errors import CleaveError
from cleave.kernel import OperatorSource
from cleave.records import Outcome
from cleave.schedule.choose import choose
from cleave.schedule.request import Forced
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.tune.crew import LostError
from cleave.tune.description import parts
from cleave.tune.distinct import best

LEAST_KEPT = 8
"""Schedules of each candidate that are chosen from, at least."""


class Pool(Protocol):
    """Processes that work beside one another: an ``Executor``, or a crew."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]: ...


@dataclass(frozen=True)
class Request:
    """All candidates of a graph, at one shape; ``count``: schedules that are wanted."""

    candidates: tuple[Candidate, ...]
    target: Target
    dims: Mapping[str, int]
    count: int
    config: Config = field(default_factory=Config)
    forced: Forced = field(default_factory=Forced)


@dataclass(frozen=True)
class Made:
    """A schedule with its CUDA text, which is compiled into the cache; or how that ended, and why."""

    schedule: Schedule
    source: OperatorSource | None
    error: str = ""
    outcome: Outcome = Outcome.OK


@dataclass(frozen=True)
class Chosen:
    """Schedules of a request, the model's first choice first.

    ``fewest``: kernels of the most fused schedule of each candidate. ``refused``: why a candidate has no schedule.
    ``is_whole``: no candidate was left out for want of time.
    """

    schedules: tuple[Schedule, ...]
    fewest: Mapping[str, int]
    refused: tuple[str, ...] = ()
    is_whole: bool = True


@dataclass(frozen=True)
class Planned:
    """The same, generated and compiled."""

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


def plan(pool: Pool, requests: Sequence[Request]) -> list[Planned]:
    """Plans of some requests, in their order."""
    chosen = chosen_of(pool, requests)
    made = [[pool.submit(prepared, s) for s in c.schedules] for c in chosen]
    return [
        Planned(tuple(f.result() for f in futures), c.fewest, c.refused)
        for futures, c in zip(made, chosen, strict=True)
    ]


def chosen_of(pool: Pool, requests: Sequence[Request]) -> list[Chosen]:
    """The schedules that are worth a measurement, of all candidates of each request together."""
    wanted = [[pool.submit(scheduled, replace(r, candidates=(c,))) for c in r.candidates] for r in requests]
    out: list[Chosen] = []
    for r, futures in zip(requests, wanted, strict=True):
        found = [_answer(f, c) for f, c in zip(futures, r.candidates, strict=True)]
        lists = [f for f in found if not isinstance(f, str)]
        fewest = {f[0].candidate: min(len(parts(s)) for s in f) for f in lists}
        refused = tuple(f for f in found if isinstance(f, str))
        lost = any(isinstance(f.exception(), LostError) for f in futures)
        out.append(Chosen(tuple(best([s for f in lists for s in f], r.count)), fewest, refused, not lost))
    return out


def _answer(future: Future[Any], c: Candidate) -> tuple[Schedule, ...] | str:
    try:
        return future.result()
    except LostError as error:
        return f"{c.name}: {error}"


def scheduled(r: Request) -> tuple[Schedule, ...] | str:
    """Schedules of a request's only candidate, or why there are none."""
    (c,) = r.candidates
    keep = max(2 * r.count, LEAST_KEPT)
    try:
        return choose(c, r.target, r.dims, r.config, r.forced.of(c), keep=keep).schedules
    except CleaveError as error:
        return str(error)


def prepared(s: Schedule) -> Made:
    """Text and machine code of a schedule."""
    return compiled(generated(s))


def generated(s: Schedule) -> Made:
    try:
        return Made(s, generate(s))
    except CleaveError as error:
        return Made(s, None, str(error), Outcome.REFUSED)


def compiled(made: Made) -> Made:
    """The same, with machine code in the cache."""
    if made.source is None:
        return made
    s = made.schedule
    try:
        for found in compile_many([(k, s.target.arch) for k in made.source.kernels], processes=1):
            if isinstance(found, Failed):
                return Made(s, None, f"{found.entry}: {found.reason}", Outcome.COMPILE_FAILED)
    except CleaveError as error:
        return Made(s, None, str(error), Outcome.COMPILE_FAILED)
    return made
