"""Schedules that experiments choose among: how they are told apart, named, recorded and compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cleave.codegen.compile import compile_many
from cleave.codegen.generate import generate
from cleave.errors import CleaveError
from cleave.ir.index import evaluate
from cleave.tile.plan import ONE_LAUNCH, KernelPlan, Schedule


def microseconds(s: Schedule) -> float:
    """As modelled."""
    return s.modelled.microseconds if s.modelled else 0.0


def tiling(k: KernelPlan) -> tuple[object, ...]:
    """How a block and its warps divide their work."""
    b = k.binding
    return (b.teams, b.warps, b.row_tiles, b.mma, *sorted((a.name, n) for a, n in b.tiles.items()))


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


def compiled(plans: Sequence[Schedule]) -> None:
    """Fill the cache; what does not compile is found again, and named, where it is used."""
    for plan in plans:
        try:
            compile_many([(k, plan.target.arch) for k in generate(plan).kernels], processes=1)
        except CleaveError:
            continue


def parts(s: Schedule) -> tuple[KernelPlan, ...]:
    """The kernels that compute a graph, without the one that merges partials of a split."""
    return s.kernels if s.merge == "none" else s.kernels[:-1]


def launches(s: Schedule) -> int:
    return len(parts(s)) if s.merge in ONE_LAUNCH else len(s.kernels)


def described(s: Schedule) -> str:
    """A schedule in a few words: its kernels, the merge and the counts of its splits."""
    counts = ".".join(map(str, split_counts(s)))
    return " + ".join(map(_described, parts(s))) + ("" if s.merge == "none" else f" {s.merge} x {counts}")


def split_counts(s: Schedule) -> tuple[int, ...]:
    return tuple(int(evaluate(c.count, s.bind)) for c in s.chunks)


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
