"""The final test catches what is right at every small size: one plant for each kind of mistake, in four programs."""

import numpy as np
import pytest

from cleave.candidate import as_written
from cleave.config import Config
from cleave.verify import Outcome, References, Step, verify
from cleave.verify.sample import spread, stored, sweeps
from tests.null.plants import plants
from tests.null.scheduled_candidates import flash_decoding

PLANTS = plants()
PROGRAMS = sorted({p.name.partition(":")[0] for p in PLANTS})


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_plant_is_caught_by_the_final_test(program: str) -> None:
    known: dict[object, References] = {}
    chosen = [p for p in PLANTS if p.name.startswith(program)]
    assert len(chosen) >= 10
    for p in chosen:
        references = known.setdefault(p.candidate.origin, References(p.candidate.origin, 1))
        verdict = verify(p.candidate, Config(seed=1), bind=p.bind, references=references)
        failed = [c for c in verdict.checks if c.outcome.failed]
        assert [c.step for c in failed] == [Step.GRAPH_HALF], p.name
        assert failed[0].outcome is Outcome.WRONG_VALUE, p.name


def test_what_the_plants_grow_in_passes() -> None:
    c = flash_decoding(causal=True).candidate
    bind = {"kv": 20, "s": 200, "t": 500}
    assert verify(c, bind=bind).passed
    assert verify(c, bind={**bind, "S": 4, "C": 125}).passed
    assert verify(as_written(c.origin), bind=bind).passed


def test_literal_sizes_alone_catch_what_no_shape_is_bound_for() -> None:
    """Plants in literal extents need no final test."""
    literal = [p for p in PLANTS if p.name.startswith("matmul") and p.name.endswith((" k", " n"))]
    assert len(literal) >= 10
    for p in literal:
        assert verify(p.candidate).outcome is Outcome.WRONG_VALUE, p.name


def test_spread_positions_leave_no_gap(rng: np.random.Generator) -> None:
    found = spread(4096, 128, rng)
    assert found[0] == 0 and found[-1] == 4095 and np.diff(found).max() <= 64
    assert spread(7, 9, rng).tolist() == list(range(7))
    assert spread(0, 9, rng).size == 0


def test_sweeps_reach_all_heads_and_cost_no_more_than_they_may(rng: np.random.Generator) -> None:
    g = flash_decoding().candidate.origin
    dims = {"kv": 8, "r": 3, "s": 2000, "t": 2000}
    s = stored(g.outputs[0])
    inputs = {i.name: np.zeros((0,) * len(i.shape)) for i in g.inputs}
    found = sweeps(s, inputs, dims, rng)
    reached = {a.name.rstrip("@"): max(len(at[a]) for at in found) for a in s.axes}
    assert (reached["kv"], reached["r"]) == (8, 3)
    assert 100 < reached["s"] < 1000
    assert all(np.prod([len(p) for p in at.values()]) * 2000 < 40e6 for at in found)
