"""Tables as callers give them: what an integer input holds follows from how the graph uses it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cleave
from cleave import nn
from cleave.candidate import load_candidates
from cleave.config import Config
from cleave.errors import ScheduleError
from cleave.ir.generic import fixed_graph
from cleave.ir.tables import draw_tables
from cleave.pipeline.trial import check_tile_program
from cleave.schedule import schedule
from cleave.target import Target
from cleave.verify import draw_rounded
from cleave.verify.check import verify
from cleave.verify.verdict import Outcome
from tests.null.searched import searched

CANDIDATES = Path(__file__).parents[2] / "experiments" / "e02_dynamic" / "candidates"
DIMS = {"b": 64, "total_q": 901, "total_kv": 5003, "num_kv_indices": 4999, "num_pages": 701, "group": 2}
OPERATORS = {
    "paged_decode": {"h": 4, "kv_heads": 2, "d": 32, "page": 16},
    "paged_prefill": {"h": 4, "kv_heads": 2, "d": 32, "page": 1},
    "ragged_prefill": {"h": 4, "kv_heads": 2, "d": 32},
    "mla_paged_decode": {"h": 4, "r": 64, "p": 16, "page": 1},
}


@pytest.mark.parametrize("name", OPERATORS)
def test_tables_are_those_of_a_batch(name: str, rng: np.random.Generator) -> None:
    g = fixed_graph(*nn.instantiate(name, OPERATORS[name]))
    dims = {s.name: DIMS[s.name] if s.value is None else s.value for s in g.symbols}
    found = draw_tables(g, dims, rng)
    assert found.keys() == {i.name for i in g.inputs if i.dtype == "int32"}
    for pointers, end in (("qo_indptr", "total_q"), ("kv_indptr", "num_kv_indices")):
        if pointers in found:
            lengths = np.diff(found[pointers])
            assert found[pointers][0] == 0 and found[pointers][-1] == dims.get(end, DIMS["total_kv"])
            assert lengths.min() == 0 and lengths.max() > 2 * lengths.mean()  # nobody, and far more than on average
    if "kv_last_page_len" in found:
        assert set(found["kv_last_page_len"]) <= set(range(1, 17)) and len(set(found["kv_last_page_len"])) > 5
    if "kv_indices" in found:
        pages = found["kv_indices"]
        assert pages.min() >= 0 and DIMS["num_pages"] > pages.max() > DIMS["num_pages"] // 2


def test_one_request_has_everything(rng: np.random.Generator) -> None:
    g = fixed_graph(*nn.instantiate("paged_decode", {"h": 4, "kv_heads": 2, "d": 32, "page": 1}))
    for requests, keys in ((1, 7), (0, 0), (3, 0)):
        dims = {"b": requests, "num_kv_indices": keys, "num_pages": 9, "d": 32, "kv_heads": 2, "group": 2}
        found = draw_rounded(g, dims, rng)
        assert found["kv_indptr"].dtype == np.int32 and len(found["kv_indptr"]) == requests + 1
        assert found["kv_indptr"].tolist() == ([0, 7] if requests == 1 else [0] * (requests + 1))


@pytest.mark.parametrize("name", [n for n in OPERATORS if n != "mla_paged_decode"])
def test_every_schedule_is_compared_with_its_graph(name: str) -> None:
    """Without a GPU too: tables name what is there at a reduced size, and a split into one chunk has no length."""
    g = fixed_graph(*nn.instantiate(name, OPERATORS[name]))
    shape = {s.name: DIMS[s.name] for s in g.symbols if s.value is None}
    compared = 0
    for c in searched(g).candidates:
        for plan in schedule(c, Target("sm_90a"), shape, keep=1):
            found = check_tile_program(plan, c.origin, seed=Config().seed)
            assert found.outcome is Outcome.PASSED, f"{c.name}: {found}"
            compared += 1
    assert compared > 2


def test_what_a_candidate_reads_beyond_a_request_is_in_its_inputs() -> None:
    """Chunks of a split read pointers that the graph's own reads don't reach: with any integers there, the last test of
    right candidates could not be evaluated at the user's shape."""
    g = fixed_graph(*nn.instantiate("ragged_prefill", {"h": 8, "kv_heads": 2, "d": 80, "e": 96}, causal=True))
    split = next(c for c in searched(g).candidates if c.splits)
    found = verify(split, Config(seed=1), bind={"b": 4, "total_q": 2, "total_kv": 1})
    assert found.passed, str(found)


def test_more_requests_than_anybody_counts_are_refused_by_name() -> None:
    c = load_candidates(CANDIDATES / "gqa_paged_decode_h32_kv4_d128_ps1.json")[0]
    bind = {"b": 2**40, "num_kv_indices": 1000, "num_pages": 1000}
    with pytest.raises(
        ScheduleError, match=r"table kv_indptr: 1099511627777 entries \(b = 1099511627776\): .* at most"
    ):
        cleave.schedule(c, Target("sm_90a"), bind)
