"""Warps that own 32 or 64 rows: the same programs and tiles with fewer warps, whatever the skeleton and the feed."""

from __future__ import annotations

import dataclasses

import pytest

from tests.null import team_cases
from tests.null.codegen_cases import CASES, Case
from tests.null.compiled import check_compiles
from tests.null.test_codegen import check
from tests.null.test_codegen_boxes import FETCHED, MIXED, boxed
from tests.null.test_codegen_mutants import is_caught


def larger(case: Case, row_tiles: int) -> Case | None:
    """The case with fewer warps, of more rows each; None if a team has not so many warps to do without."""
    kernels = case.schedule.kernels
    if any(k.binding.warps_a_team % row_tiles for k in kernels):
        return None
    made = tuple(
        dataclasses.replace(
            k, binding=dataclasses.replace(k.binding, warps=k.binding.warps // row_tiles, row_tiles=row_tiles)
        )
        for k in kernels
    )
    return dataclasses.replace(case, schedule=dataclasses.replace(case.schedule, kernels=made))


MADE = {
    **CASES,
    **team_cases.CASES,
    **{f"{name}, divided": lambda name=name: team_cases.divided(CASES[name](), 2) for name in team_cases.SHARED},
    **{f"{name}, in boxes": lambda make=make: boxed(make()) for name, make in {**FETCHED, **MIXED}.items()},
    "64 rows, two teams": lambda: team_cases.few_rows(rows=64, teams=2),
    "64 rows, eight teams": lambda: team_cases.few_rows(rows=64, teams=8),
}
LARGER = {
    f"{name}, {16 * n} rows a warp": case
    for name, make in MADE.items()
    for n in (2, 4)
    if (case := larger(make(), n)) is not None
}


@pytest.mark.parametrize("name", LARGER)
def test_the_emulated_kernel_equals_the_graph(name, rng):
    case = LARGER[name]
    operator = case.operator
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


def test_everything_compiles_without_spills():
    check_compiles((case.operator for case in LARGER.values()), newest=True)


MUTANTS = {
    "second rows multiplied into the first": (r"(multiply_add_at<f16>\([^;]*) \+ 4, ", r"\1 + 0, "),
    "the first rows' operand twice": (r"(multiply_add_at<f16>\([^;]*), a\[1\]", r"\1, a[0]"),
    "rows of one warp only": (r"\(warp \* 2 \+ 1\)", "(warp * 2)"),
    "rows sixteen on are those eight on": (r"\(row \+ 16\)", "(row + 8)"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name, rng):
    assert is_caught(LARGER["matmul, 32 rows a warp"], *MUTANTS[name], rng)
