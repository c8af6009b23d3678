"""Tuning what was saved: the candidates of a result that passed, at its shape or at another.

cleave.load(DIR).tune(budget=24)
tune_saved(DIR, {"t": 8192})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cleave.candidate import Candidate, as_written
from cleave.config import Config
from cleave.errors import SearchError
from cleave.pipeline.phases import asked_of, meant
from cleave.pipeline.result import Forced, Result
from cleave.pipeline.saved import load_parts, load_tried
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.tune.tuned import Tuned
from cleave.tune.tuner import BUDGET, SECONDS, Progress, tune


@dataclass(frozen=True)
class Source:
    """Candidates that passed, the dims that they were scheduled at, and what was asked then."""

    candidates: Sequence[Candidate]
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    config: Config = field(default_factory=Config)
    forced: Forced = field(default_factory=Forced)


def tune_saved(
    path: str | Path,
    bind: Mapping[str, int] | None = None,
    target: Target | None = None,
    *,
    budget: int = BUDGET,
    seconds: float = SECONDS,
    records: str | Path | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Tune a saved result, or the candidates of a saved search; nothing of it is changed. Errors: as ``cleave.tune``,
    and what can't be read."""
    return tune_source(source_of(path), bind, target, budget, seconds, records, progress)


def source_of(path: str | Path) -> Source:
    """Without generating its kernels again. Errors: no saved result or search."""
    candidates, _ = load_parts(path)
    if not Path(path).is_dir():
        return Source(candidates)
    tried = load_tried(path)
    sound = [c for c in candidates if c.name in tried.passed]
    if not sound and not candidates:
        raise SearchError("holds no candidates", location=str(path))
    first = tried.trials[0].schedule if tried.trials else None
    return Source(sound or [as_written(candidates[0].origin)], _dims(first, candidates), tried.config, tried.forced)


def source_of_result(result: Result) -> Source:
    passed = {v.candidate for v in result.verdicts if v.passed}
    sound = [c for c in result.candidates if c.name in passed or not result.verdicts]
    first = result.schedules[0] if result.schedules else None
    candidates = sound or [as_written(result.input)]
    return Source(candidates, _dims(first, candidates), result.config, result.forced)


def _dims(s: Schedule | None, candidates: Sequence[Candidate]) -> dict[str, int]:
    """The shape that a schedule was chosen for, with what of the graph's dims is compiled in."""
    if s is None:
        return {}
    free = {x.name for x in candidates[0].origin.symbols if x.value is None}
    return {n: v for n, v in {**s.shape, **s.bind}.items() if n in free}


def tune_source(
    source: Source,
    bind: Mapping[str, int] | None,
    target: Target | None,
    budget: int,
    seconds: float,
    records: str | Path | None,
    progress: Progress | None,
) -> Tuned:
    return tune(
        meant(source.candidates, source.forced),
        target,
        {**source.dims, **(bind or {})},
        source.config,
        forced=asked_of(source.forced),
        budget=budget,
        seconds=seconds,
        records=records,
        progress=progress,
    )
