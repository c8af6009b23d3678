"""Schedules that an experiment chooses among: their machine code, made before it is needed; and how they are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from cleave.tile.plan import Schedule
from cleave.tune.plan import prepared


def compiled(plans: Sequence[Schedule]) -> None:
    """Fill the cache; what does not compile is found again, and named, where it is used."""
    for plan in plans:
        prepared(plan)


def in_order(call: partial[Any]) -> Callable[[], object]:
    """A call of an executable that is launched when everything before it is over, as calls of other libraries are.

    It is prepared at the first call, for the stream that is current then: whoever times it makes one of its own.
    """
    ready: list[Callable[[], object]] = []

    def launch() -> None:
        if not ready:
            run: Any = call.func
            ready.append(run.prepare(*call.args, **call.keywords, early=False))
        ready[0]()

    return launch
