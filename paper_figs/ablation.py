"""Performance without parts of the system, as a share of the full one's, beside what the paper reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleave.records import Record
from experiments.e01_ablation.ablation_summary import Share, of_subgraph, over_subgraphs, percent, shares
from experiments.e01_ablation.config import SETS, is_ablated, points
from experiments.e01_ablation.configurations import CONFIGURATIONS, FULL, Configuration
from experiments.e01_ablation.summary import PHASES
from paper_figs.names import in_line, subgraphs
from paper_figs.source import Source, of_fullest_commit, stamp
from paper_figs.style import BLACK, BLUE, GREEN, GREY, LIGHT, ORANGE, PAGE, figure, number_at
from paper_figs.table import Table, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCE = Source("e01_ablation/ablations.jsonl", "python -m experiments run e01 measure --parts ablations --resume")
WITHOUT = tuple(c for c in CONFIGURATIONS if c is not FULL)
BARS: tuple[tuple[str, str | None, str], ...] = (("prefill", "prefill", BLUE), ("decode", "decode", ORANGE))
BARS += (("both", None, GREEN),)
WIDTH = 0.21


def draw(records: Sequence[Record]) -> tuple[Figure, Table]:
    """Of the commit that compared configurations at the most points, the last of several. Errors: none did."""
    last = of_fullest_commit(records, _is_share)
    if last is None:
        raise SOURCE.missing("holds no comparison of configurations")
    found = shares(records, last.environment["commit"])
    drawn = figure(PAGE, 2.2)
    axes = drawn.subplots()
    axes.axhline(1.0, color=GREY, linewidth=0.6, linestyle=(0, (3, 2)))
    values = [1.0]
    for place, c in enumerate(WITHOUT):
        for n, (_, phase, colour) in enumerate(BARS):
            value = over_subgraphs(found, c.name, phase)
            _bar(axes, place + (n - 1.5) * WIDTH, value, {"color": colour})
            values += [] if value is None else [value]
        if c.paper is not None:
            style = {"color": LIGHT, "edgecolor": BLACK, "linewidth": 0.5, "hatch": "////"}
            _bar(axes, place + 1.5 * WIDTH, 1 + c.paper, style)
    axes.set_ylim(0, 1.14 * max(values))
    axes.set_ylabel("performance / full system's")
    axes.set_xticks(range(len(WITHOUT)), [_label(c) for c in WITHOUT])
    axes.set_xlim(-0.6, len(WITHOUT) - 0.4)
    axes.tick_params(axis="x", length=0)
    handles = [axes.bar([0], [0], color=colour, label=title) for title, _, colour in BARS]
    handles.append(axes.bar([0], [0], color=LIGHT, edgecolor=BLACK, linewidth=0.5, hatch="////", label="paper"))
    drawn.legend(handles=handles, loc="outside upper center", ncols=4, handlelength=1.2)
    return drawn, _table(found, last)


def _is_share(r: Record) -> bool:
    return "configuration" in r.workload


def _label(c: Configuration) -> str:
    words = {"neither": "no algebra,\nno iterative tiling"}
    return words.get(c.name, c.name.replace("no ", "no\u00a0", 1).replace(" ", "\n", 1))


def _bar(axes: Axes, x: float, value: float | None, style: dict[str, object]) -> None:
    if value is None:
        number_at(axes, "none", x, 0, size=5.8)
        return
    axes.bar(x, value, WIDTH, **style)  # type: ignore[arg-type]
    number_at(axes, f"{value:.2f}", x, value, size=5.8)


def _table(found: Sequence[Share], last: Record) -> Table:
    names = [n for n in subgraphs() if any(s.subgraph == n for s in found)]

    def row(c: Configuration) -> list[str]:
        whole = over_subgraphs(found, c.name)
        own = [s for s in found if s.configuration == c.name]
        change = "" if whole is None or c is FULL else percent(whole - 1)
        return [
            c.name,
            *(number(over_subgraphs(found, c.name, phase)) for phase in (*PHASES, None)),
            change,
            "" if c.paper is None else percent(c.paper),
            f"{sum(s.value is not None for s in own)}/{len(own)}",
            str(sum(s.same == FULL.name for s in own)),
            *(number(of_subgraph(found, c.name, n)) for n in names),
        ]

    measured, wanted = len({s.point for s in found}), sum(map(is_ablated, points(SETS["nine"])))
    notes = (
        f"{measured} of {wanted} points; {stamp(last)}.",
        "points: with a program, of those measured; a mean leaves out points without one.",
        "same: points at which the program is the full system's.",
    )
    return Table(
        "Time of the full system over that of a configuration: geometric means over subgraphs, and of each subgraph.",
        ("configuration", *PHASES, "all", "change", "paper", "points", "same", *map(in_line, names)),
        [row(c) for c in CONFIGURATIONS],
        notes,
    )
