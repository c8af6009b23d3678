"""Schedules: tile programs in order, and the values that bind their symbols.

A ``Binding`` holds what may change without changing the program: tile sizes, warps, stages. A ``Schedule`` is one way to run a
candidate: kernels, the temporaries between them, how split partials are merged, and the shape it was chosen for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cleave.ir.axis import Axis
from cleave.ir.graph import Graph
from cleave.target import Target
from cleave.tile.program import Buffer, Program

Merge = Literal["none", "second-launch", "last-arriving"]
"""How the partials of a split are joined: by a second kernel, or by its body run in the block that arrives last."""


@dataclass(frozen=True)
class Binding:
    """``tiles``: axis -> elements a tile (unit axes 1); ``rows``: grid axes that form the rows of matmul tiles, slowest first."""

    tiles: Mapping[Axis, int]
    rows: tuple[Axis, ...]
    warps: int = 4
    stages: int = 2

    def tile(self, axis: Axis) -> int:
        return self.tiles[axis]


@dataclass(frozen=True)
class KernelPlan:
    """One kernel: program, binding, and the skeleton that will express it."""

    program: Program
    binding: Binding
    skeleton: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Modelled:
    """What the cost model says of a schedule at its representative shape; times in microseconds, marked as modelled everywhere."""

    microseconds: float
    terms: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Schedule:
    """Kernels in order. ``bind`` holds compile-time values: fixed dims, split counts, chunk lengths; ``shape`` the representative one.

    ``chunks`` says how the host computes the chunk length of each split: name of C -> (base extent as text, multiple).
    """

    candidate: str
    graph: Graph
    target: Target
    kernels: tuple[KernelPlan, ...]
    temporaries: tuple[Buffer, ...] = ()
    merge: Merge = "none"
    bind: Mapping[str, int] = field(default_factory=dict[str, int])
    shape: Mapping[str, int] = field(default_factory=dict[str, int])
    modelled: Modelled | None = None
    notes: tuple[str, ...] = ()
