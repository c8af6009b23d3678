"""Results that several tests look at: attention, optimized once a process; and a quick run of everything."""

from __future__ import annotations

from functools import cache
from typing import Any

from cleave import nn
from cleave.config import Ablation, Config
from cleave.pipeline import Result, optimize
from cleave.target import Target

SHAPE = {"b": 1, "h": 4, "kv_heads": 2, "s": 200, "t": 300, "d": 64}


@cache
def attention() -> Result:
    graph, dims = nn.instantiate("attention", SHAPE, causal=True)
    return optimize(graph, dims, Target("sm_90a"))


def matmul(**named: Any) -> Result:
    """Matmul as written, unsplit, unless ``config`` says otherwise."""
    graph, dims = nn.instantiate("matmul", {"m": 100, "n": 72, "k": 130})
    off = Config(ablation=Ablation(algebra=False, split=False), isolate=False)
    return optimize(graph, dims, Target("sm_80"), named.pop("config", off), **named)
