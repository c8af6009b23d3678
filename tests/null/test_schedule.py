"""Schedules of hand-written candidates: every returned one equals the input graph, and the loops are those that the
folds allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from numpy.random import Generator, default_rng

from cleave.candidate import Candidate, as_written
from cleave.config import Ablation, Config
from cleave.cost.lanes import kernel_work
from cleave.errors import ScheduleError
from cleave.ir.axis import Axis, axis
from cleave.ir.graph import Graph, Input, Load, Output, apply, fold, load, reductions
from cleave.ir.index import axes_of, evaluate, index
from cleave.ir.interp import interpret
from cleave.ir.op import round_to
from cleave.ir.text import parse_graph
from cleave.schedule import schedule
from cleave.schedule.lower import lower
from cleave.schedule.roles import Plan, Role
from cleave.search import search
from cleave.target import Target
from cleave.tile.interp import run_program, run_schedule
from cleave.tile.plan import Merge, Schedule
from cleave.tile.program import Contract, Let, Loop, Program, Store, Update, loops, program_axes, statements
from tests.null.scheduled_candidates import CASES, Case, attention, flash_decoding, matmul, reference_symbols

H200, A100 = Target("sm_90a"), Target("sm_80")
SPLIT = [name for name in CASES if "split" in name or "flash" in name]


def same(got: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> bool:
    return all(np.allclose(got[n], wanted[n], rtol=1e-6, atol=1e-8, equal_nan=True) for n in wanted)


def agrees(case: Case, s: Schedule, sizes: Mapping[str, int], rng: Generator) -> bool:
    """A schedule against the graph that was searched, not against the candidate."""
    inputs = case.inputs(rng, sizes)
    origin = case.candidate.origin
    with np.errstate(all="ignore"):
        return same(run_schedule(s, inputs, sizes), interpret(origin, inputs, reference_symbols(origin, sizes)))


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_equals_the_input_graph_at_other_sizes(name: str) -> None:
    case, rng = CASES[name](), default_rng(3)
    found = schedule(case.candidate, H200, case.shape)
    for s in found:
        for _ in range(3):
            assert agrees(case, s, case.suiting(s, case.draw(rng)), rng), s


def random_roles(case: Case, rng: Generator) -> dict[Axis, Role]:
    """Any legal roles: output axes on the grid or whole, summed ones looped, stepped or whole."""
    g = case.candidate.graph
    stored = {a for o in g.outputs for i in o.indices for a in axes_of(i)}
    bound = {r.axis for r in reductions(*g.terms)}
    roles: dict[Axis, Role] = {}
    for a in g.axes:
        allowed = ["loop", "whole", "step"] if a not in stored else ["unit", "grid", "whole"]
        if a in stored and a in bound:
            allowed = ["loop", "grid", "whole"]
        if a.kind == "outer":
            allowed = ["step", "loop"]
        roles[a] = (str(rng.choice(allowed)),)  # type: ignore[assignment]
    for a in g.axes:  # a ragged axis is placed after what its extent reads
        if any(roles[b] != ("unit",) and roles[b] != ("grid",) for b in axes_of(a.extent)):
            roles[a] = ("loop",)
    return roles


@pytest.mark.parametrize("name", CASES)
def test_random_plans_of_a_candidate_equal_its_graph(name: str) -> None:
    case, rng = CASES[name](), default_rng(5)
    g = case.candidate.graph
    for _ in range(10):
        sizes = {n: min(size, int(rng.integers(1, 7))) for n, size in case.draw(rng).items()}
        sizes |= {"S": int(rng.integers(1, 5))} if case.candidate.splits else {}
        sizes |= {"C": -(-max(sizes.get("t", 0), sizes.get("k", 0)) // sizes["S"]) + 1} if case.candidate.splits else {}
        plan = Plan(random_roles(case, rng), *(bool(rng.random() < 0.8) for _ in range(3)))
        program = lower(g, plan, case.candidate.folds).program
        inputs = case.inputs(rng, sizes)
        with np.errstate(all="ignore"):
            wanted = interpret(g, inputs, reference_symbols(g, sizes))
            buffers = {**inputs, **{n: np.full(v.shape, np.nan) for n, v in wanted.items()}}
            run_program(program, tiles_for(program, sizes, inputs, rng), buffers, sizes)
        assert same(buffers, wanted), f"{program}\n{sizes}"


def tiles_for(
    program: Program, sizes: Mapping[str, int], inputs: Mapping[str, np.ndarray], rng: Generator
) -> dict[Axis, int]:
    tiles: dict[Axis, int] = {}
    for a in program_axes(program):
        tiles[a] = int(rng.integers(2, 7))
        if a in program.whole:
            zero = {b: 0 for b in program_axes(program)}
            longest = int(np.max(evaluate(a.extent, {**sizes, **zero}, inputs)))
            tiles[a] = max(longest, *sizes.values()) + int(rng.integers(0, 3))
    return tiles


# ---- loops


def loop_of(p: Program, name: str) -> list[Loop]:
    return [s for s in loops(p) if s.axis.name == name]


def first(case: Case, config: Config | None = None, target: Target = H200) -> Schedule:
    return schedule(case.candidate, target, case.shape, config)[0]


@pytest.mark.parametrize("name", ["attention", "attention causal", "attention naive", "attention window"])
def test_attention_with_a_fold_is_one_loop_that_carries_three_values(name: str) -> None:
    s = first(CASES[name]())
    (loop,) = loops(s.kernels[0].program)
    assert len(s.kernels) == 1
    assert sorted(c.op for c in loop.accumulators) == ["max", "sum", "sum"]
    assert sum(c.carry is not None for c in loop.accumulators) == 2


def test_a_fold_that_can_not_absorb_joins_the_state_of_each_tile() -> None:
    case = attention(naive=True, causal=True)
    joining = replace(case.candidate, folds=tuple(replace(f, absorbing=False) for f in case.candidate.folds))
    s = schedule(joining, H200, case.shape)[0]
    (loop,) = loops(s.kernels[0].program)
    tile = [x.name for x in loop.body if isinstance(x, Let) and x.name.startswith("t") and "_" not in x.name]
    assert len(loop.accumulators) == len(tile) == 3
    rng = default_rng(4)
    assert all(agrees(case, s, case.draw(rng), rng) for _ in range(4))


def test_attention_without_folds_needs_finished_statistics() -> None:
    s = first(CASES["attention without folds"]())
    found = loops(s.kernels[0].program)
    assert len(found) == 2
    assert all(c.carry is None for loop in found for c in loop.accumulators)
    assert any("no fold holds both" in n for n in s.kernels[0].notes)


def test_algebra_off_ignores_folds() -> None:
    s = first(attention(), Config(ablation=Ablation(algebra=False)))
    assert all(c.carry is None for loop in loops(s.kernels[0].program) for c in loop.accumulators)
    assert len(loops(s.kernels[0].program)) == 2


def test_naive_attention_without_algebra_is_three_passes() -> None:
    s = first(attention(naive=True), Config(ablation=Ablation(algebra=False)))
    assert len(loops(s.kernels[0].program)) == 3


def test_iterative_tiling_off_has_no_carried_value_and_stores_every_reduction() -> None:
    case = attention(causal=True)
    s = first(case, Config(ablation=Ablation(iterative_tiling=False)))
    assert [loops(k.program) for k in s.kernels] == [(), (), ()]
    assert [len(b.shape) for b in s.temporaries] == [4, 3]
    assert agrees(case, s, {"kv": 2, "s": 13, "t": 29}, default_rng(0))


def test_iterative_tiling_off_loops_only_over_what_does_not_fit() -> None:
    """Of kernels that are cut between reductions: nothing is carried; rows of 4096 fit without a matmul."""
    case = attention()
    bind = {"kv": 2, "s": 64, "t": 4096}
    s = schedule(case.candidate, H200, bind, Config(ablation=Ablation(iterative_tiling=False)))[0]
    assert len(s.kernels) == 3 and [len(b.shape) for b in s.temporaries] == [4, 3]
    found = [loop for k in s.kernels for loop in loops(k.program)]
    assert found and all(c.carry is None for loop in found for c in loop.accumulators)
    assert {str(p) for p in s.constraints} == {"dim.t <= 4096"}  # the maximum, whose rows are read whole
    assert agrees(case, s, {"kv": 2, "s": 13, "t": 531}, default_rng(0))


def test_a_whole_axis_limits_later_calls() -> None:
    case = attention()
    s = first(case, Config(ablation=Ablation(iterative_tiling=False)))
    assert {str(p) for p in s.constraints} == {"dim.t <= 80", "dim.t <= 128"}  # of a matmul, and of the rows' maximum
    with pytest.raises(ScheduleError, match=r"dim.t <= 80 does not hold"):
        run_schedule(s, case.inputs(default_rng(0), {"kv": 2, "s": 5, "t": 81}), {"kv": 2, "s": 5, "t": 81})


def test_horizontal_fusion_off_gives_every_reduction_its_own_loop() -> None:
    case = CASES["swiglu"]()
    fused = first(case)
    apart = first(case, Config(ablation=Ablation(horizontal_fusion=False)))
    assert len(loops(fused.kernels[0].program)) == 1
    assert len(loops(apart.kernels[0].program)) == 2
    assert agrees(case, apart, {"m": 7, "n": 9, "k": 33}, default_rng(0))


def test_layout_propagation_off_orders_chains_through_shared_memory() -> None:
    s = first(attention(), Config(ablation=Ablation(layout_propagation=False)))
    assert {k.chain for k in s.kernels} == {"shared"}
    assert {k.chain for k in first(attention()).kernels} == {"registers"}


def test_causal_and_window_predicates_shorten_loops() -> None:
    (causal,) = loops(first(attention(causal=True)).kernels[0].program)
    assert str(causal.lower) == "0"
    assert "min" in str(causal.upper) and "dim.t + 1" in str(causal.upper)
    (window,) = loops(first(attention(window=True)).kernels[0].program)
    assert "max" in str(window.lower)


def test_scores_are_masked_once_and_statistics_need_no_mask() -> None:
    p = first(attention()).kernels[0].program
    masks = [s.name for s in statements(p.body) if isinstance(s, Let) and s.name.startswith("k") and "_" not in s.name]
    assert masks == ["k1"]


def test_the_query_tile_is_loaded_before_the_loop() -> None:
    p = first(attention()).kernels[0].program
    assert isinstance(p.body[0], Let) and isinstance(p.body[0].term, Load) and p.body[0].term.input == "Q"
    (loop,) = loops(p)
    inside = {s.term.input for s in loop.body if isinstance(s, Let) and isinstance(s.term, Load)}
    assert inside == {"K", "V"}


def test_a_computed_operand_is_rounded_visibly() -> None:
    p = first(attention()).kernels[0].program
    operands = [s.term.left for s in statements(p.body) if isinstance(s, Update) and isinstance(s.term, Contract)]
    assert {o.name for o in operands} == p.narrowed


def test_storage_rounding_follows_the_casts() -> None:
    case, rng = attention(), default_rng(1)
    s = first(case)
    sizes = {"kv": 2, "s": 9, "t": 33}
    shapes = {n: v.shape for n, v in case.inputs(rng, sizes).items()}
    inputs = {n: round_to(rng.standard_normal(shape), "float16") for n, shape in shapes.items()}
    exact, rounded = (run_schedule(s, inputs, sizes, mode) for mode in ("none", "storage"))
    error = np.abs(rounded["O"] - exact["O"]).max() / np.abs(exact["O"]).max()
    assert 1e-6 < error < 2e-3


def test_one_cache_read_as_key_and_value_is_one_load() -> None:
    p = first(CASES["latent attention"]()).kernels[0].program
    assert [s.term.input for s in statements(p.body) if isinstance(s, Let) and isinstance(s.term, Load)] == ["Q", "C"]


def test_one_memory_under_two_axis_names_is_one_tile() -> None:
    i, t, r, e = axis("i", 40), axis("t", 70), axis("r", 16), axis("e", 16)
    scores = fold("sum", r, apply("mul", load("Q", i, r), load("C", t, r)))
    y = fold("sum", t, apply("mul", scores, load("C", t, e)))
    inputs = tuple(Input(n, "float16", (index(size), index(16))) for n, size in (("Q", 40), ("C", 70)))
    g = Graph("cache", inputs, (Output("Y", "float32", (index(40), index(16)), (i.position, e.position), y),))
    p = lower(g, Plan({i: ("grid",), t: ("loop",), r: ("whole",), e: ("whole",)})).program
    loaded = {s.name: s.term for s in statements(p.body) if isinstance(s, Let) and isinstance(s.term, Load)}
    ((later, earlier),) = p.same
    assert loaded[later].input == loaded[earlier].input == "C" and loaded[later] is not loaded[earlier]


def test_an_output_without_the_column_axis_is_stored_once() -> None:
    case = attention()
    g = case.candidate.graph
    value = next(a for a in g.axes if str(a.extent) == "16")
    roles: dict[Axis, Role] = {a: ("loop",) for a in g.axes}
    roles |= {a: ("grid",) for o in g.outputs for i in o.indices for a in axes_of(i)}
    p = lower(g, Plan(roles), case.candidate.folds).program
    stores = {s.output: s.once for s in statements(p.body) if isinstance(s, Store)}
    assert stores == {"O": (), "L": (value,)}


def test_cut_at_repeated_statistics_beats_recomputing_them_in_a_large_matmul() -> None:
    case = CASES["rmsnorm moved"]()
    s = schedule(case.candidate, H200, {"m": 4096, "n": 4096, "k": 4096})[0]
    assert len(s.kernels) == 2
    assert s.notes == ("cut at reductions that tiles repeat",)


def test_matmuls_without_rows_become_kernels_of_their_own() -> None:
    s = first(CASES["self-attention"]())
    assert len(s.kernels) == 3
    assert {b.dtype for b in s.temporaries} == {"float16"}


# ---- splits


@pytest.mark.parametrize("merge", ["second-launch", "last-arriving"])
@pytest.mark.parametrize("name", SPLIT)
def test_splits_are_right_for_every_count_and_length(name: str, merge: str) -> None:
    case, rng = CASES[name](), default_rng(11)
    base = case.candidate.splits[0].base
    for count in (1, 2, 5):
        s = schedule(case.candidate, H200, case.shape, split={base: count}, merge=merge)[0]  # type: ignore[arg-type]
        assert s.merge == merge and s.bind["S"] == count and len(s.kernels) == 2
        for length in (0, 1, 3, 37, 700):  # S beyond the extent, empty chunks, chunks that do not divide
            sizes = case.suiting(s, {**case.draw(rng), base: length})
            assert agrees(case, s, sizes, rng), f"{sizes}\n{s}"


@pytest.mark.parametrize("name", SPLIT)
def test_a_split_into_one_chunk_is_no_split(name: str) -> None:
    case = CASES[name]()
    base = case.candidate.splits[0].base
    s = schedule(case.candidate, H200, case.shape, split={base: 1})[0]
    assert s.merge == "none" and len(s.kernels) == 1 and not s.temporaries
    assert agrees(case, s, case.suiting(s, {**case.draw(default_rng(0)), base: 41}), default_rng(0))


def test_chunks_are_whole_tiles_and_cover_the_axis() -> None:
    case = flash_decoding()
    s = schedule(case.candidate, H200, case.shape, split={"t": 3}, merge="second-launch")[0]
    (chunk,) = s.chunks
    tile = next(n for a, n in s.kernels[0].binding.tiles.items() if a.kind == "inner")
    for t in (0, 1, 100, 1000, 1025):
        length = int(evaluate(chunk.length, {"t": t, "S": 3}))
        assert length % tile == 0 and 3 * length >= t and 3 * (length - tile) < t


def test_the_last_block_has_the_grid_of_the_partials() -> None:
    s = schedule(flash_decoding().candidate, H200, {"kv": 2, "s": 1, "t": 4096}, merge="last-arriving")[0]
    partial, merge = (k.program for k in s.kernels)
    sliced = tuple(a for a in partial.whole if a in merge.grid)
    assert len(sliced) == 1, "what a block holds whole is merged in slices"
    assert merge.grid == (*(a for a in partial.grid if a.kind != "outer"), *sliced)
    assert s.kernels[0].binding.rows == s.kernels[1].binding.rows
    assert s.kernels[0].binding.warps == s.kernels[1].binding.warps


def test_a_few_long_rows_are_split_and_many_are_not() -> None:
    case = flash_decoding(head=128, value=128)
    decode = schedule(case.candidate, H200, {"kv": 1, "s": 1, "t": 65536})[0]
    prefill = schedule(case.candidate, H200, {"kv": 8, "s": 4096, "t": 4096})[0]
    assert decode.bind["S"] > 1
    assert prefill.bind["S"] == 1


# ---- choices


def test_prefill_takes_many_rows_and_decode_takes_the_heads_of_a_group_as_rows() -> None:
    candidate = attention(head=128, value=128).candidate
    prefill = schedule(candidate, H200, {"kv": 8, "s": 2048, "t": 2048})[0].kernels[0].binding
    assert [a.name for a in prefill.rows] == ["s"]
    assert prefill.tile(prefill.rows[0]) == 16 * prefill.warps >= 128 and prefill.loaders
    decode = schedule(candidate, H200, {"kv": 128, "s": 1, "t": 2048})[0].kernels[-1].binding
    assert [a.name for a in decode.rows] == ["s", "r"]


def test_a_large_matmul_takes_large_tiles() -> None:
    b = schedule(matmul().candidate, H200, {"m": 4096, "n": 4096, "k": 4096})[0].kernels[0].binding
    assert {a.name: n for a, n in b.tiles.items()} | {"k": 0} == {"m": 128, "n": 256, "k": 0}


def test_lengths_stay_at_run_time_and_head_sizes_are_compiled_in() -> None:
    s = first(attention())
    assert set(s.bind) == {"r"} or not set(s.bind) & {"kv", "s", "t"}
    assert s.shape == {"kv": 2, "s": 40, "t": 70}


@pytest.mark.parametrize("target", [H200, A100])
def test_schedules_fit_the_target(target: Target) -> None:
    for s in schedule(attention().candidate, target, {"kv": 8, "s": 2048, "t": 2048}):
        assert s.modelled is not None and s.modelled.microseconds > 0


def test_forced_tiles_are_taken() -> None:
    found = schedule(attention().candidate, H200, {"kv": 8, "s": 2048, "t": 2048}, tile={"t": 32, "s": 64})
    for s in found:
        tiles = {a.name: n for a, n in s.kernels[0].binding.tiles.items()}
        assert (tiles["t"], tiles["s"]) == (32, 64)


# ---- errors


def refused(c: Candidate, **changes: object) -> str:
    arguments: dict[str, object] = {"bind": {"kv": 2, "s": 40, "t": 70}} | changes
    with pytest.raises(ScheduleError) as caught:
        schedule(c, H200, **arguments)  # type: ignore[arg-type]
    return str(caught.value)


def test_a_split_of_an_axis_whose_extent_is_read_is_refused() -> None:
    g = CASES["ragged attention"]().candidate.graph
    found = next(c for c in search(g, config=Config(isolate=False)).candidates if c.splits)
    (split,) = found.splits
    for forced in ({}, {split.base: 2}):
        with pytest.raises(ScheduleError, match=f"split of '{split.base}': its extent len.* is read from an input"):
            schedule(found, A100, {"b": 3, "s": 40, "t": 70}, split=forced)


def test_errors_name_the_axis_the_value_and_what_is_allowed() -> None:
    c, flash = attention().candidate, flash_decoding().candidate
    assert refused(c, bind={"kv": 2, "s": 40}) == "moved: dim t has no value: bind it (t=...)"
    assert refused(c, bind={"kv": 2, "s": 4, "t": 7, "u": 1}) == "moved: no dim 'u': the graph has kv, r, s, t"
    assert refused(c, bind={"kv": 2, "s": 4, "t": 7, "r": 2}) == "moved: dim r = 2: allowed is 3"
    assert refused(c, bind=1) == "moved: bind 1: values of dims by name are expected"
    assert refused(c, tile={"t": 20}) == "axis t: tile 20: allowed are multiples of 16"
    assert refused(c, tile={"q": 32}).startswith("moved: tile for 'q': allowed are ")
    assert refused(c, tile={"s": 40}) == "axis s: tile 40: allowed in cta-ring are 4, 8, 16, 32"
    assert refused(c, skeleton="col") == "moved: skeleton 'col': allowed are cta-ring, warp-ring, specialised, row"
    assert refused(c, skeleton="row") == "moved: no kernel of row can run it: row has no matmul"
    assert refused(c, merge="second-launch") == "moved: merge 'second-launch': the candidate has no split"
    assert refused(c, split={"t": 2}) == "moved: split of 't': allowed are none: the candidate has no split"
    assert refused(flash, split={"s": 2}) == "flash: split of 's': allowed are t"
    assert refused(flash, split={"t": 0}) == "axis t: split count 0: allowed are 1 to 70, its extent"
    assert refused(flash, split={"S": 71}) == "axis t: split count 71: allowed are 1 to 70, its extent"
    assert refused(flash, split={"t": 2.0}) == "axis t: split count 2.0: an integer is expected"
    assert refused(flash, merge="x") == "flash: merge 'x': allowed are " + ", ".join(get_args(Merge))
    assert refused(c, merge="x").startswith("moved: merge 'x': allowed are none, ")
    assert refused(c, tile={"t": 32.0}) == "axis t: tile 32.0: an integer is expected"
    assert refused(c, tile={"t": "32"}) == "axis t: tile '32': an integer is expected"
    assert refused(c, tile={"kv": 2}) == "axis kv: tile 2: single elements of it are taken, so 1 is allowed"
    assert refused(flash, config=Config(ablation=Ablation(split=False))) == (
        "flash: the candidate is split, and splitting is switched off"
    )


NO_AXIS = {
    "scalars": "input x: float32[]\noutput out: float32[] @ [] = x[]",
    "extents of 1": "input x: float32[1, 1]\noutput out: float32[1, 1] @ [0, 0] = x[0, 0]",
    "a sum over everything": "dims n\ninput x: float32[n]\naxis n: n\noutput out: float32[] @ [] = sum(n, x[n])",
}


@pytest.mark.parametrize("name", NO_AXIS)
def test_a_graph_without_an_axis_is_refused_with_what_it_lacks(name: str) -> None:
    candidate = as_written(parse_graph(f"graph small\n{NO_AXIS[name]}"))
    with pytest.raises(ScheduleError, match=r"no output has an axis for the rows of tiles .*: give it one"):
        schedule(candidate, A100, {"n": 30} if "dims n" in NO_AXIS[name] else {})
    around = parse_graph("graph small\ndims b\ninput x: float32[b]\naxis b: b\noutput out: float32[b] @ [b] = x[b]")
    assert schedule(as_written(around), A100, {"b": 1})


def test_a_target_is_a_target() -> None:
    with pytest.raises(ScheduleError) as caught:
        schedule(attention().candidate, "sm_90a", {"kv": 2, "s": 40, "t": 70})  # type: ignore[arg-type]
    assert str(caught.value) == "moved: target 'sm_90a': a Target is expected, such as Target('sm_90a')"


def test_a_call_with_another_compiled_in_value_is_refused() -> None:
    case = CASES["matmul-rowsum"]()
    s = first(case)
    sizes = {"m": 3, "n": 4, "k": 5}
    with pytest.raises(ScheduleError, match=r"dim k = 5: compiled for 90"):
        run_schedule(s, case.inputs(default_rng(0), sizes), sizes)


def test_few_rows_divide_the_loop_among_teams_and_many_do_not() -> None:
    flash = flash_decoding(head=128, value=128).candidate
    decode = schedule(flash, H200, {"kv": 8, "s": 1, "t": 8192})[0]
    assert decode.kernels[0].skeleton == "warp-ring" and decode.kernels[0].binding.teams > 1
    assert decode.bind["S"] > 1 and decode.merge == "cluster"
    for m, skeleton in ((1, "warp-ring"), (64, "warp-ring"), (4096, "specialised")):
        found = schedule(matmul().candidate, H200, {"m": m, "n": 4096, "k": 4096})[0]
        assert {k.skeleton for k in found.kernels} == {skeleton}, m


def test_a_skeleton_may_be_forced_and_splits_switched_off() -> None:
    c = attention(head=128, value=128).candidate
    bind = {"kv": 8, "s": 1, "t": 8192}
    for name in ("cta-ring", "warp-ring"):
        assert {k.skeleton for s in schedule(c, H200, bind, skeleton=name) for k in s.kernels} == {name}
    off = Config(ablation=Ablation(split=False))
    assert all(s.merge == "none" for s in schedule(c, H200, bind, off, skeleton="warp-ring"))


def test_tiles_of_loops_come_in_boxes_where_the_target_has_them() -> None:
    c, bind = attention(head=128, value=128).candidate, {"kv": 8, "s": 1, "t": 8192}
    for target, feeds, default in ((H200, ("tma", "cp.async"), "tma"), (A100, ("cp.async",), "cp.async")):
        few = schedule(c, target, bind, skeleton="warp-ring")
        many = schedule(c, target, {**bind, "s": 2048}, skeleton="cta-ring", mma="mma.sync")
        assert {k.feed for s in few for k in s.kernels} == {default}
        assert {k.feed for s in many for k in s.kernels} == {"cp.async"}, "one text for both architectures"
        for feed in feeds:
            assert {k.feed for s in schedule(c, target, bind, feed=feed) for k in s.kernels} == {feed}
    with pytest.raises(ScheduleError, match=r"feed 'tma' on sm_80: allowed are cp\.async$"):
        schedule(c, A100, bind, feed="tma")


def test_boxes_cost_no_registers_for_addresses() -> None:
    flash = flash_decoding(head=128, value=128).candidate
    plan = schedule(flash, H200, {"kv": 8, "s": 1, "t": 8192}, skeleton="warp-ring")[0]
    first, dims = plan.kernels[0], {**plan.bind, **plan.shape}
    dims |= {c.symbol.name: evaluate(c.length, dims) for c in plan.chunks}
    copied, fetched = (kernel_work(first.program, first.binding, dims, feed) for feed in ("cp.async", "tma"))
    assert copied.registers - fetched.registers >= 40
    assert 0 < fetched.shared_bytes - copied.shared_bytes <= 1024
    assert (fetched.spare_bytes, copied.spare_bytes) == (1024, 16)
