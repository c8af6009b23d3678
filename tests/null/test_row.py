"""The skeleton whose threads share rows: equal to the graph on the emulator, compiled everywhere, mutants caught."""

from __future__ import annotations

import re

import pytest
from numpy.random import Generator, default_rng

from cleave import nn
from cleave.candidate import Candidate
from cleave.codegen.generate import generate
from cleave.codegen.prelude import KERNEL_MARK
from cleave.errors import ScheduleError
from cleave.ir.text import parse_graph
from cleave.schedule import schedule
from cleave.target import Target
from tests.null.codegen_cases import Case
from tests.null.compiled import check_compiles
from tests.null.row_cases import CASES
from tests.null.test_codegen import check
from tests.null.test_codegen_mutants import is_caught
from tests.null.test_schedule_fuzz import folds_of, random_graph

ALIGNMENTS = (1, 16)
"""Vectors need both, lengths and addresses that are multiples."""


@pytest.mark.parametrize("name", CASES)
def test_the_emulated_kernel_equals_the_graph(name, rng):
    case = CASES[name]()
    operator = case.operator
    for sizes in case.sizes:
        for alignment in ALIGNMENTS:
            check(operator, case.schedule.graph, case, sizes, rng, alignment)


def test_everything_compiles_everywhere_without_spills():
    check_compiles(make().operator for make in CASES.values())


def test_text_is_the_golden_file(golden):
    (kernel,) = CASES["softmax, two warps a row"]().operator.kernels
    golden("softmax_row.cu", kernel.text)


TWO_WARPS = "softmax, two warps a row"
MUTANTS = {
    "no barrier between the warps of a row": (
        TWO_WARPS,
        r"(shared_write_float\(parts.*\n *\}\n) *block_barrier\(\);\n",
        r"\1",
    ),
    "no barrier before the next trip's parts": ("heads", r"block_barrier\(\);(?=\n *\}\n *// s1)", ""),
    "parts of the first row only": (TWO_WARPS, r"\(row \* 2 \+ w\)", "w"),
    "parts of one warp only": (TWO_WARPS, r"\(row \* 2 \+ w\)", "(row * 2)"),
    "lanes not joined": (TWO_WARPS, r"lanes_sum<32>\((\w+\[0\])\)", r"\1"),
    "maximum of half of the lanes": ("largest, least and scaled", r"lanes_max<32>", "lanes_max<16>"),
    "vectors beyond the end of a row read": (TWO_WARPS, r"(read_vector<8>\(.*), m_row.*\);", r"\1, true);"),
    "vectors beyond the end of a row stored": (
        TWO_WARPS,
        r"if \(\(?m_row\[0\] < dim_m && \(n_start.*\) (write_vector)",
        r"if (m_row[0] < dim_m) \1",
    ),
    "rows beyond the end stored": (TWO_WARPS, r"if \(m_row\[0\] < dim_m && (.*write)", r"if (\1"),
    "elements beyond the end stored": (
        TWO_WARPS,
        r"if \(m_row\[0\] < dim_m && .*\) (write\()",
        r"if (m_row[0] < dim_m) \1",
    ),
    "no mask beyond the end": (TWO_WARPS, r"if \(!\(.*< 0\)\) \{", "if (false) {"),
    "unaligned vectors": (TWO_WARPS, r"\(\(u64\)\w+ & 15\) == 0", "true"),
    "vectors across the ends of rows": (TWO_WARPS, r"\(dim_n & 7\) == 0", "true"),
    "the second trip again": (TWO_WARPS, r"(n_tile\w* = n_low\w*) \+ 1024", r"\1 + 512"),
    "a trip left out": (TWO_WARPS, r"(n_tile\w* = n_low\w*) \+ 1024", r"\1 + 1536"),
    "the end of a row inside a vector not read": ("ragged", r"read_tail<8>\(.*\);", ";"),
    "a window that begins inside a vector": ("window", r" & -8\)", ")"),
    "all lanes' first elements": (TWO_WARPS, r"\+ place \* 8;", "+ 0;"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name, rng):
    case, pattern, new = MUTANTS[name]
    assert is_caught(CASES[case](), pattern, new, rng, ALIGNMENTS)


# ---- as the scheduler makes them


@pytest.mark.parametrize("name", ["softmax", "rmsnorm", "layernorm", "residual_rmsnorm", "norm_residual_norm"])
def test_what_has_no_matmul_is_read_once(name):
    """The cost model's choice: all of a row in the threads that share it, read and written once."""
    g = getattr(nn, name)()
    for m, n in ((4096, 4096), (32768, 4096), (100000, 128), (2048, 1000)):
        (best, *_) = schedule(Candidate("c", g, g), Target("sm_90a"), {"m": m, "n": n})
        (kernel,) = best.kernels
        tiles = {a.name: size for a, size in kernel.binding.tiles.items()}
        assert kernel.skeleton == "row" and tiles["n"] >= n, (name, m, n, best.text())


OTHERS = {"m": 5, "n": 200, "h": 3, "s": 7, "freq": 24}
AS_SCHEDULED = {
    "softmax": {"m": 64, "n": 4096},
    "layernorm": {"m": 3, "n": 33},
    "residual_rmsnorm": {"m": 40, "n": 1024},
    "norm_residual_norm": {"m": 10, "n": 70000},
    "rope": {"h": 8, "s": 100, "freq": 64},
}


@pytest.mark.parametrize("name", AS_SCHEDULED)
def test_the_first_choice_equals_the_graph_at_other_sizes(name, rng):
    g = getattr(nn, name)()
    (best, *_) = schedule(Candidate("c", g, g), Target("sm_90a"), AS_SCHEDULED[name])
    assert [k.skeleton for k in best.kernels] == ["row"]
    sizes = {s.name: OTHERS[s.name] for s in g.symbols if s.value is None}
    for alignment in ALIGNMENTS:
        check(generate(best), g, Case(best, (sizes,)), sizes, rng, alignment)


def test_the_length_of_rows_is_no_part_of_a_schedule():
    g = nn.softmax()
    best = schedule(Candidate("c", g, g), Target("sm_90a"), {"m": 64, "n": 4096})[0]
    assert best.bind == {} and best.constraints == ()


def test_rows_are_read_once_and_before_anything_waits():
    """First trips: all inputs before the first reduction is joined, and nothing of them afterwards."""
    (kernel,) = CASES["norm, residual and norm"]().operator.kernels
    even = kernel.text.split(KERNEL_MARK)[1].split("else {")[0]
    alone = re.sub(r"\n {6}for \(int n_tile.*?\n {6}\}", "", even, flags=re.S)
    before, after = alone.split("lanes_sum", 1)
    assert before.count("read_vector<8>(") == 2 and before.count("read_vector_shared<8>(") == 1
    assert "read_vector" not in after


def test_forced_tiles_rows_and_errors():
    c, target, bind = Candidate("c", nn.softmax(), nn.softmax()), Target("sm_90a"), {"m": 64, "n": 4096}
    found = schedule(c, target, bind, skeleton="row", tile={"m": 1, "n": 2048}, keep=20)
    assert {k.binding.lanes for s in found for k in s.kernels} >= {64, 128, 256}
    with pytest.raises(ScheduleError, match=r"allowed are multiples of 16 columns"):
        schedule(c, target, bind, skeleton="row", tile={"n": 100})


def scheduled(rng: Generator) -> Case | None:
    """A random graph that the skeleton can run, with sizes that divide nothing."""
    g = random_graph(rng)
    if g is None:
        return None
    dims = {s.name: int(rng.integers(1, 40)) for s in g.symbols} | {"I": 8}
    candidate = Candidate("random", g, g, folds=tuple(folds_of(g)))
    bind = {s.name: dims[s.name] for s in g.symbols}
    try:
        found = schedule(candidate, Target("sm_90a"), bind, skeleton="row", keep=8)
    except ScheduleError:
        return None
    lengths = tuple(int(n) for n in rng.integers(0, 9, 8))
    return Case(found[int(rng.integers(len(found)))], (bind,), {"len": lengths})


TOTAL = """
graph total
dims m, n
input x: float16[m, n]
axis m: dim.m
axis n: dim.n
output out: float32[] @ [] = sum(m, sum(n, x[m, n]))
"""
BOTH = """
graph both
dims m, n
input x: float16[m, n]
axis m: dim.m
axis n: dim.n
w[m, n] = x[m, n] * recip0(sum(n, x[m, n]))
output out: float16[m, n] @ [m, n] = w * max(m, w)
"""


@pytest.mark.parametrize("text", [TOTAL, BOTH])
def test_what_only_one_block_can_compute_runs_where_it_is_small(text, rng):
    g = parse_graph(text)
    candidate = Candidate("c", g, g)
    small = schedule(candidate, Target("sm_90a"), {"m": 30, "n": 200})[0]
    sizes = {"m": 7, "n": 33}
    check(generate(small), g, Case(small, (sizes,)), sizes, rng)
    assert small.kernels[0].skeleton == "row"


def test_what_would_take_for_ever_is_refused():
    g = parse_graph(BOTH)
    with pytest.raises(ScheduleError, match=r"ms, modelled, \d+ times what its memory takes: allowed are 1000"):
        schedule(Candidate("c", g, g), Target("sm_90a"), {"m": 4096, "n": 4096})


def test_random_graphs(rng):
    draw, made = default_rng(7), 0
    while made < 8:
        case = scheduled(draw)
        if case is not None:
            made += 1
            operator = case.operator
            for alignment in ALIGNMENTS:
                check(operator, case.schedule.graph, case, case.sizes[0], rng, alignment)
