"""Trouble with norms: the eps that is added, and what is multiplied afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np

import cleave
from cleave import nn, ops
from cleave.ir.interp import interpret
from tests.cases.reference import f16, f64
from tests.cases.stages import run_case


def normed(x: Any, eps: float) -> Any:
    return x / ops.sqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + eps)


def rms(x: Any, eps: float) -> Any:
    return np.sqrt((f64(x) ** 2).mean(-1, keepdims=True) + eps)


def test_r09_eps_is_the_number_in_the_program(rng: np.random.Generator) -> None:
    """Rows of about 0.03, whose mean square is below the spacing of float16 at 1."""
    x = f16(rng.standard_normal((4, 32)) * 0.03)
    expected = f64(x) / rms(x, 1e-6)
    assert not np.allclose(f64(x) / rms(x, 2.0**-10), expected, rtol=0.06)
    run_case(cleave.trace(lambda x: normed(x, 1e-6), name="rms", x="m n"), [({"x": x}, {"out": expected})])
    got = interpret(nn.rmsnorm(eps=1e-6), {"x": x, "gain": np.ones(32)})["out"]
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_r10_a_gain_that_widens_the_norm() -> None:
    x = {"x": f16([[3.0]]), "s": f16([1.0, 2.0])}
    expected = f64(x["x"]) / rms(x["x"], 1e-5) * f64(x["s"])
    np.testing.assert_allclose(expected, [[1.0, 2.0]], rtol=1e-5)
    for specs in ({"x": "1 1", "s": "2"}, {"x": "m 1", "s": "n"}):
        g = cleave.trace(lambda x, s: normed(x, 1e-5) * s, name="rms", **specs)
        run_case(g, [(x, {"out": expected})])
