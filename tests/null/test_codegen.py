"""Emitted kernels: equal to the graph on the emulator, compiled everywhere without spills, refused with reasons."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.errors import CodegenError
from cleave.ir.graph import Graph
from cleave.ir.text import parse_graph
from cleave.kernel import OperatorSource
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.verify import check_executable
from cleave.verify.verdict import Outcome
from tests.null import codegen_cases as cases
from tests.null.codegen_cases import CASES, Case
from tests.null.compiled import check_compiles


def check(
    operator: OperatorSource, g: Graph, case: Case, sizes: cases.Sizes, rng: np.random.Generator, alignment: int = 1
) -> None:
    """The metric of the final test, on whole outputs that start as NaN."""
    values, seed = cases.inputs(case, sizes, rng), int(rng.integers(2**31))

    def run(inputs, outputs):
        for name, found in emulate(operator, inputs, sizes, seed, alignment=alignment).items():
            outputs[name][...] = found

    result = check_executable(run, g, values, sizes, seed=seed)
    assert result.outcome is Outcome.PASSED, f"{sizes}, seed {seed}: {result}"


@pytest.mark.parametrize("name", CASES)
def test_the_emulated_kernel_equals_the_graph(name, rng):
    case = CASES[name]()
    operator = case.operator
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


def real_attention(mask: str, head: int, keys: int) -> Schedule:
    """Causal or full attention at tiles that pay on a GPU."""
    g = parse_graph(cases.attention_text(mask, head=head))
    whole = {a.name: head for a in g.axes if a.extent.constant == head}
    roles, tiles = "b unit, kv unit, n2 unit, s grid, t loop", {"s": 128, "t": keys, **whole}
    return dataclasses.replace(cases.schedule(g, cases.kernel(g, roles, tiles, "s", warps=8)), target=Target("sm_90a"))


def real_matmul() -> Schedule:
    tiles = {"m": 128, "n": 128, "k": 32}
    return cases.schedule(
        cases.MATMUL, cases.kernel(cases.MATMUL, "m grid, n grid, k loop", tiles, "m", warps=8, stages=3)
    )


def test_everything_compiles_everywhere_without_spills():
    tiles = ((64, 128), (128, 64), (128, 128))
    large = [real_attention(mask, head, keys) for mask in ("full", "causal") for head, keys in tiles]
    check_compiles([*(make().operator for make in CASES.values()), *map(generate, [*large, real_matmul()])])


@pytest.mark.parametrize(("file", "case"), [("matmul.cu", "matmul"), ("attention_causal.cu", "attention, causal")])
def test_text_is_the_golden_file(file, case, golden):
    (kernel,) = CASES[case]().operator.kernels
    golden(file, kernel.text)


def test_text_does_not_depend_on_the_run():
    first, second = (generate(cases.attention_split("last-arriving").schedule) for _ in range(2))
    assert first == second


def test_launch_is_data():
    operator = generate(cases.attention_split("last-arriving").schedule)
    (kernel,) = operator.kernels
    assert kernel.threads == 64 and kernel.architectures == ("sm_80", "sm_90a") and kernel.skeleton == "cta-ring"
    assert operator.fixed == {"S": 3}
    assert [s.name for s, _ in operator.derived] == ["C"]
    workspaces = {w.name: w.zeroed for w in operator.workspaces}
    assert workspaces == {"pm": False, "pl": False, "po": False, "part_arrived": True}
    assert {p.name for p in kernel.parameters if p.writable} == {*workspaces, "out", "lse"}
    assert {b.name: b.alignment for b in operator.inputs} == {"q": 16, "k": 16, "v": 16}


def test_inputs_that_may_be_misaligned_ask_for_nothing():
    operator = generate(cases.matmul().schedule)
    assert {b.alignment for b in (*operator.inputs, *operator.outputs)} == {1}


# ---- refusals


def refusal(schedule) -> str:
    with pytest.raises(CodegenError) as caught:
        generate(schedule)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_value_with_two_columns_is_refused_by_name():
    text = """
graph outer
dims m, n, k
input a: float16[m, n]
input b: float16[m, k]
axis m: dim.m
axis n: dim.n
axis k: dim.k
output out: float16[m, n, k] @ [m, n, k] = a[m, n] * b[m, k]
"""
    plan = cases.kernel(text, "m grid, n grid, k grid", {"m": 32, "n": 32, "k": 32}, "m")
    message = refusal(cases.schedule(text, plan))
    assert message.startswith("kernel outer: value ") and "[k, m, n]" in message and "rows x one axis" in message


def test_a_matmul_without_rows_is_refused():
    plan = cases.kernel(cases.MATMUL, "m grid, n grid, k loop", cases.TILES, "m")
    moved = dataclasses.replace(plan, binding=dataclasses.replace(plan.binding, rows=()))
    assert "value s1[m, n] is not expressible: a kernel holds rows x one axis" in refusal(
        cases.schedule(cases.MATMUL, moved)
    )


def test_too_many_rows_for_the_warps_are_refused():
    plan = cases.kernel(cases.MATMUL, "m grid, n grid, k loop", {"m": 64, "n": 32, "k": 32}, "m", warps=2)
    assert "64 rows (m) in a block of 2 warps: at most 32" in refusal(cases.schedule(cases.MATMUL, plan))


def test_tiles_that_the_matmul_cannot_have_are_refused():
    plan = cases.kernel(cases.MATMUL, "m grid, n grid, k loop", {"m": 32, "n": 24, "k": 32}, "m")
    assert "tiles of 32 (k) and 24 (n): multiples of 16 are needed" in refusal(cases.schedule(cases.MATMUL, plan))


def test_too_much_shared_memory_is_refused():
    plan = cases.kernel(cases.MATMUL, "m grid, n grid, k loop", {"m": 128, "n": 256, "k": 128}, "m", warps=8, stages=4)
    assert "393216 bytes of shared memory, sm_80 allows 166912" in refusal(cases.schedule(cases.MATMUL, plan))


def test_an_unknown_skeleton_is_refused():
    plan = dataclasses.replace(
        cases.kernel(cases.MATMUL, "m grid, n grid, k loop", cases.TILES, "m"), skeleton="column"
    )
    assert (
        refusal(cases.schedule(cases.MATMUL, plan))
        == "kernel matmul: skeleton 'column': emitted are cta-ring, warp-ring, specialised, row"
    )
