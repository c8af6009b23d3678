"""Warps that divide the keys of a tile, and then the columns of the values: one pass over a latent cache."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cleave import Config, nn, search
from cleave.candidate import load_candidates
from cleave.codegen.compile import Failed, compile_many
from cleave.codegen.generate import generate
from cleave.ir.generic import fixed_graph
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.tile.program import loops
from cleave.tile.skeleton import SKELETONS, refusals
from experiments.e02_dynamic.config import CANDIDATES
from tests.null.codegen_cases import Case
from tests.null.test_codegen import check
from tests.null.test_codegen_mutants import is_caught
from tests.null.test_merges import agrees

H200 = Target("sm_90a")
KEYS = "kv_indptr_b_1_kv_indptr_b"
TILES = ((32, 4), (64, 8), (64, 4))
"""Keys of a tile, and warps: each has 8 or 16 of the keys, and 64 or 128 of the 512 columns."""


def latent(keys: int, warps: int) -> Schedule:
    candidate = load_candidates(CANDIDATES / "mla_paged_decode_h16_ckv512_kpe64_ps1.json")[0]
    shape = {"b": 16, "num_kv_indices": 7257, "num_pages": 7257}
    found = schedule(candidate, H200, shape, skeleton="cta-ring", tile={KEYS: keys}, keep=32)
    return next(s for s in found if (b := s.kernels[0].binding).division and (b.warps, b.stages) == (warps, 2))


def case(keys: int, warps: int) -> Case:
    ends = (0, 70, 70, 71, 104)
    pages = np.random.default_rng(0).permutation(110)[:104]
    sizes = {"b": 4, "num_kv_indices": 104, "num_pages": 110}
    return Case(latent(keys, warps), (sizes,), {"kv_indptr": ends, "kv_indices": pages.tolist()})


@pytest.mark.parametrize(("keys", "warps"), TILES)
def test_the_emulated_kernel_equals_the_graph(keys, warps, rng):
    c = case(keys, warps)
    check(generate(c.schedule), c.schedule.graph, c, c.sizes[0], rng)


def test_the_best_schedule_walks_the_cache_once_and_compiles_without_spills():
    for s in (latent(*t) for t in TILES):
        program = s.kernels[0].program
        assert [x.axis.name for x in loops(program)] == [KEYS]
        (made,) = compile_many([(generate(s).kernels[0], "sm_90a")])
        assert not isinstance(made, Failed) and made.resources.spill_stores == 0


@pytest.mark.parametrize("merge", ["last-arriving", "cluster"])
def test_warps_that_divided_columns_are_teams_in_the_merge(merge, rng):
    g = fixed_graph(*nn.instantiate("mla_decode", {"h": 16, "r": 320, "p": 16}))
    split = next(c for c in search(g, config=Config(isolate=False)).candidates if c.splits)
    plan = schedule(split, H200, {"b": 2, "t": 2048}, skeleton="cta-ring", merge=merge, split={"t": 3})[0]
    first, second = (k.binding for k in plan.kernels)
    assert first.division is not None and (second.teams, second.division) == (first.division.parts, None)
    agrees(g, plan, generate(plan), {"b": 2, "t": 150}, rng)


@pytest.mark.parametrize(
    ("name", "rows"),
    [("mla_paged_prefill_causal_h16_ckv512_kpe64_ps1", 4), ("gqa_paged_prefill_causal_h32_kv8_d128_ps1", 16)],
)
def test_warpgroups_multiply_rows_that_a_table_places(name, rows, rng):
    """Page by page no box holds the keys of a tile: threads copy them, and tensor cores read them there."""
    (c, *_) = load_candidates(CANDIDATES / f"{name}.json")
    shape = {"b": 1, "total_q": 1024, "num_kv_indices": 1024, "num_pages": 4096}
    s = schedule(c, H200, shape, mma="wgmma", keep=1)[0]
    b = s.kernels[0].binding
    assert s.kernels[0].skeleton == "cta-ring" and b.tiles[b.rows[0]] >= rows
    pages = np.random.default_rng(0).permutation(90)[:80].tolist()
    sizes = {"b": 3, "total_q": 8, "num_kv_indices": 80, "num_pages": 90}
    tables = {"qo_indptr": (0, 5, 5, 8), "kv_indptr": (0, 70, 72, 80), "kv_indices": pages}
    operator = generate(s)
    check(operator, s.graph, Case(s, (sizes,), tables), sizes, rng)
    begun = operator.kernels[0].text.partition("slot = slot ==")[2].partition("warpgroup_wait<0>")[0]
    assert begun.index("warpgroup_commit") < begun.index("copy_chunk")  # copies go out while tensor cores work
    (made,) = compile_many([(operator.kernels[0], "sm_90a")])
    assert not isinstance(made, Failed) and made.resources.spill_stores == 0


MUTANTS = {
    "weights are read before all warps have written theirs": (
        r"(pack<bf16>\(e3[^\n]*\n *\}\n *\})\n *block_barrier\(\);",
        r"\1",
    ),
    "a sum of the first warp's keys only": (r"for \(int w = 0; w < 4; w\+\+\)", "for (int w = 0; w < 1; w++)"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_emulator_sees(name, rng):
    assert is_caught(case(32, 4), *MUTANTS[name], rng)


def test_parts_are_for_warps_whose_matmuls_are_their_own():
    k = latent(64, 8).kernels[0]
    assert not refusals(SKELETONS["cta-ring"], k.program, k.binding)
    (why, *_) = refusals(SKELETONS["cta-ring"], k.program, dataclasses.replace(k.binding, mma="wgmma"))
    assert "wgmma by teams of 8 warps" in why
