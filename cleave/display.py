"""How results look in a notebook: text as HTML, a graph as an SVG drawing with its own small layered layout, and loops
as boxes in one another.

Nothing here knows the types of cleave: a drawing is made of labelled boxes, and of arrows between them.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["input", "map", "reduce", "where", "cast", "output"]

COLORS: Mapping[Kind, str] = {
    "input": "#e8eef7",
    "map": "#ffffff",
    "reduce": "#fdebd0",
    "where": "#e9f5e6",
    "cast": "#f3e8f5",
    "output": "#e8eef7",
}

CHARACTER, LINE, GAP, LAYER = 7.3, 26.0, 14.0, 52.0
"""Width of a character, height of a box, space between boxes, distance of layers; in pixels."""

SWEEPS = 4


def preformatted(text: str) -> str:
    """Text as HTML that keeps its lines."""
    return f'<pre style="line-height: 1.3">{html.escape(text)}</pre>'


@dataclass(frozen=True)
class Box:
    """A node of a drawing: its label, and the numbers of the boxes that it reads (all smaller than its own)."""

    label: str
    kind: Kind
    reads: tuple[int, ...] = ()


def drawing(boxes: Sequence[Box], *, limit: int = 80) -> str:
    """Boxes in layers, arrows downwards, as SVG; boxes beyond ``limit`` are left out, and the drawing says so."""
    shown = list(boxes[:limit])
    layers = _layers(shown)
    order = _ordered(shown, layers)
    centers, width = _centers(shown, order)
    height = LAYER * len(order) + LINE
    lines = [_arrow(centers[b], centers[a]) for a, box in enumerate(shown) for b in box.reads]
    lines += [_rectangle(box, *centers[n]) for n, box in enumerate(shown)]
    if len(boxes) > limit:
        rest = f"… {len(boxes) - limit} more of {len(boxes)} nodes"
        lines.append(f'<text x="4" y="{height + 12:.0f}" font-style="italic">{rest}</text>')
        height += 20
    start = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
    style = 'font-family="monospace" font-size="12" stroke-width="1">'
    return "\n".join([start + style, *lines, "</svg>"])


# ---- boxes in one another


@dataclass(frozen=True)
class Frame:
    """A box with a heading, and lines and further boxes inside it, from top to bottom."""

    heading: str
    parts: tuple[str | Frame, ...] = ()
    kind: Kind = "map"


ROW, PADDING = 17.0, 8.0
"""Height of a line inside a frame, and the space between a frame and what is in it; in pixels."""

LONGEST = 110
"""Characters of a line that are drawn: the text beside a drawing has all of them."""


def nested(frames: Sequence[Frame]) -> str:
    """Frames below one another, with what is in them, as SVG."""
    lines: list[str] = []
    y, inner = 1.0, max((_frame_width(f) for f in frames), default=0.0)
    for frame in frames:
        y = _draw_frame(frame, 1.0, y, inner, lines) + PADDING
    start = f'<svg xmlns="http://www.w3.org/2000/svg" width="{inner + 2:.0f}" height="{y:.0f}" '
    return "\n".join([start + 'font-family="monospace" font-size="12" stroke-width="1">', *lines, "</svg>"])


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _frame_width(frame: Frame) -> float:
    inside = [_frame_width(p) if isinstance(p, Frame) else CHARACTER * len(_shortened(p)) for p in frame.parts]
    return max([CHARACTER * len(_shortened(frame.heading)), *inside]) + 2 * PADDING


def _frame_height(frame: Frame) -> float:
    inside = sum(_frame_height(p) + PADDING if isinstance(p, Frame) else ROW for p in frame.parts)
    return ROW + inside + PADDING


def _draw_frame(frame: Frame, x: float, y: float, width: float, lines: list[str]) -> float:
    """Draw a frame at its place; where it ends."""
    end = y + _frame_height(frame)
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{end - y:.1f}" rx="4"'
    lines.append(f'<rect {place} fill="{COLORS[frame.kind]}" stroke="#555"/>')
    lines.append(_line(frame.heading, x + PADDING, y, ' font-weight="bold"'))
    y += ROW
    for part in frame.parts:
        if isinstance(part, Frame):
            y = _draw_frame(part, x + PADDING, y + PADDING / 2, width - 2 * PADDING, lines) + PADDING / 2
        else:
            lines.append(_line(part, x + PADDING, y))
            y += ROW
    return end


def _line(text: str, x: float, y: float, style: str = "") -> str:
    whole = f"<title>{html.escape(text)}</title>" if len(text) > LONGEST else ""
    return f'<text x="{x:.1f}" y="{y + ROW - 4:.1f}"{style}>{whole}{html.escape(_shortened(text))}</text>'


# ---- layers


def _layers(boxes: Sequence[Box]) -> list[int]:
    """One below the lowest box that it reads."""
    out: list[int] = []
    for box in boxes:
        out.append(1 + max((out[b] for b in box.reads), default=-1))
    return out


def _ordered(boxes: Sequence[Box], layers: Sequence[int]) -> list[list[int]]:
    """Boxes of each layer from left to right: sorted by the mean place of their neighbours, up and down in turn."""
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    users: list[list[int]] = [[] for _ in boxes]
    for n, box in enumerate(boxes):
        rows[layers[n]].append(n)
        for b in box.reads:
            users[b].append(n)
    place = {n: float(k) for row in rows for k, n in enumerate(row)}
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            around = {n: list(boxes[n].reads) if sweep % 2 == 0 else users[n] for n in row}
            mean = {n: sum(place[m] for m in near) / len(near) if near else place[n] for n, near in around.items()}
            row.sort(key=lambda n: (mean[n], n))
            place.update({n: float(k) for k, n in enumerate(row)})
    return rows


def _centers(boxes: Sequence[Box], rows: Sequence[Sequence[int]]) -> tuple[dict[int, tuple[float, float]], float]:
    widths = [sum(_width(boxes[n]) + GAP for n in row) for row in rows]
    total = max(widths, default=0.0) + GAP
    centers: dict[int, tuple[float, float]] = {}
    for depth, row in enumerate(rows):
        x = (total - widths[depth]) / 2
        for n in row:
            centers[n] = (x + _width(boxes[n]) / 2, LAYER * depth + LINE / 2 + 4)
            x += _width(boxes[n]) + GAP
    return centers, total


def _width(box: Box) -> float:
    return CHARACTER * len(box.label) + 14


def _rectangle(box: Box, x: float, y: float) -> str:
    width = _width(box)
    place = f'x="{x - width / 2:.1f}" y="{y - LINE / 2:.1f}" width="{width:.1f}" height="{LINE:.0f}" rx="4"'
    text = f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{html.escape(box.label)}</text>'
    return f'<rect {place} fill="{COLORS[box.kind]}" stroke="#555"/>{text}'


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x0, y0), (x1, y1) = start, end
    top, bottom = y0 + LINE / 2, y1 - LINE / 2
    bend = (bottom - top) / 2
    path = f"M{x0:.1f},{top:.1f} C{x0:.1f},{top + bend:.1f} {x1:.1f},{bottom - bend:.1f} {x1:.1f},{bottom:.1f}"
    return f'<path d="{path}" fill="none" stroke="#888"/><circle cx="{x1:.1f}" cy="{bottom:.1f}" r="2" fill="#888"/>'
