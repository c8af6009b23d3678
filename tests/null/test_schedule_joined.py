"""A split sum that another matmul multiplies: it is joined in the launch of its partials, and stored as an operand."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from cleave import nn
from cleave.candidate import Candidate
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.cost.roofline import roofline
from cleave.errors import ScheduleError
from cleave.ir.interp import interpret
from cleave.schedule import schedule
from cleave.schedule.variants import JOINED
from cleave.target import Target
from cleave.tile.interp import run_schedule
from cleave.tile.plan import Merge, Schedule
from cleave.tune.description import described, launches, parts
from tests.null.searched import searched

BIND = {"h": 32, "s": 1024, "t": 4096}
WAYS: tuple[Merge, ...] = ("cluster", "last-arriving", "second-launch")


@cache
def split_first() -> Candidate:
    """q (k' v), with k' v split along its sum."""
    g = nn.matmul_matmul(d=64, e=64)
    return next(c for c in searched(g).candidates if c.splits and "sum(t_o" in str(c.graph) and len(c.steps) > 1)


@cache
def joined(way: Merge) -> Schedule:
    plans = schedule(split_first(), Target("sm_90a"), BIND, merge=way, split={"t": 3}, keep=400)
    return next(p for p in plans if JOINED in p.notes)


@pytest.mark.parametrize("way", WAYS)
def test_partials_merge_and_what_reads_it_are_three_programs(way: Merge) -> None:
    plan = joined(way)
    partial, merge, last = plan.kernels
    assert [b.dtype for b in plan.temporaries] == ["float32", "float16"]
    assert any(a.kind == "outer" for a in partial.program.grid)
    assert not any(a.kind == "outer" for k in (last,) for a in k.program.grid)
    assert {i.name for i in last.program.inputs} == {"q", plan.temporaries[1].name}
    assert [o.name for o in merge.program.outputs] == [plan.temporaries[1].name]
    one = way != "second-launch"
    assert parts(plan) == (partial, last) and launches(plan) == 3 - one
    assert len(generate(plan).kernels) == 3 - one and described(plan).count(" + ") == 1
    rows = roofline(plan)
    assert [r.in_launch_of_first for r in rows] == [False, one, False]
    assert plan.modelled is not None
    assert sum(r.microseconds for r in rows) + plan.modelled.terms["launch"] == pytest.approx(
        plan.modelled.microseconds
    )


@pytest.mark.parametrize("way", WAYS)
def test_interpreter_and_emulator_agree_with_the_graph(way: Merge, rng: np.random.Generator) -> None:
    plan, g = joined(way), split_first().origin
    for sizes in ({"h": 2, "s": 70, "t": 200}, {"h": 1, "s": 1, "t": 5}, {"h": 3, "s": 33, "t": 1}):
        every = {**sizes, **plan.bind}
        shapes = {
            "q": (sizes["h"], sizes["s"], 64),
            "k": (sizes["h"], sizes["t"], 64),
            "v": (sizes["h"], sizes["t"], 64),
        }
        inputs = {n: rng.standard_normal(x).astype(np.float16).astype(np.float64) for n, x in shapes.items()}
        (wanted,) = interpret(g, inputs, sizes).values()
        (exact,) = run_schedule(plan, inputs, every).values()
        np.testing.assert_allclose(exact, wanted, rtol=1e-9, atol=1e-9)
        (found,) = emulate(generate(plan), inputs, every).values()
        assert np.linalg.norm(found - wanted) < 2e-3 * np.linalg.norm(wanted)


def test_what_is_divided_before_it_is_multiplied_is_joined_where_it_is_read() -> None:
    """The sum of attention is no factor of a matmul: there is no such cut."""
    c = next(c for c in searched(nn.attention(d=64, e=64)).candidates if c.splits)
    bind = {"b": 1, "kv_heads": 2, "group": 4, "s": 16, "t": 4096}
    plans = schedule(c, Target("sm_90a"), bind, split={"t": 4}, keep=400)
    assert plans and not any(JOINED in p.notes for p in plans)


def test_a_target_without_clusters_says_so() -> None:
    with pytest.raises(ScheduleError, match="in a cluster: allowed is none on sm_80"):
        schedule(split_first(), Target("sm_80"), BIND, merge="cluster", split={"t": 3})
