"""Merges of splits that a single launch can't do: left to a second launch, never wrong."""

from __future__ import annotations

import numpy as np
import pytest

import cleave
from cleave import ops
from cleave.errors import ScheduleError
from cleave.schedule import schedule
from cleave.search import search
from cleave.target import Target
from cleave.tile.interp import run_schedule
from cleave.tile.plan import Merge


@pytest.mark.parametrize("merge", [None, "second-launch", "last-arriving"])
def test_a_merge_that_would_read_other_blocks_is_left_to_a_second_launch(merge: Merge | None) -> None:
    """sum over m of max over n, split over n: the merge reduces an axis of the partials' grid."""
    g = cleave.trace(lambda x: ops.sum(ops.max(x, axis="n"), axis="m"), x="b m n")
    split = next(c for c in search(g).candidates if [s.base for s in c.splits] == ["n"])
    bind = {"b": 3, "m": 40, "n": 70}
    try:
        plans = schedule(split, Target("sm_80"), bind, merge=merge, split={"n": 3})
    except ScheduleError as error:
        assert merge == "last-arriving", error
        return
    x = np.random.default_rng(0).standard_normal((3, 40, 70))
    for plan in plans:
        got = run_schedule(plan, {"x": x}, bind)["out"]
        np.testing.assert_allclose(got, x.max(2).sum(1), rtol=1e-9)
