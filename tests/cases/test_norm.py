"""Trouble with norms: the eps that is added, and what is multiplied afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cleave
from cleave import Target, nn, ops
from cleave.candidate import as_written
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.ir.interp import interpret
from cleave.schedule import schedule
from tests.cases.reference import f16, f64, rn
from tests.cases.stages import ATOL, RTOL, run_case


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


def test_r08_squares_that_half_precision_can_not_hold(rng: np.random.Generator) -> None:
    """R08 (pytorch/pytorch#133085, #134106): |x| from 300 to 1000; in half precision the mean square is inf, out 0.

    The norm is divided by before the matmul or behind it, in one kernel or two: every square is one of float32.
    """
    x = {"x": f16(rng.choice([-1, 1], (2, 64)) * rng.uniform(300, 1000, (2, 64))), "w": rn(rng, 64, 4, s=0.1)}
    expected = (f64(x["x"]) / rms(x["x"], 1e-5)) @ f64(x["w"])
    np.testing.assert_allclose((f64(x["x"]) @ f64(x["w"])) / rms(x["x"], 1e-5), expected)
    with np.errstate(over="ignore"):
        squares = (x["x"] * x["x"]).astype(np.float32)
    wrong = (f64(x["x"]) / np.sqrt(squares.mean(-1, keepdims=True))) @ f64(x["w"])
    assert not wrong.any()
    g = cleave.trace(lambda x, w: normed(x, 1e-5) @ w, name="normed", x="m k", w="k n")
    ran = run_case(g, [(x, {"out": expected})])
    for s in ran.schedules:
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            np.testing.assert_allclose(emulate(generate(s), x)["out"], wrong, rtol=RTOL, atol=ATOL)
    written = schedule(as_written(g), Target("sm_80"), bind={"m": 2, "k": 64, "n": 4})
    for kernels in {len(s.kernels): s for s in written}.values():
        np.testing.assert_allclose(emulate(generate(kernels), x)["out"], expected, rtol=RTOL, atol=ATOL)
