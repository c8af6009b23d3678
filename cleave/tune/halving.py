"""Early stop: schedules that are clearly slower after a few samples drop out of the race."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

SAMPLES = 20
"""Of whoever stays until the end."""

_HALVINGS = (3, 6, 12)
"""Samples after which the slower half may drop out."""

_LEAST = 2
"""Who stays at least: the winner has somebody to be compared with."""


def leaving(samples: Mapping[str, Sequence[float]]) -> frozenset[str]:
    """Of the slower half, those none of whose samples reached the fastest's median."""
    count = min(map(len, samples.values()), default=0)
    if count not in _HALVINGS:
        return frozenset()
    ranked = sorted(samples, key=lambda name: median(samples[name]))
    fastest = median(samples[ranked[0]])
    slower = ranked[max((len(ranked) + 1) // 2, _LEAST) :]
    return frozenset(name for name in slower if min(samples[name]) > fastest)
