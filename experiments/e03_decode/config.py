"""What e03 runs: operators and shapes of the correctness grid, and the shapes that are timed, with their goals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from cleave.tile.plan import Merge

HERE = Path(__file__).parent
CANDIDATES = HERE / "candidates"
RECORDS = HERE.parent / "records" / "e03_decode"

TARGET = "sm_90a"
HEADS = 32
"""Query heads; one query each."""


@dataclass(frozen=True)
class Operator:
    """One compiled kernel of the grid: heads and head size, and how many chunks it is split into and merged."""

    kv_heads: int
    d: int
    merge: Merge
    splits: int

    @property
    def name(self) -> str:
        return f"kv_heads {self.kv_heads}, d {self.d}, {self.merge} x {self.splits}"

    def bind(self, b: int = 1, t: int = 8192) -> dict[str, int]:
        return {"b": b, **attention_dims(self.kv_heads, self.d), "t": t}


def attention_dims(kv_heads: int, d: int) -> dict[str, int]:
    return {"kv_heads": kv_heads, "group": HEADS // kv_heads, "s": 1, "d": d, "e": d}


WAYS: tuple[tuple[Merge, int], ...] = (("none", 1), ("second-launch", 5), ("last-arriving", 7), ("last-arriving", 16))
OPERATORS = tuple(Operator(kv, d, *way) for kv, d, way in product((8, 1, 32), (128, 64), WAYS))
GRID = tuple({"b": b, "t": t} for b in (1, 3, 8, 64) for t in (0, 1, 1000, 5003, 8192, 32768))


@dataclass(frozen=True)
class Timed:
    """A shape with its goal: the least ratio of the best baseline's time to ours; None where there is none."""

    b: int
    kv_heads: int
    d: int
    t: int
    goal: float | None = None

    @property
    def dims(self) -> dict[str, int]:
        return {"b": self.b, **attention_dims(self.kv_heads, self.d), "t": self.t}


TIMED = (
    Timed(1, 8, 128, 1024, 1.4),
    Timed(1, 8, 128, 8192, 1.2),
    Timed(8, 8, 128, 1024, 1.2),
    Timed(1, 8, 128, 32768, 1.0),
    Timed(8, 8, 128, 8192, 1.0),
    Timed(64, 8, 128, 1024, 1.0),
)
DRAWN = 10
"""Shapes drawn from the hash of the commit; their goal is 1."""

HOST_MICROSECONDS = 8.0
"""Goal: what a call from Python may cost the host."""

MATMULS = tuple({"m": m, "n": 4096, "k": 4096} for m in (1, 16, 64))
"""Few rows times a weight; baseline cuBLAS, goal 1."""

Shape = Mapping[str, int]
