"""S-expressions of rule files, with places and the comments above each command.

Sexp ::= atom | (Sexp ...)          atoms keep their text, strings their quotes
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cleave.errors import ParseError, location_of

Sexp: TypeAlias = "str | tuple[Sexp, ...]"

_TOKEN = re.compile(r'(?P<space>\s+)|(?P<comment>;[^\n]*)|(?P<atom>"(?:\\.|[^"\\])*"|[()]|[^\s()";]+)')


@dataclass(frozen=True, slots=True)
class Command:
    """One top-level expression: where it stands, its text, and the comment lines directly above it, without `;`."""

    expression: tuple[Sexp, ...]
    start: int
    end: int
    line: int
    text: str
    comment: tuple[str, ...]

    @property
    def head(self) -> str:
        first = self.expression[0] if self.expression else ""
        return first if isinstance(first, str) else ""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    end: int


def show(expression: Sexp) -> str:
    """Text on one line; reads back to the same expression."""
    return expression if isinstance(expression, str) else "(" + " ".join(show(part) for part in expression) + ")"


def atoms(expression: Sexp) -> Iterator[str]:
    if isinstance(expression, str):
        yield expression
    else:
        for part in expression:
            yield from atoms(part)


def transform(expression: Sexp, replace: Callable[[str], Sexp]) -> Sexp:
    """Replace every atom."""
    if isinstance(expression, str):
        return replace(expression)
    return tuple(transform(part, replace) for part in expression)


def read(text: str, path: Path) -> tuple[Command, ...]:
    """Commands of a file. Raises ParseError at an unbalanced parenthesis, an open string or a bare atom."""
    out: list[Command] = []
    stack: list[tuple[int, list[Sexp]]] = []
    for token in _tokens(text, path):
        if token.text == "(":
            stack.append((token.start, []))
        elif token.text == ")":
            if not stack:
                raise _error("unmatched )", text, path, token.start)
            start, parts = stack.pop()
            if stack:
                stack[-1][1].append(tuple(parts))
            else:
                out.append(_command(tuple(parts), start, token.end, text))
        elif not stack:
            raise _error(f"{token.text} stands outside every command", text, path, token.start)
        else:
            stack[-1][1].append(token.text)
    if stack:
        raise _error("( is never closed", text, path, stack[0][0])
    return tuple(out)


def _tokens(text: str, path: Path) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _error('" is never closed', text, path, at)
        if found.lastgroup == "atom":
            yield _Token(found.group(), at, found.end())
        at = found.end()


def _command(expression: tuple[Sexp, ...], start: int, end: int, text: str) -> Command:
    above = text[: text.rfind("\n", 0, start) + 1].splitlines()
    comment: list[str] = []
    while above and above[-1].startswith(";"):
        comment.insert(0, above.pop()[1:].removeprefix(" ").rstrip())
    return Command(expression, start, end, text.count("\n", 0, start) + 1, text[start:end], tuple(comment))


def _error(message: str, text: str, path: Path, at: int) -> ParseError:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return ParseError(message, location=location_of(path, line, column))
