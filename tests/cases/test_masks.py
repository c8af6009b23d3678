"""Trouble with scores that depend on positions: biases beside a mask, masks of each batch, windows with no key."""

from __future__ import annotations

from typing import Any

import numpy as np

import cleave
from cleave import nn, ops
from cleave.ir.graph import Graph
from cleave.ir.interp import interpret
from tests.cases.reference import INF, Array, attend, causal, ol, rn
from tests.cases.stages import run_case


def of_scores(change: Any) -> Graph:
    """One head of size 8 whose scores are changed before the softmax; out and lse."""

    def program(q: Any, k: Any, v: Any) -> Any:
        scores = change(ops.einsum("sd,td->st", q, k) * 0.35)
        out = ops.einsum("st,te->se", ops.softmax(scores, axis="t"), v)
        return {"out": out, "lse": ops.logsumexp(scores, axis="t")}

    return cleave.trace(program, name="attention", q="s d=8", k="t d", v="t e=8", outputs={"lse": "float32[s]"})


def drawn(rng: np.random.Generator, s: int, t: int) -> dict[str, Array]:
    return {"q": rn(rng, s, 8), "k": rn(rng, t, 8), "v": rn(rng, t, 8)}


def test_a15_a_bias_of_positions_beside_a_mask(rng: np.random.Generator) -> None:
    """At 129 rows the last tile has one: what lies beyond it must not become NaN."""

    def change(scores: Any) -> Any:
        distance = scores.position("s") - scores.position("t")
        return ops.where(ops.causal(scores), scores + ops.value(distance), -INF)

    def called(n: int) -> tuple[dict[str, Array], dict[str, Array]]:
        x = drawn(rng, n, n)
        bias = (np.arange(n)[:, None] - np.arange(n)[None]).astype(float)
        return x, ol(attend(x["q"], x["k"], x["v"], causal(n, n), 0.35, bias))

    run_case(of_scores(change), [called(129), called(33)])


def test_a16_a_mask_that_depends_on_the_batch(rng: np.random.Generator) -> None:
    """Even batches are causal, odd ones the other way round; one operator for 3, 1 and 2 batches."""

    def program(q: Any, k: Any, v: Any) -> Any:
        scores = ops.einsum("bsd,btd->bst", q, k) * 0.35
        b, i, j = (scores.position(name) for name in "bst")
        keep = ((b % 2 == 0) & (j <= i)) | ((b % 2 == 1) & (i <= j))
        return ops.einsum("bst,bte->bse", ops.softmax(ops.where(keep, scores, -INF), axis="t"), v)

    def called(batches: int) -> tuple[dict[str, Array], dict[str, Array]]:
        x = {name: rn(rng, batches, 6, 8) for name in "qkv"}
        keep = (causal(6, 6), causal(6, 6).T)
        rows = [attend(*(x[name][b] for name in "qkv"), keep[b % 2], 0.35)[0] for b in range(batches)]
        return x, {"out": np.stack(rows)}

    run_case(cleave.trace(program, q="b s d=8", k="b t d", v="b t e=8"), [called(n) for n in (3, 1, 2)])


def test_a22_a_window_in_which_some_rows_see_no_key(rng: np.random.Generator) -> None:
    def change(scores: Any) -> Any:
        queries, keys = scores.position("s"), scores.position("t")
        p = queries + (keys.shape[0] - queries.shape[0])
        return ops.where((p - 2 <= keys) & (keys <= p + 3), scores, -INF)

    x = drawn(rng, 13, 4)
    p, j = np.arange(13)[:, None] + 4 - 13, np.arange(4)[None]
    expected = ol(attend(x["q"], x["k"], x["v"], (j >= p - 2) & (j <= p + 3), 0.35))
    assert np.isneginf(expected["lse"][:6]).all() and (expected["out"][:6] == 0).all()
    assert np.isfinite(expected["lse"][6:]).all()
    run_case(of_scores(change), [(x, expected)])
    got = interpret(nn.attention(window=(2, 3), scale=0.35, lse=True), {n: a[None, None] for n, a in x.items()})
    for name, value in expected.items():
        np.testing.assert_allclose(got[name][0, 0], value, rtol=1e-9, atol=1e-12)
