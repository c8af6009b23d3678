"""Attention over batches of requests: paged and packed, against references written request by request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from cleave import Config, nn, search
from cleave.errors import CleaveError
from cleave.ir.graph import Graph
from cleave.ir.hash import graph_hash
from cleave.ir.interp import interpret
from cleave.ir.text import parse_graph
from tests.null.paged_references import REFERENCES, Arrays, Requests, batch

DECODES = (
    Requests(keys=(7, 0, 1, 33)),
    Requests(keys=(5, 19, 0, 0), unused=5),  # padded at the end, and a table that is too long
    Requests(keys=(1,)),
    Requests(keys=(0, 0)),
)
PREFILLS = (
    Requests(keys=(7, 0, 1, 20, 3), queries=(3, 4, 1, 0, 5)),  # no key, no query, fewer keys than queries
    Requests(keys=(6, 18, 0, 0), queries=(6, 2, 0, 0), unused=5),
    Requests(keys=(1,), queries=(1,)),
    Requests(keys=(0,), queries=(2,)),
)
OPTIONS: tuple[Mapping[str, Any], ...] = (
    {},
    {"window": 3},
    {"soft_cap": 1.3, "scale": -0.7},
)
PAGES = (1, 16, 64)


def cases() -> list[tuple[str, int, Mapping[str, Any]]]:
    found: list[tuple[str, int, Mapping[str, Any]]] = []
    for name in REFERENCES:
        causal = ({"causal": True}, {"causal": True, "soft_cap": 1.3}) if "prefill" in name else ()
        found += [(name, 1, options) for options in (*OPTIONS, *causal)]
        found += [(name, page, {**(causal or ({},))[0]}) for page in PAGES[1:] if "paged" in name]
    return found


def built(name: str, page: int = 1, **options: Any) -> Graph:
    return nn.instantiate(name, {} if name == "ragged_prefill" else {"page": page}, **options)[0]


def batches(name: str) -> tuple[Requests, ...]:
    return PREFILLS if "prefill" in name else DECODES


def assert_alike(got: Arrays, expected: Arrays, what: object, tolerance: float = 1e-9) -> None:
    for output, value in expected.items():
        np.testing.assert_allclose(got[output], value, rtol=tolerance, atol=1e-12, err_msg=f"{output} of {what}")


@pytest.mark.parametrize(("name", "page", "options"), cases())
def test_the_value_of_a_batch(name: str, page: int, options: Mapping[str, Any], rng: np.random.Generator) -> None:
    g = built(name, page, **options)
    for requests in batches(name):
        x = batch(name, requests, rng, page)
        assert_alike(interpret(g, x), REFERENCES[name](x, **options), requests)


@pytest.mark.parametrize("name", REFERENCES)
def test_the_scale_may_be_an_input(name: str, rng: np.random.Generator) -> None:
    g = built(name, scale="sm_scale", dtype="bfloat16")
    assert {i.name: i.dtype for i in g.inputs}["sm_scale"] == "float32"
    assert [(o.name, o.dtype) for o in g.outputs] == [("out", "bfloat16"), ("lse", "float32")]
    x = batch(name, batches(name)[0], rng, scalar=True)
    assert_alike(interpret(g, x), REFERENCES[name](x), name)


@pytest.mark.parametrize("name", ["paged_decode", "mla_paged_prefill"])
def test_candidates_have_the_value_of_the_operator(name: str, rng: np.random.Generator) -> None:
    g = built(name, **({"causal": True} if "prefill" in name else {}))
    assert parse_graph(g.text()) == g and graph_hash(parse_graph(g.text())) == graph_hash(g)
    found = search(g, config=Config(isolate=False))
    assert any(c.splits for c in found.candidates)
    x = batch(name, batches(name)[0], rng)
    expected = REFERENCES[name](x, **({"causal": True} if "prefill" in name else {}))
    for c in found.candidates:
        chunks = {s.count: 4 for s in c.splits} | {s.chunk: 10 for s in c.splits}
        assert_alike(interpret(c.graph, x, chunks), expected, c.name, 1e-6)


def test_what_is_in_no_request_is_left_alone(rng: np.random.Generator) -> None:
    x = batch("paged_prefill", PREFILLS[0], rng)
    x["q"] = np.concatenate([x["q"], np.full_like(x["q"][:2], np.nan)])
    got = interpret(built("paged_prefill"), x)
    assert np.isnan(got["out"][-2:]).all() and np.isfinite(got["out"][:-2]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x["kv_indices"].__setitem__(0, 99), "input k_cache, axis 0: index 99, allowed is 0 <= index < 44"),
        (lambda x: x["kv_indices"].__setitem__(0, -1), "input k_cache, axis 0: index -1, allowed is 0 <= index < 44"),
        (lambda x: x.update(kv_indptr=x["kv_indptr"][:-1]), "input kv_indptr, axis 0: extent 4, expected 5 (b + 1"),
    ],
    ids=["page beyond the cache", "negative page", "pointers of fewer requests"],
)
def test_tables_that_do_not_fit_are_refused(change: Any, message: str, rng: np.random.Generator) -> None:
    x = batch("paged_decode", DECODES[0], rng)
    change(x)
    with pytest.raises(CleaveError) as caught:
        interpret(built("paged_decode"), x)
    assert str(caught.value).startswith(message)
