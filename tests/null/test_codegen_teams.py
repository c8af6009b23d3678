"""Warps along the reduction: states of several teams joined by the fold's combine, whatever the loop carries."""

from __future__ import annotations

import dataclasses

import pytest

from cleave.codegen.generate import generate
from cleave.target import Target
from tests.null import codegen_cases as cases
from tests.null.compiled import check_compiles
from tests.null.team_cases import CASES, SHARED, divided, real_decode
from tests.null.test_codegen import check
from tests.null.test_codegen_mutants import is_caught


@pytest.mark.parametrize("name", CASES)
def test_the_emulated_kernel_equals_the_graph(name, rng):
    case = CASES[name]()
    operator = case.operator
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


@pytest.mark.parametrize("name", SHARED)
def test_every_case_may_be_divided(name, rng):
    case = divided(cases.CASES[name](), 2)
    operator = case.operator
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


def test_everything_compiles_everywhere_without_spills():
    made = [make() for make in CASES.values()]
    made += [divided(cases.CASES[name](), 2) for name in SHARED]
    made += [real_decode(head, group) for head in (64, 128) for group in (1, 4, 8)]
    check_compiles(generate(dataclasses.replace(case.schedule, target=Target("sm_90a"))) for case in made)


def test_text_is_the_golden_file(golden):
    (kernel,) = CASES["decode, split, last arriving"]().operator.kernels
    golden("decode_split.cu", kernel.text)


# ---- mutants: what the emulator has to see

MUTANTS = {
    "no wait for the lanes before a trip reads": (
        "decode, group 4",
        r"(copies_wait<1>\(\);)\n *warp_barrier\(\);(?=\n *\{)",
        r"\1",
    ),
    "no wait for the copies of a trip": ("decode, group 4", r"copies_wait<1>\(\);(?=\n *warp_barrier)", ""),
    "ring one slot short": ("decode, group 4", r"\(slot == 0 \? 2 : slot - 1\)", "slot"),
    "all teams in one ring": ("decode, group 4", r"(_ring = shared_base \+ \d+) \+ team \* \d+;", r"\1;"),
    "all teams take the first trip": ("decode, group 4", r"(t_tile = t_low) \+ team \* 32,", r"\1,"),
    "no barrier before states take the rings' memory": (
        "decode, group 4",
        r"(copies_wait<0>\(\);)\n *block_barrier\(\);(?=\n *#pragma)",
        r"\1",
    ),
    "no barrier between writing and reading states": (
        "decode, group 4",
        r"block_barrier\(\);(?=\n *float m1_side)",
        "",
    ),
    "joined without rescale": (
        "decode, group 4",
        r"(factor\w*)\[h\] = exp_diff\(m1_side\[w\]\[h\], m1\[h\]\);",
        r"\1[h] = 1.f;",
    ),
    "weights joined before the maximum": (
        "decode, group 4",
        r"exp_diff\(m1_side\[w\]\[h\], m1\[h\]\)",
        "exp_diff(m1_side[w][h], m1_side[0][h])",
    ),
    "a team without a trip brings a number": (
        "decode, group 4",
        r"float m1\[2\] = \{NEG_INF, NEG_INF\};",
        "float m1[2]; m1[0] = m1[1] = team == 3 ? 60000.f : NEG_INF;",
    ),
    "a sum starts at one": ("few rows", r"(float s1\[4\]\[4\];(?:\n.*){4}\n *s1\[n\]\[e\] = )0\.f;", r"\g<1>1.f;"),
    "the difference of two infinities": (
        "decode, group 4",
        r"(factor\w*)\[h\] = exp_diff\(m1_side\[w\]\[h\], m1\[h\]\);",
        r"\1[h] = exp_of(m1_side[w][h] - m1[h]);",
    ),
    "columns of one team only": ("decode, group 4", r"(write_two\(target \+ )\(n \* 4 \+ team\)", r"\1(n * 4)"),
    "the joint state of three sides": ("decode, group 4", r"w < 4;", "w < 3;"),
    "rows that nobody owns": ("decode, group 4", r"\(\(row \+ 8\) / 4\)", "(row / 4)"),
    "a barrier of the wrong team": ("32 rows", r"team_barrier<64>\(team\);", "team_barrier<64>(0);"),
    "a barrier of one warp": ("32 rows", r"team_barrier<64>\(team\);", "warp_barrier();"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name, rng):
    case_name, pattern, new = MUTANTS[name]
    assert is_caught(CASES[case_name](), pattern, new, rng)


def test_a_chunk_that_all_teams_hold_is_stored_by_one():
    (kernel,) = CASES["no loop: every team has all columns"]().operator.kernels
    assert "if (q % 4 == team && m_row[h] < dim_m) write_chunk(" in kernel.text
