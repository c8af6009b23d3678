"""A last-arriving merge reads what its own tile's blocks have stored; everything else is refused, never raced for."""

from dataclasses import replace

import numpy as np
import pytest

from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.errors import CleaveError, ScheduleError
from cleave.frontend import ops
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph, Load, load
from cleave.ir.index import Index
from cleave.ir.interp import interpret
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.check import check_schedule
from cleave.tile.interp import run_schedule, schedule_dims
from cleave.tile.plan import Merge, Schedule
from cleave.tile.program import Let, Loop, Stmt, Store
from tests.null.scheduled_candidates import CASES
from tests.null.searched import searched

A100 = Target("sm_80")
GRAPHS = {
    "partials that tiles share": (lambda x, y: y * x.sum("k"), {"x": "k", "y": "m n"}),
    "a matmul of a sum": (lambda x, w, a, b: x @ w + (x @ a) @ b, {"x": "m k", "w": "k n", "a": "k r=8", "b": "r n"}),
    "a sum of matmuls": (lambda a, b: ops.einsum("bmk,bkn->mn", a, b), {"a": "b m k", "b": "b k n"}),
    "a sum of row sums": (lambda x: x.sum(), {"x": "m n"}),
    "a maximum of sums": (lambda x: x.sum("n").max("m"), {"x": "b m n"}),
}


def traced(name: str) -> Graph:
    function, inputs = GRAPHS[name]
    return trace(function, name="merged", dtype="float16", **inputs)


@pytest.mark.parametrize("name", GRAPHS)
def test_what_a_merge_returns_is_right_in_any_order_of_blocks(name: str, rng: np.random.Generator) -> None:
    g = traced(name)
    free = [s.name for s in g.symbols if s.value is None]
    for c in searched(g).candidates:
        for s in c.splits[:1] if len(c.splits) == 1 else ():
            try:
                (plan, *_) = schedule(c, A100, dict.fromkeys(free, 40), merge="last-arriving", split={s.base: 3})
                operator = generate(check_schedule(plan))
            except CleaveError:
                continue
            sizes = dict(zip(free, (int(n) for n in rng.permutation([17, 33, 5, 3])), strict=False))
            agrees(g, plan, operator, {**sizes, **{n: v for n, v in plan.bind.items() if n in free}}, rng)


@pytest.mark.parametrize("merge", ["second-launch", None])
@pytest.mark.parametrize("skeleton", ["cta-ring", "warp-ring"])
def test_partials_without_rows_are_merged(skeleton: str, merge: Merge | None, rng: np.random.Generator) -> None:
    """A sum of each column beside a matmul: a vector that no row has, one value a chunk."""
    g = trace(lambda x, w: (x @ w, w.sum("k")), name="merged", dtype="float16", x="m k", w="k n")
    (c,) = (c for c in searched(g).candidates if c.splits)
    plan = schedule(c, A100, {"m": 16, "n": 64, "k": 600}, merge=merge, split={"k": 5}, skeleton=skeleton)[0]
    assert plan.merge == "second-launch"
    for sizes in ({"m": 19, "n": 77, "k": 300}, {"m": 1, "n": 1, "k": 3}):
        agrees(g, plan, generate(check_schedule(plan)), sizes, rng)


def test_columns_that_a_fold_restates_are_not_offered_without_rows(rng: np.random.Generator) -> None:
    """The softmax of each column of a weight: its state would be vectors that a loop restates."""
    g = trace(lambda x, w: x @ ops.softmax(w, "k"), name="columns", dtype="float16", x="m k", w="k n")
    for c in searched(g).candidates:
        for skeleton in ("cta-ring", "warp-ring"):
            for plan in schedule(c, A100, {"m": 16, "n": 64, "k": 600}, skeleton=skeleton):
                generate(check_schedule(plan))
        agrees(g, plan, generate(plan), {"m": 19, "n": 37, "k": 130}, rng)


def agrees(g: Graph, plan: Schedule, operator, sizes: dict[str, int], rng: np.random.Generator) -> None:
    values = {s.name: sizes.get(s.name, s.value) for s in g.symbols}
    shapes = {i.name: [int(str(n)) if n.constant is not None else values[str(n)] for n in i.shape] for i in g.inputs}
    inputs = {n: rng.standard_normal(shape).astype(np.float16).astype(float) for n, shape in shapes.items()}
    wanted, got = interpret(g, inputs, sizes), run_schedule(plan, inputs, sizes)
    assert all(np.allclose(got[n], wanted[n], 1e-9, 1e-9) for n in wanted), plan
    known = schedule_dims(plan, {n: x.shape for n, x in inputs.items()}, sizes)
    for seed in range(3):
        made = emulate(operator, inputs, known, seed)
        for n, x in wanted.items():
            assert np.linalg.norm(made[n] - x) <= 2e-3 * np.linalg.norm(x) + 1e-3, plan


def split_matmul() -> Schedule:
    case = CASES["matmul split"]()
    base = case.candidate.splits[0].base
    return schedule(case.candidate, A100, case.shape, merge="last-arriving", split={base: 3})[0]


def changed(s: Schedule, change: str) -> Schedule:
    """The schedule with a merge that reads elsewhere, has other tiles, or shares partials between tiles."""
    first, second = s.kernels
    axis_of_grid = next(a for a in second.program.grid if a not in second.program.unit)
    if change == "tiles":
        tiles = {**second.binding.tiles, axis_of_grid: 2 * second.binding.tiles[axis_of_grid]}
        return replace(s, kernels=(first, replace(second, binding=replace(second.binding, tiles=tiles))))
    if change == "shared":
        body = tuple(replace(t, once=(axis_of_grid,)) if isinstance(t, Store) else t for t in first.program.body)
        return replace(s, kernels=(replace(first, program=replace(first.program, body=body)), second))

    def moved(i: Index) -> Index:
        return i + 1 if i is axis_of_grid.position else i

    def elsewhere(t: Stmt) -> Stmt:
        if isinstance(t, Loop):
            return replace(t, body=tuple(map(elsewhere, t.body)))
        if isinstance(t, Let) and isinstance(t.term, Load):
            return replace(t, term=load(t.term.input, *map(moved, t.term.indices)))
        return t

    program = replace(second.program, body=tuple(map(elsewhere, second.program.body)))
    return replace(s, kernels=(first, replace(second, program=program)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("tiles", r"tiles of \d+ along m do not divide the \d+ of the partials"),
        ("shared", "is stored in the first tile of .*, and the blocks of other tiles do not wait for it"),
        ("elsewhere", "is read at .* by a block that waited for"),
    ],
)
def test_merges_that_would_race_are_refused(change: str, message: str) -> None:
    s = check_schedule(split_matmul())
    with pytest.raises(ScheduleError, match=message):
        generate(changed(s, change))
