"""The bench of the tuner in host memory: arrays stay where they are, and a clock that says what a test wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cleave.runtime.timing import Contender, Leave, Timing, in_turns
from cleave.tune.bench import GPU

SECONDS = 1e-6


def keep(array: Any) -> Any:
    return array


def copied(array: Any) -> Any:
    return np.array(array)


def refill(array: Any, values: Any) -> None:
    array[...] = values


def all_alike(contenders: Sequence[Contender], *, samples: int, leave: Leave | None) -> Mapping[str, Timing]:
    """Every call once, and one time for all."""
    for call in (call for c in contenders for call in c.calls):
        call()
    found = in_turns(lambda _: SECONDS, [c.name for c in contenders], samples, leave)
    return {name: Timing(name, "burst", 1, tuple(s)) for name, s in found.items()}


HOST = replace(GPU, upload=copied, download=keep, refill=refill, time=all_alike, sets=2)
