"""Tables that are wrong, on the emulator, which ends a run at any access outside an array; and refused on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from cleave import nn
from cleave.candidate import Candidate
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.errors import ArgumentError
from cleave.ir.generic import fixed_graph
from cleave.kernel import OperatorSource
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.interp import schedule_dims
from cleave.tile.plan import Schedule
from tests.null.paged_references import REFERENCES, Array, Arrays, Requests, batch
from tests.null.searched import searched

SIZES: dict[str, int] = {"kv_heads": 1, "group": 2, "d": 32, "h": 2, "e": 32}
SHAPE = {"b": 6, "total_q": 12, "total_kv": 160, "num_pages": 160, "num_kv_indices": 160}
KEYS, QUERIES = (50, 0, 1, 70, 33, 0), (3, 1, 2, 5, 0, 0)
"""No key, fewer keys than queries, no query, neither."""
CASES: Mapping[str, tuple[str, int, str, str]] = {
    "decode": ("paged_decode", 1, "cta-ring", "none"),
    "decode, pages of 16, split": ("paged_decode", 16, "warp-ring", "last-arriving"),
    "prefill, pages of 16": ("paged_prefill", 16, "cta-ring", "none"),
    "packed prefill": ("ragged_prefill", 1, "cta-ring", "none"),
}


@cache
def planned(case: str) -> tuple[Schedule, OperatorSource]:
    name, page, skeleton, merge = CASES[case]
    paged = "paged" in name
    wanted = ("h", "kv_heads", "d") if paged else ("h", "kv_heads", "d", "e")
    sizes = {n: SIZES[n] for n in wanted} | ({"page": page} if paged else {})
    g = fixed_graph(*nn.instantiate(name, sizes, **({"causal": True} if "prefill" in name else {})))
    c: Candidate = next(c for c in searched(g).candidates if bool(c.splits) == (merge != "none"))
    shape = {n: v for n, v in SHAPE.items() if n in {s.name for s in c.origin.symbols}}
    forced: dict[str, Any] = {} if merge == "none" else {"merge": merge, "split": {c.splits[0].base: 4}}
    plan = schedule(c, Target("sm_90a"), shape, skeleton=skeleton, **forced)[0]
    return plan, generate(plan)


def drawn(case: str, rng: np.random.Generator) -> Arrays:
    """Garbage behind the page table, NaN in every slot that nobody uses."""
    name, page = CASES[case][:2]
    requests = Requests(keys=KEYS, queries=QUERIES if "prefill" in name else (), unused=4, sizes=SIZES)
    return batch(name, requests, rng, page)


def called(case: str, x: Arrays) -> dict[str, Array]:
    plan, source = planned(case)
    return emulate(source, x, schedule_dims(plan, {n: a.shape for n, a in x.items()}))


def rows_of(x: Arrays, requests: set[int]) -> list[int]:
    """Rows of all requests but these."""
    first = x.get("qo_indptr", np.arange(len(KEYS) + 1))
    return [row for b in range(len(KEYS)) if b not in requests for row in range(first[b], first[b + 1])]


def assert_right(case: str, found: Arrays, expected: Arrays, rows: list[int]) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(found[name][rows], value[rows], rtol=2e-2, atol=5e-3, err_msg=f"{name} of {case}")


Change = Callable[[Arrays], None]


def at(name: str, place: int, value: int) -> Change:
    def change(x: Arrays) -> None:
        x[name] = x[name].copy()
        x[name][place] = value

    return change


def cut(x: Arrays) -> None:
    x["kv_indices"] = x["kv_indices"][: x["kv_indptr"][4] + 1]


def emptied(x: Arrays) -> None:
    x["kv_indices"] = x["kv_indices"][:0]


def without_pages(x: Arrays) -> None:
    x.update({n: a[:0] for n, a in x.items() if n.endswith("_cache")})


PAGED: Mapping[str, tuple[Change, set[int]]] = {
    "a negative page": (at("kv_indices", 1, -1), {0}),
    "a page behind the last": (at("kv_indices", 1, 200), {0}),
    "the largest page": (at("kv_indices", 1, 2**31 - 1), {0}),
    "a table that is too short": (cut, {4}),
    "no table": (emptied, {0, 2, 3, 4}),
    "no pages": (without_pages, {0, 2, 3, 4}),
}
POINTERS: Mapping[str, tuple[Change, set[int]]] = {
    "more keys than there are": (at("kv_indptr", -1, 400), {5}),
    "a negative pointer": (at("kv_indptr", 1, -9), {0, 1}),
    "pointers that fall": (at("kv_indptr", 1, 70), {0, 1}),
}
QUERY_POINTERS: Mapping[str, tuple[Change, set[int]]] = {
    "more queries than there are": (at("qo_indptr", -1, 60), {5}),
    "a negative pointer of queries": (at("qo_indptr", 1, -5), {0, 1}),
    "a pointer of queries beyond the last": (at("qo_indptr", 1, 90), {0, 1}),
}
LAST: Mapping[str, tuple[Change, set[int]]] = {
    "more keys in a last page than it has": (at("kv_last_page_len", 0, 17), {0}),
    "a last page of less than nothing": (at("kv_last_page_len", 0, -40), {0}),
}


def changes(case: str) -> dict[str, tuple[Change, set[int]]]:
    name, page = CASES[case][:2]
    found = {**POINTERS} | ({**PAGED} if "paged" in name else {})
    return found | ({**QUERY_POINTERS} if "prefill" in name else {}) | ({**LAST} if page > 1 else {})


@pytest.mark.parametrize("case", CASES)
def test_wrong_tables_do_no_harm_to_others(case: str, rng: np.random.Generator) -> None:
    """No access is outside an array, and requests whose tables are right have their values."""
    x = drawn(case, rng)
    expected = REFERENCES[CASES[case][0]](x, **({"causal": True} if "prefill" in case else {}))
    rows = rows_of(x, set())
    assert_right(case, called(case, x), expected, rows)
    for what, (change, concerned) in changes(case).items():
        other = {**x}
        change(other)
        overwritten = rows_of(x, set(range(len(KEYS))) - {0, 1, 2, 3}) if "quer" in what else []
        own = [row for row in rows_of(x, concerned) if row not in overwritten]
        assert_right(f"{case}, {what}", called(case, other), expected, own)


# ---- on the host


@pytest.mark.parametrize("case", CASES)
def test_the_host_refuses_what_kernels_can_not_see(case: str, rng: np.random.Generator) -> None:
    x = drawn(case, rng)
    check(case, x)
    for what, (change, _) in changes(case).items():
        other = {**x}
        change(other)
        with pytest.raises(ArgumentError):
            raise AssertionError(f"{what}: {check(case, other)}")


def check(case: str, x: Arrays) -> None:
    tables = {n: a for n, a in x.items() if n.startswith(("kv_", "qo_"))}
    cache_name = next((n for n in x if n.endswith("_cache")), None)
    extents = {} if cache_name is None else {"num_pages": len(x[cache_name])}
    extents |= {"total_q": len(x["q"])} if "qo_indptr" in x else {}
    extents |= {"total_kv": len(x["k"])} if "k" in x else {}
    nn.check_tables(tables, page=CASES[case][1], **extents)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"kv_indptr": [1, 2]}, "table kv_indptr: it begins with 1, expected 0"),
        ({"kv_indptr": []}, "table kv_indptr: it begins with nothing, expected 0"),
        ({"kv_indptr": [0, 2**31]}, "table kv_indptr: 2147483648 at 1, allowed is < 2147483648"),
        ({"kv_indptr": [[0], [0, 1]]}, "table kv_indptr: rows of different lengths, expected one axis of integers"),
        (
            {"kv_indptr": [0], "kv_last_page_lens": [1]},
            "tables: table 'kv_last_page_lens': allowed are qo_indptr, kv_indptr, kv_indices, kv_last_page_len",
        ),
        ({"kv_indptr": [0, 3, 2]}, "table kv_indptr: 2 at 2, allowed is at least the one before"),
        ({"kv_indptr": [0, 3], "kv_indices": [0, 1]}, "table kv_indptr: it ends with 3, allowed is <= 2"),
        ({"kv_indptr": [0, 2], "kv_indices": [0, 9]}, "table kv_indices: 9 at 1, allowed is 0 <= page < 9"),
        ({"kv_indptr": [0, 1], "qo_indptr": [0, 1, 2]}, "table qo_indptr: 2 requests, kv_indptr has 1"),
        ({"kv_indptr": [0, 1], "qo_indptr": [0, 8]}, "table qo_indptr: it ends with 8, allowed is <= 5"),
        ({"kv_indptr": [0, 1], "kv_last_page_len": [1, 1]}, "table kv_last_page_len: 2 requests, kv_indptr has 1"),
        ({"qo_indptr": [0, 1]}, "tables: table kv_indptr is missing"),
        ({"kv_indptr": [[0, 1]]}, "table kv_indptr: shape (1, 2) of int64, expected one axis of integers"),
        ({"kv_indptr": np.ma.array([0, 1], mask=[0, 1])}, "table kv_indptr: masked arrays are not supported"),
    ],
)
def test_what_the_host_says_of_tables(tables: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        nn.check_tables(tables, num_pages=9, total_q=5)
    assert str(caught.value) == message


def test_batches_without_requests_or_keys_are_right_and_pages_need_their_table() -> None:
    nn.check_tables({"kv_indptr": [0], "kv_indices": [], "kv_last_page_len": []}, page=16, num_pages=0)
    nn.check_tables({"kv_indptr": [0, 0, 0], "kv_indices": [], "kv_last_page_len": [0, 0]}, page=16, num_pages=0)
    with pytest.raises(ArgumentError, match="table kv_last_page_len is missing, of pages of 16 keys"):
        nn.check_tables({"kv_indptr": [0, 1], "kv_indices": [0]}, page=16)
    with pytest.raises(ArgumentError, match="-1 at 0, allowed is 0 <= page < 2147483648"):
        nn.check_tables({"kv_indptr": [0, 1], "kv_indices": [-1]})
    long = {"kv_indptr": [0, 2**24, 2**25], "kv_last_page_len": [1, 1]}
    nn.check_tables(long, page=63)
    with pytest.raises(ArgumentError, match="33554432 at 2, allowed is <= 33554431, pages of 64 keys in all"):
        nn.check_tables(long, page=64)
    extents: list[Any] = [-1, "9", True, float("nan")]
    for extent in extents:
        for name in ("num_pages", "total_q", "total_kv"):
            with pytest.raises(ArgumentError, match=f"{name} {extent!r}: an integer from 0 is expected"):
                nn.check_tables({"kv_indptr": [0]}, **{name: extent})
    for page in (0, -3, "16", True, 1.5):
        with pytest.raises(ArgumentError, match=f"page {page!r}: an integer from 1 is expected"):
            nn.check_tables({"kv_indptr": [0]}, page=page)  # type: ignore[arg-type]
