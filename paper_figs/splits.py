"""Time by split count, for each way to merge, at a few shapes of decode and a matmul of few rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleave.records import Outcome, Record
from paper_figs.source import Source, last_commit, stamp
from paper_figs.style import BLACK, BLUE, GREEN, GREY, ORANGE, PAGE, figure
from paper_figs.table import Table, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCE = Source("e04_decode/sweep.jsonl", "python -m experiments run e04 measure --parts sweep")
MERGES = {"cluster": (GREEN, "s"), "last-arriving": (BLUE, "o"), "second-launch": (ORANGE, "^")}
COLUMNS = 3


def draw(records: Sequence[Record]) -> tuple[Figure, Table]:
    """Of the commit that swept last. Errors: none did."""
    commit = last_commit(records, _is_ours)
    newest = [r for r in records if r.environment.get("commit") == commit and r.quantiles]
    if not any(map(_is_ours, newest)):
        raise SOURCE.missing("holds no sweep")
    names = list(dict.fromkeys(r.workload["operator"] for r in newest))
    lines = -(-len(names) // COLUMNS)
    drawn = figure(PAGE, 1.75 * lines + 0.3)
    grid = drawn.subplots(lines, COLUMNS, squeeze=False).flatten()
    for axes, name in zip(grid, names, strict=False):
        _panel(axes, [r for r in newest if r.workload["operator"] == name])
    for axes in grid[::COLUMNS]:
        axes.set_ylabel("time (µs)")
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    handles, labels = grid[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=5)
    return drawn, _table(newest, names)


def _is_ours(r: Record) -> bool:
    return "splits" in r.workload and r.outcome is Outcome.OK and bool(r.quantiles)


def _panel(axes: Axes, own: Sequence[Record]) -> None:
    ours = [r for r in own if _is_ours(r)]
    axes.axhline(best_baseline(own), color=BLACK, linewidth=0.8, linestyle=(0, (3, 2)), label="best baseline")
    unsplit = [r for r in ours if r.workload["splits"] == 1]
    for r in unsplit:
        axes.plot([1], [r.quantiles["q50"]], "D", color=GREY, label="unsplit")
    for merge, (colour, marker) in MERGES.items():
        line = sorted((r.workload["splits"], r.quantiles["q50"]) for r in ours if r.schedule["merge"] == merge)
        axes.plot(*zip(*line, strict=True) if line else ((), ()), color=colour, marker=marker, label=merge)
    best = min(ours, key=lambda r: r.quantiles["q50"])
    place = best.workload["splits"], best.quantiles["q50"]
    axes.annotate(f"{place[1]:.1f}", place, (0, -3), textcoords="offset points", ha="center", va="top", fontsize=6.2)
    axes.set_xscale("log", base=2)
    axes.set_xticks([2**n for n in range(7)], [str(2**n) for n in range(7)])
    axes.minorticks_off()
    axes.set_ylim(0, None)
    axes.set_title(title(own[0]))
    axes.set_xlabel("split count")


def title(r: Record) -> str:
    w = r.workload
    if "t" in w:
        return f"decode, batch {w['b']}, {w['t']} keys"
    return f"matmul {w['m']} × {w['k']} × {w['n']}"


def best_baseline(own: Sequence[Record]) -> float:
    return min(r.quantiles["q50"] for r in own if "splits" not in r.workload and r.quantiles)


def _table(found: Sequence[Record], names: Sequence[str]) -> Table:
    counts = sorted({r.workload["splits"] for r in found if _is_ours(r)})

    def row(name: str) -> list[str]:
        own = [r for r in found if r.workload["operator"] == name]
        ours = [r for r in own if _is_ours(r)]
        by_count = {c: [r.quantiles["q50"] for r in ours if r.workload["splits"] == c] for c in counts}
        modelled = min(ours, key=lambda r: r.schedule["modelled_us"] or 0.0)
        cells = [number(min(times) if times else None) for times in by_count.values()]
        return [name, *cells, number(best_baseline(own)), str(modelled.workload["splits"])]

    header = ("shape", *map(str, counts), "baseline", "model")
    notes = (f"{stamp(found[-1])}.", "model: the count that the cost model ranks first.")
    return Table("Microseconds by split count, of the best merge.", header, [row(n) for n in names], notes)
