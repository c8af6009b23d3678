"""What a tuner says: a row for each schedule that was tried, the fastest of those that passed, and how well the model
ranked them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cleave import document
from cleave.document import Block, Lines, Table
from cleave.errors import LaunchError
from cleave.ir.graph import Graph
from cleave.records import Outcome
from cleave.runtime.executable import Executable
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.tune.description import described, microseconds
from cleave.tune.executable import executable_from
from cleave.tune.plan import generated
from cleave.tune.rank import spearman

_LEAST_RANKED = 3
"""Schedules of which an order can be compared with another."""


@dataclass(frozen=True)
class Row:
    """A schedule and what became of it.

    ``quantiles`` are microseconds of one call, ``samples`` how many there were: few where it dropped out early.
    ``reused``: it was measured before, and is of the records.
    """

    name: str
    schedule: Schedule
    outcome: Outcome
    detail: str = ""
    check: Mapping[str, Any] = field(default_factory=dict[str, Any])
    quantiles: Mapping[str, float] = field(default_factory=dict[str, float])
    samples: int = 0
    reused: bool = False

    @property
    def modelled(self) -> float:
        """Microseconds."""
        return microseconds(self.schedule)

    @property
    def measured(self) -> float | None:
        """Microseconds, the median."""
        return self.quantiles.get("q50")

    @property
    def plan(self) -> str:
        return described(self.schedule)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "candidate": self.schedule.candidate,
            "plan": self.plan,
            "outcome": str(self.outcome),
            "detail": self.detail,
            "check": dict(self.check),
            "modelled_us": self.modelled,
            "measured_us": dict(self.quantiles),
            "samples": self.samples,
            "reused": self.reused,
        }


@dataclass(frozen=True)
class Tuned:
    """Rows, the fastest first. ``seconds`` of each phase; ``measured`` and ``reused`` count schedules.

    ``tuned.executable(q, k, v)`` calls the fastest, ``tuned.pin(FILE)`` writes what makes it again.
    """

    origin: Graph
    target: Target
    dims: Mapping[str, int]
    gpu: str
    rows: tuple[Row, ...]
    records: Path
    seconds: Mapping[str, float]
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Row | None:
        """The fastest that passed, by its median."""
        return next((r for r in self.rows if r.outcome is Outcome.OK), None)

    @cached_property
    def executable(self) -> Executable:
        """The best schedule as a function of arrays. Errors: none passed."""
        made = generated(self._winner.schedule)
        assert made.source is not None, "it was generated before"
        return executable_from(made.source, self.target.arch)

    @property
    def _winner(self) -> Row:
        if self.best is None:
            raise LaunchError("no schedule passed, so there is nothing to run", location=self.origin.name)
        return self.best

    @property
    def passed(self) -> bool:
        """Whether something can be run, and everything that was tried is right."""
        return self.best is not None and all(r.outcome in (Outcome.OK, Outcome.SKIPPED) for r in self.rows)

    @property
    def measured(self) -> int:
        return sum(not r.reused and r.outcome is not Outcome.SKIPPED for r in self.rows)

    @property
    def reused(self) -> int:
        return sum(r.reused for r in self.rows)

    @property
    def rank_correlation(self) -> float | None:
        """Spearman's, of modelled and measured times; None of fewer than three."""
        right = [r for r in self.rows if r.measured is not None and r.outcome is Outcome.OK]
        if len(right) < _LEAST_RANKED:
            return None
        return spearman([r.modelled for r in right], [r.measured or 0.0 for r in right])

    def pin(self, path: str | Path) -> None:
        """Write the best schedule to a file that ``cleave.replay`` and ``cleave run --pin`` read.

        Errors: no schedule passed, a place that can't be written.
        """
        from cleave.tune.pin import write_pin

        write_pin(path, self._winner.schedule, self.origin, dict(self.dims))

    def text(self) -> str:
        return document.text(self._blocks())

    def as_dict(self) -> dict[str, Any]:
        return {
            "graph": self.origin.name,
            "target": self.target.arch,
            "gpu": self.gpu,
            "dims": dict(self.dims),
            "best": None if self.best is None else self.best.as_dict(),
            "rows": [r.as_dict() for r in self.rows],
            "rank_correlation": self.rank_correlation,
            "measured": self.measured,
            "reused": self.reused,
            "refused": list(self.refused),
            "seconds": dict(self.seconds),
            "records": str(self.records),
            "notes": list(self.notes),
        }

    def _blocks(self) -> list[Block]:
        at = ", ".join(f"{n}={v}" for n, v in self.dims.items())
        head = [f"{self.origin.name} on {self.gpu} ({self.target.arch}): {at}"]
        blocks: list[Block] = [Lines(tuple(head))]
        if self.rows:
            head = ("modelled us", "measured us", "q25", "q75", "samples", "outcome", "candidate", "plan")
            blocks.append(Table(head, tuple(map(_cells, self.rows))))
        return [*blocks, Lines(tuple(self._summary()))]

    def _summary(self) -> list[str]:
        lines = [f"{r.plan} of {r.schedule.candidate}: {r.outcome}: {r.detail}" for r in self.rows if r.detail]
        if self.best is None:
            lines.append("no schedule passed")
        else:
            lines.append(f"best: {self.best.measured:.2f} us, {self.best.schedule.candidate}: {self.best.plan}")
        if self.rank_correlation is not None:
            lines.append(f"rank correlation of model and measurement: {self.rank_correlation:.2f}")
        spent = ", ".join(f"{name} {s:.1f}" for name, s in self.seconds.items())
        lines.append(f"{self.measured} measured, {self.reused} of {self.records}; seconds: {spent}")
        lines += [f"without a schedule: {why}" for why in self.refused]
        return [*lines, *(f"note: {n}" for n in self.notes)]

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        best = "no schedule passed" if self.best is None else f"{self.best.measured:.2f} us"
        return f"Tuned({self.origin.name}, {len(self.rows)} schedules, {best})"

    def _repr_html_(self) -> str:
        return document.html(self._blocks())


def _cells(r: Row) -> tuple[str, ...]:
    times = [r.quantiles.get(q) for q in ("q50", "q25", "q75")]
    shown = ["-" if t is None else f"{t:.2f}" for t in times]
    return (
        f"{r.modelled:.2f}",
        *shown,
        str(r.samples or "-"),
        str(r.outcome),
        r.schedule.candidate,
        r.plan,
    )


def in_order(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The fastest first, then what was not timed, by modelled time."""

    def rank(r: Row) -> tuple[bool, float, float]:
        return r.outcome is not Outcome.OK, r.measured or float("inf"), r.modelled

    return tuple(sorted(rows, key=rank))
