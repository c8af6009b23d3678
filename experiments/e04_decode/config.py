"""What e04 runs: operators and shapes of the correctness grid, and the shapes that are timed, with their goals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from cleave.tile.plan import Merge

HERE = Path(__file__).parent
CANDIDATES = HERE / "candidates"
RECORDS = HERE.parent / "records" / "e04_decode"

TARGET = "sm_90a"
HEADS = 32
"""Query heads."""

Shape = Mapping[str, int]


def attention_dims(kv_heads: int, d: int, queries: int = 1) -> dict[str, int]:
    return {"kv_heads": kv_heads, "group": HEADS // kv_heads, "s": queries, "d": d, "e": d}


# ---- the correctness grid


@dataclass(frozen=True)
class Operator:
    """One compiled kernel of the grid, one query a head: heads and head size, and how many chunks it is split into and
    merged."""

    kv_heads: int
    d: int
    merge: Merge
    splits: int

    @property
    def name(self) -> str:
        return f"kv_heads {self.kv_heads}, d {self.d}, {self.merge} x {self.splits}"

    def bind(self, b: int = 1, t: int = 8192) -> dict[str, int]:
        return {"b": b, **attention_dims(self.kv_heads, self.d), "t": t}


WAYS: tuple[tuple[Merge, int], ...] = (
    ("none", 1),
    ("second-launch", 5),
    ("last-arriving", 7),
    ("last-arriving", 16),
    ("cluster", 3),
    ("cluster", 8),
    ("spread", 11),
)
"""Every merge, with counts that do not divide the lengths."""

HEAD_FORMS = tuple(product((8, 1, 32), (128, 64)))
"""(heads of keys and values, head size)."""

GRID = tuple({"b": b, "t": t} for b in (1, 3, 8, 64) for t in (0, 1, 1000, 5003, 8192, 32768))

REPLAYED = {"b": 8, "t": 8192}
"""Shape of the graph that is replayed with other lengths."""
LENGTHS = (
    (8192, 8192, 8192, 8192, 8192, 8192, 8192, 8192),
    (0, 1, 31, 1000, 4097, 5003, 8191, 8192),
    (0, 0, 0, 0, 0, 0, 0, 0),
    (8192, 0, 63, 65, 129, 1, 2048, 7),
)


def operators(kv_heads: int, d: int) -> tuple[Operator, ...]:
    return tuple(Operator(kv_heads, d, *way) for way in WAYS)


# ---- what is timed


@dataclass(frozen=True)
class Timed:
    """A shape with its goal: the least ratio of the best baseline's time to ours; None where there is none."""

    b: int
    kv_heads: int
    d: int
    t: int
    goal: float | None = None
    queries: int = 1

    @property
    def dims(self) -> dict[str, int]:
        return {"b": self.b, **attention_dims(self.kv_heads, self.d, self.queries), "t": self.t}

    @property
    def name(self) -> str:
        queries = "" if self.queries == 1 else f" s{self.queries}"
        return f"b{self.b} kv{self.kv_heads}{queries} d{self.d} t{self.t}"


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

PAPER_GOALS = {32: 1.4, 8: 2.0, 1: 3.0}
"""Many heads, grouped heads, one head of keys: goals at 16 queries a head. At 128 there are none."""
PAPER = tuple(
    Timed(1, kv_heads, d, 4096, PAPER_GOALS[kv_heads] if queries == 16 else None, queries)
    for queries, kv_heads, d in product((16, 128), PAPER_GOALS, (128, 64))
)
"""The decode form of the paper: its b is a number of queries a head, against 4096 keys, not causal."""

IN_ORDER = "in order"
"""The fastest schedule, each call launched when the one before it is over."""

HOST_MICROSECONDS = 8.0
"""Goal: what a call from Python may cost the host."""

MATMULS = tuple({"m": m, "n": 4096, "k": 4096} for m in (1, 16, 64))
"""Few rows times a weight; baseline cuBLAS, goal 1."""

# ---- split counts

COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
SWEPT = (TIMED[0], TIMED[1], TIMED[3], TIMED[4])
SWEPT_MATMULS = ({"m": 16, "n": 4096, "k": 4096},)
"""Shapes at which every count is timed."""
