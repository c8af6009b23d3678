"""The usual operators against references written without the frontend."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from cleave import nn
from cleave.errors import CleaveError
from cleave.ir.interp import interpret

Array = NDArray[np.float64]


def reference(q: Array, k: Array, v: Array, scale: float, *, causal: bool) -> tuple[Array, Array]:
    """Row by row, keys that a row does not see left out."""
    batch, heads, queries, _ = q.shape
    group, keys = heads // k.shape[1], k.shape[2]
    out, lse = np.zeros((batch, heads, queries, v.shape[3])), np.full((batch, heads, queries), -np.inf)
    for b, h, i in np.ndindex(batch, heads, queries):
        seen = min(keys, i + keys - queries + 1) if causal else keys
        if seen > 0:
            scores = k[b, h // group, :seen] @ q[b, h, i] * scale
            weights = np.exp(scores - scores.max())
            out[b, h, i] = weights @ v[b, h // group, :seen] / weights.sum()
            lse[b, h, i] = scores.max() + np.log(weights.sum())
    return out, lse


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("h", "kv_heads"), [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize(("s", "t"), [(3, 7), (5, 5), (4, 0), (6, 2), (1, 9)])
def test_attention(h: int, kv_heads: int, s: int, t: int, causal: bool, rng: np.random.Generator) -> None:  # noqa: FBT001
    bindings = {"b": 2, "h": h, "kv_heads": kv_heads, "s": s, "t": t, "d": 8, "e": 5}
    g, dims = nn.instantiate("attention", bindings, causal=causal, lse=True)
    q, k = rng.standard_normal((2, h, s, 8)), rng.standard_normal((2, kv_heads, t, 8))
    v = rng.standard_normal((2, kv_heads, t, 5))
    got = interpret(g, {"q": q, "k": k, "v": v}, dims)
    out, lse = reference(q, k, v, 8**-0.5, causal=causal)
    np.testing.assert_allclose(got["out"], out, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got["lse"], lse, rtol=1e-9)
    assert [o.dtype for o in g.outputs] == ["float16", "float32"]


def test_attention_with_every_dim_a_symbol(rng: np.random.Generator) -> None:
    q, k, v = rng.standard_normal((1, 4, 3, 9)), rng.standard_normal((1, 2, 5, 9)), rng.standard_normal((1, 2, 5, 2))
    got = interpret(nn.attention(), {"q": q, "k": k, "v": v}, {"group": 2})
    np.testing.assert_allclose(got["out"], reference(q, k, v, 1 / 3, causal=False)[0], rtol=1e-9)
    got = interpret(nn.attention(scale=-2.0), {"q": q, "k": k, "v": v}, {"group": 2})
    np.testing.assert_allclose(got["out"], reference(q, k, v, -2.0, causal=False)[0], rtol=1e-9)


def test_matmul_and_softmax(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((3, 5)), rng.standard_normal((5, 4))
    np.testing.assert_allclose(interpret(nn.matmul(), {"a": a, "b": b})["out"], a @ b, rtol=1e-12)
    exponentials = np.exp(a)
    expected = exponentials / exponentials.sum(1, keepdims=True)
    np.testing.assert_allclose(interpret(nn.softmax(), {"x": a})["out"], expected, rtol=1e-12)


def test_bindings_become_dims_of_the_graph() -> None:
    g, dims = nn.instantiate("attention", {"b": 1, "h": 32, "kv_heads": 8, "s": 2048, "t": 2048, "d": 128})
    assert dims == {"b": 1, "kv_heads": 8, "group": 4, "s": 2048, "t": 2048, "d": 128, "e": 128}
    assert {s.name: s.value for s in g.symbols if s.value is not None} == {"group": 4, "d": 128, "e": 128}
    assert nn.instantiate("attention", {"h": 8})[1] == {"kv_heads": 8}
    assert nn.instantiate("attention", {"kv_heads": 8})[1] == {"kv_heads": 8}
    assert nn.instantiate("attention", {})[1] == {}
    assert nn.instantiate("matmul", {"m": 3}, dtype="bfloat16")[0].inputs[0].dtype == "bfloat16"


@pytest.mark.parametrize(
    ("name", "bindings", "options", "message"),
    [
        ("attn", {}, {}, "attn: no such operator: allowed are attention, matmul, softmax"),
        ("attention", {"x": 3}, {}, "attention: no dim 'x': allowed are b, h, kv_heads, s, t, d, e"),
        ("matmul", {"m": -1}, {}, "matmul: dim m = -1: allowed is >= 0"),
        ("matmul", {}, {"causal": True}, "matmul: no option 'causal': allowed are dtype"),
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
    ],
)
def test_errors(name: str, bindings: dict[str, int], options: dict[str, object], message: str) -> None:
    with pytest.raises(CleaveError) as caught:
        nn.instantiate(name, bindings, **options)
    assert str(caught.value) == message
