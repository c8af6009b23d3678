"""Loops without trips: what the block keeps in shared memory is at the identity for every thread that reads it."""

import numpy as np
import pytest

from cleave.candidate import as_written
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.ir.axis import axis
from cleave.ir.dim import dims
from cleave.ir.graph import Graph, Input, Output, apply, fold, graph, load
from cleave.ir.index import read
from cleave.ir.interp import interpret
from cleave.schedule import schedule
from cleave.target import Target

M, N, P = dims("m n p")
ROW, COLUMN, INNER = axis("i", M), axis("j", N), axis("k", P)
RAGGED = axis("t", read("lengths", ROW))


def row_vectors(dtype: str) -> Graph:
    """out[i, j, k] = y[j, k] * sum over t < lengths[i] of x[i, t] * x[i, k]: the sum is a vector over k."""
    total = fold("sum", RAGGED, apply("mul", load("x", ROW, RAGGED), load("x", ROW, INNER)))
    inputs = [Input("x", "float16", (M, P)), Input("y", dtype, (N, P)), Input("lengths", "int32", (M,))]
    stored = (ROW.position, COLUMN.position, INNER.position)
    return graph(
        "rows", inputs, [Output("out", "float32", (M, N, P), stored, apply("mul", total, load("y", COLUMN, INNER)))]
    )


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_vector_over_an_empty_axis_is_zero_for_every_thread(dtype: str, rng: np.random.Generator) -> None:
    g = row_vectors(dtype)
    sizes = {"m": 5, "n": 7, "p": 40}
    inputs = {"x": rng.integers(-4, 5, (5, 40)) / 2, "y": rng.integers(-4, 5, (7, 40)) / 2}
    inputs["lengths"] = np.array([0, 3, 0, 40, 0])
    for plan in schedule(as_written(g), Target("sm_80"), {"m": 33, "n": 40, "p": 20})[:4]:
        operator = generate(plan)
        for seed in range(4):
            got = emulate(operator, inputs, sizes, seed)["out"]
            assert np.array_equal(got, interpret(g, inputs, sizes)["out"]), plan
