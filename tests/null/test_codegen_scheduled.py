"""What the scheduler returns, emitted and emulated: equal to its tile program with operands rounded as stored."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cleave.candidate import Candidate
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.frontend.trace import trace
from cleave.ir.index import evaluate
from cleave.runtime.arguments import solve_dims
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.interp import run_schedule
from cleave.tile.plan import Feed, Merge, Schedule
from cleave.tile.program import Loop
from tests.null.scheduled_candidates import CASES, Case, flash_decoding

A100, H200 = Target("sm_80"), Target("sm_90a")
SPLIT = [name for name in CASES if "split" in name or "flash" in name]


def agrees(case: Case, plan: Schedule, sizes: dict[str, int], rng: np.random.Generator) -> bool:
    known = {**{s.name: s.value for s in case.candidate.origin.symbols if s.value is not None}, **sizes, **plan.bind}
    values = {n: _plain(v) for n, v in case.inputs(rng, known).items()}
    got = emulate(generate(plan), values, known, int(rng.integers(2**31)))
    wanted = run_schedule(plan, values, {n: v for n, v in known.items() if n in _names(plan)}, "storage")
    return all(_close(got[name], wanted[name]) for name in wanted)


def _names(plan: Schedule) -> set[str]:
    return {s.name for s in plan.graph.symbols}


def _plain(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -2, 2).astype(np.float16).astype(np.float64) if values.dtype.kind == "f" else values


def _close(got: np.ndarray, wanted: np.ndarray) -> bool:
    finite = np.isfinite(wanted)
    if not np.array_equal(got[~finite], wanted[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return False
    return bool(np.linalg.norm(got[finite] - wanted[finite]) <= 2e-3 * np.linalg.norm(wanted[finite]))


@pytest.mark.parametrize("name", CASES)
def test_the_best_schedule_is_emitted_right(name, rng):
    case = CASES[name]()
    plan = schedule(case.candidate, A100, case.shape)[0]
    for least in (0, 1):
        sizes = case.suiting(plan, case.draw(rng, least=least))
        assert agrees(case, plan, sizes, rng), f"{sizes}\n{plan}"


@pytest.mark.parametrize("skeleton", ["cta-ring", "warp-ring"])
@pytest.mark.parametrize("name", CASES)
def test_a_schedule_fed_by_boxes_is_emitted_right(name, skeleton, rng):
    case = CASES[name]()
    plan = schedule(case.candidate, H200, case.shape, skeleton=skeleton)[0]
    sizes = case.suiting(plan, case.draw(rng))
    assert agrees(case, plan, sizes, rng), f"{sizes}\n{plan}"


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_of_several_teams_is_emitted_right(name, rng):
    case = CASES[name]()
    plan = schedule(case.candidate, A100, case.shape, skeleton="warp-ring")[0]
    assert {k.skeleton for k in plan.kernels} == {"warp-ring"}
    for least in (0, 1):
        sizes = case.suiting(plan, case.draw(rng, least=least))
        assert agrees(case, plan, sizes, rng), f"{sizes}\n{plan}"


@pytest.mark.parametrize("merge", ["second-launch", "last-arriving"])
@pytest.mark.parametrize("name", SPLIT)
def test_splits_are_emitted_right(name, merge, rng):
    case = CASES[name]()
    base = case.candidate.splits[0].base
    plan = schedule(case.candidate, A100, case.shape, merge=merge, split={base: 3})[0]
    sizes = case.suiting(plan, case.draw(rng))
    assert agrees(case, plan, sizes, rng), f"{sizes}\n{plan}"


@pytest.mark.parametrize("merge", ["second-launch", "last-arriving", "cluster"])
@pytest.mark.parametrize(("head", "value", "feed"), [(64, 40, "tma"), (96, 128, "cp.async")])
def test_what_is_offered_fits_into_shared_memory(head: int, value: int, feed: Feed, merge: Merge) -> None:
    """Tiles of odd sizes fill a block to the last bytes: boxes begin at multiples of 1024, and bring mbarriers."""
    flash, shape = flash_decoding(head=head, value=value, ratio="r=7").candidate, {"kv": 3, "s": 1, "t": 200}
    for skeleton in ("cta-ring", "warp-ring"):
        for plan in schedule(flash, H200, shape, merge=merge, skeleton=skeleton, feed=feed):
            for kernel in generate(plan).kernels:
                assert kernel.shared_bytes <= H200.facts.shared_per_block


@pytest.mark.parametrize("name", ["matmul", "matmul split", "swiglu split", "layernorm"])
def test_rows_whose_dims_align_them_are_copied_in_whole_chunks(name: str, rng: np.random.Generator) -> None:
    """Both ways of a copy are emitted; what goes element by element is taken out, and only unaligned calls need it."""
    case = CASES[name]()
    plan = schedule(case.candidate, H200, case.shape, feed="cp.async")[0]
    operator = generate(plan)
    kernels = [replace(k, text=re.sub(r"(?m)^ *copy_elements\(.*\);$", ";", k.text)) for k in operator.kernels]
    cut = replace(operator, kernels=tuple(kernels))
    assert cut != operator
    for sizes, alignment, is_even in (
        ({"m": 19, "n": 40, "k": 72}, 16, True),
        ({"m": 3, "n": 24, "k": 8}, 32, True),
        ({"m": 19, "n": 40, "k": 72}, 8, False),
        ({"m": 19, "n": 44, "k": 76}, 16, False),
    ):
        values = {n: _plain(v) for n, v in case.inputs(rng, {**sizes, **plan.bind}).items()}
        wanted = run_schedule(plan, values, {**sizes, **plan.bind}, "storage")
        for o in (operator, cut):
            got = emulate(o, values, {**sizes, **plan.bind}, int(rng.integers(2**31)), alignment=alignment)
            assert all(_close(got[n], wanted[n]) for n in wanted) == (is_even or o is operator), f"{sizes}\n{plan}"


@pytest.mark.parametrize("feed", ["tma", "cp.async"])
def test_teams_meet_after_a_loop_that_only_stores(feed: Feed, rng: np.random.Generator) -> None:
    """Its inner loops took memory of each team, which the next loop takes again."""

    def program(x: Any, w: Any, r: Any) -> Any:
        return x @ w, r.max("n")

    g = trace(program, name="both", dtype="float16", x="m k", w="k n", r="m n")
    c = Candidate("both", g, g)
    case = Case(c, {"m": 16, "n": 512, "k": 4096}, {})
    for plan in schedule(c, H200, case.shape, skeleton="warp-ring", feed=feed)[:3]:
        assert [type(s) for s in plan.kernels[0].program.body].count(Loop) == 2
        assert agrees(case, plan, case.suiting(plan, {"m": 4, "n": 129, "k": 87}), rng), plan


@pytest.mark.parametrize("name", SPLIT)
def test_one_chunk_asks_a_call_for_nothing_more(name: str) -> None:
    """Count and length of chunks were made up by the search: no caller knows them."""
    case = CASES[name]()
    plan = schedule(case.candidate, H200, case.shape, split={case.candidate.splits[0].base: 1})[0]
    operator, own = generate(plan), {s.name for s in case.candidate.origin.symbols}
    assert {s.name for s in operator.dims} == own
    dims = {**{s.name: s.value for s in case.candidate.origin.symbols if s.value is not None}, **case.shape}
    shapes = {b.name: [int(evaluate(n, dims)) for n in b.shape] for b in operator.inputs}
    assert solve_dims(operator, shapes, dims).items() >= case.shape.items()
