"""Stage 1, without a GPU: search the graphs, write their candidates; and how a measurement finds the one it wants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cleave import nn
from cleave.candidate import Candidate
from cleave.config import Config
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.tune.variants import Variants
from experiments.candidates import search_and_save, with_splits
from experiments.e00_smoke.config import CANDIDATES, TARGET, Operator


def search() -> int:
    """Search the graphs and write their candidates."""
    graphs = {
        "attention": nn.attention(lse=True),
        "attention_causal": nn.attention(causal=True, lse=True),
        "matmul": nn.matmul(),
    }
    for name, graph in graphs.items():
        search_and_save(graph, CANDIDATES / f"{name}.json")
    return 0


def candidate_of(op: Operator) -> Candidate:
    """The candidate that an operator asks for: the best with exactly its splits."""
    return with_splits(CANDIDATES / f"{op.graph}.json", op.split)


def schedule_of(op: Operator, candidate: Candidate, config: Config | None = None) -> Schedule:
    """The schedule that the cost model ranks first, for the operator's representative shape."""
    from cleave.schedule import schedule

    merge: Any = op.merge
    return schedule(candidate, Target(TARGET), op.bind, config, split=op.split, merge=merge)[0]


def variants_of(op: Operator, candidate: Candidate) -> Variants:
    """That schedule; and that of the operator's other shape, for the calls that the first one does not take."""
    also = (replace(op, bind={**op.bind, **op.other}),) if op.other else ()
    schedules = tuple(schedule_of(o, candidate) for o in (op, *also))
    return Variants(schedules, ((),) * len(schedules))
