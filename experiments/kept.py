"""What experiments have kept: records of a file, and points that an option names."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from cleave.errors import CleaveError
from cleave.records import Record, read


class Named(Protocol):
    @property
    def name(self) -> str: ...


P = TypeVar("P", bound=Named)


def records(path: Path) -> list[Record]:
    """All of a file; none if it is not there."""
    if not path.exists():
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a line that a crash cut off
        return list(read(path))


def relative(path: Path) -> str:
    """From the root of the repository, as the stamp of a commit leaves it out."""
    return str(path.relative_to(Path(__file__).parents[1]))


def select(pattern: str, every: Sequence[P], what: str = "point") -> tuple[P, ...]:
    """Points in whose name ``--points`` finds something, or ``--operators`` operators. Errors: an expression that is
    none, or that no name meets."""
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise CleaveError(f"--{what}s {pattern!r}: {error}") from None
    chosen = tuple(p for p in every if wanted.search(p.name))
    if not chosen:
        raise CleaveError(f"--{what}s {pattern!r}: no {what}'s name has it; one is {every[0].name!r}")
    return chosen
