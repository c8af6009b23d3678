"""Which of many schedules are worth a measurement: the best by modelled time that are not the same in other words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cleave.tile.plan import KernelPlan, Schedule
from cleave.tune.description import launches, microseconds

SAME_FAMILY = 2
"""Schedules of the same kernels and tiles that are tried: they differ in rings, feeds, split counts."""


def best(found: Sequence[Schedule], count: int) -> list[Schedule]:
    """The first ones by modelled time over all candidates, few of one family.

    A candidate that is split into one chunk is the one without a split, if that has schedules too.
    """
    whole = [s for s in found if not s.chunks or s.merge != "none"]
    offered = whole if any(not s.chunks for s in whole) else found
    ranked = different(sorted(offered, key=lambda s: (microseconds(s), launches(s))), _program)
    return different(ranked, _family, SAME_FAMILY)[:count]


def different(ranked: Sequence[Schedule], key: Callable[[Schedule], object], most: int = 1) -> list[Schedule]:
    """The first ones of each key, at most so many."""
    kept: dict[object, list[Schedule]] = {}
    out: list[Schedule] = []
    for s in ranked:
        same = kept.setdefault(key(s), [])
        if len(same) < most:
            same.append(s)
            out.append(s)
    return out


def tiling(k: KernelPlan) -> tuple[object, ...]:
    """How a block and its warps divide their work."""
    b = k.binding
    return (b.teams, b.warps, b.row_tiles, b.mma, *sorted((a.name, n) for a, n in b.tiles.items()))


def _family(s: Schedule) -> tuple[object, ...]:
    return (s.merge, *((k.skeleton, tiling(k)) for k in s.kernels))


def _program(s: Schedule) -> tuple[object, ...]:
    """Candidates that give the same loops are one after scheduling."""
    rings = tuple((k.feed, k.chain, k.binding.stages, k.binding.multicast, k.program.text()) for k in s.kernels)
    return (_family(s), rings, tuple(sorted(s.bind.items())))
