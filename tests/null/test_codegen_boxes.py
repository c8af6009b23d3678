"""Tiles that the copy engine fetches: the shared cases fed by boxes, ends that are not the array's, wrong kernels."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.codegen.prelude import KERNEL_MARK
from cleave.ir.index import Symbol, index
from cleave.ir.text import parse_graph
from cleave.target import Target
from cleave.tile.plan import Chunk
from tests.null import codegen_cases as cases
from tests.null import team_cases
from tests.null.codegen_cases import Case
from tests.null.compiled import check_compiles
from tests.null.test_codegen import check
from tests.null.test_codegen_mutants import is_caught

ALL = {**cases.CASES, **team_cases.CASES}


def boxed(case: Case) -> Case:
    """The same programs and tiles, fed by boxes where they can be."""
    kernels = tuple(dataclasses.replace(k, feed="tma") for k in case.schedule.kernels)
    return dataclasses.replace(
        case, schedule=dataclasses.replace(case.schedule, kernels=kernels, target=Target("sm_90a"))
    )


def maps(operator) -> list[str]:
    return [p.source.buffer for k in operator.kernels for p in k.parameters if p.kind == "tensor_map"]


def attention_of(head: int, *, warps: int = 2, stages: int = 3) -> Case:
    """Heads that are one slab or several, of each width."""
    g = parse_graph(cases.attention_text("causal", head=head))
    whole = {a.name: head for a in g.axes if a.extent.constant == head}
    roles, tiles = "b unit, kv unit, n2 unit, s grid, t loop", {"s": 16 * warps, "t": 32, **whole}
    plan = cases.kernel(g, roles, tiles, "s", warps=warps, stages=stages)
    return Case(cases.schedule(g, plan), ({"b": 2, "kv": 2, "s": 21, "t": 75}, {"b": 1, "kv": 1, "s": 3, "t": 130}))


def wide_matmul(*, teams: int = 1) -> Case:
    """Both operands in slabs, the rows of the block among them; the sum has no whole number of tiles."""
    text = cases.MATMUL.replace("dims m, n, k", "dims m, n = 160, k = 208")
    tiles = {"m": 32, "n": 64, "k": 128}
    plan = cases.kernel(text, "m grid, n grid, k loop", tiles, "m", warps=2 * teams, stages=2, teams=teams)
    return Case(cases.schedule(text, plan), ({"m": 45}, {"m": 1}, {"m": 64}))


def half_copied(*, teams: int = 1) -> Case:
    """One operand in boxes, rows of the other at any address: two disciplines in one ring."""
    text = cases.MATMUL.replace("dims m, n, k", "dims m, n, k = 208")
    tiles = {"m": 32, "n": 32, "k": 32}
    plan = cases.kernel(text, "m grid, n grid, k loop", tiles, "m", warps=2 * teams, stages=3, teams=teams)
    return Case(cases.schedule(text, plan), ({"m": 45, "n": 37}, {"m": 1, "n": 64}))


def loop_in_loop() -> Case:
    """The ring of the inner loop is opened and closed in every trip of the outer one."""
    text = cases.attention_text("causal").replace("d = 32", "d = 96").replace("axis d: 32", "axis d: 96")
    g = parse_graph(text)
    d, e = (next(a.name for a in g.axes if a.extent.constant == n) for n in (96, 32))
    roles = f"b unit, kv unit, n2 unit, s grid, t loop, {d} loop"
    plan = cases.kernel(g, roles, {"s": 32, "t": 32, d: 32, e: 32}, "s", stages=2)
    return Case(cases.schedule(g, plan), ({"b": 1, "kv": 2, "s": 21, "t": 75},))


def split_sum(count: int = 3) -> Case:
    """Chunks of whole tiles: what a tile has beyond its chunk lies beyond the array."""
    part = cases.SPLIT_PART.replace("dims m, n, k,", "dims m, n = 32, k = 208,")
    roles, tiles = "m grid, n grid, k_o unit, k_i loop", {"m": 32, "n": 32, "k_i": 32}
    first = cases.kernel(part, roles, tiles, "m")
    join = cases.SPLIT_MERGE.replace("dims m, n,", "dims m, n = 32,")
    second = cases.kernel(join, "m grid, n grid, k_o step", {"m": 32, "n": 32}, "m")
    whole = cases.MATMUL.replace("dims m, n, k", "dims m, n = 32, k = 208")
    cut = Chunk(Symbol("C"), index(208), index(count), 32)
    return Case(cases.split_schedule(whole, first, second, "last-arriving", cut), ({"m": 45}, {"m": 7}))


RAGGED = """
graph ragged
dims b, s, cap
input q: float16[b, s, HEAD]
input k: float16[b, cap, HEAD]
input v: float16[b, cap, HEAD]
input length: int32[b]
axis b: dim.b
axis s: dim.s
axis t: length[b]
axis d: HEAD
axis e: HEAD
x[b, s, t] = sum(d, q[b, s, d] * k[b, t, d]) * 0.3
m[b, s] = max(t, x)
p[b, s, t] = exp_diff(x, m)
o[b, s, e] = sum(t, p * v[b, t, e])
output out: float16[b, s, HEAD] @ [b, s, e] = o * recip0(sum(t, p))
"""


def ragged(head: int = 128, *, teams: int = 1, warps: int = 1) -> Case:
    """Sequences end inside their array."""
    g = parse_graph(RAGGED.replace("HEAD", str(head)))
    t = next(a.name for a in g.axes if a.name.startswith("length"))
    whole = {a.name: head for a in g.axes if a.extent.constant == head}
    roles, tiles = f"b unit, s grid, {t} loop", {"s": 16 * warps, t: 32, **whole}
    plan = cases.kernel(g, roles, tiles, "s", warps=warps * teams, stages=3, teams=teams)
    return Case(cases.schedule(g, plan), ({"b": 5, "s": 5, "cap": 150},), {"length": (50, 0, 150, 1, 96)})


def long_decode() -> Case:
    """Every team uses each of its slots several times."""
    case = team_cases.decode(4, 128)
    return dataclasses.replace(case, sizes=(*({"b": 1, "kv": 2, "s": 1, "t": t} for t in (1100, 901, 100, 0)),))


FETCHED = {
    **{f"attention, head {n}": lambda n=n: attention_of(n) for n in (16, 48, 64, 96, 128)},
    "attention, one warp": lambda: attention_of(128, warps=1),
    "attention, four warps": lambda: attention_of(64, warps=4, stages=2),
    "matmul in slabs": wide_matmul,
    "matmul in slabs, two teams of two warps": lambda: wide_matmul(teams=2),
    "matmul, split": split_sum,
    "decode, head 128": long_decode,
    "loop in loop": loop_in_loop,
    "ragged": ragged,
    "ragged, two warps": lambda: ragged(64, warps=2),
    "ragged, four teams": lambda: ragged(teams=4),
    "ragged, two teams of two warps": lambda: ragged(96, teams=2, warps=2),
}

MIXED = {
    "half copied": half_copied,
    "half copied, two teams": lambda: half_copied(teams=2),
}


@pytest.mark.parametrize("name", MIXED)
def test_boxes_and_copies_go_together(name, rng):
    case = boxed(MIXED[name]())
    operator = case.operator
    own = operator.kernels[0].text.split(KERNEL_MARK)[1]
    assert "copy_box(" in own and ("copy_chunk(" in own or "copy_elements(" in own)
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


@pytest.mark.parametrize("name", FETCHED)
def test_every_tile_of_a_loop_is_fetched(name, rng):
    case = boxed(FETCHED[name]())
    operator = case.operator
    assert len(maps(operator)) >= 2
    for _ in range(2):
        for sizes in case.sizes:
            check(operator, case.schedule.graph, case, sizes, rng)


@pytest.mark.parametrize("name", ALL)
def test_the_shared_cases_may_be_fed_by_boxes(name, rng):
    case = boxed(ALL[name]())
    operator = case.operator
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


@pytest.mark.parametrize("name", [n for n in FETCHED if n.startswith("ragged")])
def test_what_lies_beyond_a_length_may_be_anything(name, rng):
    case = boxed(FETCHED[name]())
    operator, (sizes,) = case.operator, case.sizes
    values = cases.inputs(case, sizes, rng)
    clean = emulate(operator, values, sizes, 1)["out"]
    for b, length in enumerate(case.tables["length"]):
        for junk in (np.nan, np.inf):
            values["k"][b, length:] = values["v"][b, length:] = junk
    assert np.isfinite(clean).all()
    for seed in range(3):
        np.testing.assert_array_equal(emulate(operator, values, sizes, seed)["out"], clean)


def test_everything_compiles_without_spills():
    made = [make() for make in (*FETCHED.values(), *ALL.values())]
    made += [team_cases.real_decode(head, group) for head in (64, 128) for group in (1, 4, 8)]
    check_compiles((boxed(case).operator for case in made), newest=True)


def test_text_is_the_golden_file(golden):
    (kernel,) = generate(boxed(team_cases.decode_split("last-arriving")).schedule).kernels
    golden("decode_split_boxes.cu", kernel.text)


def test_a_kernel_with_tensor_maps_is_for_one_architecture():
    (kernel,) = generate(boxed(FETCHED["decode, head 128"]()).schedule).kernels
    assert kernel.architectures == ("sm_90a",)
    k_map = next(p for p in kernel.parameters if p.kind == "tensor_map" and p.source.buffer == "k")
    assert (k_map.source.box, k_map.source.swizzle) == ((64, 32, 1, 1), 128)
    assert [str(n) for n in k_map.source.dims] == ["128", "t", "kv", "b"]
    assert [str(n) for n in k_map.source.strides] == ["256", "256*t", "256*kv*t"]


def test_inputs_of_tensor_maps_are_aligned():
    operator = generate(boxed(FETCHED["decode, head 128"]()).schedule)
    assert {b.name: b.alignment for b in operator.inputs} == {"q": 16, "k": 16, "v": 16}


def test_what_no_map_can_describe_is_copied():
    """Rows of unknown alignment, pages, two row axes: the kernel has no map and runs on both architectures."""
    for name in ("matmul", "paged", "few rows"):
        (kernel,) = generate(boxed(ALL[name]()).schedule).kernels
        assert kernel.architectures == ("sm_80", "sm_90a")
        assert kernel.text == generate(ALL[name]().schedule).kernels[0].text


# ---- mutants: what the emulator has to see

ASKED = r"if \(lane == 0\) \{\n *const int t_start = t_tile"
MUTANTS = {
    "no wait for the boxes": ("decode, head 128", r"mbarrier_wait\(.*\);", ""),
    "waits for the other phase": ("decode, head 128", r"slot \* 8, phase\);", "slot * 8, phase ^ 1);"),
    "the phase never turns": ("decode, head 128", r"phase \^= slot == 2, ", ""),
    "waits for another slot": (
        "decode, head 128",
        r"(mbarrier_wait\(t_full \+ )slot",
        r"\g<1>(slot == 2 ? 0 : slot + 1)",
    ),
    "a slot is not asked for": ("decode, head 128", r"p < 3; p\+\+\) \{(?=\n *const int t_start)", "p < 2; p++) {"),
    "asks for one trip too many": (
        "decode, head 128",
        r"(const int t_start = t_tile \+ 384;\n *if \()t_start < t_high",
        r"\1true",
    ),
    "expects fewer bytes": ("decode, head 128", r"16384\);", "8192);"),
    "expects more bytes": ("decode, head 128", r"16384\);", "16400);"),
    "asks before all have read": ("decode, head 128", rf"warp_barrier\(\);(?=\n *{ASKED})", ""),
    "asks for the slot that is read next": (
        "decode, head 128",
        r"ring \+ slot \* (\d+) \+ c",
        r"ring + (slot == 2 ? 0 : slot + 1) * \1 + c",
    ),
    "all threads ask": ("decode, head 128", rf"{ASKED}", "{ const int t_start = t_tile"),
    "no fence after mbarriers are opened": ("decode, head 128", r"boxes_may_follow\(\);", ""),
    "no fence after a loop that wrote": ("attention, several passes", r"boxes_may_follow\(\);", ""),
    "mbarriers stay open": ("attention, several passes", r"mbarrier_close\(.*\);", ""),
    "no barrier before states take the rings' memory": (
        "decode, head 128",
        r"(mbarrier_close\(.*\);\n *\}\n *\})\n *block_barrier\(\);",
        r"\1",
    ),
    "all teams in one ring": ("decode, head 128", r"(_ring = shared_base \+ \d+) \+ team \* \d+;", r"\1;"),
    "all teams at one mbarrier": ("decode, head 128", r"(_full = shared_base \+ \d+) \+ team \* \d+;", r"\1;"),
    "slots at odd places": ("decode, head 128", r"(k_1_tile_ring = shared_base) \+", r"\1 + 512 +"),
    "rows swizzled whole": ("decode, head 128", r"slabs<8, 32>\(", "swizzle<16>("),
    "the first columns twice": ("decode, head 128", r"0 \+ c \* 64", "0"),
    "the head of another sequence": ("attention, head 128", r"kv_tile, b_tile\)", "b_tile, kv_tile)"),
    "rows of the tile before": ("decode, head 128", r", t_start, kv_tile", ", t_start - 1, kv_tile"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name, rng):
    case_name, pattern, new = MUTANTS[name]
    assert is_caught(boxed({**ALL, **FETCHED}[case_name]()), pattern, new, rng)


def test_junk_beyond_a_length_is_seen_if_nobody_clears_it(rng):
    case = boxed(ragged())
    operator, (sizes,) = case.operator, case.sizes
    (kernel,) = operator.kernels
    text = re.sub(r"if \(.*\) clear_chunk\(.*\);", "", kernel.text)
    operator = dataclasses.replace(operator, kernels=(dataclasses.replace(kernel, text=text),))
    values = cases.inputs(case, sizes, rng)
    values["v"][0, 50:] = np.nan
    assert np.isnan(emulate(operator, values, sizes, 1)["out"]).any()
