"""Speed-up of each subgraph over the best of all baselines, prefill and decode: geometric means, and every point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cleave.nn.workloads import NINE
from cleave.records import Outcome, Record
from experiments.e01_ablation.config import MEAN_GOAL, points
from experiments.e01_ablation.summary import PHASES, Ratio, mean, ratios, shares_of_reach
from paper_figs.names import SUBGRAPHS, in_line, subgraphs
from paper_figs.source import Source, of_fullest_commit, stamp
from paper_figs.style import BLACK, BLUE, GREY, ORANGE, PAGE, figure, log_axis, number_at
from paper_figs.table import Table, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCE = Source("e01_ablation/times.jsonl", "python -m experiments run e01 measure --set nine --resume")
COLOURS: Mapping[str, str] = dict(zip(PHASES, (BLUE, ORANGE), strict=True))
WIDTH = 0.38


def draw(records: Sequence[Record]) -> tuple[Figure, Table]:
    """Of the commit that measured the most points of the nine, the last of several. Errors: none did."""
    last = of_fullest_commit(records, _is_ours)
    if last is None:
        raise SOURCE.missing("holds no time of the nine subgraphs")
    found = [r for r in ratios(records, last.environment["commit"]) if r.nine]
    names = [n for n in subgraphs() if any(r.subgraph == n for r in found)]
    drawn = figure(PAGE, 2.3)
    axes = drawn.subplots()
    log_axis(axes, [r.value for r in found], label="best baseline / cleave (time)")
    axes.axhline(1.0, color=BLACK, linewidth=0.6)
    for side, phase in enumerate(PHASES):
        for place, name in enumerate([*names, None]):
            _bar(axes, place + (side - 0.5) * WIDTH, phase, [r for r in found if name in (None, r.subgraph)])
    axes.axvline(len(names) - 0.5, color=GREY, linewidth=0.5, linestyle=(0, (2, 2)))
    axes.set_xticks(range(len(names) + 1), [*(SUBGRAPHS[n] for n in names), "geometric\nmean"])
    axes.set_xlim(-0.6, len(names) + 0.6)
    axes.tick_params(axis="x", length=0)
    handles = [axes.bar([0], [0], color=COLOURS[p], label=p) for p in PHASES]
    axes.legend(handles=handles, loc="upper left", ncols=2, handlelength=1.2, borderaxespad=0.2)
    return drawn, _table(found, names, last)


def _is_ours(r: Record) -> bool:
    w = r.workload
    return bool(w.get("nine")) and w.get("contender") == "cleave" and r.outcome is Outcome.OK and bool(r.quantiles)


def _bar(axes: Axes, x: float, phase: str, own: Sequence[Ratio]) -> None:
    """The mean from 1, with its number; a dot for each point of a subgraph."""
    value = over(own, phase)
    if value is None:
        return
    axes.bar(x, value - 1, WIDTH, bottom=1, color=COLOURS[phase])
    dots = [r.value for r in own if r.phase == phase] if len({r.subgraph for r in own}) == 1 else []
    axes.scatter([x] * len(dots), dots, s=4, color=BLACK, linewidths=0, zorder=3)
    end = max([value, 1.0, *dots])
    number_at(axes, f"{value:.2f}", x, end)


def over(found: Sequence[Ratio], phase: str | None = None) -> float | None:
    """Geometric mean over subgraphs of those over a subgraph's points."""
    own: dict[str, list[float]] = {}
    for r in found:
        if phase in (None, r.phase):
            own.setdefault(r.subgraph, []).append(r.value)
    return mean(map(mean, own.values())) if own else None


def _table(found: Sequence[Ratio], names: Sequence[str], last: Record) -> Table:
    reached = shares_of_reach(found)

    def row(title: str, own: Sequence[Ratio]) -> list[str]:
        values = [r.value for r in own]
        shares: dict[str, list[float]] = {}
        for r in own:
            if r.point in reached:
                shares.setdefault(r.subgraph, []).append(reached[r.point])
        share = mean(map(mean, shares.values())) if shares else None
        means = [number(over(own, phase)) for phase in (*PHASES, None)]
        return [title, str(len(own)), *means, f"{min(values):.2f}", f"{max(values):.2f}", number(share)]

    rows = [row(in_line(n), [r for r in found if r.subgraph == n]) for n in names]
    notes = (
        f"{len(found)} of {len(points(NINE))} points; {stamp(last)}; goal of the mean over subgraphs {MEAN_GOAL:g}.",
        "reach: what one plain kernel needs for the same bytes or matmuls, as a share of our time.",
    )
    return Table(
        "Time of the best baseline over ours, geometric means.",
        ("subgraph", "points", *PHASES, "all", "least", "largest", "reach"),
        [*rows, row("over subgraphs", found)],
        notes,
    )
