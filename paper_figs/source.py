"""Where the records of a figure lie, which command makes them, and of which commit they are."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cleave.errors import CleaveError
from cleave.records import Record, read

RECORDS = Path(__file__).parents[1] / "experiments" / "records"


class MissingRecords(CleaveError):
    """A figure has nothing to show."""


@dataclass(frozen=True)
class Source:
    """A file of records, relative to their folder, and the command that writes it."""

    file: str
    command: str

    def read(self, folder: Path = RECORDS) -> list[Record]:
        """All records. Errors: none are there."""
        path = folder / self.file
        if not path.exists():
            raise self.missing("is not there")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a line that a crash cut off
            return list(read(path))

    def missing(self, why: str) -> MissingRecords:
        return MissingRecords(f"{why}; {self.command} makes the records, on a GPU", location=self.file)


def last_commit(records: Sequence[Record], has: Callable[[Record], bool]) -> Mapping[str, object] | None:
    """The commit of the last record of a kind; None where there is no such record."""
    return next((r.environment["commit"] for r in reversed(records) if has(r)), None)


def of_fullest_commit(records: Sequence[Record], has: Callable[[Record], bool]) -> Record | None:
    """The last record of a kind, of the commit that has them at the most points, of several the last; None without any.

    A few points measured later do not hide all of an earlier commit.
    """
    of_commit: dict[str, list[Record]] = {}
    for r in filter(has, records):
        of_commit.setdefault(str(r.environment["commit"]), []).append(r)
    most = max(reversed(of_commit.values()), key=lambda own: len({r.workload["point"] for r in own}), default=None)
    return most[-1] if most else None


def stamp(r: Record) -> str:
    """What a record was measured on, for a note under a table."""
    commit = r.environment.get("commit") or {}
    gpu = r.environment.get("gpu") or {}
    changed = ", changed" if commit.get("dirty") else ""
    return f"{gpu.get('name', 'no GPU')}, commit {str(commit.get('id', 'unknown'))[:7]}{changed}"
