"""What the scheduler looked at: schedules in order of modelled time, what they were chosen from, what was refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cleave.tile.plan import Merge, Schedule

_NUMBER = re.compile(r"(?<![\w.-])\d+(?![\w.])")


@dataclass(frozen=True)
class Alternative:
    """One way to cut a candidate into kernels and its split into chunks; ``best`` is None where no plan was left.

    partition  why there is more than one kernel, as the scheduler says it; empty for one kernel
    axis       the axis of the input graph that is split, also where it has one chunk; None without a split
    """

    partition: str
    merge: Merge
    axis: str | None
    chunks: int
    best: Schedule | None

    @property
    def microseconds(self) -> float | None:
        """Modelled."""
        return None if self.best is None or self.best.modelled is None else self.best.modelled.microseconds


@dataclass(frozen=True)
class Refusal:
    """Plans of one skeleton (empty: none was chosen yet) that were refused for one kind of reason."""

    skeleton: str
    why: str
    plans: int


@dataclass(frozen=True)
class Choice:
    """Schedules of a candidate, best first; every alternative, and the refusals of all of them together."""

    schedules: tuple[Schedule, ...]
    alternatives: tuple[Alternative, ...]
    refusals: tuple[Refusal, ...]


def summarised(refused: Mapping[tuple[str, str], int]) -> tuple[Refusal, ...]:
    """One line a skeleton and kind of reason: numbers become the range that they lie in. Most frequent first.

    {("row", "300 bytes, allowed are 255"): 1, ("row", "280 bytes, allowed are 255"): 2}
    -> row: 280 to 300 bytes, allowed are 255 (3 plans)
    """
    kinds: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for (skeleton, why), count in refused.items():
        kinds.setdefault((skeleton, _NUMBER.sub("#", why)), []).append((why, count))
    made = [
        Refusal(skeleton, _in_ranges([why for why, _ in found]), sum(count for _, count in found))
        for (skeleton, _), found in kinds.items()
    ]
    return tuple(sorted(made, key=lambda r: (r.skeleton, -r.plans, r.why)))


def _in_ranges(texts: Iterable[str]) -> str:
    """Texts that differ in numbers only, as one."""
    known = list(texts)
    columns = iter(zip(*([int(n) for n in _NUMBER.findall(text)] for text in known), strict=True))

    def span(_: re.Match[str]) -> str:
        numbers = next(columns)
        return str(numbers[0]) if len(set(numbers)) == 1 else f"{min(numbers)} to {max(numbers)}"

    return _NUMBER.sub(span, known[0])
