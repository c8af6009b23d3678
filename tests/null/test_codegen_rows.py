"""Warps that own 32 rows: the same programs and tiles with half the warps, whatever the skeleton and the feed."""

from __future__ import annotations

import dataclasses

import pytest

from cleave.codegen.compile import Failed, compile_many
from cleave.codegen.generate import generate
from tests.null import team_cases
from tests.null.codegen_cases import CASES, Case
from tests.null.test_codegen import check
from tests.null.test_codegen_boxes import FETCHED, MIXED, boxed
from tests.null.test_codegen_mutants import is_caught


def doubled(case: Case) -> Case | None:
    """The case with half the warps, of twice the rows; None if a team has no second warp to do without."""
    kernels = case.schedule.kernels
    if any(k.binding.warps_a_team % 2 for k in kernels):
        return None
    halved = tuple(
        dataclasses.replace(k, binding=dataclasses.replace(k.binding, warps=k.binding.warps // 2, row_tiles=2))
        for k in kernels
    )
    return dataclasses.replace(case, schedule=dataclasses.replace(case.schedule, kernels=halved))


MADE = {
    **CASES,
    **team_cases.CASES,
    **{f"{name}, divided": lambda name=name: team_cases.divided(CASES[name](), 2) for name in team_cases.SHARED},
    **{f"{name}, in boxes": lambda make=make: boxed(make()) for name, make in {**FETCHED, **MIXED}.items()},
}
DOUBLED = {name: case for name, make in MADE.items() if (case := doubled(make())) is not None}


@pytest.mark.parametrize("name", DOUBLED)
def test_the_emulated_kernel_equals_the_graph(name, rng):
    case = DOUBLED[name]
    operator = generate(case.schedule)
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


def test_everything_compiles_without_spills():
    jobs = [(k, k.architectures[-1]) for case in DOUBLED.values() for k in generate(case.schedule).kernels]
    for (kernel, arch), made in zip(jobs, compile_many(jobs), strict=True):
        assert not isinstance(made, Failed), f"{kernel.entry} for {arch}: {made}"
        r = made.resources
        assert (r.spill_stores, r.spill_loads, r.local_bytes) == (0, 0, 0), f"{kernel.entry} for {arch}: {r}"


MUTANTS = {
    "second rows multiplied into the first": (r"(multiply_add_at<f16>\([^;]*) \+ 4, ", r"\1 + 0, "),
    "the first rows' operand twice": (r"(multiply_add_at<f16>\([^;]*), a\[1\]", r"\1, a[0]"),
    "rows of one warp only": (r"\(warp \* 2 \+ 1\)", "(warp * 2)"),
    "rows sixteen on are those eight on": (r"\(row \+ 16\)", "(row + 8)"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name, rng):
    assert is_caught(DOUBLED["matmul"], *MUTANTS[name], rng)
