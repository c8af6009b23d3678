"""How all figures look, and how they are saved: one font, colours that the colour-blind tell apart, fixed metadata."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, floor, log2
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE, COLUMN = 7.0, 3.4
"""Inches: the width of a page's text, and of one of two columns."""

# Okabe and Ito: told apart with every kind of colour vision; by lightness too, where a page is printed in grey.
BLUE, ORANGE, GREEN, RED, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9"
BLACK, GREY, LIGHT = "#1A1A1A", "#7F7F7F", "#D9D9D9"

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is the same everywhere
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "ytick.minor.width": 0.4,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "figure.constrained_layout.use": True,
}
_METADATA = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
FORMATS = tuple(_METADATA)


@contextmanager
def style() -> Iterator[None]:
    """The settings of all figures, and none of a user's own."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, of no window."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def save(drawn: Figure, folder: Path, name: str) -> list[Path]:
    """As PDF and PNG; nothing in a file says when or by what it was made."""
    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    for path, kind in zip(paths, FORMATS, strict=True):
        drawn.savefig(path, format=kind, metadata=_METADATA[kind])
    return paths


def log_axis(axes: Axes, values: list[float], *, label: str) -> None:
    """A vertical axis of ratios, in powers of two that hold all values, and room for the numbers at bars."""
    low, high = floor(log2(min([1.0, *values]))), ceil(log2(max([1.0, *values])) + 0.25)
    axes.set_yscale("log", base=2)
    axes.set_ylim(2.0**low, 2.0**high)
    ticks = [2.0**n for n in range(low, high + 1)]
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set_ylabel(label)


def number_at(axes: Axes, text: str, x: float, y: float, *, size: float = 6.2) -> None:
    """A number on top of a bar, on white where a line crosses it."""
    above = axes.annotate(text, (x, y), (0, 1.5), textcoords="offset points", ha="center", va="bottom", fontsize=size)
    above.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.3})
