"""What e00 runs: operators, shapes, and how each operator's candidate is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
CANDIDATES = HERE / "candidates"
RECORDS = HERE.parent / "records" / "e00_smoke"

GROUPS = {"mha": 1, "gqa": 4, "mqa": 8}
"""Query heads per key head; mqa has one key head."""
HEADS = 8
HEAD_SIZES = (64, 128)
QUERIES = (1, 7, 77, 512, 1000, 2048)
LONG = 4096
TARGET = "sm_90a"


@dataclass(frozen=True)
class Operator:
    """One operator: a saved candidate, how it is scheduled, and the dims that are compiled in.

    ``graph`` names the file of candidates; ``bind`` the shape for which it is scheduled, and ``other`` dims of a second
    one, whose schedule takes the calls that the first can't; ``split`` is the axis whose split is taken, with its count
    and merge.
    """

    name: str
    graph: str
    bind: Mapping[str, int]
    split: Mapping[str, int] = field(default_factory=dict[str, int])
    merge: str | None = None
    shapes: tuple[Mapping[str, int], ...] = ()
    other: Mapping[str, int] = field(default_factory=dict[str, int])


def attention_shapes(kv_heads: int) -> tuple[dict[str, int], ...]:
    """s x {s, 4096, 0}, with two requests where that is small."""
    return tuple(
        {"b": 2 if s * t <= 77 * LONG else 1, "kv_heads": kv_heads, "s": s, "t": t}
        for s in QUERIES
        for t in dict.fromkeys((s, LONG, 0))
    )


def _attention(kind: str, d: int, *, causal: bool) -> Operator:
    group = GROUPS[kind]
    kv_heads = HEADS // group
    bind = {"b": 1, "kv_heads": kv_heads, "group": group, "s": 2048, "t": 2048, "d": d, "e": d}
    name = f"{kind}{'_causal' if causal else ''}_d{d}"
    return Operator(name, f"attention{'_causal' if causal else ''}", bind, shapes=attention_shapes(kv_heads))


ODD_MATMULS = (
    {"m": 1, "n": 1, "k": 1},
    {"m": 3, "n": 5, "k": 7},
    {"m": 77, "n": 129, "k": 65},
    {"m": 129, "n": 1001, "k": 333},
    {"m": 1000, "n": 77, "k": 4097},
    {"m": 511, "n": 513, "k": 0},
    {"m": 17, "n": 4096, "k": 4096},
    {"m": 2047, "n": 1000, "k": 1016},
)
_MATMUL = {"m": 1024, "n": 1024, "k": 4096}
_ODD = {"m": 1023, "n": 1023, "k": 4095}

OPERATORS: tuple[Operator, ...] = (
    *(_attention(kind, d, causal=causal) for kind in GROUPS for d in HEAD_SIZES for causal in (False, True)),
    Operator("matmul", "matmul", _MATMUL, shapes=ODD_MATMULS, other=_ODD),
    Operator("split_k_second_launch", "matmul", _MATMUL, {"k": 5}, "second-launch", ODD_MATMULS, _ODD),
    Operator("split_k_last_arriving", "matmul", _MATMUL, {"k": 5}, "last-arriving", ODD_MATMULS, _ODD),
    Operator(
        "flash_decoding_second_launch",
        "attention_causal",
        {"b": 1, "kv_heads": 2, "group": 4, "s": 16, "t": LONG, "d": 64, "e": 64},
        {"t": 5},
        "second-launch",
        attention_shapes(2),
    ),
    Operator(
        "flash_decoding_last_arriving",
        "attention_causal",
        {"b": 1, "kv_heads": 2, "group": 4, "s": 16, "t": LONG, "d": 64, "e": 64},
        {"t": 5},
        "last-arriving",
        attention_shapes(2),
    ),
)

TIMED = (
    {"b": 1, "kv_heads": 32, "group": 1, "s": 2048, "t": 2048},
    {"b": 4, "kv_heads": 8, "group": 4, "s": 2048, "t": 2048},
    {"b": 1, "kv_heads": 32, "group": 1, "s": 8192, "t": 8192},
)
"""Prefill, d 128, 32 query heads; each causal and full."""
