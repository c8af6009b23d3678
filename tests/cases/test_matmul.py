"""Trouble with matrix products: odd sizes, sizes of 1, no rows."""

from __future__ import annotations

from typing import Any

import numpy as np

import cleave
from cleave import nn, ops
from tests.cases.reference import f16, f64, rn
from tests.cases.stages import run_case


def test_g03_odd_sizes_and_odd_pitch(rng: np.random.Generator) -> None:
    """100 x 101 x 99 and 1 x 1 x 128 on one compiled operator, every dim a symbol."""
    shapes = [((100, 101), (101, 99)), ((1, 1), (1, 128))]
    inputs = [{"a": rn(rng, *left), "b": rn(rng, *right)} for left, right in shapes]
    run_case(nn.matmul(), [(x, {"out": f64(x["a"]) @ f64(x["b"])}) for x in inputs], atol=5e-2)


def test_g06_no_rows(rng: np.random.Generator) -> None:
    def program(x: Any, w: Any) -> Any:
        return ops.softmax(x @ w, axis=-1)

    w = rn(rng, 8, 4)
    some = {"x": rn(rng, 5, 8), "w": w}
    e = np.exp(f64(some["x"]) @ f64(w))
    none = {"x": f16(np.zeros((0, 8))), "w": w}
    calls = [(some, {"out": e / e.sum(-1, keepdims=True)}), (none, {"out": np.zeros((0, 4))})]
    run_case(cleave.trace(program, x="n d=8", w="d e=4"), calls)
