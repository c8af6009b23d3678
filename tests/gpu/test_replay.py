"""Graphs of paged and ragged attention, captured once: right while lengths, page tables and values change.

The experiment e02 does the same with schedules that were chosen for speed, and records it.
"""

from __future__ import annotations

from typing import Any

import pytest

from cleave.candidate import load_candidates
from cleave.records import Outcome
from cleave.runtime import device
from cleave.schedule import schedule
from cleave.tune.plan import Made, prepared
from experiments.e02_dynamic import replay
from experiments.e02_dynamic.config import CANDIDATES
from experiments.e02_dynamic.plans import Tried
from experiments.e02_dynamic.workloads import operators, points

pytest.importorskip("cupy")
pytest.importorskip("torch")

CONSTS = replay.consts(operators(points()))
SPLIT: tuple[dict[str, Any], ...] = ({}, {"merge": "last-arriving"}, {"merge": "second-launch"})


def made(name: str, **forced: Any) -> Made:
    """At the shape that is captured; into five chunks, if a merge is forced."""
    candidates = load_candidates(CANDIDATES / f"{name}.json")
    c = next(c for c in candidates if bool(c.splits) == bool(forced) and c.name != "as written")
    if forced:
        forced["split"] = {c.splits[0].base: 5}
    return prepared(schedule(c, device.target(), replay.steps(name, CONSTS[name])[0].dims, **forced)[0])


@pytest.mark.parametrize("name", CONSTS)
def test_a_captured_call_replays_with_other_requests(name: str) -> None:
    tried = Tried(name, tuple(made(name, **forced) for forced in (SPLIT if "decode" in name else SPLIT[:1])))
    found = replay.replay(tried, CONSTS[name])
    assert [(r.outcome, r.check.get("error")) for r in found.records] == [(Outcome.OK, None)] * len(found.records)
    assert len(found.records) == len(tried.made) * len(replay.STEPS)
    assert not any(r.details["compiles_after_first_call"] for r in found.records)
