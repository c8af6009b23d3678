"""Splits of axes whose extent is read from tables: chunks that the device measures, for every merge and every batch."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import nn, ops
from cleave.candidate import Candidate
from cleave.codegen.compile import Failed, compile_many
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.cost.lanes import kernel_work
from cleave.cost.tables import representative_tables
from cleave.errors import ScheduleError
from cleave.ir.dim import dim
from cleave.ir.generic import fixed_graph
from cleave.ir.index import evaluate, index, read, show
from cleave.ir.ragged import lengths, positions
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.check import check_schedule
from cleave.tile.interp import run_schedule, schedule_dims
from cleave.tile.plan import Merge, Schedule
from tests.null.paged_references import REFERENCES, Arrays, Requests, batch
from tests.null.searched import searched

H200 = Target("sm_90a")
SIZES = {"kv_heads": 2, "group": 3, "d": 32}
MERGES: tuple[Merge, ...] = ("second-launch", "last-arriving", "cluster", "spread")
SHAPE = {"b": 5, "total_q": 12, "total_kv": 900, "num_pages": 900, "num_kv_indices": 884}
DECODES = (
    Requests(keys=(150, 0, 1, 700, 33), sizes=SIZES),  # one far longer than the others, one without keys
    Requests(keys=(0, 0, 0), sizes=SIZES),
    Requests(keys=(3, 2, 1), unused=3, sizes=SIZES),  # more chunks than keys
)


@cache
def split_candidate(name: str, page: int = 1) -> Candidate:
    g = fixed_graph(*nn.instantiate(name, {"h": 6, "kv_heads": 2, "d": 32, "page": page}))
    return next(c for c in searched(g).candidates if c.splits)


def plans(c: Candidate, merge: Merge | None = None, count: int = 8, **forced: Any) -> tuple[Schedule, ...]:
    shape = {n: v for n, v in SHAPE.items() if n in {s.name for s in c.origin.symbols}}
    return schedule(c, H200, shape, merge=merge, split={c.splits[0].base: count}, **forced)


def drawn(name: str, requests: Requests, rng: np.random.Generator, page: int = 1) -> Arrays:
    """Values that the storage type holds."""
    x = batch(name, requests, rng, page)
    return {n: a.astype(np.float16).astype(float) if a.dtype.kind == "f" else a for n, a in x.items()}


def assert_right(plan: Schedule, x: Arrays, expected: Arrays, operator: Any = None) -> None:
    """In float64; and as emitted, within what its storage type holds."""
    found = run_schedule(plan, x)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12)
    if operator is not None:
        made = emulate(operator, x, schedule_dims(plan, {n: a.shape for n, a in x.items()}))
        for name, value in expected.items():
            np.testing.assert_allclose(made[name], value, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("merge", MERGES)
def test_requests_of_any_length_are_right_under_one_plan(merge: Merge, rng: np.random.Generator) -> None:
    c = split_candidate("paged_decode")
    plan = check_schedule(plans(c, merge, **({} if merge == "second-launch" else {"skeleton": "warp-ring"}))[0])
    assert plan.merge == merge and plan.bind[c.splits[0].count] == 8
    operator = generate(plan)
    for requests in DECODES if merge in ("second-launch", "last-arriving") else DECODES[:1]:
        x = drawn("paged_decode", requests, rng)
        assert_right(plan, x, REFERENCES["paged_decode"](x), operator)
    for other in plans(c, merge, count=2, skeleton="cta-ring", keep=2):
        assert_right(check_schedule(other), x, REFERENCES["paged_decode"](x))


@pytest.mark.parametrize(("skeleton", "page"), [("warp-ring", 1), ("cta-ring", 16)])
def test_a_row_that_a_table_places_is_tested_once_for_keys_and_values(
    skeleton: str, page: int, rng: np.random.Generator
) -> None:
    """Rows of whole slabs are copied by threads that have a column of chunks each, keys beside values."""
    g = fixed_graph(*nn.instantiate("paged_decode", {"h": 6, "kv_heads": 2, "d": 64, "page": page}))
    c = next(c for c in searched(g).candidates if c.splits)
    plan = plans(c, "second-launch", skeleton=skeleton)[0]
    operator = generate(plan)
    copies = re.findall(r"copy_chunk_if\((\w)_cache.*, (present\w*)\);", operator.kernels[0].text)
    assert copies and [name for name, _ in copies] == ["k", "v"] * (len(copies) // 2)
    assert all(copies[n][1] == copies[n + 1][1] for n in range(0, len(copies), 2))
    for keys in ((150, 0, 1, 700, 33), (0, 0, 0), (3, 2, 1)):
        requests = Requests(keys=keys, sizes={"kv_heads": 2, "group": 3, "d": 64}, unused=3)
        x = drawn("paged_decode", requests, rng, page)
        assert_right(plan, x, REFERENCES["paged_decode"](x), operator)


def test_blocks_that_go_through_a_request_each_wait_for_the_longest() -> None:
    g = fixed_graph(*nn.instantiate("paged_decode", {"h": 6, "kv_heads": 2, "d": 32, "page": 1}))
    whole, split = (next(c for c in searched(g).candidates if bool(c.splits) == wanted) for wanted in (False, True))
    for requests, expected in ((1, 1.0), (2, 2.0), (64, 3.0)):
        shape = {"b": requests, "num_pages": 9000, "num_kv_indices": 900 * requests}
        unsplit = schedule(whole, H200, shape)[0]
        chunks = schedule(split, H200, shape, merge="second-launch", split={split.splits[0].base: 4})[0]
        for plan, longest in ((unsplit, expected), (chunks, 1.0)):
            first, known = plan.kernels[0], {**plan.bind, **plan.shape, **{c.symbol.name: 300 for c in plan.chunks}}
            work = kernel_work(first.program, first.binding, known)
            assert work.longest == pytest.approx(longest, abs=0.1)


def test_chunks_of_pages(rng: np.random.Generator) -> None:
    """Lengths are those of whole pages and what the last one holds."""
    c = split_candidate("paged_decode", 16)
    plan = plans(c, "last-arriving", skeleton="warp-ring")[0]
    operator = generate(plan)
    for requests in DECODES:
        x = drawn("paged_decode", requests, rng, 16)
        assert_right(plan, x, REFERENCES["paged_decode"](x), operator)
    for merge in ("second-launch", "cluster"):
        other = plans(c, merge, skeleton="cta-ring", keep=1)[0]
        assert_right(check_schedule(other), x, REFERENCES["paged_decode"](x))


def test_blocks_find_their_requests(rng: np.random.Generator) -> None:
    """There are as many as places of chunks; a warp looks at 32 requests at once, more of them take another turn."""
    plan = plans(split_candidate("paged_decode"), "last-arriving", skeleton="cta-ring")[0]
    operator = generate(plan)
    (chunk,) = plan.chunks
    for keys in ((700,), (90,) * 31 + (0, 65), (5, 0, 900) + (0,) * 65 + (70,)):
        x = drawn("paged_decode", Requests(keys=keys, sizes=SIZES), rng)
        dims = schedule_dims(plan, {n: a.shape for n, a in x.items()})
        (blocks,) = (int(evaluate(n, dims)) for n in operator.kernels[0].grid)
        assert blocks == 2 * (sum(keys) // dims[chunk.symbol.name] + len(keys)) and dims[chunk.symbol.name] >= 64
        assert_right(plan, x, REFERENCES["paged_decode"](x), operator)


def test_tables_that_begin_late_or_end_early(rng: np.random.Generator) -> None:
    """Who has no place in the tables is wrong alone: all blocks that somebody waits for are there."""
    plan = plans(split_candidate("paged_decode"), "last-arriving", skeleton="cta-ring")[0]
    operator = generate(plan)
    x = drawn("paged_decode", Requests(keys=(150, 200, 300, 90), sizes=SIZES), rng)
    late = {**x, "q": x["q"][1:], "kv_indptr": x["kv_indptr"][1:]}
    assert_right(plan, late, {n: a[1:] for n, a in REFERENCES["paged_decode"](x).items()}, operator)
    short = {**x, "kv_indices": x["kv_indices"][:400]}
    for pool in ("k_cache", "v_cache"):  # what has no place reads page 0, which a draw may have left unused
        short[pool] = np.concatenate([np.nan_to_num(x[pool][:1]), x[pool][1:]])
    made = emulate(operator, short, schedule_dims(plan, {n: a.shape for n, a in short.items()}))
    for name, value in REFERENCES["paged_decode"](x).items():
        np.testing.assert_allclose(made[name][:2], value[:2], rtol=4e-3, atol=4e-3)
        assert not np.isnan(made[name]).any()


def test_a_chunk_alone_is_stored_and_blocks_without_one_leave() -> None:
    plan = plans(split_candidate("paged_decode"), "last-arriving", skeleton="warp-ring")[0]
    (kernel,) = generate(plan).kernels
    leaves, short, counts = "_o_tile >= greatest_of) return;", "if (greatest_of == 1) {", "== greatest_of - 1;"
    assert (
        kernel.text.index(leaves) < kernel.text.index(short) < kernel.text.index("part0 +") < kernel.text.index(counts)
    )
    for made in compile_many([(kernel, arch) for arch in ("sm_80", "sm_90a")]):
        assert not isinstance(made, Failed) and made.resources.spill_stores == 0


def test_pages_are_looked_up_ahead_of_their_copies() -> None:
    """No copy waits for its place: words of later trips are on their way, and a trip reads its own before it copies."""
    (c,) = (c for c in searched(split_candidate("paged_decode").origin).candidates if c.name == "unsplit")
    dims = {n: SHAPE[n] for n in ("b", "num_pages", "num_kv_indices")}
    for plan in schedule(c, H200, dims, skeleton="warp-ring"):
        (kernel,) = generate(plan).kernels
        own = kernel.text.split("// ---- kernel\n")[1]
        assert "copy_word(" in own and "read_index(kv_indices" not in own


def test_sums_of_segments(rng: np.random.Generator) -> None:
    """Without a matmul, and with rows that are not the requests."""
    b, total = dim("b"), dim("total")

    def sums(x: Any, first: Any) -> Any:
        at = ops.arange(b, "b")
        rows = first[at] + ops.arange(first[at + 1] - first[at], "t")
        return x[rows].sum("t")

    g = cleave.trace(sums, name="segments", dtype={"x": "float16", "first": "int32"}, x=(total, "d"), first=(b + 1,))
    c = next(c for c in searched(g).candidates if c.splits)
    x = rng.standard_normal((700, 24)).astype(np.float16).astype(float)
    first = np.asarray([0, 3, 3, 640, 700], dtype=np.int32)
    expected = np.stack([x[i:j].sum(0) for i, j in pairwise(first)])
    for merge in ("second-launch", "last-arriving"):
        try:
            made = schedule(c, H200, {"b": 4, "total": 700, "d": 24}, merge=merge, split={c.splits[0].base: 4})
        except ScheduleError as error:
            assert "chunks differ within a tile" in str(error) or "has none in its launch" in str(error), error
            continue
        for plan in made:
            assert_right(check_schedule(plan), {"x": x, "first": first}, {g.outputs[0].name: expected})


# ---- what is known of lengths


def test_a_length_that_nothing_bounds_is_not_split() -> None:
    def summed(x: Any, count: Any) -> Any:
        return x[:, ops.arange(count[ops.arange(dim("b"), "b")], "t")].sum("t")

    g = cleave.trace(summed, name="lengths", dtype={"x": "float16", "count": "int32"}, x="b n", count="b")
    split = [c for c in searched(g).candidates if c.splits]
    for c in split:
        with pytest.raises(ScheduleError, match=r"is read from an input, and no array bounds what that holds"):
            schedule(c, H200, {"b": 4, "n": 700})


def test_tables_that_stand_for_those_of_a_call() -> None:
    plan = plans(split_candidate("paged_decode"), "none", 1, skeleton="cta-ring")[0]
    tables = representative_tables(plan.kernels[0].program, {**plan.shape, **plan.bind})
    assert tables["kv_indptr"].tolist() == [0, 176, 353, 530, 707, 884]
    first, merge = (k.program for k in plans(split_candidate("paged_decode"), "second-launch", 4)[0].kernels)
    shape = {**plan.shape, **plan.bind}
    assert (representative_tables(merge, shape)["kv_indptr"] == representative_tables(first, shape)["kv_indptr"]).all()


def test_averages_of_extents() -> None:
    b = dim("b")
    pages, last = read("first", index(3)) - read("first", index(2)), read("last", index(2))
    known = lengths([(pages - 1) * 16 + last], positions([("table", (read("first", index(2)) + 5,))], {"table": (b,)}))
    assert known.rests == {"last": 16} and {n: show(i) for n, i in known.pointers.items()} == {"first": "b"}
    found = known.average((pages - 1) * 16 + last, {"first": index(4)})
    assert found is not None and found == -16 * (-b // 4)
    assert known.average(read("other", index(0)), {}) is None


def test_modelled_times_see_the_keys_of_the_requests() -> None:
    c: Candidate = split_candidate("paged_decode")
    few, many = (
        schedule(c, H200, {"b": 64, "num_pages": 900000, "num_kv_indices": n}, skeleton="cta-ring", merge="none")[
            0
        ].modelled
        for n in (640, 640000)
    )
    assert few is not None and many is not None and many.microseconds > 2 * few.microseconds
