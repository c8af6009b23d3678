"""Errors of cleave: one family, one line each, location first."""

from __future__ import annotations

from pathlib import Path


class CleaveError(Exception):
    """Anything a caller can mend: `location: what is wrong, the value, what was allowed`."""

    exit_code = 2

    def __init__(self, message: str, *, location: str | None = None) -> None:
        self.location = location
        self.message = message
        super().__init__(f"{location}: {message}" if location else message)


class GraphError(CleaveError):
    """A graph, term or index expression that has no meaning."""


class ShapeError(GraphError):
    """Two extents that must agree and do not."""


class ParseError(CleaveError):
    """Text that is no graph, tile program or rule."""


class RuleError(CleaveError):
    """A rule file or a rule that can't be used."""


class SearchError(CleaveError):
    """A search that can't start or a candidate that does not exist."""


class ScheduleError(CleaveError):
    """A candidate that can't be scheduled as asked."""


class CodegenError(CleaveError):
    """A tile program that a skeleton can't express, or CUDA that does not compile."""


class ArgumentError(CleaveError):
    """An argument of a call that the compiled operator must refuse."""


class LaunchError(CleaveError):
    """A kernel that could not be loaded or launched."""


class SavedFileError(CleaveError):
    """A file that is not what it should be: damaged, truncated, or of another version."""


class CleaveWarning(UserWarning):
    """Something went wrong, the result is still right (a damaged cache entry, a read-only cache)."""


def location_of(path: Path, line: int, column: int | None = None) -> str:
    """`file:line:column`, with the file's name only when it lies below the working directory."""
    try:
        shown = path.resolve().relative_to(Path.cwd())
    except ValueError:
        shown = path
    return f"{shown}:{line}" + (f":{column}" if column is not None else "")
