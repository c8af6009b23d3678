"""Which of many schedules are worth a measurement: the best by modelled time that are not the same in other words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cleave.tile.plan import KernelPlan, Schedule
from cleave.tune.description import launches, microseconds

SAME_FAMILY = 2
"""Schedules of the same kernels and tiles that are tried: they differ in rings, feeds, split counts."""

SAME_MATMULS = 3
"""Those tried that have the same kernels with matmuls and other kernels beside them, which weigh little."""

OTHERWISE = 1.3
"""How many times as long as the best the first of other forms may take, as modelled, to be tried all the same."""


def best(found: Sequence[Schedule], count: int) -> list[Schedule]:
    """The first ones by modelled time over all candidates, few of one family; in up to half of the places the first
    ones of every form, its kernels and how they merge: between those the model errs most.

    A candidate that is split into one chunk is the one without a split, if that has schedules too.
    """
    whole = [s for s in found if not s.chunks or s.merge != "none"]
    offered = whole if any(not s.chunks for s in whole) else found
    ranked = different(sorted(offered, key=lambda s: (microseconds(s), launches(s))), _program)
    ranked = different(different(ranked, _family, SAME_FAMILY), _matmuls, SAME_MATMULS)
    limit = OTHERWISE * microseconds(ranked[0]) if ranked else 0.0
    forms = [s for s in different(ranked, _form, SAME_FAMILY) if microseconds(s) <= limit]
    more = [s for s in forms if s not in ranked[:count]][: count // 2]
    return [*ranked[: count - len(more)], *more]


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
    return (s.merge, *map(_tiled, s.kernels))


def _matmuls(s: Schedule) -> tuple[object, ...]:
    """The family without its kernels of rows, or all of it where it has no others."""
    kernels = [k for k in s.kernels if k.skeleton != "row"] or s.kernels
    return (s.merge, len(s.kernels), *map(_tiled, kernels))


def _tiled(k: KernelPlan) -> tuple[object, ...]:
    return k.skeleton, tiling(k)


def _form(s: Schedule) -> tuple[object, ...]:
    return (s.merge, len(s.kernels), *(k.skeleton == "row" for k in s.kernels))


def _program(s: Schedule) -> tuple[object, ...]:
    """Candidates that give the same loops are one after scheduling."""
    rings = tuple((k.feed, k.chain, k.binding.stages, k.binding.multicast, k.program.text()) for k in s.kernels)
    return (_family(s), rings, tuple(sorted(s.bind.items())))
