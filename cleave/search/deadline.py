"""When a search ends: saturation has ``limits.seconds``, and all that comes after it as long again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


class OutOfTime(Exception):
    """A deadline has passed; never leaves this package."""


@dataclass(frozen=True)
class Deadline:
    """A time on a clock of seconds; by default the end of time."""

    at: float = math.inf
    now: Callable[[], float] = time.perf_counter

    @classmethod
    def after(cls, seconds: float, now: Callable[[], float] = time.perf_counter) -> Deadline:
        return cls(now() + seconds, now)

    @property
    def left(self) -> float:
        return self.at - self.now()

    @property
    def passed(self) -> bool:
        return self.left <= 0

    def check(self) -> None:
        """Raise OutOfTime if the deadline has passed."""
        if self.passed:
            raise OutOfTime

    def share(self, part: float) -> Deadline:
        """The deadline for a part of what is left."""
        now = self.now()
        return Deadline(now + part * (self.at - now), self.now)

    def next_of(self, count: int) -> Deadline:
        """The deadline for the next of some tasks, the most wanted ones first: half of what is left, so that a short
        time is enough for some rather than too short for each; for the last one all of it.
        """
        return self.share(0.5 if count > 1 else 1.0)


NEVER = Deadline()
