"""E-graphs for people: text, Graphviz source and SVG, cut off at a number of e-nodes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from cleave.search.term import AxisRef

if TYPE_CHECKING:
    from cleave.search.egraph import EGraph, ENode

_LINE = 15
_CHARACTER = 7
_GAP = 24


def text(g: EGraph, limit: int) -> str:
    """``c7 [s t]  = Red(Sum, d, c5) = ...``, one class a line, roots marked."""
    shown, cut = _shown(g, limit)
    lines = [str(g)]
    for c in shown:
        axes = " ".join(sorted(a.name for a in g.axes[c] if a.part == "whole"))
        mark = " root" if c in g.roots else ""
        lines.append(f"c{c}{mark} [{axes}] = {'  =  '.join(map(str, g.classes[c]))}")
    return "\n".join([*lines, *_cut_off(cut)]) + "\n"


def dot(g: EGraph, limit: int) -> str:
    """A cluster for each class, an edge from each operand position to the class it takes."""
    shown, cut = _shown(g, limit)
    lines = ["digraph egraph {", "  compound=true; rankdir=BT; node [shape=box, fontname=monospace, fontsize=10];"]
    for c in shown:
        style = "bold" if c in g.roots else "dashed"
        lines.append(f'  subgraph cluster_{c} {{ label="c{c}"; style={style};')
        lines += [f'    n{c}_{i} [label="{_label(n)}"];' for i, n in enumerate(g.classes[c])]
        lines.append("  }")
    known = set(shown)
    for c in shown:
        for i, n in enumerate(g.classes[c]):
            lines += [f"  n{k}_0 -> n{c}_{i} [ltail=cluster_{k}, dir=back];" for k in n.operands if k in known]
    lines += [f"  // {line}" for line in _cut_off(cut)]
    return "\n".join([*lines, "}"]) + "\n"


def svg(g: EGraph, limit: int) -> str:
    """Classes in rows by height above the leaves, drawn from the roots down."""
    shown, cut = _shown(g, limit)
    rows = _rows(g, shown)
    place, width, height = _layout(g, rows)
    size = f'width="{width}" height="{height + _LINE}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="11">']
    for c in shown:
        x, y, w, h = place[c]
        for k in sorted({k for n in g.classes[c] for k in n.operands if k in place}):
            kx, ky, kw, _ = place[k]
            line = f'x1="{x + w // 2}" y1="{y + h}" x2="{kx + kw // 2}" y2="{ky}"'
            parts.append(f'<line {line} stroke="#999" stroke-width="0.6"/>')
    for c in shown:
        x, y, w, h = place[c]
        stroke = 'stroke="#000" stroke-width="1.6"' if c in g.roots else 'stroke="#777"'
        parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="4" fill="#fff" {stroke}/>')
        for i, line in enumerate(_lines(g, c)):
            parts.append(f'<text x="{x + 4}" y="{y + _LINE * (i + 1) - 4}">{escape(line)}</text>')
    for line in _cut_off(cut):
        parts.append(f'<text x="4" y="{height + _LINE - 4}">{escape(line)}</text>')
    return "".join([*parts, "</svg>"])


def _shown(g: EGraph, limit: int) -> tuple[list[int], int]:
    """Classes to show, nearest to the roots first up to ``limit`` e-nodes, and how many e-nodes are left out."""
    order: dict[int, None] = dict.fromkeys(g.roots)
    queue, total = list(order), 0
    kept: list[int] = []
    while queue:
        c = queue.pop(0)
        if kept and total + len(g.classes[c]) > limit:
            break
        kept.append(c)
        total += len(g.classes[c])
        for k in (k for n in g.classes[c] for k in n.operands if k not in order):
            order.setdefault(k)
            queue.append(k)
    return sorted(kept), g.node_count - total


def _cut_off(cut: int) -> list[str]:
    return [f"... {cut} more e-nodes"] if cut else []


def _label(n: ENode) -> str:
    plain = [f"{p.name}.{p.part}" if isinstance(p, AxisRef) and p.part != "whole" else _name(p) for p in n.plain]
    return " ".join([n.op, *plain]).replace('"', "'")


def _name(value: object) -> str:
    return value.name if isinstance(value, AxisRef) else str(value)


def _lines(g: EGraph, c: int) -> list[str]:
    return [f"c{c}", *(str(n) for n in g.classes[c])]


def _rows(g: EGraph, shown: Sequence[int]) -> list[list[int]]:
    """Rows from the roots down; classes are numbered from the leaves up, so one pass settles the heights."""
    height: dict[int, int] = {}
    for c in sorted(shown):
        below = [height[k] for n in g.classes[c] for k in n.operands if k in height]
        height[c] = 1 + max(below, default=-1)
    rows: list[list[int]] = [[] for _ in range(1 + max(height.values(), default=0))]
    for c, h in height.items():
        rows[h].append(c)
    return rows[::-1]


def _layout(g: EGraph, rows: Sequence[Sequence[int]]) -> tuple[dict[int, tuple[int, int, int, int]], int, int]:
    """(x, y, width, height) of each class, and the size of the drawing."""
    place: dict[int, tuple[int, int, int, int]] = {}
    y, widest = 0, 1
    for row in rows:
        x, tallest = 0, 0
        for c in row:
            lines = _lines(g, c)
            w, h = 8 + _CHARACTER * max(map(len, lines)), _LINE * len(lines) + 4
            place[c] = (x, y, w, h)
            x, tallest = x + w + _GAP // 2, max(tallest, h)
        widest, y = max(widest, x), y + tallest + _GAP
    return place, widest, y
