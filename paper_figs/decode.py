"""Bandwidth that decode attention reaches, ours and the best baseline's, and the ratio of their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleave.records import Outcome, Record
from experiments.e04_decode.config import IN_ORDER, PAPER, TIMED, Timed
from paper_figs.source import Source, stamp
from paper_figs.style import BLUE, GREY, ORANGE, PAGE, figure, number_at
from paper_figs.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCE = Source("e04_decode/times.jsonl", "python -m experiments run e04 measure --parts times,paper")
READ_CEILING = 4.55
"""TB/s: what a kernel that only reads reaches on an H200."""
OURS = ("cleave", "model's first", "split off", IN_ORDER)
FORMS = {32: "MHA", 8: "GQA", 1: "MQA"}
WIDTH = 0.38


@dataclass(frozen=True)
class Shape:
    """Medians in microseconds at one shape, in the newest run that has it."""

    point: Timed
    ours: float
    theirs: float
    baseline: str
    stamp: str

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours

    def bandwidth(self, microseconds: float) -> float:
        """TB/s, of everything read and written once."""
        p = self.point
        heads = p.kv_heads * p.dims["group"]
        moved = 4 * p.b * p.kv_heads * p.t * p.d + 4 * p.b * heads * p.queries * p.d
        return moved / microseconds / 1e6


def draw(records: Sequence[Record]) -> tuple[Figure, Table]:
    """Errors: no shape was measured."""
    paper = [p for p in PAPER if p.queries == 16]
    groups = [[s for p in chosen if (s := newest(records, p)) is not None] for chosen in (TIMED, paper)]
    if not any(groups):
        raise SOURCE.missing("holds no time of decode attention")
    drawn = figure(PAGE, 2.2)
    left, right = drawn.subplots(1, 2, sharey=True)
    _panel(left, "one query, 32 heads, 8 key heads, d 128", groups[0], [_by_length(s.point) for s in groups[0]])
    _panel(right, "16 queries, 32 heads, 4096 keys", groups[1], [_by_heads(s.point) for s in groups[1]])
    left.set_ylabel("bandwidth (TB/s)")
    handles, labels = left.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=3, handlelength=1.5)
    return drawn, _table([*groups[0], *groups[1]])


def newest(records: Sequence[Record], point: Timed) -> Shape | None:
    """Of the last run that has ours and a baseline: rows that follow one another, one a contender."""
    run: dict[str, Record] = {}
    for r in records:
        w = r.workload
        if w["operator"] == point.name and r.outcome is Outcome.OK and r.quantiles:
            run = {} if w["contender"] == OURS[0] else run
            run[w["contender"]] = r
    theirs = {n: r.quantiles["q50"] for n, r in run.items() if n not in OURS}
    if OURS[0] not in run or not theirs:
        return None
    best = min(theirs, key=theirs.__getitem__)
    return Shape(point, run[OURS[0]].quantiles["q50"], theirs[best], best, stamp(run[OURS[0]]))


def _panel(axes: Axes, title: str, shapes: Sequence[Shape], labels: Sequence[str]) -> None:
    ceiling = axes.axhline(READ_CEILING, color=GREY, linewidth=0.7, linestyle=(0, (3, 2)))
    ceiling.set_label("reading only")
    places = range(len(shapes))
    for side, (name, colour) in enumerate((("cleave", BLUE), ("best baseline", ORANGE))):
        values = [s.bandwidth(s.theirs if side else s.ours) for s in shapes]
        axes.bar([p + (side - 0.5) * WIDTH for p in places], values, WIDTH, color=colour, label=name)
    for place, s in zip(places, shapes, strict=True):
        top = max(s.bandwidth(s.ours), s.bandwidth(s.theirs))
        number_at(axes, f"{s.ratio:.2f}×", place, top)
    axes.set_title(title)
    axes.set_xticks(places, labels)
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, 1.12 * READ_CEILING)


def _by_length(p: Timed) -> str:
    return f"batch {p.b}\n{p.t // 1024}k keys"


def _by_heads(p: Timed) -> str:
    return f"{FORMS[p.kv_heads]}\nd {p.d}"


def _table(shapes: Sequence[Shape]) -> Table:
    rows = [
        [
            s.point.name,
            f"{s.ours:.2f}",
            f"{s.theirs:.2f}",
            s.baseline,
            f"{s.ratio:.2f}",
            "" if s.point.goal is None else f"{s.point.goal:g}" + (" missed" if s.ratio < s.point.goal else ""),
            f"{s.bandwidth(s.ours):.2f}",
            f"{s.bandwidth(s.theirs):.2f}",
        ]
        for s in shapes
    ]
    notes = tuple(f"{text}." for text in dict.fromkeys(s.stamp for s in shapes))
    header = ("shape", "cleave (µs)", "best (µs)", "baseline", "ratio", "goal", "cleave (TB/s)", "best (TB/s)")
    return Table("Decode attention, cold inputs; each shape as it was measured last.", header, rows, notes)
