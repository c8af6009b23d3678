"""Trouble that attention kernels were reported with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cleave
from cleave import nn, ops
from cleave.errors import CleaveError
from cleave.ir.graph import Graph
from tests.cases.reference import INF, attend, causal, f16, f64, ol, rn, softmax
from tests.cases.stages import run_case


def attention(scale: float, *, mask: bool = False, is_causal: bool = False, d: int = 8, e: int = 8) -> Graph:
    """One head; out and lse."""

    def program(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        scores = ops.einsum("sd,td->st", q, k) * scale
        if mask is not None:
            scores = scores + mask
        if is_causal:
            scores = ops.where(ops.causal(scores), scores, -INF)
        out = ops.einsum("st,te->se", ops.softmax(scores, axis="t"), v)
        return {"out": out, "lse": ops.logsumexp(scores, axis="t")}

    specs = {"q": f"s d={d}", "k": "t d", "v": f"t e={e}"}
    return cleave.trace(
        program,
        name="attention",
        outputs={"lse": "float32[s]"},
        **(specs | {"mask": "float32[s t]"} if mask else specs),
    )


def test_a11_a_fully_hidden_row(rng: np.random.Generator) -> None:
    m = np.zeros((4, 5))
    m[1] = -INF
    m[2, 1:4] = -INF
    x = {"q": rn(rng, 4, 8), "k": rn(rng, 5, 8), "v": rn(rng, 5, 8), "mask": m.astype(np.float32)}
    expected = ol(
        attend(x["q"], x["k"], x["v"], np.isfinite(x["mask"]), 0.35, np.where(np.isfinite(x["mask"]), x["mask"], 0))
    )
    assert np.isneginf(expected["lse"][1])
    run_case(attention(0.35, mask=True), [(x, expected)])


def test_a13_causal_with_fewer_queries_than_keys(rng: np.random.Generator) -> None:
    x = {"q": rn(rng, 3, 8), "k": rn(rng, 7, 8), "v": rn(rng, 7, 8)}
    run_case(attention(0.35, is_causal=True), [(x, ol(attend(x["q"], x["k"], x["v"], causal(3, 7), 0.35)))])


@pytest.mark.parametrize("is_causal", [False, True])
def test_a14_a_length_that_is_no_tile_multiple(is_causal: bool, rng: np.random.Generator) -> None:  # noqa: FBT001
    x = {"q": rn(rng, 137, 16), "k": f16(rng.standard_normal((137, 16)) - 1.0), "v": rn(rng, 137, 16)}
    expected = ol(attend(x["q"], x["k"], x["v"], causal(137, 137) if is_causal else None, 0.25))
    run_case(attention(0.25, is_causal=is_causal, d=16, e=16), [(x, expected)])


@pytest.mark.parametrize("d", [40, 63, 72, 96])
def test_a17_a_head_size_that_is_no_power_of_two(d: int, rng: np.random.Generator) -> None:
    x = {"q": rn(rng, 9, d), "k": rn(rng, 11, d), "v": rn(rng, 11, d)}
    run_case(attention(d**-0.5, d=d, e=d), [(x, ol(attend(x["q"], x["k"], x["v"], None, d**-0.5)))])


def test_a20_unscaled_products_do_not_overflow_between_kernels() -> None:
    def program(s: Any, v: Any) -> Any:
        return ops.einsum("rt,te->re", ops.softmax(s, axis="t"), v)

    g = cleave.trace(program, s="r t", v="t e=4")
    x = {"s": f16(np.zeros((2, 1024))), "v": f16(np.full((1024, 4), 100.0))}
    expected = softmax(x["s"]) @ f64(x["v"])
    np.testing.assert_allclose(expected, 100.0)
    ran = run_case(g, [(x, {"out": expected})])
    assert {t.dtype for s in ran.schedules for t in s.temporaries} <= {"float32"}


def test_p09_head_counts_that_do_not_divide() -> None:
    with pytest.raises(CleaveError) as caught:
        nn.instantiate("attention", {"h": 10, "kv_heads": 4})
    assert "10" in str(caught.value)
    assert "4" in str(caught.value)
    assert nn.instantiate("attention", {"h": 12, "kv_heads": 4})[1] == {"kv_heads": 4, "group": 3}


def test_r11_the_order_of_operands_does_not_matter(rng: np.random.Generator) -> None:
    def first(q: Any, k: Any, v: Any, m: Any) -> Any:
        return ops.einsum("st,te->se", ops.softmax(ops.einsum("sd,td->st", q, k) * 0.35 + m), v)

    def second(q: Any, k: Any, v: Any, m: Any) -> Any:
        return ops.einsum("st,te->se", ops.softmax(m + ops.einsum("sd,td->st", q, k) * 0.35), v)

    x = {"q": rn(rng, 4, 8), "k": rn(rng, 6, 8), "v": rn(rng, 6, 8), "m": rn(rng, 4, 6)}
    expected = softmax(f64(x["q"]) @ f64(x["k"]).T * 0.35 + f64(x["m"])) @ f64(x["v"])
    specs = {"q": "s d=8", "k": "t d", "v": "t e=8", "m": "s t"}
    one, other = (run_case(cleave.trace(fn, **specs), [(x, {"out": expected})]) for fn in (first, second))
    assert len(one.found.candidates) == len(other.found.candidates)
    assert str(one.found.candidates[0].cost) == str(other.found.candidates[0].cost)
