"""Computed operands: tiles and vectors are read into registers once, two elements a word; sums of matmuls go on."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.codegen.prelude import KERNEL_MARK
from cleave.frontend import ops
from cleave.frontend.trace import trace
from cleave.ir.interp import interpret
from cleave.ir.text import parse_graph
from cleave.tile.interp import run_schedule
from cleave.tile.program import Contract, Let, statements
from tests.null import codegen_cases as cases
from tests.null.codegen_cases import Case
from tests.null.test_codegen import check
from tests.null.test_specialised import specialised
from tests.null.test_warpgroups import grouped

NORMED = """
graph normed
dims m, n = 32, k
input x: float16[m, k]
input g: float16[k]
input w: float16[k, n]
axis m: dim.m
axis n: dim.n
axis k: dim.k
squares[m] = sum(k, x[m, k] * x[m, k])
product[m, n] = sum(k, (x[m, k] * g[k]) * w[k, n])
output out: float16[m, n] @ [m, n] = product * rsqrt(squares + 1.0)
"""
SIZES = ({"m": 45, "k": 50}, {"m": 1, "k": 0}, {"m": 70, "k": 75}, {"m": 64, "k": 96}, {"m": 3, "k": 1})


def normed(text: str = NORMED, warps: int = 4, row_tiles: int = 1) -> Case:
    plan = cases.kernel(text, "m grid, n grid, k loop", {"m": 64, "n": 32, "k": 32}, "m", warps=warps)
    plan = dataclasses.replace(plan, binding=dataclasses.replace(plan.binding, row_tiles=row_tiles))
    return Case(cases.schedule(text, plan), SIZES)


def in_boxes(text: str = NORMED) -> Case:
    text = text.replace("dims m, n = 32, k", "dims m, n = 32, k % 8")
    made = specialised(grouped(normed(text)))
    return dataclasses.replace(made, sizes=({"m": 45, "k": 48}, {"m": 1, "k": 0}, {"m": 70, "k": 72}))


WAYS = {
    "cta-ring": lambda: normed(),
    "warps of 32 rows": lambda: normed(warps=2, row_tiles=2),
    "specialised": in_boxes,
    "bfloat16": lambda: normed(NORMED.replace("float16", "bfloat16")),
    "rows side by side in memory": lambda: normed(
        NORMED.replace("x: float16[m, k]", "x: float16[k, m]").replace("x[m, k]", "x[k, m]")
    ),
    "a vector from an odd place on": lambda: normed(
        NORMED.replace("g: float16[k]", "g: float16[k + 1]").replace("g[k]", "g[k + 1]")
    ),
    "a vector from an even place on": lambda: normed(
        NORMED.replace("g: float16[k]", "g: float16[k + 2]").replace("g[k]", "g[k + 2]")
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_operands_that_are_computed_are_right(name: str, rng: np.random.Generator) -> None:
    case = WAYS[name]()
    operator = case.operator
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


@pytest.mark.parametrize("name", WAYS)
def test_a_tile_is_read_once_a_trip(name: str) -> None:
    own = generate(WAYS[name]().schedule).kernels[0].text.split(KERNEL_MARK)[1]
    assert len(re.findall(r"u32 x\w*_words\[", own)) == 1 and "tile_read<" not in own and "slab_read<" not in own
    assert ("read_word<" in own) == (name != "a vector from an odd place on")


SUMS = """
graph sums
dims m, n = 32, k % 8, l % 8
input x: float16[m, k]
input w: float16[k, n]
input y: float16[m, l]
input v: float16[l, n]
axis m: dim.m
axis n: dim.n
axis k: dim.k
axis l: dim.l
output out: float32[m, n] @ [m, n] = tanh((sum(k, x[m, k] * w[k, n]) + sum(l, y[m, l] * v[l, n])) * 0.1)
"""


def sums() -> Case:
    text = SUMS.replace("k % 8, l % 8", "k = 32, l = 16")
    plan = cases.kernel(text, "m grid, n grid", {"m": 64, "n": 32, "k": 32, "l": 16}, "m", warps=4)
    return Case(cases.schedule(text, plan), ({"m": 70}, {"m": 1}))


def test_a_sum_of_matmuls_goes_on_where_the_first_ends(rng: np.random.Generator) -> None:
    case = sums()
    (kernel,) = case.schedule.kernels
    products = [s.term for s in statements(kernel.program.body) if isinstance(s, Let) and isinstance(s.term, Contract)]
    assert [t.onto is not None for t in products] == [False, True]
    assert "onto" in case.schedule.text()
    operator = case.operator
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)
        values = cases.inputs(case, sizes, rng)
        wanted = interpret(case.schedule.graph, values, sizes)["out"]
        np.testing.assert_allclose(run_schedule(case.schedule, values, sizes)["out"], wanted, rtol=1e-6, atol=1e-9)


def test_a_product_that_is_read_twice_stays(rng: np.random.Generator) -> None:
    text = SUMS.replace("k % 8, l % 8", "k = 32, l = 16").replace("* 0.1)", "* 0.1) + sum(k, x[m, k] * w[k, n])")
    plan = cases.kernel(text, "m grid, n grid", {"m": 64, "n": 32, "k": 32, "l": 16}, "m", warps=4)
    assert not any(
        isinstance(s.term, Contract) and s.term.onto for s in statements(plan.program.body) if isinstance(s, Let)
    )


def test_a_product_added_to_itself_is_one_product(rng: np.random.Generator) -> None:
    twice = "sum(k, x[m, k] * w[k, n]) + sum(k, x[m, k] * w[k, n])"
    text = SUMS.replace("k % 8, l % 8", "k = 32, l = 16").replace(SUMS[SUMS.index("tanh") :], twice + "\n")
    text = "".join(line + "\n" for line in text.splitlines() if not line.startswith(("input y", "input v")))
    plan = cases.kernel(text, "m grid, n grid", {"m": 64, "n": 32, "k": 32}, "m", warps=4)
    case = Case(cases.schedule(text, plan), ({"m": 70},))
    check(case.operator, case.schedule.graph, case, case.sizes[0], rng)


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_tanh_is_right_near_zero_and_far_from_it(scale: float, rng: np.random.Generator) -> None:
    text = parse_graph("""
graph far
dims m, n
input x: float32[m, n]
axis m: dim.m
axis n: dim.n
output out: float32[m, n] @ [m, n] = tanh(x[m, n])
""")
    plan = cases.kernel(text, "m grid, n grid", {"m": 16, "n": 32}, "m", warps=1)
    x = np.float32(rng.standard_normal((21, 45)) * scale).astype(np.float64)
    x[0, :6] = [np.nan, np.inf, -np.inf, 0.0, 0.5625, -0.5625]
    found = emulate(generate(cases.schedule(text, plan)), {"x": x}, {"m": 21, "n": 45})["out"]
    np.testing.assert_allclose(found, np.tanh(x), rtol=4e-7, atol=0)


def test_masks_of_fragments_are_tested_without_jumps() -> None:
    """Both ends of a window in one test an element, against numbers that are the same in all of a row."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        i, j = ops.position("s"), ops.position("t")
        scores = ops.where((j <= i) & (j + 9 > i), (q @ k.T) * 0.3, -np.inf)
        return ops.softmax(scores, axis="t") @ v

    g = trace(attention, q="s d=16", k="t d", v="t e=16", dtype="float16")
    plan = cases.kernel(g, "s grid, t loop", {"s": 64, "t": 32, "d": 16, "e": 16}, "s", warps=4)
    own = generate(cases.schedule(g, plan)).kernels[0].text.split(KERNEL_MARK)[1]
    (test,) = {line for line in own.splitlines() if "= NEG_INF;" in line and "row[e >> 1]" in line and " & " in line}
    assert "&&" not in test and test.count("(n * 8 + (e & 1))") == 2


@pytest.mark.parametrize("far", [9, 2147483640])
def test_masks_far_away_do_not_overflow(far: int, rng: np.random.Generator) -> None:
    """The number that columns are compared with lies beyond 32 bits."""
    seen = f"where(((t == s) | (t == s - 1)) & (s - {far} <= t), {cases.SCORE}, const('-inf'))"
    g = parse_graph(cases.attention_text("full", head=16).replace(cases.SCORE, seen))
    roles, tiles = "b unit, kv unit, n2 unit, s grid, t loop", {"s": 64, "t": 32}
    plan = cases.kernel(g, roles, {**tiles, **{a.name: 16 for a in g.axes if a.extent.constant == 16}}, "s", warps=4)
    case = Case(cases.schedule(g, plan), ({"b": 1, "kv": 1, "s": 70, "t": 100}, {"b": 1, "kv": 1, "s": 3, "t": 40}))
    for sizes in case.sizes:
        check(case.operator, g, case, sizes, rng)
