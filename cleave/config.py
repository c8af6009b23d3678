"""One frozen object holds every setting of the phases; nothing is global."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from cleave.errors import CleaveError

ASSUMPTIONS = {
    "finite": "every value inside is a number: no -inf of a mask or of a maximum over nothing, no 1/0, no NaN",
    "nonzero": "no input and no size is 0",
    "nonnegative": "no input is negative",
}
"""What a rule may assume, and what that means for a whole graph. Of a rule it is what enters it (``finite x``: x)."""


def meanings(assumptions: Iterable[str]) -> list[str]:
    """A line for each kind of assumption among ``finite``, ``nonzero x``, .."""
    kinds = {words.split()[0] for words in assumptions}
    return [f"assumes {kind}: {meaning}" for kind, meaning in ASSUMPTIONS.items() if kind in kinds]


MOST = 2**31 - 1
"""Of any count."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """When a saturation stops short: rounds, e-nodes, seconds of wall time, memory of the process that it runs in, in
    MiB (where the system tells: Linux); and how many candidates are kept, the graph as written always among them. What
    follows a saturation ends when twice its ``seconds`` are over: the notes of a report say what was left out.
    """

    rounds: int = 40
    nodes: int = 200_000
    seconds: float = 20.0
    candidates: int = 8
    memory: int = 4096

    def __post_init__(self) -> None:
        counts = {"rounds": self.rounds, "nodes": self.nodes, "candidates": self.candidates, "memory": self.memory}
        for name, value in counts.items():
            _require(1 <= value <= MOST, name, value, f"1 to {MOST}")
        _require(self.seconds > 0 and math.isfinite(self.seconds), "seconds", self.seconds, "a positive number")


@dataclass(frozen=True, slots=True)
class Ablation:
    """What the scheduler and the search may do; everything on is the full system.

    algebra               rules beyond the input graph; off: the graph as written, no folds, no splits
    iterative_tiling      reductions as loops over tiles; off: each reads its whole axis, kernels are cut between them,
                          and only what no block holds whole is a loop, of reductions that need nothing of one another
    horizontal_fusion     reductions that share producers in one loop
    layout_propagation    register chains from matmul to matmul; off: through shared memory
    split                 candidates with a split reduction
    reassociation         rules of class ``reassociates`` that change the order of matmuls
    reducibility          splits only where chunks need nothing of one another, all reductions over an axis alike; off:
                          any reduction may be split by itself, anywhere, also in axes that an output keeps
    """

    algebra: bool = True
    iterative_tiling: bool = True
    horizontal_fusion: bool = True
    layout_propagation: bool = True
    split: bool = True
    reassociation: bool = True
    reducibility: bool = True


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of all phases.

    assume    assumptions that rules may use: "finite", "nonzero", "nonnegative"
    unsafe    allow rules of class ``numerically-unsafe``
    seed      of every random draw, so that a result can be repeated
    isolate   run the search in a child process, so that limits and Ctrl-C always hold
    """

    limits: SearchLimits = field(default_factory=SearchLimits)
    ablation: Ablation = field(default_factory=Ablation)
    assume: frozenset[str] = frozenset({"finite"})
    unsafe: bool = False
    seed: int = 0
    isolate: bool = True

    def __post_init__(self) -> None:
        _require(set(self.assume) <= set(ASSUMPTIONS), "assume", self.assume, f"a set of {', '.join(ASSUMPTIONS)}")
        _require(self.seed >= 0, "seed", self.seed, "a number >= 0")


def _require(condition: object, name: str, value: object, allowed: str) -> None:
    if not condition:
        raise CleaveError(f"{name} = {value!r}: allowed is {allowed}", location="Config")
