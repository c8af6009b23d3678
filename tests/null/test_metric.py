"""The metric lets pass what is rounded right, however small it is."""

from dataclasses import replace

import numpy as np
import pytest

from cleave.frontend import ops
from cleave.frontend.trace import trace
from cleave.ir.axis import axis
from cleave.ir.dim import dims
from cleave.ir.graph import Input, apply, const, fold, graph, load
from cleave.ir.interp import interpret
from cleave.ir.op import round_to
from cleave.verify import Outcome, check_executable
from cleave.verify.metric import compare, graph_tolerance, storage, with_magnitudes
from tests.null.scheduled_candidates import output
from tests.null.terms import mul


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("scale", [2.0**-20, 2.0**-24, 2.0**-130, 2.0**-140])
def test_what_is_rounded_right_passes_however_small(dtype: str, scale: float, rng: np.random.Generator) -> None:
    expected = rng.standard_normal(100) * scale
    allowed = storage([dtype], dtype)
    stored_right = round_to(expected, dtype)
    assert compare(stored_right, expected, np.abs(expected), allowed).passed
    beyond = stored_right + 2.0**-23  # two spacings of the smallest numbers of float16, many of the others
    assert not compare(beyond, expected, np.abs(expected), allowed).passed


def gated(x, u, w, d):
    return (ops.silu(x @ u) * (x @ w)) @ d


@pytest.mark.parametrize("scale", [1.0, 0.1, 1e-2])
def test_operands_that_are_rounded_below_the_least_normal_number_pass(scale: float, rng: np.random.Generator) -> None:
    """What a kernel computes: the operand of the last matmul is rounded to float16, everything else is exact."""
    g = trace(gated, x="m k=16", u="k n", w="k n", d="n p=16", dtype="float16", outputs="float32[m p]")
    x, u, w, d = (rng.standard_normal(shape) for shape in ((9, 16), (16, 40), (16, 40), (40, 16)))
    inputs = {n: round_to(a * s, "float16") for n, a, s in zip("xuwd", (x, u, w, d), (scale, 1, 1, 1), strict=True)}

    def operand(a: np.ndarray) -> np.ndarray:
        y = a @ inputs["u"]
        return y / (1 + np.exp(-y)) * (a @ inputs["w"])

    def run(given, outputs, wrong: float = 1.0) -> None:
        outputs["out"][...] = round_to(operand(given["x"]), "float16") @ given["d"] * wrong

    assert check_executable(run, g, inputs).outcome is Outcome.PASSED
    assert check_executable(lambda i, o: run(i, o, 1.01), g, inputs).outcome is Outcome.WRONG_VALUE


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", ["exp", "exp_diff", "sigmoid"])
def test_an_exponential_below_the_least_normal_number_of_float32_may_be_nothing(name: str, dtype: str) -> None:
    (m,) = dims("m")
    i = axis("i", m)
    x = load("x", i)
    found = mul(apply(name, x, *[const(0.0)] * (name == "exp_diff")), const(0.5))
    g = graph("tail", [Input("x", dtype, (m,))], [output("y", found, (m,), i)])
    data = np.array([0.0, -88.0, -86.0, -120.0])  # e**-87.34 is the least normal number

    def run(given, outputs, least: float) -> None:
        power = np.exp(np.asarray(given["x"], dtype=np.float64))
        value = power / (1 + power) if name == "sigmoid" else power
        outputs["y"][...] = np.where(value < least, 0.0, value) * 0.5

    assert check_executable(lambda i, o: run(i, o, 2.0**-126), g, {"x": data}).outcome is Outcome.PASSED
    assert check_executable(lambda i, o: run(i, o, 2.0**-123), g, {"x": data}).outcome is Outcome.WRONG_VALUE


@pytest.mark.parametrize("name", ["silu", "tanh", "relu"])
def test_a_sum_that_cancels_under_a_function_keeps_its_float32_rounding(name: str, rng: np.random.Generator) -> None:
    m, k = dims("m k")
    i, j = axis("i", m), axis("j", k)
    total = fold("sum", j, mul(load("X", i, j), load("W", j)))
    gate = apply("maximum", total, const(0.0)) if name == "relu" else apply(name, total)
    inputs = [Input("X", "float16", (m, k)), Input("W", "float16", (k,))]
    g = graph("gate", inputs, [output("Y", gate, (m,), i, dtype="float16")])
    x, w = rng.integers(-99, 99, (200, 64)) / 64, np.ones(64)
    x[:, -1] = 2.0**-14 - x[:, :-1].sum(1)  # what is left is far below what was summed
    found = interpret(with_magnitudes(g), {"X": x, "W": w})
    allowed = replace(graph_tolerance(g, "Y"), frobenius=np.inf)
    size = np.abs(x).sum(1)

    def passes(error: float) -> bool:
        shifted = interpret(g, {"X": np.c_[x, error * size], "W": np.ones(65)})["Y"]
        return compare(round_to(shifted, "float16"), found["Y"], found["Y__magnitude"], allowed).passed

    assert passes(2.0**-23)
    assert not passes(2.0**-16)


@pytest.mark.parametrize("keys", [1, 3])
def test_a_maximum_of_sums_that_cancel_keeps_their_float32_rounding(keys: int, rng: np.random.Generator) -> None:
    """With one key that is seen the log sum exp is its score: what the products of q and k leave when they cancel."""
    g = trace(row_lse, q="m d", k="t d", n="int32[]", dtype="float16", outputs="float32[m]")
    inputs = {"q": rng.integers(-99, 99, (200, 64)) / 64, "k": np.ones((keys, 64)), "n": np.array(1)}
    q = inputs["q"]
    q[20:, -1] = 2.0**-14 - q[20:, :-1].sum(1)  # the first rows set the scale of the Frobenius error

    def run(error: float):
        def lse(given, outputs) -> None:
            scores = given["q"] @ given["k"][0] + error * np.abs(given["q"]).sum(1)
            outputs["out"][...] = scores

        return check_executable(lse, g, inputs).outcome

    assert run(2.0**-23) is Outcome.PASSED
    assert run(2.0**-16) is Outcome.WRONG_VALUE


def row_lse(q, k, n):
    scores = ops.where(ops.position("t") < n, ops.einsum("m d, t d -> m t", q, k), -np.inf)
    top = ops.max(scores, axis="t")
    return top + ops.log(ops.sum(ops.exp(scores - top), axis="t"))
