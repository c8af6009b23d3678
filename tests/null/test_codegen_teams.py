"""Warps along the reduction: states of several teams joined by the fold's combine, whatever the loop carries."""

from __future__ import annotations

import dataclasses
import re

import pytest

from cleave.codegen.compile import Failed, compile_many
from cleave.codegen.generate import generate
from cleave.target import Target
from tests.null import codegen_cases as cases
from tests.null.team_cases import CASES, SHARED, decode, divided
from tests.null.test_codegen import check


@pytest.mark.parametrize("name", CASES)
def test_the_emulated_kernel_equals_the_graph(name, rng):
    case = CASES[name]()
    operator = generate(case.schedule)
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


@pytest.mark.parametrize("name", SHARED)
def test_every_case_may_be_divided(name, rng):
    case = divided(cases.CASES[name](), 2)
    operator = generate(case.schedule)
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)
