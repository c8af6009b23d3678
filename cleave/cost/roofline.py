"""Shares of roofline: what each kernel moves and computes against the measured ceilings of its target.

    share of a ceiling = (amount / ceiling) / time of the kernel

The time is the cost model's at the schedule's representative shape, without the launch; so the shares say what limits
a kernel, and how far the model takes it to be from that limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import Any

from cleave.cost.lanes import kernel_work
from cleave.cost.program import Work, parts_bytes
from cleave.cost.time import modelled
from cleave.ir.index import evaluate
from cleave.target import Facts
from cleave.tile.check import divided_axes
from cleave.tile.plan import ONE_LAUNCH, KernelPlan, Modelled, Schedule

PARTS = ("memory", "matmul", "special", "other")
"""Ceilings: bytes of memory, multiply-adds of matmuls, special functions (exponentials), other arithmetic."""


@dataclass(frozen=True)
class Roofline:
    """One kernel: modelled time in microseconds, what it moves (bytes of memory, everything read once) and computes
    (operations), and the part of each ceiling that this is.

    ``in_launch_of_first``: the kernel is the merge that blocks of the kernel before it do at their end. Its parts lie
    in a cache, and its time is that of blocks that wait: it has no shares.
    """

    kernel: str
    microseconds: float
    bytes: float
    matmul_flops: float
    special: float
    other: float
    shares: Mapping[str, float]
    in_launch_of_first: bool = False

    @property
    def limit(self) -> str:
        """The ceiling that is nearest; empty without shares."""
        return max(self.shares, key=lambda part: self.shares[part], default="")

    def as_dict(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "modelled_us": self.microseconds,
            "bytes": self.bytes,
            "matmul_flops": self.matmul_flops,
            "special": self.special,
            "other": self.other,
            "shares": dict(self.shares),
            "limit": self.limit,
            "in_launch_of_first": self.in_launch_of_first,
        }


def roofline(s: Schedule) -> tuple[Roofline, ...]:
    """A row for each kernel of a schedule at its representative shape; the rows and the launches add up to its time."""
    works = works_of(s)
    costed = [(w, k.binding) for w, k in zip(works, s.kernels, strict=True)]
    seconds: list[float] = []
    if s.merge in ONE_LAUNCH:
        both = modelled(costed[:2], s.target, merge=s.merge, chunks=chunk_count(s))
        seconds += [_without(both, "launch", "merge"), both.terms["merge"] / 1e6]
    seconds += [_without(modelled([one], s.target), "launch") for one in costed[len(seconds) :]]
    return tuple(
        _row(k, w, at, s.target.facts, merge=n == 1 and s.merge in ONE_LAUNCH)
        for n, (k, w, at) in enumerate(zip(s.kernels, works, seconds, strict=True))
    )


def ceiling_seconds(work: Work, k: KernelPlan, facts: Facts) -> dict[str, float]:
    """What a kernel would take if nothing but one ceiling held it."""
    rate = facts.clock * facts.multiprocessors
    return {
        "memory": (work.distinct_bytes + work.stored_bytes) / facts.read_bandwidth,
        "matmul": work.matmul_flops / (facts.matmul_rate if k.binding.mma == "wgmma" else facts.mma_rate),
        "special": work.special / (facts.exp_rate * rate),
        "other": work.other / (facts.fma_rate * rate),
    }


def _row(k: KernelPlan, work: Work, seconds: float, facts: Facts, *, merge: bool) -> Roofline:
    least = ceiling_seconds(work, k, facts)
    moved = work.distinct_bytes + work.stored_bytes
    shares = {} if merge else {part: least[part] / seconds if seconds else 0.0 for part in PARTS}
    return Roofline(k.program.name, seconds * 1e6, moved, work.matmul_flops, work.special, work.other, shares, merge)


def _without(m: Modelled, *terms: str) -> float:
    return (m.microseconds - sum(m.terms.get(t, 0.0) for t in terms)) / 1e6


def chunk_count(s: Schedule) -> int:
    return int(evaluate(s.chunks[0].count, s.bind)) if s.chunks else 1


def modelled_at(s: Schedule, dims: Mapping[str, int]) -> Modelled:
    """The cost model's time of a schedule at another shape than the one that it was chosen for."""
    there = replaced(s, shape=dict(dims))
    kernels = [(w, k.binding) for w, k in zip(works_of(there), s.kernels, strict=True)]
    return modelled(kernels, s.target, merge=s.merge, chunks=chunk_count(s))


def works_of(s: Schedule) -> list[Work]:
    """What the scheduler counted when it chose the schedule."""
    dims = {**s.shape, **s.bind}
    dims |= {c.symbol.name: int(evaluate(c.length, dims)) for c in s.chunks}
    works = [kernel_work(k.program, k.binding, dims, k.feed, k.chain) for k in s.kernels]
    if s.merge == "cluster":
        first, second = s.kernels[:2]
        slices = divided_axes(first.program, first.binding, second.program, second.binding)
        held = works[0].shared_bytes + parts_bytes(first.program, first.binding, slices, chunk_count(s))
        works[0] = replaced(works[0], shared_bytes=held)
    return works
