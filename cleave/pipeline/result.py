"""What ``optimize`` returns, and how it prints.

Result ::= input, candidates, verdicts, trials (one a schedule), report
Trial  ::= schedule, outcome, tile-program check, builds (one a kernel and architecture), kernel check, times
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cleave.candidate import Candidate
from cleave.config import Config
from cleave.errors import LaunchError, SearchError
from cleave.ir.graph import Graph
from cleave.ir.index import symbols_of
from cleave.kernel import OperatorSource, Resources
from cleave.records import Outcome
from cleave.runtime.executable import Executable
from cleave.target import Target
from cleave.tile.plan import Feed, KernelPlan, Merge, Mma, Schedule
from cleave.tune.tuned import Tuned
from cleave.tune.tuner import BUDGET, SECONDS
from cleave.verify import Check, Verdict

MODELLED = "no GPU was used: times are the cost model's, not measured"


@dataclass(frozen=True)
class Forced:
    """What the caller decides in the scheduler's place; None: the cost model decides."""

    tile: Mapping[str, int] | None = None
    skeleton: str | None = None
    merge: Merge | None = None
    split: Mapping[str, int] | None = None
    feed: Feed | None = None
    multicast: int = 1
    mma: Mma | None = None


@dataclass(frozen=True)
class Build:
    """One kernel compiled for one architecture; ``reason``: why it did not compile."""

    entry: str
    arch: str
    resources: Resources | None
    reason: str = ""
    cubin: bytes = field(default=b"", repr=False)

    def __str__(self) -> str:
        return f"{self.entry} for {self.arch}: {self.resources if self.resources is not None else self.reason}"

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"entry": self.entry, "arch": self.arch, "compiled": self.resources is not None}
        if self.resources is None:
            return {**found, "reason": self.reason}
        r = self.resources
        return {
            **found,
            "registers": r.registers,
            "shared_bytes": r.shared_bytes,
            "stack_bytes": r.local_bytes,
            "spill_bytes": r.spill_stores + r.spill_loads,
        }


@dataclass(frozen=True)
class Trial:
    """One schedule and what became of it. ``times``: quantiles of one call in seconds, empty if it was not measured."""

    schedule: Schedule
    outcome: Outcome
    detail: str = ""
    tile: Check | None = None
    source: OperatorSource | None = field(default=None, repr=False)
    builds: tuple[Build, ...] = ()
    kernel: Check | None = None
    times: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def spilled(self) -> bool:
        """Whether registers of a kernel spill on the architecture that the schedule is for."""
        arch = self.schedule.target.arch
        resources = [b.resources for b in self.builds if b.arch == arch and b.resources is not None]
        return any(r.spill_stores + r.spill_loads > 0 for r in resources)

    @property
    def modelled(self) -> float | None:
        """Microseconds by the cost model."""
        return None if self.schedule.modelled is None else self.schedule.modelled.microseconds

    @property
    def measured(self) -> float | None:
        """Microseconds, the median."""
        return 1e6 * float(self.times["q50"]) if "q50" in self.times else None

    @property
    def time(self) -> str:
        """For people, with what kind of number it is."""
        if self.measured is not None:
            return f"{self.measured:.1f} us measured"
        return "no time" if self.modelled is None else f"{self.modelled:.1f} us modelled"

    @property
    def name(self) -> str:
        s = self.schedule
        split = f", split {', '.join(f'{k}={v}' for k, v in _counts(s))}" if _counts(s) else ""
        merge = "" if s.merge == "none" else f", merge {s.merge}"
        return f"{s.candidate}{split}{merge}"

    def lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.outcome}, {self.time}" + (f" ({self.detail})" if self.detail else "")
        yield from (f"  {k.skeleton}: {_bound(k)}" for k in self.schedule.kernels)
        if self.tile is not None:
            yield f"  tile program at a reduced size: {_told(self.tile)}"
        yield from (f"  {b}" for b in self.builds)
        if self.kernel is not None:
            yield f"  kernel on the GPU: {_told(self.kernel)}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "candidate": self.schedule.candidate,
            "schedule": self.name,
            "outcome": str(self.outcome),
            "detail": self.detail,
            "tile": None if self.tile is None else self.tile.as_dict(),
            "builds": [b.as_dict() for b in self.builds],
            "kernel": None if self.kernel is None else self.kernel.as_dict(),
            "modelled_us": self.modelled,
            "measured_s": dict(self.times),
        }


def _counts(s: Schedule) -> list[tuple[str, int]]:
    """Split counts among the values that are compiled in."""
    names = {symbol.name for c in s.chunks for symbol in symbols_of(c.count)}
    return [(k, v) for k, v in s.bind.items() if k in names]


def _bound(k: KernelPlan) -> str:
    """Tiles, warps and stages."""
    tiles = ", ".join(
        f"{a.name} {n}" for a, n in sorted(k.binding.tiles.items(), key=lambda pair: pair[0].name) if n > 1
    )
    teams = f" in {k.binding.teams} teams" if k.binding.teams > 1 else ""
    rows = f" of {16 * k.binding.row_tiles} rows" if k.binding.row_tiles > 1 else ""
    cluster = f", boxes for {k.binding.multicast.blocks} blocks at once" if k.binding.multicast is not None else ""
    mma = "" if k.binding.mma == "mma.sync" else f", {k.binding.mma}"
    warps = f"{k.binding.warps} warps{rows}{teams}, {k.binding.stages} stages{mma}{cluster}"
    return f"tiles {tiles or 'of one element'}; {warps}"


def _told(check: Check) -> str:
    return f"{check.outcome}, worst element at {check.worst:.2g} of its bound" + (
        f": {check.detail}" if check.detail else ""
    )


@dataclass(frozen=True)
class Report:
    """How the result came about: the search, the seconds of each phase, the GPU if one was used, and notes.

    ``faults`` are exceptions that are no errors of the caller's: a part of cleave broke on one candidate or schedule.
    """

    search: Mapping[str, Any]
    search_text: str
    seconds: Mapping[str, float]
    gpu: str | None = None
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "search": dict(self.search),
            "search_text": self.search_text,
            "seconds": dict(self.seconds),
            "gpu": self.gpu,
            "interrupted": self.interrupted,
            "notes": list(self.notes),
            "faults": list(self.faults),
        }


@dataclass(frozen=True)
class Result:
    """Everything that was found, failures included; ``best`` is the fastest trial that passed.

    ``result(q, k, v)`` calls the best executable; ``result.save(DIR)`` writes it all, ``cleave.load(DIR)`` reads it.
    """

    input: Graph
    candidates: tuple[Candidate, ...]
    verdicts: tuple[Verdict, ...]
    trials: tuple[Trial, ...]
    report: Report
    config: Config = field(default_factory=Config)
    forced: Forced = field(default_factory=Forced)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        return tuple(t.schedule for t in self.trials)

    @property
    def best(self) -> Trial | None:
        """The first trial that passed: they are in order of time, measured before modelled."""
        return next((t for t in self.trials if t.outcome is Outcome.OK), None)

    @property
    def executable(self) -> Executable | None:
        """The best trial as a function of arrays; compiled code comes from the cache."""
        from cleave.pipeline.emission import executable_of

        return None if self.best is None else executable_of(self.best)

    @property
    def passed(self) -> bool:
        """Whether something can be run, and everything that was tried is right."""
        wrong = any(v.outcome.failed for v in self.verdicts)
        whole = not wrong and not self.report.faults
        return self.best is not None and whole and all(t.outcome is Outcome.OK for t in self.trials)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        found = self.executable
        if found is None:
            raise LaunchError("no schedule passed, so there is nothing to run", location=self.input.name)
        return found(*inputs, **named)

    def candidate(self, name: str) -> Candidate:
        """By name. Errors: no such candidate."""
        for c in self.candidates:
            if c.name == name:
                return c
        raise SearchError(f"no candidate {name!r}; there are {', '.join(c.name for c in self.candidates)}")

    def tune(
        self,
        bind: Mapping[str, int] | None = None,
        target: Target | None = None,
        *,
        budget: int = BUDGET,
        seconds: float = SECONDS,
        records: str | Path | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Tuned:
        """Measure the best schedules of all candidates that passed, at the shape that was scheduled or another one.

        See ``cleave.tune``. Errors: no GPU, a dim without a value.
        """
        from cleave.pipeline.tuning import source_of_result, tune_source

        return tune_source(source_of_result(self), bind, target, budget, seconds, records, progress)

    def save(self, folder: str | Path) -> None:
        """Write a folder, all or nothing; see ``cleave.pipeline.saved`` for what is in it."""
        from cleave.pipeline.saved import save_result

        save_result(self, folder)

    def text(self) -> str:
        from cleave.pipeline.show import show_result

        return show_result(self)

    def as_dict(self) -> dict[str, Any]:
        passed = {v.candidate for v in self.verdicts if v.passed}
        return {
            "input": self.input.name,
            "candidates": [_candidate_dict(c, sound=c.name in passed) for c in self.candidates],
            "verdicts": [v.as_dict() for v in self.verdicts],
            "trials": [t.as_dict() for t in self.trials],
            "best": None if self.best is None else self.best.name,
            "report": self.report.as_dict(),
        }

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        best = "no schedule passed" if self.best is None else f"{self.best.name}: {self.best.time}"
        return f"Result({self.input.name}, {len(self.candidates)} candidates, {best})"

    def _repr_html_(self) -> str:
        from cleave.display import preformatted

        return preformatted(self.text())


def _candidate_dict(c: Candidate, *, sound: bool) -> dict[str, Any]:
    """For JSON; rounding errors are those of a candidate that passed."""
    numerics = c.numerics if sound else None
    return {
        "name": c.name,
        "rules": list(c.rules),
        "exactness": c.exactness,
        "assumptions": list(c.assumptions),
        "splits": [s.base for s in c.splits],
        "folds": [f.axis.name for f in c.folds],
        "numerics": None if numerics is None else numerics.as_dict(),
        "graph": c.graph.text(),
    }
