"""Tiles that the copy engine fetches: the shared cases fed by boxes, ends that are not the array's, wrong kernels."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cleave.codegen.compile import Failed, compile_many
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.ir.index import Symbol, index
from cleave.ir.text import parse_graph
from cleave.target import Target
from cleave.tile.plan import Chunk
from tests.null import codegen_cases as cases
from tests.null import team_cases
from tests.null.codegen_cases import Case
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


FETCHED = {
    **{f"attention, head {n}": lambda n=n: attention_of(n) for n in (16, 48, 64, 96, 128)},
    "attention, one warp": lambda: attention_of(128, warps=1),
    "attention, four warps": lambda: attention_of(64, warps=4, stages=2),
    "matmul in slabs": wide_matmul,
    "matmul in slabs, two teams of two warps": lambda: wide_matmul(teams=2),
    "matmul, split": split_sum,
    "decode, head 128": lambda: team_cases.decode(4, 128),
    "ragged": ragged,
    "ragged, two warps": lambda: ragged(64, warps=2),
    "ragged, four teams": lambda: ragged(teams=4),
    "ragged, two teams of two warps": lambda: ragged(96, teams=2, warps=2),
}


@pytest.mark.parametrize("name", FETCHED)
def test_every_tile_of_a_loop_is_fetched(name, rng):
    case = boxed(FETCHED[name]())
    operator = generate(case.schedule)
    assert len(maps(operator)) == 2
    for _ in range(2):
        for sizes in case.sizes:
            check(operator, case.schedule.graph, case, sizes, rng)


@pytest.mark.parametrize("name", ALL)
def test_the_shared_cases_may_be_fed_by_boxes(name, rng):
    case = boxed(ALL[name]())
    operator = generate(case.schedule)
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


@pytest.mark.parametrize("name", [n for n in FETCHED if n.startswith("ragged")])
def test_what_lies_beyond_a_length_may_be_anything(name, rng):
    case = boxed(FETCHED[name]())
    operator, (sizes,) = generate(case.schedule), case.sizes
    values = cases.inputs(case, sizes, rng)
    clean = emulate(operator, values, sizes, 1)["out"]
    for b, length in enumerate(case.tables["length"]):
        for junk in (np.nan, np.inf):
            values["k"][b, length:] = values["v"][b, length:] = junk
    assert np.isfinite(clean).all()
    for seed in range(3):
        np.testing.assert_array_equal(emulate(operator, values, sizes, seed)["out"], clean)
