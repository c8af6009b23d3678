"""The skeleton of loaders and warpgroups that compute: slots that warps declare empty, trips that overlap."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import pytest

from cleave import nn
from cleave.candidate import Candidate, load_candidates
from cleave.codegen import grid
from cleave.codegen.compile import Failed, compile_many
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.codegen.prelude import KERNEL_MARK
from cleave.cost.lanes import kernel_work
from cleave.errors import CodegenError, ScheduleError
from cleave.ir.index import axes_of, evaluate, index, minimum
from cleave.ir.text import parse_graph
from cleave.schedule import schedule
from cleave.tile.plan import Division, Multicast
from cleave.tile.program import loops
from experiments.e01_ablation.config import CANDIDATES
from tests.null import codegen_cases as cases
from tests.null.codegen_cases import Case
from tests.null.compiled import check_compiles
from tests.null.terms import softmax_folds
from tests.null.test_codegen import check
from tests.null.test_codegen_mutants import passes
from tests.null.test_warpgroups import H200, attention, grouped, matmul, transposed


def specialised(case: Case) -> Case:
    kernels = tuple(
        dataclasses.replace(k, skeleton="specialised", binding=dataclasses.replace(k.binding, loaders=4))
        for k in case.schedule.kernels
    )
    return dataclasses.replace(case, schedule=dataclasses.replace(case.schedule, kernels=kernels))


FLAT_HEADS = """
graph flat
dims h, s
input q: float16[h, s, 40]
input k: float16[40*h, 128]
input v: float16[h, 128, 40]
axis h: dim.h
axis s: dim.s
axis t: 128
axis d: 40
axis e: 40
x[h, s, t] = sum(d, q[h, s, d] * k[h*40 + d, t]) * 0.3
m[h, s] = max(t, x)
p[h, s, t] = exp_diff(x, m)
l[h, s] = sum(t, p)
o[h, s, e] = sum(t, p * v[h, t, e])
output out: float16[h, s, 40] @ [h, s, e] = o * recip0(l)
"""
AND_ROWS = FLAT_HEADS.replace("recip0(l)", "recip0(l) + q[h, s, e]")
"""Queries are read after the loop too, so each warpgroup copies its own; in it all clear what lies beyond a head."""
FLAT_QUERIES = """
graph flat
dims h, t
input q: float16[40*h, 256]
input k: float16[h, t, 40]
input v: float16[h, t, 40]
axis h: dim.h
axis s: 256
axis t: dim.t
axis d: 40
axis e: 40
x[h, s, t] = sum(d, q[h*40 + d, s] * k[h, t, d]) * 0.3
m[h, s] = max(t, x)
p[h, s, t] = exp_diff(x, m)
l[h, s] = sum(t, p)
o[h, s, e] = sum(t, p * v[h, t, e])
output out: float16[h, 256, 40] @ [h, s, e] = o * recip0(l)
"""
"""The first tile lies in rows of another axis than the block's, which ends inside the array."""


def flat_heads(text: str, *, rows: int = 64) -> Case:
    g = parse_graph(text)
    roles, whole = "h unit, s grid, n128 loop", {a.name: 48 for a in g.axes if a.extent.constant == 40}
    plan = cases.kernel(g, roles, {"s": rows, "n128": 64, **whole}, "s", warps=rows // 16)
    return grouped(Case(cases.schedule(g, plan), ({"h": 2, "s": 150}, {"h": 3, "s": 64})))


LATENT = """
graph latent
dims b, h, t, r = 128, p = 16
input q: float16[b, h, r]
input c: float16[b, t, r]
input q_pe: float16[b, h, p]
input k_pe: float16[b, t, p]
axis b: dim.b
axis h: dim.h
axis t: dim.t
axis r: dim.r
axis p: dim.p
x[b, h, t] = (sum(r, q[b, h, r] * c[b, t, r]) + sum(p, q_pe[b, h, p] * k_pe[b, t, p])) * 0.1
m[b, h] = max(t, x)
w[b, h, t] = exp_diff(x, m)
l[b, h] = sum(t, w)
o[b, h, r] = sum(t, w * c[b, t, r])
output out: float16[b, h, r] @ [b, h, r] = o * recip0(l)
output lse: float32[b, h] @ [b, h] = m + log(l)
"""
"""Keys are values as well; a score is the sum of two products. Of ``r`` each of two warpgroups has half."""


AND_LATER = LATENT + "output y: float16[b, h, p] @ [b, h, p] = q_pe[b, h, p] * l\n"
"""A tile of rows is read after the loop too, so threads copy it: both warpgroups have all of its rows."""


def fetched_together(case: Case, axis: str, blocks: int = 2) -> Case:
    """So many blocks along an axis fetch for one another what all of them read."""
    (kernel,) = specialised(case).schedule.kernels
    shared = Multicast(next(a for a in kernel.program.grid if a.name == axis), blocks)
    kernel = dataclasses.replace(kernel, binding=dataclasses.replace(kernel.binding, multicast=shared))
    return dataclasses.replace(case, schedule=dataclasses.replace(case.schedule, kernels=(kernel,)))


def latent(text: str = LATENT, *, t: int = 32, stages: int = 2, meet: bool = False) -> Case:
    g = parse_graph(text)
    fixed = {s.name: s.value for s in g.symbols if s.value is not None}
    tiles = {**fixed, "h": 64, "t": t}
    plan = cases.kernel(g, "b unit, h grid, t loop", tiles, "h", warps=8, stages=stages)
    (r,) = (a for a in plan.program.whole if a.name == "r")
    division = Division(r, 2, next(s.axis for s in loops(plan.program)) if meet else None)
    plan = dataclasses.replace(plan, binding=dataclasses.replace(plan.binding, division=division))
    return grouped(Case(cases.schedule(g, plan), ({"b": 2, "h": 70, "t": 75}, {"b": 1, "h": 3, "t": 0})))


def latent_pairs(*, t: int = 32, meet: bool = False) -> Case:
    """Two tiles of heads: their blocks read the same keys."""
    case = latent(LATENT.replace("dims b, h,", "dims b, h = 128,"), t=t, meet=meet)
    return fetched_together(dataclasses.replace(case, sizes=({"b": 2, "t": 75}, {"b": 1, "t": 0})), "h")


RAGGED = """
graph ragged
dims b, h, t
input length: int32[b]
input q: float16[b, h, 64]
input k: float16[b, t, 64]
input v: float16[b, t, 64]
axis b: dim.b
axis h: dim.h
axis t: length[b]
axis d: 64
axis e: 64
x[b, h, t] = sum(d, q[b, h, d] * k[b, t, d]) * 0.3
m[b, h] = max(t, x)
w[b, h, t] = exp_diff(x, m)
l[b, h] = sum(t, w)
o[b, h, e] = sum(t, w * v[b, t, e])
output out: float16[b, h, 64] @ [b, h, e] = o * recip0(l)
"""
"""Rows beyond a length lie inside the array: they are cleared in every slot, also where another box was before."""


def ragged() -> Case:
    g = parse_graph(RAGGED)
    (t,) = (a.name for a in g.axes if axes_of(a.extent))
    whole = {a.name: 64 for a in g.axes if a.extent.constant == 64}
    plan = cases.kernel(g, f"b unit, h grid, {t} loop", {"h": 128, t: 32, **whole}, "h", warps=8, stages=2)
    return grouped(Case(cases.schedule(g, plan), ({"b": 3, "h": 130, "t": 200},), {"length": (170, 0, 33)}))


CASES = {
    "matmul": lambda: matmul(64),
    "matmul, two warpgroups": lambda: matmul(64, rows=128),
    "matmul, three warpgroups": lambda: matmul(32, k=32, rows=192, stages=3),
    "matmul, bfloat16": lambda: matmul(64, dtype="bfloat16"),
    "matmul, k contiguous": lambda: transposed(32),
    "attention": attention,
    "attention, head 128": lambda: attention("full", head=128, t=64),
    "attention, three stages": lambda: attention(stages=3),
    "attention, two warpgroups": lambda: attention("window", head=32, rows=128),
    "rows copied by warpgroups, keys cleared by all": lambda: flat_heads(AND_ROWS, rows=128),
    "causal attention": lambda: attention("causal", head=32, rows=128),
    "a ragged axis": ragged,
    "columns in two parts": latent,
    "columns in two parts, three stages": lambda: latent(t=64, stages=3),
    "columns and keys in two parts": lambda: latent(t=64, meet=True),
    "columns in two parts, rows copied": lambda: latent(AND_LATER),
    "columns and keys in two parts, rows copied": lambda: latent(AND_LATER, t=64, meet=True),
}


@pytest.mark.parametrize("name", CASES)
def test_the_emulated_kernel_equals_the_graph(name: str, rng: np.random.Generator) -> None:
    case = specialised(CASES[name]())
    operator = generate(case.schedule)
    assert operator.kernels[0].architectures == ("sm_90a",)
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


FETCHED = {
    "matmul, two blocks": lambda: fetched_together(matmul(64), "n"),
    "matmul, four blocks, two warpgroups": lambda: fetched_together(matmul(32, rows=128, stages=3), "n", 4),
    "attention, two blocks": lambda: fetched_together(attention("full"), "n2"),
    "attention, head 128, two blocks": lambda: fetched_together(attention("full", head=128, stages=3), "n2"),
    "columns in two parts, two blocks": latent_pairs,
    "columns and keys in two parts, two blocks": lambda: latent_pairs(t=64, meet=True),
}


@pytest.mark.parametrize("name", FETCHED)
def test_blocks_that_fetch_together_walk_in_step(name: str, rng: np.random.Generator) -> None:
    case = FETCHED[name]()
    operator = generate(case.schedule)
    (kernel,) = operator.kernels
    assert kernel.cluster == case.schedule.kernels[0].binding.multicast.blocks and "copy_box_to_all" in kernel.text
    for blocks in (kernel.cluster, None):
        grid = kernel.grid if blocks is None else (minimum(kernel.grid[0], blocks),)
        few = dataclasses.replace(operator, kernels=(dataclasses.replace(kernel, grid=grid),))
        for sizes in case.sizes:
            check(few, case.schedule.graph, case, sizes, rng)


WALKED = [
    "matmul",
    "attention",
    "attention, two warpgroups",
    "causal attention",
    "rows copied by warpgroups, keys cleared by all",
    "columns in two parts",
    "columns and keys in two parts",
]


@pytest.mark.parametrize("name", WALKED)
def test_blocks_walk_several_tiles(name: str, rng: np.random.Generator) -> None:
    """Slots and phases go on from tile to tile; a tile without trips lies between."""
    case = specialised(CASES[name]())
    operator = generate(case.schedule)
    for blocks in (1, 2):
        few = dataclasses.replace(operator.kernels[0], grid=(minimum(operator.kernels[0].grid[0], blocks),))
        for sizes in case.sizes:
            check(dataclasses.replace(operator, kernels=(few,)), case.schedule.graph, case, sizes, rng)


def test_everything_compiles_without_spills() -> None:
    check_compiles((specialised(make()).operator for make in CASES.values()), newest=True)


def test_what_is_computed_beside_a_matmul_is_not_moved_beyond_it() -> None:
    """The exponentials of a trip stand before the wait for the matmul that runs beside them; ptxas would move them."""
    (kernel,) = generate(specialised(attention("full", head=128, t=128, rows=128)).schedule).kernels
    own = kernel.text.split(KERNEL_MARK)[1]
    beside = own[own.index("warpgroup_wait<1>") :]
    wait = beside.index("warpgroup_wait<0>")
    assert beside.rindex("exp2_of", 0, wait) < beside.rindex("// done before the wait", 0, wait)


LAST_LATE = (
    r"(slot_2 \* 4096\), 4096, 1024\)\);\s*warpgroup_begin\(\);\s*#pragma unroll\s*)"
    r"for \(int kk = 0; kk < 2; kk\+\+\) \{[^}]*\}"
)

MUTANTS = {
    "nobody waits for the first boxes": ("matmul", r"mbarrier_wait\(k_full[^;]*;", ";"),
    "one warp says that all have read": (
        "matmul, two warpgroups",
        r"if \(lane == 0\) mbarrier_a",
        "if (thread == 0) mbarrier_a",
    ),
    "loaders do not wait": ("matmul", r"mbarrier_wait_for_all\([^;]*;", ";"),
    "the slot of this trip is called empty": ("matmul", r"(mbarrier_arrive\(k_empty \+) before", r"\1 slot_2"),
    "the late matmul reads the slot of this trip": ("attention", r"v_1_tile_ring \+ before", "v_1_tile_ring + slot_2"),
    "the late matmul does not wait for its boxes": ("attention", r"mbarrier_wait\(t_full_2[^;]*;", ";"),
    "keys are overwritten while they are multiplied": ("attention, three stages", r"warpgroup_wait<1>\(\);", ""),
    "the last late matmul is forgotten": ("attention", LAST_LATE, r"\1"),
    "rows of the tile before": ("attention", r"held(_\d)? \^= 1;", ";"),
    "every tile begins with the first slot": (
        "attention, three stages",
        r"(int slot_2 = 0, phase_2 = 0;\s*for [^\n]*\n)",
        r"\1slot_2 = 0;\n",
    ),
    "the next tile's rows come while these are read": (
        "attention, head 128",
        r"if \(t_start \+ \d+ >= t_high\)",
        "if (t_start < 0 || true)",
    ),
    "a number is told before all have read the one before": (
        "causal attention",
        r"mbarrier_wait_for_all\(number_empty[^;]*;",
        ";",
    ),
    "the last block to leave resets one counter": ("causal attention", r"reset\(attention_taken\);", ";"),
    "blocks take the tile after the next": (
        "causal attention",
        r"\(int\)gridDim.x \+ take",
        "(int)gridDim.x + 1 + take",
    ),
    "one barrier for all and for a warpgroup": (
        "rows copied by warpgroups, keys cleared by all",
        r"team_barrier<256>\(14\)",
        "team_barrier<256>(0)",
    ),
    "keys are cleared for one warpgroup": (
        "rows copied by warpgroups, keys cleared by all",
        r"team_barrier<256>\(14\)",
        "team_barrier<128>(warp / 4)",
    ),
    "rows of parts do not meet": (
        "columns and keys in two parts",
        r"team_barrier<256>\(14\);(\s*(#pragma unroll)?\s*for \(int h = 0; h < 2; h\+\+\) \{\s*m1\[h\] = NEG)",
        r"\1",
    ),
    "rows are multiplied before all of them are there": (
        "columns and keys in two parts",
        r"(tensor_cores_may_read\(\);\s*)team_barrier<256>\(14\);",
        r"\1",
    ),
    "tensor cores do not see what threads wrote": ("columns and keys in two parts", r"tensor_cores_may_read\(\);", ""),
    "both warpgroups multiply the first columns": ("columns in two parts", r"\(warp / 4\) \* \d+, ", "0, "),
    "a warpgroup takes its turn again": ("causal attention", r"turn_pass<256>\([^;]*;", "turn_pass<256>(warp / 4);"),
    "nobody passes a turn on": ("causal attention", r"turn_pass<256>\([^;]*;", ";"),
    "a turn is passed after the last trip": ("causal attention", r"if \(warp < 4 \|\| ", "if (true || "),
    "tiles are left out": ("matmul", r"(\w+) < \(u32\)", r"\1 + 1 < (u32)"),
}


@pytest.mark.parametrize("units", [1, 2])
@pytest.mark.parametrize("name", ["causal attention", "attention, two warpgroups"])
def test_some_heads_are_worked_on_at_every_length_before_the_next(
    name: str, units: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last section is narrower; the long tiles of each come first."""
    monkeypatch.setattr(grid, "units_of_section", lambda em, counts, most_bytes: index(units))
    case = specialised(CASES[name]())
    operator = generate(case.schedule)
    own = operator.kernels[0].text.split(KERNEL_MARK)[1]
    assert "attention_taken" in own and own.count("const int unit = ") == 2
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


def test_what_heads_of_a_section_share_fits_into_a_quarter_to_a_half_of_the_cache() -> None:
    operator = generate(specialised(attention("causal", head=32, rows=128)).schedule)
    sizes = next(p.source.expression for p in operator.kernels[0].parameters if p.name == "units_of_strip")
    l2 = H200.facts.l2_bytes // 4
    for b, kv, t in (
        (3, 4, 1000),
        (2, 8, 10**6),
        (1, 7, 3 * 10**5),
        (2, 2, 0),
        (1, 32, 8192),
        (4, 8, 8192),
        (1, 17, 8192),
    ):
        heads, most = b * kv, max(1, l2 // max(1, 2 * 2 * 32 * t))
        found = evaluate(sizes, {"b": b, "kv": kv, "t": t, "s": 100})
        assert found == 2 * -(-heads // max(1, heads // most))  # two heads of queries share one of keys
        assert min(heads, most) <= found // 2 < 2 * most


def test_of_thirty_two_heads_no_two_are_left_for_the_end() -> None:
    """1 MB of keys and values a head: fifteen fill a quarter of the cache. Long tiles of the last two alone would take
    as long as a third of the call."""
    operator = generate(specialised(attention("causal", head=128, rows=128)).schedule)
    sizes = next(p.source.expression for p in operator.kernels[0].parameters if p.name == "units_of_strip")
    for b, kv, t, wide in ((1, 32, 2048, 16), (1, 32, 8192, 4), (4, 8, 2048, 16)):
        assert evaluate(sizes, {"b": b, "kv": kv, "t": t, "s": t}) == 2 * wide


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, rng: np.random.Generator) -> None:
    """One block walks all tiles; the order in which warps run decides whether a race is seen."""
    which, pattern, by = MUTANTS[name]
    case = specialised(CASES[which]())
    operator = generate(case.schedule)
    head, own = operator.kernels[0].text.split(KERNEL_MARK)
    changed = re.sub(pattern, by, own)
    assert changed != own, "the mutant changes nothing"
    kernel = dataclasses.replace(operator.kernels[0], text=head + KERNEL_MARK + changed, grid=(index(1),))
    mutant = dataclasses.replace(operator, kernels=(kernel,))
    assert any(not passes(mutant, case, sizes, rng) for _ in range(8) for sizes in case.sizes)


def test_rows_are_laid_out_when_the_matmul_that_reads_the_last_ones_is_over() -> None:
    """The emulator's matmuls are over at once, so it does not see it."""
    own = generate(specialised(attention()).schedule).kernels[0].text.split(KERNEL_MARK)[1]
    trip = own[own.index("before = slot") :]
    issued = trip.index("warpgroup_multiply<")
    assert issued < trip.index("warpgroup_wait<1>") < trip.index("warpgroup_wait<0>") < trip.index("_rows[kk][0] =")


def test_tiles_that_are_no_boxes_are_refused() -> None:
    plain = specialised(matmul(64)).schedule
    copied = dataclasses.replace(plain, kernels=(dataclasses.replace(plain.kernels[0], feed="cp.async"),))
    with pytest.raises(CodegenError, match=r"^kernel matmul: "):
        generate(copied)


def test_text_is_the_golden_file(golden: Callable[[str, str], None]) -> None:
    golden("attention_specialised.cu", generate(specialised(attention("causal", rows=128)).schedule).kernels[0].text)


def test_a_first_tile_that_ends_inside_its_array_may_have_anything_beyond() -> None:
    """Queries of one head are fetched with eight rows of the next one, which may be infinite: 0 times that is NaN."""
    g = parse_graph(FLAT_QUERIES)
    c = Candidate("flat", g, g, folds=tuple(softmax_folds(g)))
    operator = generate(schedule(c, H200, {"h": 2, "t": 1024}, skeleton="specialised")[0])
    assert "copy_box(q" in operator.kernels[0].text
    rng = np.random.default_rng(0)
    values = {"q": rng.normal(size=(80, 256)), "k": rng.normal(size=(2, 70, 40)), "v": rng.normal(size=(2, 70, 40))}
    clean = emulate(operator, values, {"h": 2, "t": 70})["out"]
    values["q"][40:] = np.inf
    np.testing.assert_array_equal(emulate(operator, values, {"h": 2, "t": 70}, 1)["out"][0], clean[0])


# ---- what the scheduler offers


def test_estimates_are_what_is_emitted() -> None:
    """Shared memory to the byte; registers so that nothing spills: rows of the trip before are alive beside scores."""
    g = nn.attention(d=64, e=64, causal=True)
    c = Candidate("attention", g, g, folds=tuple(softmax_folds(g)))
    bind = {"b": 1, "kv_heads": 2, "group": 2, "s": 1024, "t": 1024}
    offered = schedule(c, H200, bind, skeleton="specialised", keep=100)
    assert {p.kernels[0].binding.warps for p in offered} == {4, 8, 12}
    for plan in offered:
        (kernel,) = plan.kernels
        work = kernel_work(kernel.program, kernel.binding, {**plan.bind, **bind}, "tma")
        assert work.shared_bytes == generate(plan).kernels[0].shared_bytes, plan
    largest: dict[int, tuple[int, int]] = {}
    for n, plan in enumerate(offered):
        binding = plan.kernels[0].binding
        size = max(x for a, x in binding.tiles.items() if a.name == "t")
        largest[binding.warps] = max(largest.get(binding.warps, (0, 0)), (size, n))
    jobs = [(generate(offered[n]).kernels[0], "sm_90a") for _, n in largest.values()]
    for made in compile_many(jobs):
        assert not isinstance(made, Failed)
        assert (made.resources.spill_stores, made.resources.local_bytes) == (0, 0), made.resources


def test_the_estimate_counts_what_tells_the_next_tile() -> None:
    c = next(c for c in load_candidates(CANDIDATES / "causal_prefill.json") if c.name == "unsplit")
    bind = {"b": 1, "s": 2048, "t": 2048}
    for plan in schedule(c, H200, bind, skeleton="specialised", keep=100):
        (kernel,) = plan.kernels
        source = generate(plan).kernels[0]
        assert "attention_taken" in [p.name for p in source.parameters]
        assert (
            kernel_work(kernel.program, kernel.binding, {**plan.bind, **bind}, "tma").shared_bytes
            == source.shared_bytes
        )


def test_a_tile_of_a_loop_in_a_loop_is_refused_when_it_is_scheduled() -> None:
    g = nn.mla_decode(r=640, p=64)
    c = Candidate("mla_decode", g, g, folds=tuple(softmax_folds(g)))
    with pytest.raises(ScheduleError, match="does not come in boxes"):
        schedule(c, H200, {"b": 4, "h": 128, "t": 1024}, skeleton="specialised")


def test_wide_values_are_divided_between_warpgroups() -> None:
    """One kernel: keys are values, of which a block holds all columns and a warpgroup half."""
    c = next(c for c in load_candidates(CANDIDATES / "mla_decode.json") if c.name == "unsplit")
    plan = schedule(c, H200, {"b": 128, "t": 4096})[0]
    (kernel,) = plan.kernels
    division = kernel.binding.division
    assert division is not None and (division.axis.name, division.parts) == ("r", 2)
    assert "columns of r and t in 2 parts" in plan.text()
    made = compile_many([(generate(plan).kernels[0], "sm_90a")])[0]
    assert not isinstance(made, Failed) and made.resources.spill_stores == 0


BATCHED = """
graph batched
dims b, m, n = 40, k = 16
input x: float16[b, m, k]
input w: float16[b, k, n]
axis b: dim.b
axis m: dim.m
axis n: dim.n
axis k: dim.k
output out: float16[b, m, n] @ [b, m, n] = sum(k, x[b, m, k] * w[b, k, n])
"""


def test_tiles_are_walked_in_strips(rng: np.random.Generator) -> None:
    """Blocks beside each other share the larger operand's tile; the last strip is narrower, batches come slowest."""
    roles, tiles = "b unit, m grid, n grid, k loop", {"m": 64, "n": 16, "k": 16}
    plan = cases.kernel(parse_graph(BATCHED), roles, tiles, "m", warps=4)
    case = specialised(grouped(Case(cases.schedule(parse_graph(BATCHED), plan), ())))
    operator = generate(case.schedule)
    own = operator.kernels[0].text.split(KERNEL_MARK)[1]
    strip, width = re.findall(r"const int (strip\w*) = .*;\n *const int (width\w*) = least\(8, ", own)[0]
    assert f"{strip} * 8 +" in own and f"/ {width};" in own
    for sizes in ({"b": 2, "m": 700}, {"b": 1, "m": 64}, {"b": 3, "m": 513}, {"b": 1, "m": 0}, {"b": 0, "m": 9}):
        check(operator, case.schedule.graph, case, sizes, rng)
