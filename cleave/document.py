"""Reports as blocks, and the blocks as text, Markdown or HTML: three writers of one content.

Blocks hold plain text, and nothing here knows the types of cleave. Each writer escapes what its format would take for
markup. Pictures are for HTML only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from cleave.display import preformatted


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 1


@dataclass(frozen=True)
class Lines:
    """Sentences, a line each."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """Text that keeps its lines and spaces."""

    text: str


@dataclass(frozen=True)
class Table:
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Item:
    """An entry of a numbered list: a name, what is said of it, code below, and a remark on that."""

    name: str
    said: str
    code: str
    remark: str = ""


@dataclass(frozen=True)
class Numbered:
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Picture:
    """SVG, folded away under its title unless it is ``open``."""

    title: str
    svg: str
    open: bool = False


Block: TypeAlias = Heading | Lines | Code | Table | Numbered | Picture
Writer: TypeAlias = Callable[[Block], str]


def _written(blocks: Iterable[Block], writer: Writer, between: str) -> str:
    parts = [writer(b) for b in blocks]
    return between.join(p for p in parts if p) + "\n"


# ---- text


def text(blocks: Iterable[Block]) -> str:
    """For a terminal."""
    return _written(blocks, _as_text, "\n\n")


def _as_text(block: Block) -> str:
    match block:
        case Heading(title, level):
            return f"{'==' if level == 1 else '--'} {title}"
        case Lines(lines):
            return "\n".join(lines)
        case Code(code):
            return code.rstrip("\n")
        case Table(head, rows):
            return _aligned([head, *rows])
        case Numbered(items):
            return "\n".join(_item_text(number, i) for number, i in enumerate(items, 1))
        case Picture():
            return ""


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, the last one without an end."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _item_text(number: int, i: Item) -> str:
    lines = [f"{number:3d} {i.name} {i.said}".rstrip()]
    lines += [f"      {line}" for line in (*i.code.splitlines(), *i.remark.splitlines())]
    return "\n".join(lines)


# ---- Markdown

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")


def markdown(blocks: Iterable[Block]) -> str:
    """GitHub's dialect, which has tables."""
    return _written(blocks, _as_markdown, "\n\n")


def _as_markdown(block: Block) -> str:
    match block:
        case Heading(title, level):
            return f"{'#' * level} {_plain(title)}"
        case Lines(lines):
            return "  \n".join(map(_plain, lines))  # two spaces end a line
        case Code(code):
            return _fenced(code)
        case Table(head, rows):
            lines = [tuple(map(_plain, head)), ("---",) * len(head), *(tuple(map(_plain, row)) for row in rows)]
            return "\n".join(f"| {' | '.join(line)} |" for line in lines)
        case Numbered(items):
            return "\n\n".join(_item_markdown(number, i) for number, i in enumerate(items, 1))
        case Picture():
            return ""


def _plain(words: str) -> str:
    """Text in which nothing is markup; a line stays one."""
    return _MARKUP.sub(r"\\\1", " ".join(words.split()))


def _fenced(code: str) -> str:
    """Between fences longer than any run of backticks inside."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    return f"{fence}text\n{code.rstrip()}\n{fence}"


def _item_markdown(number: int, i: Item) -> str:
    start = f"{number}. "
    parts = [f"**{_plain(i.name)}** {_plain(i.said)}".rstrip(), _fenced(i.code), *([_plain(i.remark)] * bool(i.remark))]
    inside = "\n\n".join(parts).replace("\n", "\n" + " " * len(start))
    return start + "\n".join(line.rstrip() for line in inside.split("\n"))


# ---- HTML


def html(blocks: Iterable[Block]) -> str:
    """For a cell of a notebook, or the body of a page."""
    return _written(blocks, _as_html, "\n")


def page(title: str, blocks: Iterable[Block]) -> str:
    """A page of its own."""
    style = "body { font-family: sans-serif; margin: 2em } td, th { text-align: left; padding: 0 1em 0 0 }"
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{style}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{html(blocks)}</body></html>\n'


def _as_html(block: Block) -> str:
    match block:
        case Heading(title, level):
            return f"<h{level + 2}>{escape(title)}</h{level + 2}>"
        case Lines(lines):
            return f"<p>{'<br>'.join(map(escape, lines))}</p>"
        case Code(code):
            return preformatted(code)
        case Table(head, rows):
            return "\n".join(["<table>", _row("th", head), *(_row("td", row) for row in rows), "</table>"])
        case Numbered(items):
            return f"<ol>{''.join(map(_item_html, items))}</ol>"
        case Picture(title, svg, is_open):
            return f"<details{' open' * is_open}><summary>{escape(title)}</summary>{svg}</details>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(c)}</{tag}>' for c in cells)}</tr>"


def _item_html(i: Item) -> str:
    remark = f"<div>{escape(i.remark)}</div>" if i.remark else ""
    return f"<li><b>{escape(i.name)}</b> {escape(i.said)}{preformatted(i.code)}{remark}</li>"
