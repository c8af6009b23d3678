"""Every kernel of the code generator's suite on the GPU: against the graph under the metric, and against the emulator.

The emulator runs the same text with fragment maps written from the instruction set, so agreeing confirms the maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.ir.index import evaluate
from cleave.kernel import OperatorSource
from cleave.pipeline import emit
from cleave.runtime import device
from cleave.runtime.arguments import solve_dims
from cleave.runtime.executable import Executable
from cleave.schedule import schedule
from cleave.tune.executable import executable_from
from cleave.verify import check_executable
from cleave.verify.verdict import Outcome
from tests.gpu.called import as_operator
from tests.null import codegen_cases as cases
from tests.null import row_cases, scheduled_candidates, team_cases
from tests.null import test_behind as behind_cases
from tests.null import test_codegen_boxes as box_cases
from tests.null import test_multicast as multicast_cases
from tests.null import test_specialised as specialised_cases
from tests.null import test_warpgroups as warpgroup_cases
from tests.null.test_codegen_rows import LARGER
from tests.null.test_codegen_scheduled import SPLIT

torch = pytest.importorskip("torch")

UNITS = 8
"""Allowed distance from the emulator, in units of the last place of a typical value at FP16 or BF16.

Special functions differ there, so weights are now and then rounded to a neighbour, and what they sum may cancel.
"""


def call(run: Executable, operator: OperatorSource, arrays: Mapping[str, Any], sizes: cases.Sizes) -> dict[str, Any]:
    """One call on tensors of torch, which has bfloat16; outputs start as NaN."""
    shaped = {
        b.name: torch.tensor(np.asarray(arrays[b.name])).to(getattr(torch, b.dtype)).cuda() for b in operator.inputs
    }
    dims = solve_dims(operator, {name: t.shape for name, t in shaped.items()}, sizes)
    outputs = {
        b.name: torch.full(
            [int(evaluate(e, dims)) for e in b.shape], float("nan"), dtype=getattr(torch, b.dtype)
        ).cuda()
        for b in operator.outputs
    }
    run(**shaped, **sizes, out=outputs)
    return {name: t.to(torch.float64).cpu().numpy() for name, t in outputs.items()}


KERNELS = {**cases.CASES, **team_cases.CASES}


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_equals_the_graph_and_the_emulator(name, rng):
    agrees(KERNELS[name](), device.target().arch, rng)


@pytest.mark.parametrize("name", LARGER)
def test_warps_of_more_rows_equal_the_graph_and_the_emulator(name, rng):
    case = LARGER[name]
    arch = device.target().arch
    if case.schedule.target.arch not in ("sm_80", arch):
        pytest.skip(f"boxes on {arch}")
    agrees(case, arch, rng)


@pytest.mark.parametrize("name", row_cases.CASES)
def test_threads_that_share_rows_equal_the_graph_and_the_emulator(name, rng):
    agrees(row_cases.CASES[name](), device.target().arch, rng)


BOXED = {**box_cases.FETCHED, **box_cases.MIXED, **{f"decode of {g}": lambda g=g: team_cases.decode(g) for g in (1, 4)}}


@pytest.mark.skipif("device.target().arch != 'sm_90a'", reason="boxes need sm_90a")
@pytest.mark.parametrize("name", BOXED)
def test_tiles_in_boxes_equal_the_graph_and_the_emulator(name, rng):
    agrees(box_cases.boxed(BOXED[name]()), "sm_90a", rng)


FETCHED_TOGETHER = {**multicast_cases.CASES, **{f"walks: {n}": make for n, make in specialised_cases.FETCHED.items()}}


@pytest.mark.skipif("device.target().arch != 'sm_90a'", reason="boxes need sm_90a")
@pytest.mark.parametrize("name", FETCHED_TOGETHER)
def test_boxes_that_blocks_fetch_together_equal_the_graph_and_the_emulator(name, rng):
    agrees(FETCHED_TOGETHER[name](), "sm_90a", rng)


@pytest.mark.skipif("device.target().arch != 'sm_90a'", reason="wgmma needs sm_90a")
@pytest.mark.parametrize("name", warpgroup_cases.CASES)
def test_matmuls_by_warpgroups_equal_the_graph_and_the_emulator(name, rng):
    agrees(warpgroup_cases.CASES[name](), "sm_90a", rng)


@pytest.mark.skipif("device.target().arch != 'sm_90a'", reason="wgmma needs sm_90a")
@pytest.mark.parametrize("name", specialised_cases.CASES)
def test_loaders_and_warpgroups_equal_the_graph_and_the_emulator(name, rng):
    agrees(specialised_cases.specialised(specialised_cases.CASES[name]()), "sm_90a", rng)


@pytest.mark.skipif("device.target().arch != 'sm_90a'", reason="wgmma needs sm_90a")
@pytest.mark.parametrize("name", behind_cases.CASES)
def test_maxima_that_stay_behind_give_what_the_graph_does(name, rng):
    case = specialised_cases.specialised(behind_cases.CASES[name]())
    graph = case.schedule.graph
    run = executable_from(generate(case.schedule), "sm_90a")
    for sizes in case.sizes:
        operator = as_operator(run, graph, sizes)
        result = check_executable(operator, graph, behind_cases.rising(case, sizes, rng), sizes)
        assert result.outcome is Outcome.PASSED, f"{sizes}: {result}"


@pytest.mark.skipif("device.target().arch != 'sm_90a'", reason="wgmma needs sm_90a")
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("attention", {"b": 3, "kv": 7, "s": 777, "t": 300}),
        ("attention, head 128", {"b": 2, "kv": 11, "s": 1000, "t": 129}),
        ("attention, two warpgroups", {"b": 1, "kv": 23, "s": 1999, "t": 501}),
        ("matmul, two warpgroups", {"m": 9001}),
        ("matmul, k contiguous", {"m": 4999}),
    ],
)
def test_blocks_walk_many_tiles(name, sizes, rng):
    """More tiles than multiprocessors, several times over; the same call again gives the same."""
    case = specialised_cases.specialised(specialised_cases.CASES[name]())
    operator = generate(case.schedule)
    run, values = executable_from(operator, "sm_90a"), cases.inputs(case, sizes, rng)
    got = call(run, operator, values, sizes)

    def same(inputs, outputs):
        for output, found in got.items():
            outputs[output][...] = found

    result = check_executable(same, case.schedule.graph, values, sizes)
    assert result.outcome is Outcome.PASSED, result
    again = call(run, operator, values, sizes)
    assert all(np.array_equal(again[n], x, equal_nan=True) for n, x in got.items())


@pytest.mark.skipif("device.target().arch != 'sm_90a'", reason="wgmma needs sm_90a")
@pytest.mark.parametrize("skeleton", ["cta-ring", "warp-ring", "specialised"])
@pytest.mark.parametrize("name", warpgroup_cases.SCHEDULED)
def test_schedules_of_warpgroups_are_right(name, skeleton, rng):
    case = warpgroup_cases.SCHEDULED[name]()
    origin = case.candidate.origin
    for plan in schedule(case.candidate, device.target(), case.shape, mma="wgmma", skeleton=skeleton):
        run = emit(plan)
        sizes = case.suiting(plan, case.draw(rng))
        known = {**{s.name: s.value for s in origin.symbols if s.value is not None}, **sizes}
        dims = {s.name: known[s.name] for s in origin.symbols}
        arrays = {n: np.clip(a, -2, 2).astype(np.float16) for n, a in case.inputs(rng, known).items()}
        result = check_executable(
            lambda given, out, run=run, dims=dims: run(**given, **dims, out=out), origin, arrays, sizes
        )
        assert result.outcome is Outcome.PASSED, f"{sizes}: {result}"


@pytest.mark.skipif("device.target().arch != 'sm_90a'", reason="boxes need sm_90a")
@pytest.mark.parametrize("name", [n for n in BOXED if n.startswith("ragged")])
def test_what_lies_beyond_a_length_may_be_anything(name, rng):
    case = box_cases.boxed(BOXED[name]())
    operator, (sizes,) = generate(case.schedule), case.sizes
    run, values = executable_from(operator, "sm_90a"), cases.inputs(case, sizes, rng)
    clean = call(run, operator, values, sizes)["out"]
    for b, length in enumerate(case.tables["length"]):
        values["k"][b, length:] = values["v"][b, length:] = np.nan
    assert np.isfinite(clean).all()
    np.testing.assert_array_equal(call(run, operator, values, sizes)["out"], clean)


@pytest.mark.parametrize("feed", ["tma", "cp.async"])
@pytest.mark.parametrize("skeleton", ["cta-ring", "warp-ring"])
@pytest.mark.parametrize("merge", ["cluster", "spread"])
@pytest.mark.parametrize("name", SPLIT)
def test_blocks_divide_a_merge(name, merge, skeleton, feed, rng):
    target = device.target()
    if {"tma", "cluster"} - target.facts.features and (feed == "tma" or merge == "cluster"):
        pytest.skip(f"{target.arch} has no {feed} or {merge}")
    case = scheduled_candidates.CASES[name]()
    base, origin = case.candidate.splits[0].base, case.candidate.origin
    for count in (2, 3, 8) if merge == "cluster" else (3, 11):
        forced = {"merge": merge, "split": {base: count}, "skeleton": skeleton, "feed": feed}
        plan = schedule(case.candidate, target, case.shape, **forced)[0]
        run = emit(plan)
        for least in (0, 1):
            sizes = case.suiting(plan, case.draw(rng, least=least))
            known = {**{s.name: s.value for s in origin.symbols if s.value is not None}, **sizes}
            dims = {s.name: known[s.name] for s in origin.symbols}  # without heads no shape tells the size of a group
            arrays = {n: np.clip(a, -2, 2).astype(np.float16) for n, a in case.inputs(rng, known).items()}
            for _ in range(2):  # counters are zero again
                result = check_executable(
                    lambda given, out, run=run, dims=dims: run(**given, **dims, out=out), origin, arrays, sizes
                )
                assert result.outcome is Outcome.PASSED, f"{sizes}: {result}"


def agrees(case: cases.Case, arch: str, rng: np.random.Generator) -> None:
    """A kernel at all sizes of its case, against the graph under the metric and against the emulator."""
    operator = generate(case.schedule)
    run = executable_from(operator, arch)
    for sizes in case.sizes:
        arrays = cases.inputs(case, sizes, rng)
        got = call(run, operator, arrays, sizes)

        def same(inputs, outputs, got=got):
            for output, values in got.items():
                outputs[output][...] = values

        result = check_executable(same, case.schedule.graph, arrays, sizes)
        assert result.outcome is Outcome.PASSED, f"{sizes}: {result}"
        for output, expected in emulate(operator, arrays, sizes).items():
            finite = np.isfinite(expected)
            assert np.array_equal(np.isfinite(got[output]), finite), (sizes, output)
            bits = 8 if any(b.dtype == "bfloat16" for b in operator.inputs) else 11
            typical = float(np.sqrt(np.mean(expected[finite] ** 2))) if finite.any() else 0.0
            unit = np.maximum(np.abs(expected[finite]), typical) * 2.0 ** (1 - bits)
            assert np.all(np.abs(got[output][finite] - expected[finite]) <= UNITS * unit), (sizes, output)
    assert run.compiles <= len(operator.kernels)
