"""Schedules in a few words and as the fields of a record; what of them is counted."""

from __future__ import annotations

from typing import Any

from cleave.ir.index import evaluate
from cleave.tile.plan import ONE_LAUNCH, KernelPlan, Schedule
from cleave.tile.program import outer_axes


def microseconds(s: Schedule) -> float:
    """As modelled."""
    return s.modelled.microseconds if s.modelled else 0.0


def parts(s: Schedule) -> tuple[KernelPlan, ...]:
    """The kernels that compute a graph, without the one that merges partials of a split."""
    if s.merge == "none":
        return s.kernels
    merge = 1 + next(n for n, k in enumerate(s.kernels) if outer_axes(k.program))
    return (*s.kernels[:merge], *s.kernels[merge + 1 :])


def launches(s: Schedule) -> int:
    return len(parts(s)) if s.merge in ONE_LAUNCH else len(s.kernels)


def split_counts(s: Schedule) -> tuple[int, ...]:
    return tuple(int(evaluate(c.count, s.bind)) for c in s.chunks)


def described(s: Schedule) -> str:
    """A schedule in a few words: its kernels, the merge and the counts of its splits."""
    counts = ".".join(map(str, split_counts(s)))
    return " + ".join(map(_described, parts(s))) + ("" if s.merge == "none" else f" {s.merge} x {counts}")


def _described(k: KernelPlan) -> str:
    tiles = " ".join(f"{a.name}{n}" for a, n in sorted(k.binding.tiles.items(), key=lambda p: p[0].name) if n > 1)
    warps = f"{k.binding.warps}w" + ("" if k.binding.row_tiles == 1 else f"x{16 * k.binding.row_tiles}")
    return f"{k.skeleton} {k.binding.mma} {k.feed} {k.binding.teams}/{warps} {k.binding.stages}st {tiles}"


def row(s: Schedule) -> dict[str, Any]:
    """What a record says of a schedule: its first kernel in full."""
    k = s.kernels[0]
    return {
        "skeleton": k.skeleton,
        "feed": k.feed,
        "merge": s.merge,
        "bind": dict(s.bind),
        "tiles": {a.name: n for a, n in k.binding.tiles.items()},
        "rows": [a.name for a in k.binding.rows],
        "warps": k.binding.warps,
        "teams": k.binding.teams,
        "row_tiles": k.binding.row_tiles,
        "mma": k.binding.mma,
        "stages": k.binding.stages,
        "modelled_us": s.modelled.microseconds if s.modelled else None,
    }
