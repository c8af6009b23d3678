"""A table beside every figure: aligned text to read, LaTeX to include."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_ESCAPED = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", **{c: f"\\{c}" for c in "&%_#$"}}


@dataclass(frozen=True)
class Table:
    """Cells as they are to be shown; the first column holds names. ``notes`` say what was measured, line by line."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def text(self) -> str:
        every = [self.header, *self.rows]
        widths = [max(len(row[n]) for row in every) for n in range(len(self.header))]
        lines = [self.title, ""]
        for row in every:
            others = [cell.rjust(w) for cell, w in zip(row, widths, strict=True)][1:]
            lines.append("  ".join([row[0].ljust(widths[0]), *others]).rstrip())
        return "\n".join([*lines, *([""] if self.notes else []), *self.notes]) + "\n"

    def latex(self) -> str:
        """A ``tabular`` with the rules of booktabs."""
        lines = [f"% {line}" for line in (self.title, *self.notes)]
        lines.append(r"\begin{tabular}{l" + "r" * (len(self.header) - 1) + "}")
        lines += [r"\toprule", _latex_row(self.header), r"\midrule", *map(_latex_row, self.rows), r"\bottomrule"]
        return "\n".join([*lines, r"\end{tabular}"]) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join("".join(_ESCAPED.get(c, c) for c in cell) for cell in cells) + r" \\"


def number(value: float | None, form: str = ".2f") -> str:
    """A cell: a dash where there is no value."""
    return "–" if value is None else format(value, form)
