"""Merges of splits that a single launch can't do: left to a second launch, never wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import nn, ops
from cleave.candidate import load_candidates
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.cost.roofline import works_of
from cleave.errors import ScheduleError
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.interp import run_schedule
from cleave.tile.plan import Merge, Schedule
from tests.null.searched import searched

DECODE = Path(__file__).parents[2] / "experiments" / "e04_decode" / "candidates" / "attention.json"
H200 = Target("sm_90a")


@pytest.mark.parametrize("merge", [None, "second-launch", "last-arriving"])
def test_a_merge_that_would_read_other_blocks_is_left_to_a_second_launch(merge: Merge | None) -> None:
    """sum over m of max over n, split over n: the merge reduces an axis of the partials' grid."""
    g = cleave.trace(lambda x: ops.sum(ops.max(x, axis="n"), axis="m"), x="b m n")
    split = next(c for c in searched(g).candidates if [s.base for s in c.splits] == ["n"])
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


@pytest.mark.parametrize("merge", ["cluster", "last-arriving"])
def test_an_axis_of_one_tile_has_no_other_blocks_to_wait_for(merge: Merge) -> None:
    """Statistics of rows are stored by the first tile of the columns, and there is no second one."""
    bind, forced = {"m": 70, "k": 200}, {"merge": merge, "split": {"k": 2}, "tile": {"m": 64, "n": 64}}

    def of_columns(n: int) -> list[Schedule]:
        c = next(c for c in searched(nn.softmax_matmul(n=n)).candidates if c.name == "split k")
        return list(schedule(c, Target("sm_90a"), bind, **forced))

    plans = of_columns(64)
    assert all(p.merge == merge for p in plans)
    with pytest.raises(ScheduleError, match=r"no kernel of .* can run it"):
        of_columns(128)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((70, 200), (200, 64)))
    for plan in (plans[0], next(p for p in plans if p.kernels[0].binding.mma == "wgmma")):
        got = emulate(generate(plan), {"x": x, "w": w})["out"].astype(float)
        e = np.exp(x.astype(float) - x.astype(float).max(1, keepdims=True))
        wanted = (e / e.sum(1, keepdims=True)) @ w.astype(float)
        assert np.linalg.norm(got - wanted) < 1e-3 * np.linalg.norm(wanted)


@pytest.mark.parametrize(("teams", "chunk_seconds"), [(1, 0.3e-6), (4, 0.075e-6)])
def test_a_block_that_merges_alone_takes_its_time_for_every_chunk(teams: int, chunk_seconds: float) -> None:
    """Few rows: its teams read the partials of one chunk each at a time."""
    bind = {"b": 1, "kv_heads": 8, "group": 4, "s": 1, "d": 128, "e": 128, "t": 8192}
    skeleton = "cta-ring" if teams == 1 else "warp-ring"
    c = next(c for c in load_candidates(DECODE) if [s.base for s in c.splits] == ["t"])
    seconds: list[float] = []
    for count in (16, 64):
        plans = schedule(c, H200, bind, merge="last-arriving", split={"t": count}, skeleton=skeleton, keep=8)
        plan = next(p for p in plans if p.kernels[0].binding.teams == teams and p.kernels[0].binding.warps == teams)
        assert plan.modelled is not None
        seconds.append(1e-6 * plan.modelled.terms["merge"])
    assert seconds[1] - seconds[0] == pytest.approx(48 * chunk_seconds, rel=0.05)


@pytest.mark.parametrize(("tile", "longest"), [(128, 1.0), (160, 32 / 26), (176, 1.0), (64, 1.0)])
def test_a_block_with_the_longest_chunk_ends_last(tile: int, longest: float) -> None:
    """4096 keys in eight chunks of whole tiles: of 160 each six have four, one has two, and one has none."""
    bind = {"b": 1, "kv_heads": 8, "group": 4, "s": 16, "d": 64, "e": 64, "t": 4096}
    c = next(c for c in load_candidates(DECODE) if [s.base for s in c.splits] == ["t"])
    forced: dict[str, Any] = {"merge": "cluster", "split": {"t": 8}, "skeleton": "specialised", "tile": {"t_i": tile}}
    plan = schedule(c, H200, bind, keep=1, **forced)[0]
    assert works_of(plan)[0].longest == pytest.approx(longest)
