"""Switches of ``Config.ablation``, from the search to the emitted text: each changes the generated program as it says,
and what is generated is still right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import pytest
from numpy.random import Generator

from cleave import Config, Target, nn
from cleave.candidate import Candidate
from cleave.cli.parser import ABLATIONS
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.config import Ablation
from cleave.ir.graph import Graph
from cleave.ir.instance import draw_inputs
from cleave.ir.interp import interpret
from cleave.schedule import schedule
from cleave.schedule.kernels import TOO_LONG
from cleave.search import search
from cleave.tile.interp import run_schedule
from cleave.tile.plan import Schedule
from cleave.tile.program import Contract, Loop, loops, tile_terms
from tests.null.command import Run, runner

PREFILL = {"b": 1, "h": 2, "s": 24, "t": 40, "d": 16, "e": 16}
DECODE = {"b": 1, "h": 4, "kv_heads": 2, "s": 1, "t": 1024, "d": 16, "e": 16}


@dataclass(frozen=True)
class Made:
    """What a search finds under switches, and the best schedule of it."""

    graph: Graph
    dims: Mapping[str, int]
    candidates: tuple[Candidate, ...]
    schedule: Schedule

    @property
    def loops(self) -> list[Loop]:
        return [loop for k in self.schedule.kernels for loop in loops(k.program)]

    @property
    def restated(self) -> int:
        """Values that a loop carries relative to a maximum that moves: what the online softmax is made of."""
        return sum(c.carry is not None for loop in self.loops for c in loop.accumulators)


def generated(name: str, bind: Mapping[str, int], *off: str, arch: str = "sm_80") -> Made:
    return _generated(name, tuple(bind.items()), off, arch)


@cache
def _generated(name: str, bind: tuple[tuple[str, int], ...], off: tuple[str, ...], arch: str) -> Made:
    g, dims = nn.instantiate(name, dict(bind))
    config = Config(ablation=Ablation(**dict.fromkeys(off, False)), isolate=False)
    found = search(g, config=config).candidates
    plans = [schedule(c, Target(arch), dims, config)[0] for c in found]
    best = min(plans, key=lambda s: s.modelled.microseconds if s.modelled else 0.0)
    return Made(g, dims, found, best)


def is_right(made: Made, rng: Generator) -> bool:
    x = draw_inputs(made.graph, made.dims, rng)
    got, wanted = run_schedule(made.schedule, x), interpret(made.graph, x)
    return all(np.allclose(got[n], wanted[n], rtol=1e-9, atol=1e-9) for n in wanted)


def test_every_switch_is_an_option_of_the_command_line() -> None:
    assert set(ABLATIONS) == {f.name for f in fields(Ablation)}


def test_everything_on_is_one_loop_with_an_online_softmax(rng: Generator) -> None:
    made = generated("mha", PREFILL)
    (loop,) = made.loops
    assert len(loop.accumulators) == 3 and made.restated == 2 and len(made.schedule.kernels) == 1
    assert is_right(made, rng)


def test_algebra_off_is_the_graph_as_written_in_three_passes(rng: Generator) -> None:
    """The maximum, the sum, the matmul: each reads all keys, and nothing is restated."""
    made = generated("mha", PREFILL, "algebra")
    assert [c.name for c in made.candidates] == ["as written"] and not made.candidates[0].steps
    assert [len(loop.accumulators) for loop in made.loops] == [1, 1, 1] and made.restated == 0
    assert is_right(made, rng)


def test_iterative_tiling_off_reads_reductions_whole(rng: Generator) -> None:
    """No loop: keys are one tile, and what one reduction needs of another lies in memory between kernels."""
    made = generated("mha", PREFILL, "iterative_tiling")
    assert made.loops == [] and len(made.schedule.kernels) > 1
    assert made.schedule.temporaries and made.schedule.notes == ("reductions read whole, kernels cut between them",)
    whole = {a.name for k in made.schedule.kernels for a in k.program.whole}
    assert "t" in whole and any(str(p).startswith("dim.t <= ") for p in made.schedule.constraints)
    assert is_right(made, rng)


LONG = {**PREFILL, "t": 700}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("off", [("iterative_tiling",), ("algebra", "iterative_tiling")])
def test_a_reduction_that_no_block_holds_is_a_loop_of_its_own_kernel(
    rng: Generator, off: tuple[str, ...], arch: str
) -> None:
    """What one reduction needs of another still lies in memory: nothing is restated. The emitted text is right."""
    made = generated("mha", LONG, *off, arch=arch)
    assert made.loops and made.restated == 0 and len(made.schedule.kernels) == 2 + len(off)
    assert any(TOO_LONG in k.notes for k in made.schedule.kernels)
    assert is_right(made, rng)
    x = draw_inputs(made.graph, made.dims, rng)
    got = emulate(generate(made.schedule), x)["out"]
    np.testing.assert_allclose(got, interpret(made.graph, x)["out"], rtol=1e-2, atol=2e-3)


def test_both_off_stores_every_reduction_of_the_graph_as_written(rng: Generator) -> None:
    made, tiled = (generated("mha", PREFILL, *off) for off in (("algebra", "iterative_tiling"), ("iterative_tiling",)))
    assert [c.name for c in made.candidates] == ["as written"]
    assert made.loops == [] and made.restated == 0
    assert len(made.schedule.kernels) == 4 > len(tiled.schedule.kernels)  # scores, maximum, sum, matmul
    assert is_right(made, rng)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_layout_propagation_off_sends_computed_operands_through_shared_memory(rng: Generator, arch: str) -> None:
    """In the emitted text: a tile in shared memory between the matmuls, which the full system does not have."""
    on, off = (
        generate(generated("mha", PREFILL, *names, arch=arch).schedule) for names in ((), ("layout_propagation",))
    )
    assert "chain" not in on.kernels[0].text and "chain" in off.kernels[0].text
    assert off.kernels[0].shared_bytes > on.kernels[0].shared_bytes
    made = generated("mha", PREFILL, "layout_propagation", arch=arch)
    x = draw_inputs(made.graph, made.dims, rng)
    np.testing.assert_allclose(emulate(off, x)["out"], interpret(made.graph, x)["out"], rtol=1e-2, atol=2e-3)


def test_what_layout_propagation_off_takes_of_shared_memory_is_counted() -> None:
    """Every schedule that is offered can be generated: the first ones did not fit."""
    g, dims = nn.instantiate("mha", {"b": 1, "h": 32, "s": 4096, "t": 4096, "d": 128, "e": 128})
    config = Config(ablation=Ablation(layout_propagation=False))
    best = next(c for c in search(g, config=Config(isolate=False)).candidates if not c.splits)
    plans = schedule(best, Target("sm_90a"), dims, config)
    assert len(plans) == 8
    for plan in plans:
        assert generate(plan).kernels


def test_split_off_has_no_outer_axis(rng: Generator) -> None:
    """Of decode attention over many keys, which is split otherwise."""
    on, off = (generated("gqa", DECODE, *names, arch="sm_90a") for names in ((), ("split",)))
    assert any(c.splits for c in on.candidates) and not any(c.splits for c in off.candidates)
    assert on.schedule.merge != "none" and on.schedule.chunks
    assert off.schedule.merge == "none" and not off.schedule.chunks and len(off.schedule.kernels) == 1
    kinds = {a.kind for k in off.schedule.kernels for a in (*k.program.grid, *(loop.axis for loop in off.loops))}
    assert kinds == {"plain"}
    assert is_right(off, rng) and is_right(on, rng)


def test_reassociation_off_multiplies_in_the_order_of_the_program(rng: Generator) -> None:
    """(q k') v with few columns is cheaper as q (k' v), if that may be."""
    bind = {"h": 2, "s": 64, "t": 96, "d": 16, "e": 16}
    on, off = (generated("matmul_matmul", bind, *names) for names in ((), ("reassociation",)))
    assert any("reassoc" in c.rules for c in on.candidates)
    assert not {"reassoc", "exchange"} & {rule for c in off.candidates for rule in c.rules}

    def first_products(made: Made) -> set[frozenset[str]]:
        """Axes that the operands of matmuls of loads have: which pairs are multiplied first."""
        return {
            frozenset(a.name for a in (*t.left.axes, *t.right.axes))
            for c in made.candidates
            for k in schedule(c, Target("sm_80"), made.dims)[0].kernels
            for t in tile_terms(k.program)
            if isinstance(t, Contract)
        }

    assert any({"d", "e"} <= axes and "s" not in axes for axes in first_products(on))
    assert not any({"d", "e"} <= axes and "s" not in axes for axes in first_products(off))
    assert is_right(off, rng)


def test_horizontal_fusion_off_gives_each_reduction_a_loop(rng: Generator) -> None:
    """But for what a fold holds together: swiglu's matmuls read one row each."""
    bind = {"m": 24, "k": 64, "n": 32}
    on, off = (generated("swiglu", bind, *names) for names in (("split",), ("split", "horizontal_fusion")))
    assert [len(loop.accumulators) for loop in on.loops] == [2]
    assert [len(loop.accumulators) for loop in off.loops] == [1, 1]
    assert is_right(off, rng)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    return runner(capsys)


@pytest.mark.parametrize(
    ("switch", "shows"),
    [
        ("--no-layout-propagation", "operands through shared memory"),
        ("--no-iterative-tiling", "reductions read whole, kernels cut between them"),
        ("--no-algebra --no-iterative-tiling", "4 kernels"),
        ("--no-horizontal-fusion", "horizontal fusion is switched off"),
    ],
)
def test_a_switch_of_the_command_line_shows_in_the_schedule(
    command: Callable[..., Run], switch: str, shows: str
) -> None:
    bind = ",".join(f"{k}={v}" for k, v in PREFILL.items())
    found = command(f"explain mha --bind {bind} --target sm_80 --no-split {switch}")
    assert found.code == 0 and shows in found.out
