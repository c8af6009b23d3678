"""Trouble of batches of requests: tables that are wrong, rows and requests that nobody asks for."""

from __future__ import annotations

import numpy as np
import pytest

from cleave import Target, nn
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.errors import ArgumentError
from cleave.ir.generic import fixed_graph
from cleave.ir.interp import interpret
from cleave.schedule import schedule
from cleave.tile.interp import run_schedule, schedule_dims
from tests.cases.reference import Array, attend, causal, rn
from tests.cases.stages import ATOL, EXACT, RTOL
from tests.null.searched import searched

SHAPE = {"b": 3, "total_q": 8, "total_kv": 6}


@pytest.mark.parametrize("last", [17, 0, -1])
def test_p06_keys_of_a_last_page(last: int) -> None:
    """P06: 17 keys in a page of 16, or none in that of a request which has pages, name the value and the page size."""
    tables = {"kv_indptr": [0, 2, 2], "kv_indices": [3, 1], "kv_last_page_len": [last, 0]}
    with pytest.raises(ArgumentError) as caught:
        nn.check_tables(tables, page=16, num_pages=4)
    assert str(caught.value) == f"table kv_last_page_len: {last} at 0, allowed is 1 <= keys <= 16, the page size"
    for near in (16, 1):
        nn.check_tables({**tables, "kv_last_page_len": [near, 0]}, page=16, num_pages=4)


def test_p07_rows_behind_the_last_request_are_left_alone(rng: np.random.Generator) -> None:
    """P07: a request without queries that has keys, and two rows of no request, which keep what they held: NaN."""
    first_q, first_k = np.array([0, 3, 3, 6], np.int32), np.array([0, 2, 4, 6], np.int32)
    x = {"q": rn(rng, 8, 1, 8), "k": rn(rng, 6, 1, 8), "v": rn(rng, 6, 1, 8)}
    out, lse = np.full((8, 1, 8), np.nan), np.full((8, 1), np.nan)
    for (a, b), (c, d) in zip(_pairs(first_q), _pairs(first_k), strict=True):
        out[a:b, 0], lse[a:b, 0] = attend(x["q"][a:b, 0], x["k"][c:d, 0], x["v"][c:d, 0], causal(b - a, d - c), 0.35)
    sizes = {"h": 1, "kv_heads": 1, "d": 8, "e": 8}
    g = fixed_graph(*nn.instantiate("ragged_prefill", sizes, causal=True, scale=0.35))
    expected = {"out": out, "lse": lse / np.log(2)}
    assert (out[0] == 0).all() and lse[0] == -np.inf
    x |= {"qo_indptr": first_q, "kv_indptr": first_k}
    plan = schedule(next(c for c in searched(g).candidates if not c.splits), Target("sm_80"), SHAPE)[0]
    dims = schedule_dims(plan, {n: a.shape for n, a in x.items()})
    for found, rtol, atol in (
        (interpret(g, x), EXACT, EXACT),
        (run_schedule(plan, x), EXACT, EXACT),
        (emulate(generate(plan), x, dims), RTOL, ATOL),
    ):
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=rtol, atol=atol)


def _pairs(pointers: Array) -> list[tuple[int, int]]:
    return list(zip(pointers[:-1].tolist(), pointers[1:].tolist(), strict=True))
