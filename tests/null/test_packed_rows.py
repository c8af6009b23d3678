"""Tiles of the queries of requests, one request behind the other: no more blocks than rows may fill."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from cleave import nn
from cleave.candidate import Candidate
from cleave.codegen.compile import Failed, compile_many
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.ir.generic import fixed_graph
from cleave.ir.index import evaluate
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.interp import schedule_dims
from cleave.tile.plan import Schedule
from tests.null.paged_references import REFERENCES, Arrays, Requests, batch
from tests.null.searched import searched

H200 = Target("sm_90a")
SIZES = {"kv_heads": 2, "group": 2, "d": 64, "e": 64}
SHAPE = {"b": 5, "total_q": 900, "total_kv": 900, "num_pages": 900, "num_kv_indices": 884}
MIXED = Requests(keys=(30, 0, 1, 70, 33), queries=(30, 1, 2, 5, 0), sizes=SIZES)
FEW_KEYS = Requests(keys=(1, 3), queries=(5, 40), sizes=SIZES)
MANY = Requests(keys=(3,) * 34, queries=(1,) * 34, sizes=SIZES)


@cache
def candidate(name: str) -> Candidate:
    sizes = {"h": 4, "kv_heads": 2, "d": 64} | ({"page": 1} if name == "paged_prefill" else {"e": 64})
    g = fixed_graph(*nn.instantiate(name, sizes, causal=True))
    return next(c for c in searched(g).candidates if not c.splits)


def plan(name: str, **forced: Any) -> Schedule:
    c = candidate(name)
    shape = {n: v for n, v in SHAPE.items() if n in {s.name for s in c.origin.symbols}}
    return schedule(c, H200, shape, keep=1, **forced)[0]


def drawn(name: str, requests: Requests, rng: np.random.Generator) -> Arrays:
    x = batch(name, requests, rng)
    return {n: a.astype(np.float16).astype(float) if a.dtype.kind == "f" else a for n, a in x.items()}


def assert_alike(made: Arrays, expected: Arrays) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(made[name], value, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(
    ("name", "forced", "batches"),
    [
        ("ragged_prefill", {"skeleton": "specialised"}, (MIXED,)),
        ("paged_prefill", {"skeleton": "cta-ring", "mma": "mma.sync"}, (FEW_KEYS, MANY)),
    ],
)
def test_batches(name: str, forced: Any, batches: tuple[Requests, ...], rng: np.random.Generator) -> None:
    chosen = plan(name, **forced)
    operator = generate(chosen)
    (kernel,) = operator.kernels
    for requests in batches:
        x = drawn(name, requests, rng)
        dims = schedule_dims(chosen, {n: a.shape for n, a in x.items()})
        binding = chosen.kernels[0].binding
        tiles = dims["total_q"] // binding.tile(binding.rows[0]) + len(requests.keys)
        assert int(evaluate(kernel.grid[0], dims)) == min(2 * tiles, 264 if binding.loaders else 2 * tiles)
        assert_alike(emulate(operator, x, dims), REFERENCES[name](x, causal=True))
    (made,) = compile_many([(kernel, "sm_90a")])
    assert not isinstance(made, Failed) and made.resources.spill_stores == 0


@pytest.mark.parametrize("skeleton", ["specialised", "cta-ring"])
def test_keys_of_the_next_request_are_nobody_elses(skeleton: str, rng: np.random.Generator) -> None:
    """Boxes reach beyond the end of a request, and 0 times what lies there may be NaN."""
    chosen = plan("ragged_prefill", skeleton=skeleton, mma="wgmma")
    x = drawn("ragged_prefill", Requests(keys=(20, 40, 7), queries=(3, 2, 7), sizes=SIZES), rng)
    expected = REFERENCES["ragged_prefill"](x, causal=True)
    for n in ("k", "v"):
        x[n][20:60] = np.nan
    made = emulate(generate(chosen), x, schedule_dims(chosen, {n: a.shape for n, a in x.items()}))
    for name, value in expected.items():
        np.testing.assert_allclose(made[name][[0, 1, 2, *range(5, 12)]], value[[0, 1, 2, *range(5, 12)]], 4e-3, 4e-3)


def test_queries_are_loaded_where_they_see_keys() -> None:
    (kernel,) = generate(plan("paged_prefill", skeleton="cta-ring", mma="mma.sync")).kernels
    before = kernel.text[: kernel.text.index("copy_chunk(q_1_tile")]
    assert before.rstrip().splitlines()[-5].strip().startswith("if (0 < ")
