"""How well modelled times order the schedules that were measured: Spearman's rank correlation, from records.

Of the schedules of one point: those of other sizes differ so much that any model orders them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cleave.records import Record
from cleave.tune.rank import spearman
from experiments.e01_ablation.config import SETS, points
from experiments.e01_ablation.summary import is_of, is_schedule

FIRST = 5
"""The measured best should be among so many of the model's first choices."""
LEAST = 3
"""Schedules of a point that have an order worth the name."""


@dataclass(frozen=True)
class Order:
    """Modelled and measured microseconds of the schedules of one point, in the same order."""

    point: str
    workload: str
    modelled: tuple[float, ...]
    measured: tuple[float, ...]

    @property
    def correlation(self) -> float | None:
        return spearman(self.modelled, self.measured) if len(self.modelled) >= LEAST else None

    @property
    def place(self) -> int:
        """How many schedules the model ranks before the one that is measured best."""
        best = self.modelled[self.measured.index(min(self.measured))]
        return sum(m < best for m in self.modelled)


def orders(records: Iterable[Record], commit: Mapping[str, object] | None) -> list[Order]:
    """One a point, from the newest record of each of its schedules."""
    workload = {p.name: str(p.workload) for p in points(SETS["all"])}
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for r in records:
        modelled = r.schedule.get("modelled_us")
        if modelled and is_schedule(r) and is_of(r, commit):
            own = found.setdefault(r.workload["point"], {})
            own[r.schedule["plan"]] = modelled, r.quantiles["q50"]
    return [
        Order(name, workload[name], *zip(*own.values(), strict=True))
        for name, own in found.items()
        if name in workload and len(own) > 1
    ]


def rank_table(found: Sequence[Order]) -> list[str]:
    """Of each workload the mean over its points, and at how many of them the best was among the model's first."""
    if not found:
        return []
    lines = [f"order of schedules: modelled against measured, of the schedules tried at each of {len(found)} points"]
    lines.append(f"{'':28}{'points':>7}{'tried':>7}{'spearman':>10}   best among the model's first {FIRST}")
    for name in dict.fromkeys(o.workload for o in found):
        lines.append(_row(name, [o for o in found if o.workload == name]))
    return [*lines, _row("all", found)]


def _row(name: str, own: Sequence[Order]) -> str:
    tried = np.mean([len(o.modelled) for o in own])
    known = [c for o in own if (c := o.correlation) is not None]
    correlation = f"{np.mean(known):.2f}" if known else "-"
    more = [o for o in own if len(o.modelled) > FIRST]
    among = f"{sum(o.place < FIRST for o in more)} of {len(more)}" if more else f"no more than {FIRST} were tried"
    return f"{name:28}{len(own):7}{tried:7.1f}{correlation:>10}   {among}"
