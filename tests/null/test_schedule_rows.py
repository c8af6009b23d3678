"""Rows of several axes: queries and the heads of a group share the tiles of keys and values, at every size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import pytest
from numpy.random import Generator, default_rng

from cleave.candidate import Candidate, as_written
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.errors import ScheduleError
from cleave.frontend.trace import trace
from cleave.ir.axis import Axis, axis
from cleave.ir.dim import dims, is_dim
from cleave.ir.graph import Input, apply, const, fold, free, graph, load
from cleave.ir.index import index, minimum, read
from cleave.ir.interp import interpret
from cleave.schedule import schedule
from cleave.schedule.placement import Sizes, placements, power_of_two
from cleave.target import Target
from cleave.tile.interp import run_schedule
from cleave.tile.plan import Merge, Schedule
from tests.null.scheduled_candidates import Case, attention, flash_decoding, found, half, is_max, output, weights
from tests.null.terms import mul, over, softmax_fold

H200 = Target("sm_90a")


def row_forms(candidate: Candidate, shape: Mapping[str, int]) -> list[str]:
    """Rows of the first set of axes, best first; a fallback in parentheses."""
    g = candidate.graph
    fixed = frozenset(s.name for s in g.symbols if s.value is not None)
    tried = [p for p in placements(g, Sizes(dict(shape), fixed)) if p.rank < 2]
    names = [" ".join(a.name for a in p.rows) for p in tried]
    return [name if p.rank == 0 else f"({name})" for name, p in zip(names, tried, strict=True)]


@pytest.mark.parametrize(
    ("r", "s", "forms"),
    [
        (1, 16, ["s"]),
        (4, 1, ["r"]),
        (4, 3, ["s r", "r"]),
        (4, 16, ["s r", "(s)"]),
        (32, 16, ["r s", "(r)"]),
        (5, 16, ["r s", "(s)"]),
        (5, 17, ["s r", "s"]),
        (32, 7, ["s r", "(r)"]),
        (8, 127, ["s r", "(s)"]),
        (8, 128, ["s"]),
        (65, 16, ["r s", "(r)"]),
        (256, 16, ["r"]),
    ],
)
def test_short_axes_join_the_rows_behind_the_one_that_is_tiled_freely(r: int, s: int, forms: list[str]) -> None:
    shape = {"kv": 2, "r": r, "s": s, "t": 512}
    assert row_forms(attention(ratio="r").candidate, shape) == forms


def test_as_many_axes_join_as_a_tile_has_rows() -> None:
    g = trace(lambda x, w: x @ w, x="a b c d", w="d e")
    tall = {"a": 3, "b": 64, "c": 64, "d": 32, "e": 32}
    assert row_forms(as_written(g), tall) == ["a c", "(c)"]
    assert row_forms(as_written(g), {**tall, "b": 5}) == ["b c", "(c)"]


# ---- the same numbers


def inputs(rng: Generator, case: Case, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    drawn = case.inputs(rng, sizes)
    return {
        n: np.clip(x, -2, 2).astype(np.float16).astype(np.float64) if x.dtype.kind == "f" else x
        for n, x in drawn.items()
    }


def check(case: Case, plan: Schedule, sizes: Mapping[str, int], *, emitted: bool) -> None:
    """A plan against the graph in float64; what is emitted against it in half precision."""
    rng = default_rng(sum(sizes.values()))
    values, origin = inputs(rng, case, sizes), case.candidate.origin
    with np.errstate(all="ignore"):
        wanted = interpret(origin, values, dict(sizes))
        got = run_schedule(plan, values, dict(sizes))
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-6, atol=1e-8, err_msg=f"{name} {sizes}")
    if emitted:
        found = emulate(generate(plan), values, dict(sizes), int(rng.integers(2**31)))
        for name, array in wanted.items():
            finite = np.isfinite(array)
            np.testing.assert_array_equal(found[name][~finite], array[~finite])
            scale = max(float(np.linalg.norm(array[finite])), 1e-3)
            assert np.linalg.norm(found[name][finite] - array[finite]) <= 2e-3 * scale, f"{name} {sizes}\n{plan}"


def joined(candidate: Candidate, shape: Mapping[str, int], rows: int = 16, **forced: Any) -> Schedule:
    """A plan whose rows are two axes, whatever the cost model says of such a small shape."""
    g = candidate.graph
    sizes = Sizes({"S": 3, "C": 1024, **shape}, frozenset(s.name for s in g.symbols if s.value is not None))
    first, second = next(placements(g, sizes)).rows
    short = power_of_two(sizes.extent(second) or 1)
    plan = schedule(candidate, H200, shape, tile={first.name: max(rows // short, 1), second.name: short}, **forced)[0]
    assert plan.kernels[0].binding.rows == (first, second)
    return plan


SHAPES = [(5, 3), (7, 5), (1, 1), (2, 40), (9, 1), (3, 0)]
"""(heads of a group, queries) of calls of one plan, whose representative shape has others."""


@pytest.mark.parametrize("group", [5, 7, 32])
@pytest.mark.parametrize("skeleton", ["cta-ring", "warp-ring"])
def test_one_plan_is_right_for_every_group_and_length(group: int, skeleton: str) -> None:
    case = attention(causal=True, ratio="r")
    plan = joined(case.candidate, {"kv": 2, "r": group, "s": 12, "t": 300}, skeleton=skeleton)
    assert not {"r", "s"} & set(plan.bind) and not plan.constraints
    for number, (r, s) in enumerate(SHAPES):
        for t in (0, 7, 70):
            check(case, plan, {"kv": 2, "r": r, "s": s, "t": t}, emitted=t == 70 or number == 0)


@pytest.mark.parametrize("merge", [m for m in get_args(Merge) if m != "none"])
@pytest.mark.parametrize(("group", "s"), [(5, 12), (32, 4)])
def test_splits_of_fused_heads_are_merged_right(group: int, s: int, merge: str) -> None:
    case = flash_decoding(causal=True, ratio="r")
    shape = {"kv": 2, "r": group, "s": s, "t": 2048}
    plan = joined(case.candidate, shape, merge=merge, split={"t": 3})
    for r, queries in SHAPES[:4]:
        check(case, plan, {"kv": 2, "r": r, "s": queries, "t": 150}, emitted=r == 7)


def test_rows_of_more_than_one_warp() -> None:
    case = attention(ratio="r")
    shape = {"kv": 1, "r": 6, "s": 16, "t": 300}
    plan = joined(case.candidate, shape, 64, skeleton="cta-ring")
    assert plan.kernels[0].binding.warps == 4
    check(case, plan, {"kv": 2, "r": 6, "s": 19, "t": 40}, emitted=True)


def grouped_ragged() -> Case:
    """Requests of different numbers of queries and keys, both read from inputs; heads in groups."""
    b, s, t, r = dims("b s t r")
    bb = axis("b", b)
    i, d, e = Axis("i", minimum(read("queries", bb), s)), axis("d", 16), axis("e", 16)
    tt, g = Axis("u", read("len", bb)), axis("g", r)
    scores = mul(fold("sum", d, mul(load("Q", bb, g, i, d), load("K", bb, tt, d))), const(0.3))
    m = fold("max", tt, scores)
    p = apply("exp_diff", scores, m)
    total = fold("sum", tt, p)
    o = over(fold("sum", tt, mul(p, load("V", bb, tt, e))), total)
    tables = (Input("queries", "int32", (b,)), Input("len", "int32", (b,)))
    arrays = (half("Q", b, r, s, 16), half("K", b, t, 16), half("V", b, t, 16))
    made = graph("ragged", (*arrays, *tables), [output("O", o, (b, r, s, index(16)), bb, g, i, e)])
    name = next(a.name for a in made.axes if str(a.extent).startswith("len"))
    members = found(made, name, is_max, weights(3), weights(4))
    assert free(members[0])
    candidate = Candidate("ragged", made, made, folds=(softmax_fold(members),))
    return Case(candidate, {"b": 3, "s": 40, "t": 70, "r": 5}, {"b": 3, "s": 20, "t": 40, "r": 5})


def test_an_axis_that_is_read_is_tiled_and_the_heads_join_it() -> None:
    case, rng = grouped_ragged(), default_rng(5)
    plan = joined(case.candidate, case.shape)
    first, second = plan.kernels[0].binding.rows
    assert not is_dim(first.extent) and second.name == "r" and plan.kernels[0].binding.tile(second) == 8
    for r in (1, 5, 9):
        sizes = {"b": 3, "s": 21, "t": 40, "r": r}
        values = inputs(rng, case, sizes)
        values["queries"] = np.array([21, 0, 6])
        values["len"] = np.array([33, 40, 0])
        with np.errstate(all="ignore"):
            wanted = interpret(case.candidate.origin, values, sizes)["O"]
            exact = run_schedule(plan, values, sizes)["O"]
        emitted = emulate(generate(plan), values, sizes, r)["O"]
        for request, queries in enumerate(values["queries"]):
            written = wanted[request, :, :queries]
            np.testing.assert_allclose(exact[request, :, :queries], written, rtol=1e-6, atol=1e-8)
            np.testing.assert_allclose(emitted[request, :, :queries], written, rtol=2e-3, atol=2e-3)
            assert np.isnan(exact[request, :, queries:]).all() and np.isnan(emitted[request, :, queries:]).all()


def test_a_batch_joins_the_rows_of_a_matmul() -> None:
    g = trace(lambda x, w: x @ w, x="b s d", w="d e")
    plan = joined(as_written(g), {"b": 3, "s": 6, "d": 64, "e": 64})
    rng = default_rng(2)
    for b, s in ((3, 6), (1, 17), (5, 1), (9, 33)):
        x = {"x": rng.standard_normal((b, s, 40)), "w": rng.standard_normal((40, 56))}
        x = {n: a.astype(np.float16).astype(np.float64) for n, a in x.items()}
        wanted = interpret(g, x)["out"]
        np.testing.assert_allclose(run_schedule(plan, x)["out"], wanted, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(emulate(generate(plan), x)["out"], wanted, rtol=4e-3, atol=4e-3)


# ---- forced tiles


def test_tiles_of_every_row_axis_can_be_forced() -> None:
    c, shape = attention(ratio="r").candidate, {"kv": 2, "r": 6, "s": 16, "t": 300}
    for tile in ({"r": 2}, {"r": 8, "s": 4}, {"s": 32}):
        for s in schedule(c, H200, shape, tile=tile):
            assert tile.items() <= {a.name: n for a, n in s.kernels[0].binding.tiles.items()}.items()
    with pytest.raises(ScheduleError, match=r"^axis s: tile 24: allowed are 1, 2, 4, 8, 16, 32, 64, 128$"):
        schedule(c, H200, shape, tile={"s": 24})
