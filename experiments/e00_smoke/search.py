"""Stage 1, without a GPU: search the graphs, write their candidates; and how a measurement finds the one it wants."""

from __future__ import annotations

from typing import Any

from cleave import nn
from cleave.candidate import Candidate, load_candidates, save_candidates
from cleave.config import Config
from cleave.errors import CleaveError
from cleave.target import Target
from cleave.tile.plan import Schedule
from experiments.e00_smoke.config import CANDIDATES, TARGET, Operator


def search() -> int:
    """Search the graphs and write their candidates."""
    from cleave.search import search as run_search

    CANDIDATES.mkdir(exist_ok=True)
    graphs = {
        "attention": nn.attention(lse=True),
        "attention_causal": nn.attention(causal=True, lse=True),
        "matmul": nn.matmul(),
    }
    for name, graph in graphs.items():
        found = run_search(graph)
        save_candidates(found.candidates, CANDIDATES / f"{name}.json")
        print(f"{name}: {found.report.stop}, {len(found.candidates)} candidates, {found.report.seconds.total:.2f} s")
    return 0


def candidate_of(op: Operator) -> Candidate:
    """The candidate that an operator asks for: the best with exactly its splits."""
    wanted = set(op.split)
    for c in load_candidates(CANDIDATES / f"{op.graph}.json"):
        if {s.base for s in c.splits} == wanted:
            return c
    raise CleaveError(f"no candidate that splits {', '.join(wanted) or 'nothing'}", location=op.graph)


def schedule_of(op: Operator, candidate: Candidate, config: Config | None = None) -> Schedule:
    """The schedule that the cost model ranks first, for the operator's representative shape."""
    from cleave.schedule import schedule

    merge: Any = op.merge
    return schedule(candidate, Target(TARGET), op.bind, config, split=op.split, merge=merge)[0]
