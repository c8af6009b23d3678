"""Ratio of FlashInfer's times to ours at shapes known only at run time: means of operators, and every point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleave.records import Outcome, Record
from experiments.e02_dynamic.config import BASELINES, GOALS
from experiments.e02_dynamic.plans import OURS, SECOND_LAUNCH, SPLIT_OFF
from experiments.e02_dynamic.summary import (
    BETTER,
    Ratio,
    is_captured,
    is_paged_prefill,
    named,
    over,
    over_operators,
    ratios,
)
from paper_figs.names import DYNAMIC, in_line
from paper_figs.source import Source, last_commit, stamp
from paper_figs.style import BLACK, BLUE, GREY, ORANGE, PAGE, figure, log_axis, number_at
from paper_figs.table import Table, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCE = Source("e02_dynamic/times.jsonl", "python -m experiments run e02 measure --parts times --resume")
COLOURS = dict(zip(BASELINES, (BLUE, ORANGE), strict=True))
TITLES = {"fa2": "FA2 / cleave", "fa3": "FA3 / cleave"}
WIDTH = 0.38


def draw(records: Sequence[Record]) -> tuple[Figure, Table]:
    """Of the commit that was measured last. Errors: no point was timed."""
    commit = last_commit(records, _is_ours)
    own = [r for r in records if r.environment.get("commit") == commit]
    found = ratios(own)
    if not found:
        raise SOURCE.missing("holds no time at a shape known at run time")
    names = named(found)
    captured = [r for r in found if is_captured(r.operator)]
    drawn = figure(PAGE, 2.4)
    axes = drawn.subplots()
    every = [v for r in found for n in BASELINES if (v := r.over(n)) is not None]
    log_axis(axes, every, label="FlashInfer / cleave (time)")
    axes.axhline(1.0, color=BLACK, linewidth=0.6)
    for side, baseline in enumerate(BASELINES):
        shift = (side - 0.5) * WIDTH
        for place, name in enumerate(names):
            points = [r for r in found if r.operator == name]
            dots = [v for r in points if (v := r.over(baseline)) is not None]
            _bar(axes, place + shift, over(points, baseline), dots, COLOURS[baseline])
        _bar(axes, len(names) + shift, over_operators(captured, baseline), [], COLOURS[baseline])
    axes.axvline(len(names) - 0.5, color=GREY, linewidth=0.5, linestyle=(0, (2, 2)))
    axes.set_xticks(range(len(names) + 1), [*(DYNAMIC.get(n, n) for n in names), "captured,\ngeometric\nmean"])
    axes.set_xlim(-0.6, len(names) + 0.6)
    axes.tick_params(axis="x", length=0)
    handles = [axes.bar([0], [0], color=COLOURS[b], label=TITLES[b]) for b in BASELINES]
    drawn.legend(handles=handles, loc="outside upper center", ncols=2, handlelength=1.2)
    return drawn, _table(found, next(r for r in reversed(own) if _is_ours(r)))


def _is_ours(r: Record) -> bool:
    return r.workload.get("contender") == OURS and r.outcome is Outcome.OK and bool(r.quantiles)


def _bar(axes: Axes, x: float, value: float | None, dots: Sequence[float], colour: str) -> None:
    """The mean from 1, with its number; a dot for each point."""
    if value is None:
        number_at(axes, "none", x, 1.0)
        return
    axes.bar(x, value - 1, WIDTH, bottom=1, color=colour)
    axes.scatter([x] * len(dots), dots, s=2.5, color=BLACK, linewidths=0, alpha=0.5, zorder=3)
    number_at(axes, f"{value:.2f}", x, max([value, 1.0, *dots]))


def _table(found: Sequence[Ratio], last: Record) -> Table:
    def cells(own: Sequence[Ratio], *, operators: bool = False) -> list[str]:
        mean = over_operators if operators else over
        plain = [number(mean(own, n)) for n in (*BASELINES, BETTER)]
        planned = [number(mean(own, n, planned=True)) for n in (*BASELINES, BETTER)]
        return [*plain, *planned, *(number(mean(own, n)) for n in (SPLIT_OFF, SECOND_LAUNCH))]

    def row(name: str) -> list[str]:
        own = [r for r in found if r.operator == name]
        timed = [f"{b} {sum(r.over(b) is not None for r in own)}" for b in BASELINES]
        return [in_line(name), str(len(own)), *cells(own), ", ".join(timed)]

    captured = [r for r in found if is_captured(r.operator)]
    others = [r for r in captured if not is_paged_prefill(r.operator)]
    whole = [
        [title, str(len(own)), *cells(own, operators=True), ""]
        for title, own in (("captured operators", captured), ("without paged prefill", others))
    ]
    goals = ", ".join(f"{n} {g:g}" for n, g in GOALS.items())
    notes = (
        f"{stamp(last)}; goals of the mean over captured operators: {goals}.",
        "+plan: with what the host does when lengths change; timed: points with a time of a baseline that is right.",
    )
    header = ("operator", "points", *BASELINES, BETTER, *(f"{n}+plan" for n in (*BASELINES, BETTER)))
    title = "Time of a baseline, or of ours without a part, over ours: geometric means of points, then of operators."
    return Table(title, (*header, SPLIT_OFF, SECOND_LAUNCH, "timed"), [*map(row, named(found)), *whole], notes)
