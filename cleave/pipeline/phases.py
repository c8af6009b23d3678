"""The schedule phase with everything that a caller may force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleave.candidate import Candidate
from cleave.config import Config
from cleave.errors import ScheduleError
from cleave.ir.dim import is_dim
from cleave.ir.index import evaluate, symbols_of
from cleave.pipeline.result import Forced
from cleave.schedule.choice import Choice
from cleave.schedule.choose import choose
from cleave.schedule.request import Forced as Asked
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.tile.skeleton import SKELETONS


def check_choices(forced: Forced) -> None:
    """Refuse what no candidate can meet, before anything is searched."""
    if forced.skeleton is not None and forced.skeleton not in SKELETONS:
        raise ScheduleError(f"skeleton {forced.skeleton!r}: allowed are {', '.join(SKELETONS)}")
    for name, size in (forced.tile or {}).items():
        if size < 1:
            raise ScheduleError(f"{size} elements: allowed is >= 1", location=f"tile of {name}")
    for name, count in (forced.split or {}).items():
        if count < 1:
            raise ScheduleError(f"{count} chunks: allowed is >= 1", location=f"split of {name}")


def check_usable(forced: Forced, candidates: Sequence[Candidate], bind: Mapping[str, int]) -> None:
    """Refuse a split or a merge that no candidate has a place for, and more chunks than elements."""
    splits = [s for c in candidates for s in c.splits]
    known = {name: s.base for s in splits for name in (s.base, s.count)}
    for name, count in (forced.split or {}).items():
        if name not in known:
            allowed = ", ".join(dict.fromkeys(known.values())) or "no axis"
            raise ScheduleError(f"no candidate splits it; candidates split {allowed}", location=f"split of {name}")
        extent = _extent(candidates[0], known[name], bind)
        if extent is not None and count > max(extent, 1):
            raise ScheduleError(
                f"{count} chunks of {extent} elements: allowed is 1 to {max(extent, 1)}", location=f"split of {name}"
            )
    if forced.merge not in (None, "none") and not splits:
        raise ScheduleError("no candidate has a split", location=f"merge {forced.merge}")


def _extent(c: Candidate, base: str, bind: Mapping[str, int]) -> int | None:
    """Of an axis of the input graph; None if only the inputs know it."""
    found = next(a.extent for a in c.origin.axes if a.name == base)
    known = {**{s.name: s.value for s in c.origin.symbols if s.value is not None}, **bind}
    return int(evaluate(found, known)) if is_dim(found) and all(s.name in known for s in symbols_of(found)) else None


def meant(candidates: Sequence[Candidate], forced: Forced) -> Sequence[Candidate]:
    """Candidates to schedule: where a split or its merge is forced, those that have it; others would ignore it."""
    merge, names = forced.merge, set(forced.split or ())
    if not names and merge in (None, "none"):
        return candidates
    return [c for c in candidates if any(not names or names & {s.base, s.count} for s in c.splits)] or candidates


def forced_schedules(
    c: Candidate, target: Target, bind: Mapping[str, int], config: Config, forced: Forced
) -> tuple[Schedule, ...]:
    """Schedules of a candidate, best first. A forced merge or split count is for candidates that have the split."""
    return forced_choice(c, target, bind, config, forced).schedules


def forced_choice(c: Candidate, target: Target, bind: Mapping[str, int], config: Config, forced: Forced) -> Choice:
    """The same, with what the schedules were chosen from."""
    return choose(c, target, bind, config, asked_of(forced).of(c))


def asked_of(forced: Forced) -> Asked:
    """As the scheduler is asked."""
    return Asked(
        forced.tile or {},
        forced.skeleton,
        forced.merge,
        forced.split or {},
        forced.feed,
        forced.multicast,
        forced.mma,
    )
