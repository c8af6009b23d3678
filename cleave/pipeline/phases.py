"""The schedule phase with everything that a caller may force."""

from __future__ import annotations

from collections.abc import Mapping

from cleave.candidate import Candidate
from cleave.config import Config
from cleave.pipeline.result import Forced
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Schedule


def forced_schedules(
    c: Candidate, target: Target, bind: Mapping[str, int], config: Config, forced: Forced
) -> tuple[Schedule, ...]:
    """Schedules of a candidate, best first. A forced merge or split count is for candidates that have the split."""
    bases = {s.base for s in c.splits} | {s.count for s in c.splits}
    return schedule(
        c,
        target,
        bind=bind,
        config=config,
        tile=forced.tile,
        skeleton=forced.skeleton,
        merge=forced.merge if c.splits else None,
        split={n: count for n, count in (forced.split or {}).items() if n in bases},
    )
