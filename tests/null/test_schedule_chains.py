"""Chains of matmuls of different batch axes: projections before and behind attention are kernels of their own."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from cleave.candidate import as_written, load_candidates
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.cost.lanes import kernel_work
from cleave.cost.scattered import is_scattered
from cleave.frontend import ops
from cleave.frontend.trace import trace
from cleave.ir.axis import axis
from cleave.ir.dim import dims
from cleave.ir.graph import Graph, load
from cleave.ir.interp import interpret
from cleave.nn import qkv_attention
from cleave.schedule import schedule
from cleave.schedule.partition import crossings
from cleave.schedule.rows import matmuls
from cleave.target import Target
from cleave.tile.interp import run_schedule
from cleave.tile.plan import Schedule
from experiments.e01_ablation.config import CANDIDATES
from tests.null.scheduled_candidates import CASES
from tests.null.terms import drawn

H200 = Target("sm_90a")


def fixed(g: Graph) -> dict[str, int]:
    return {s.name: s.value for s in g.symbols if s.value is not None}


def inputs(g: Graph, sizes: dict[str, int], rng: np.random.Generator) -> dict[str, np.ndarray]:
    found = drawn(g, sizes, rng, 0.1, lambda: 0.3)
    return {n: a.astype(np.float16).astype(np.float64) for n, a in found.items()}


def error(g: Graph, plan: Schedule, sizes: dict[str, int], rng: np.random.Generator) -> float:
    """The greatest difference of a schedule's tile programs from a graph."""
    full = {**fixed(plan.graph), **plan.bind, **sizes}
    values = inputs(g, full, rng)
    got = run_schedule(plan, values, {n: v for n, v in full.items() if n in {s.name for s in plan.graph.symbols}})
    return float(np.abs(got["out"] - interpret(g, values, {**fixed(g), **sizes})["out"]).max())


def test_projections_of_latent_attention_run_before_it_and_in_its_merge(rng: np.random.Generator) -> None:
    found = {c.name: c for c in load_candidates(CANDIDATES / "mla_projected_decode.json")}
    plan = schedule(found["split t"], H200, {"b": 16, "t": 1024}, split={"t": 4}, keep=1)[0]
    assert plan.merge == "second-launch"
    assert [k.skeleton for k in plan.kernels] == ["cta-ring", "cta-ring", "warp-ring"]
    before, attention, merge = plan.kernels
    assert [[a.name for a in k.binding.rows] for k in plan.kernels] == [["b"], ["h"], ["b"]]
    assert {a.name for a in attention.program.whole} >= {"r", "p"} and attention.binding.division is not None
    assert [i.name for i in before.program.inputs] == ["q", "wk"] and "wv" in {i.name for i in merge.program.inputs}
    assert plan.temporaries[0].dtype == "float16"
    for sizes in ({"b": 1, "t": 70}, {"b": 2, "t": 3}):
        assert error(found["as written"].graph, plan, sizes, rng) < 1e-12


@cache
def projected() -> tuple[Graph, Schedule]:
    g = qkv_attention(d=128, e=64)
    return g, schedule(as_written(g), H200, {"s": 16, "t": 1024, "m": 4096, "h": 32}, keep=1)[0]


def test_projections_of_attention_take_the_columns_that_lie_side_by_side(rng: np.random.Generator) -> None:
    g, plan = projected()
    assert len(plan.kernels) == 4
    assert [str(b.shape[-1]) for b in plan.temporaries] == ["d", "d", "e"]
    for k in plan.kernels[:3]:
        assert k.feed == "tma" and kernel_work(k.program, k.binding, {**fixed(g), **plan.shape}, k.feed).scattered == 0
    for sizes in ({"s": 5, "t": 24, "m": 40, "h": 3}, {"s": 1, "t": 1, "m": 8, "h": 1}):
        assert error(g, plan, sizes, rng) < 1e-12


def test_projections_of_attention_are_emitted_right(rng: np.random.Generator) -> None:
    g, plan = projected()
    sizes = {**fixed(g), **plan.bind, "s": 5, "t": 24, "m": 40, "h": 2}
    values = inputs(g, sizes, rng)
    got, wanted = emulate(generate(plan), values, sizes)["out"], interpret(g, values, sizes)["out"]
    assert np.linalg.norm(got - wanted) <= 2e-3 * np.linalg.norm(wanted)


def test_columns_are_those_that_an_operand_has_side_by_side_where_the_output_has_none() -> None:
    g = trace(lambda y, w: ops.einsum("t m, m h e -> h e t", y, w), name="out", y="t m", w="m h 64")
    for plan in schedule(as_written(g), H200, {"t": 512, "m": 512, "h": 8}):
        (k,) = plan.kernels
        columns = [a.name for a in k.program.grid if a not in (*k.program.unit, *k.binding.rows)]
        assert "h" not in columns, plan


def test_a_tile_without_neighbours_in_memory_is_scattered() -> None:
    m, h, e = (axis(n, d) for n, d in zip("mhe", dims("m h e"), strict=True))
    x = load("x", m.position, h.position, e.position)
    assert is_scattered(x, (m, h)) and not is_scattered(x, (m, e)) and not is_scattered(x, (e, h))
    assert is_scattered(load("x", m.position, 2 * h.position), (m, h))


@pytest.mark.parametrize("name", CASES)
def test_matmuls_of_one_batch_do_not_cross(name: str) -> None:
    assert crossings(matmuls(CASES[name]().candidate.graph)) == []


def test_projections_cross() -> None:
    assert len(crossings(matmuls(qkv_attention(d=128, e=64)))) == 3
