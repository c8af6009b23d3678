"""Tracing rotations and roundings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cleave
from cleave import nn, ops
from cleave.errors import ShapeError
from cleave.ir.graph import reductions
from cleave.ir.interp import interpret
from tests.cases.stages import run_case


def test_rotary_is_one_contraction(rng: np.random.Generator) -> None:
    def program(x: Any, w: Any, cos: Any, sin: Any) -> Any:
        return ops.rotary(ops.einsum("s m, m r f -> s r f", x, w), cos, sin, "r")

    g = cleave.trace(program, x="s m", w="m r=2 f", cos="s f", sin="s f")
    assert len([t for t in reductions(*g.terms) if t.op == "sum"]) == 2
    x = {"x": rng.normal(size=(5, 3)), "w": rng.normal(size=(3, 2, 4))}
    angle = rng.normal(size=(5, 4))
    first, second = np.einsum("sm,mrf->rsf", x["x"], x["w"])
    turned = (first + 1j * second) * np.exp(1j * angle)
    got = interpret(g, x | {"cos": np.cos(angle), "sin": np.sin(angle)})["out"]
    np.testing.assert_allclose(got, np.stack([turned.real, turned.imag], axis=1), rtol=1e-9)


def test_rounding_goes_to_the_nearest_and_to_the_even_one(rng: np.random.Generator) -> None:
    g = cleave.trace(lambda x: ops.round(x), x="n", dtype="float32")
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1.4, -0.6, np.inf])
    np.testing.assert_array_equal(interpret(g, {"x": x})["out"], [-2, -2, 0, 0, 2, 2, 1, -1, np.inf])


def test_only_pairs_are_rotated() -> None:
    with pytest.raises(ShapeError, match="rotary: axis r of x has extent r = 3, expected 2"):
        cleave.trace(lambda x, cos: ops.rotary(x, cos, cos, "r"), x="s r=3 f", cos="s f")


def test_quantisation_from_search_to_kernel(rng: np.random.Generator) -> None:
    x = rng.integers(-100, 101, (5, 33)).astype(np.float16)
    x[:, 3] = 127  # levels are whole numbers: rounding is exact, whatever comes before it
    x[2] = 0
    w, scale = np.rint(rng.standard_normal((33, 7)) * 9).astype(np.float16), np.full(7, 0.5, dtype=np.float16)
    expected = x.astype(np.float64) @ w.astype(np.float64) * 0.5
    run_case(nn.quantised_matmul(), [({"x": x, "w": w, "scale": scale}, {"out": expected})], atol=1.0)
