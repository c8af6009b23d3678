"""The usual operators: against references written without the frontend, through the search, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from cleave import Config, nn
from cleave.cli.parser import OPERATOR_OPTIONS
from cleave.config import SearchLimits
from cleave.errors import CleaveError
from cleave.ir.graph import Graph
from cleave.ir.hash import graph_hash
from cleave.ir.instance import draw_inputs
from cleave.ir.interp import interpret
from cleave.ir.text import parse_graph
from cleave.search import search
from tests.null import paged_references
from tests.null.nn_references import REFERENCES


def without_kv_heads(sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if name != "kv_heads"}


HEADS = (
    {"b": 2, "h": 6, "kv_heads": 3, "s": 5, "t": 7, "d": 4, "e": 3},
    {"b": 1, "h": 2, "kv_heads": 1, "s": 6, "t": 2, "d": 4, "e": 5},
)
ONE_KEY = {"b": 3, "h": 2, "kv_heads": 2, "s": 4, "t": 1, "d": 1, "e": 2}
NO_KEYS = {"b": 1, "h": 2, "kv_heads": 1, "s": 4, "t": 0, "d": 3, "e": 2}
NO_ROWS = {"b": 1, "h": 2, "kv_heads": 1, "s": 0, "t": 5, "d": 3, "e": 2}
ATTENTION = (*HEADS, ONE_KEY, NO_KEYS, NO_ROWS)
PAIR = ({"m": 3, "n": 5}, {"m": 1, "n": 7}, {"m": 4, "n": 1}, {"m": 0, "n": 3})
ROWS = ({"m": 3, "k": 7, "n": 5}, {"m": 1, "k": 1, "n": 4}, {"m": 2, "k": 5, "n": 1}, {"m": 0, "k": 3, "n": 2})
NO_TERMS = {"m": 3, "k": 0, "n": 5}
PLAIN_HEADS = (
    {"h": 2, "s": 5, "t": 7, "d": 4, "e": 3},
    {"h": 1, "s": 1, "t": 3, "d": 1, "e": 2},
    {"h": 3, "s": 4, "t": 0, "d": 2, "e": 5},
)

EVEN_HEADS = tuple({**x, "d": 2 * x["d"]} for x in (HEADS[0], {**ONE_KEY, "s": 1}, {**ONE_KEY, "t": 6}))
LATENT = tuple(
    {"b": b, "h": h, "t": t, "r": r, "p": p} for b, h, t, r, p in ((2, 3, 7, 4, 2), (1, 2, 1, 1, 1), (2, 3, 0, 5, 2))
)
PROJECTED = tuple(
    {"h": h, "s": s, "t": t, "m": m, "d": d, "e": e}
    for h, s, t, m, d, e in ((2, 5, 7, 6, 4, 3), (1, 6, 2, 1, 2, 5), (3, 4, 0, 2, 5, 1))
)
LLAMA = (
    {"b": 2, "s": 5, "m": 7, "h": 6, "kv_heads": 3, "d": 4, "f": 8},
    {"b": 1, "s": 1, "m": 1, "h": 2, "kv_heads": 2, "d": 2, "f": 1},
)

CASES: tuple[tuple[str, Mapping[str, Any], tuple[Mapping[str, int], ...]], ...] = (
    ("attention", {"lse": True}, ATTENTION),
    ("attention", {"causal": True, "lse": True}, ATTENTION),
    ("attention", {"causal": True, "lse": True, "base2": True, "scale": -0.7}, HEADS),
    ("attention", {"window": 3, "lse": True}, ATTENTION),
    ("attention", {"window": (1, 2), "lse": True}, ATTENTION),
    ("attention", {"window": (2, 0), "causal": True}, HEADS),
    ("attention", {"soft_cap": 1.3, "causal": True}, ATTENTION),
    ("attention", {"bias": True, "lse": True}, ATTENTION),
    ("attention", {"alibi": True, "causal": True}, ATTENTION),
    ("mha", {"causal": True}, tuple(map(without_kv_heads, ATTENTION))),
    ("gqa", {}, ATTENTION),
    ("mqa", {"lse": True, "alibi": True}, tuple(map(without_kv_heads, ATTENTION))),
    ("qk_norm_attention", {"causal": True, "lse": True, "eps": 1e-2}, ATTENTION),
    ("rope", {}, ({"h": 2, "s": 5, "d": 6}, {"h": 1, "s": 1, "d": 2}, {"h": 3, "s": 0, "d": 4})),
    ("rope_attention", {"causal": True, "lse": True}, EVEN_HEADS),
    ("mla", {"causal": True}, tuple(map(without_kv_heads, HEADS))),
    ("mla_decode", {"lse": True}, LATENT),
    ("mla_decode", {"scale": 0.4}, LATENT[:1]),
    ("mla_projected", {}, tuple({**x, "d": 3, "e": 7} for x in LATENT)),
    ("qkv_attention", {"causal": True}, PROJECTED),
    ("moe_routing", {}, ({"m": 3, "n": 11}, {"m": 1, "n": 8})),
    ("moe_routing", {}, ({"m": 4, "n": 5, "k": 3}, {"m": 2, "n": 1, "k": 1}, {"m": 0, "n": 2, "k": 2})),
    ("moe_routing", {"normalised": False}, ({"m": 3, "n": 9, "k": 4},)),
    ("quantised_matmul", {}, (*ROWS, NO_TERMS)),
    ("quantised_matmul", {"levels": 3}, ROWS),
    ("llama_layer", {}, LLAMA),
    ("llama_layer", {"qk_norm": True, "eps": 0.1}, LLAMA[:1]),
    (
        "gpt2_layer",
        {"eps": 0.1},
        ({"b": 2, "s": 4, "m": 5, "h": 3, "d": 2, "f": 7}, {"b": 1, "s": 1, "m": 1, "h": 3, "d": 1, "f": 1}),
    ),
    ("linear_attention", {}, PLAIN_HEADS),
    ("linear_attention", {"normalised": False}, PLAIN_HEADS),
    ("matmul", {}, (*ROWS, NO_TERMS)),
    ("matmul_matmul", {}, PLAIN_HEADS),
    ("matmul_rowsum", {}, (*ROWS, NO_TERMS)),
    ("lora", {}, tuple({**x, "r": r} for x, r in zip(ROWS, (4, 2, 1, 3), strict=True))),
    ("softmax", {}, PAIR),
    ("softmax_matmul", {}, ROWS),
    ("swiglu", {}, (*ROWS, NO_TERMS)),
    ("rmsnorm", {"eps": 1e-3}, PAIR),
    ("rmsnorm_matmul", {"eps": 0.1}, ROWS),
    ("layernorm", {"eps": 0.1}, PAIR),
    ("layernorm_linear", {"eps": 0.1}, ROWS),
    ("residual_rmsnorm", {}, PAIR),
    ("norm_residual_norm", {"eps": 0.01}, PAIR),
)
NAMES = [f"{name} {' '.join(f'{k}={v}' for k, v in options.items())}".strip() for name, options, _ in CASES]


def drawn(g: Graph, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, Any]:
    """Normal numbers; a bias also hides keys, all of them for one row."""
    x = draw_inputs(g, {s.name: s.value or 0 for s in g.symbols} | dict(sizes), rng)
    if "bias" in x and x["bias"].ndim == 3:
        x["bias"][rng.random(x["bias"].shape) < 0.2] = -np.inf
        x["bias"][..., -1:, :] = -np.inf
    return x


def reference(name: str, x: dict[str, Any], options: Mapping[str, Any], bindings: Mapping[str, int]) -> dict[str, Any]:
    """The shapes of inputs say what the dims are, but for how many are chosen."""
    chosen = {"k": bindings["k"]} if name == "moe_routing" and "k" in bindings else {}
    return REFERENCES[name](x, **options, **chosen)


@pytest.mark.parametrize(("name", "options", "sizes"), CASES, ids=NAMES)
def test_the_value_of_an_operator(
    name: str, options: Mapping[str, Any], sizes: tuple[Mapping[str, int], ...], rng: np.random.Generator
) -> None:
    for bindings in sizes:
        g, dims = nn.instantiate(name, bindings, **options)
        x = drawn(g, dims, rng)
        expected = reference(name, x, options, bindings)
        got = interpret(g, x, dims)
        assert set(got) == set(expected)
        for output, value in expected.items():
            np.testing.assert_allclose(got[output], value, rtol=1e-9, atol=1e-12, err_msg=f"{output} at {bindings}")


@pytest.mark.parametrize(("name", "options", "sizes"), CASES, ids=NAMES)
def test_an_operator_is_searched_printed_and_read(
    name: str, options: Mapping[str, Any], sizes: tuple[Mapping[str, int], ...], rng: np.random.Generator
) -> None:
    g, dims = nn.instantiate(name, sizes[0], **options)
    assert parse_graph(g.text()) == g
    assert graph_hash(parse_graph(g.text())) == graph_hash(g)
    is_layer = name.endswith("_layer")
    limits = SearchLimits(seconds=3.0, candidates=3) if is_layer else SearchLimits()
    found = search(g, config=Config(limits=limits, isolate=is_layer), sizes=dims, weights=nn.OPERATORS[name].weights)
    assert any(c.graph == g for c in found.candidates)
    x = drawn(g, dims, rng)
    expected = reference(name, x, options, sizes[0])
    for c in found.candidates:
        chunks = {s.count: 3 for s in c.splits} | {s.chunk: 3 for s in c.splits}
        for output, value in interpret(c.graph, x, {**dims, **chunks}).items():
            np.testing.assert_allclose(value, expected[output], rtol=1e-6, atol=1e-8, err_msg=f"{output} of {c.name}")


def test_every_operator_has_a_reference_and_is_tried() -> None:
    """Those over batches of requests in test_paged.py."""
    assert set(REFERENCES) == {name for name, _, _ in CASES}
    assert {*REFERENCES, *paged_references.REFERENCES} == set(nn.OPERATORS)


def test_every_option_is_a_word_of_the_command_line() -> None:
    options = {o for operator in nn.OPERATORS.values() for o in operator.options}
    assert options == set(OPERATOR_OPTIONS)


def test_options_that_are_not_given_bring_no_input() -> None:
    plain = [i.name for i in nn.attention().inputs]
    assert plain == ["q", "k", "v"]
    assert [i.name for i in nn.attention(bias=True, alibi=True).inputs] == [*plain, "slopes", "bias"]
    assert nn.attention(window=3) == nn.attention(window=(2, 0))
    assert nn.attention(window=3) == nn.attention(window=3, causal=True)


@pytest.mark.parametrize("w", nn.WORKLOADS, ids=str)
def test_workloads_are_graphs(w: nn.Workload) -> None:
    for number in range(len(w.sizes)):
        g, dims = w.build(number)
        assert set(dims) >= {s.name for s in g.symbols if s.value is None}
        assert set(w.weights) <= {i.name for i in g.inputs}
    assert w.build()[1] == w.build(len(w.sizes) // 2)[1]


def test_bindings_become_dims_of_the_graph() -> None:
    g, dims = nn.instantiate("attention", {"b": 1, "h": 32, "kv_heads": 8, "s": 2048, "t": 2048, "d": 128})
    assert dims == {"b": 1, "kv_heads": 8, "group": 4, "s": 2048, "t": 2048, "d": 128, "e": 128}
    assert {s.name: s.value for s in g.symbols if s.value is not None} == {"group": 4, "d": 128, "e": 128}
    assert nn.instantiate("attention", {"h": 8})[1] == {"kv_heads": 8}
    assert nn.instantiate("attention", {"kv_heads": 8})[1] == {"kv_heads": 8}
    assert nn.instantiate("attention", {})[1] == {}
    assert nn.instantiate("mha", {"h": 8})[1] == {"kv_heads": 8}
    assert nn.instantiate("mqa", {"h": 8})[1] == {"group": 8}
    assert nn.instantiate("matmul", {"m": 3}, dtype="bfloat16")[0].inputs[0].dtype == "bfloat16"


KNOWN = ", ".join(nn.OPERATORS)


@pytest.mark.parametrize(
    ("name", "bindings", "options", "message"),
    [
        ("attn", {}, {}, f"attn: no such operator: allowed are {KNOWN}"),
        ("attention", {"x": 3}, {}, "attention: no dim 'x': allowed are b, h, kv_heads, s, t, d, e"),
        ("matmul", {"m": -1}, {}, "matmul: dim m = -1: allowed is >= 0"),
        ("matmul", {}, {"causal": True}, "matmul: no option 'causal': allowed are dtype"),
        ("mha", {"kv_heads": 2}, {}, "mha: no dim 'kv_heads': allowed are b, h, s, t, d, e"),
        ("attention", {"d": 0}, {}, "attention: dim d = 0: allowed is >= 1"),
        (
            "attention",
            {"h": 10, "kv_heads": 4},
            {},
            "attention: h = 10 query heads are not divisible by kv_heads = 4",
        ),
        (
            "attention",
            {"h": 10, "kv_heads": 0},
            {},
            "attention: h = 10 query heads are not divisible by kv_heads = 0",
        ),
        (
            "attention",
            {},
            {"window": 0},
            "attention: window = 0: a whole number >= 1, or two >= 0 (left, right) is expected",
        ),
        (
            "attention",
            {},
            {"window": (2, -1)},
            "attention: window = (2, -1): a whole number >= 1, or two >= 0 (left, right) is expected",
        ),
        ("attention", {}, {"soft_cap": 0.0}, "attention: soft_cap = 0.0: a finite number > 0 is expected"),
        ("attention", {}, {"scale": float("inf")}, "attention: scale = inf: a finite number is expected"),
        ("attention", {}, {"base2": True}, "attention: base2 is the base of lse: ask for lse too"),
        ("rope", {"d": 5}, {}, "rope: d = 5: a head of even size is rotated"),
        ("moe_routing", {"n": 4}, {}, "moe_routing: n = 4 experts, k = 8 of them are chosen: allowed is n >= k"),
        ("moe_routing", {"k": 0}, {}, "moe_routing: dim k = 0: allowed is >= 1"),
        ("quantised_matmul", {}, {"levels": 0}, "quantised_matmul: levels = 0: a whole number >= 1 is expected"),
        ("rmsnorm", {}, {"eps": -1.0}, "rmsnorm: eps = -1.0: a finite number >= 0 is expected"),
    ],
)
def test_errors(name: str, bindings: dict[str, int], options: dict[str, object], message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        nn.instantiate(name, bindings, **options)
    assert str(caught.value) == message


def test_rotated_rows_have_a_position_in_the_tables(rng: np.random.Generator) -> None:
    g, dims = nn.instantiate("rope_attention", {"b": 1, "h": 1, "s": 3, "t": 2, "d": 4})
    with pytest.raises(CleaveError, match=r"rope_attention: constraint dim.s <= dim.t does not hold for s = 3, t = 2"):
        interpret(g, drawn(g, {**dims, "group": 1}, rng), dims)
