"""Trouble with graphs of several outputs: one that changes another, and matmuls of one input beside one another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import Target, ops
from cleave.candidate import as_written
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.ir.graph import Graph
from cleave.schedule import schedule
from cleave.verify import verify
from tests.cases.reference import Array, f64, rn, softmax
from tests.cases.stages import ATOL, RTOL, run_case


def refused(right: Graph, wrong: Graph) -> bool:
    """Whether verification sees that a graph is not equal to another."""
    return verify(replace(as_written(right), name="wrong", graph=wrong)).outcome.failed


# ---- one more output


def softmax_of_a_product(*, extra: bool, of: str = "ab") -> Graph:
    """The softmax alone, or beside concat(a, a * b) as a second output."""

    def program(a: Any, b: Any) -> Any:
        p = a * b
        weights = ops.softmax(p if of == "ab" else a, axis=0)
        j = ops.arange(8, "j")
        joined = ops.where(j < 4, a[:, j % 4], p[:, j % 4])
        return {"weights": weights, "joined": joined} if extra else {"weights": weights}

    return cleave.trace(program, name="product", a="m n=4", b="m n")


def test_r12_one_more_output_changes_no_other(rng: np.random.Generator) -> None:
    """R12 (pytorch/pytorch#114225): alone and beside the concatenation of what it reads, the softmax is one."""
    x = {"a": rn(rng, 3, 4), "b": rn(rng, 3, 4)}
    p = f64(x["a"]) * f64(x["b"])
    expected = {"weights": softmax(p, 0), "joined": np.concatenate([f64(x["a"]), p], 1)}
    alone, both = softmax_of_a_product(extra=False), softmax_of_a_product(extra=True)
    run_case(both, [(x, expected)])
    run_case(alone, [(x, {"weights": expected["weights"]})])
    got: list[Array] = []
    for g in (alone, both):
        s = schedule(as_written(g), Target("sm_80"), bind={"m": 3})[0]
        got.append(emulate(generate(s), x)["weights"])
    np.testing.assert_array_equal(*got)


def test_r12_a_softmax_of_the_other_half_is_wrong(rng: np.random.Generator) -> None:
    """Of what the second output begins with, rather than of the product."""
    assert refused(softmax_of_a_product(extra=True), softmax_of_a_product(extra=True, of="a"))


# ---- matmuls beside one another


def two_matmuls(*, one_row: bool = False) -> Graph:
    """Biases [1, 4] and [m, 5]; ``one_row``: the second is read as if it had one row, as the first has."""

    def program(x: Any, w1: Any, w2: Any, b1: Any, b2: Any) -> Any:
        return {"y1": x @ w1 + b1, "y2": x @ w2 + (b2[0] if one_row else b2)}

    return cleave.trace(program, name="beside", x="m k", w1="k 4", w2="k 5", b1="1 4", b2="m 5")


def test_r13_matmuls_of_one_input_whose_biases_have_other_shapes(rng: np.random.Generator) -> None:
    """R13 (apache/tvm#20205): joined or not, each adds its own bias, row by row."""
    x = {"x": rn(rng, 2, 3), "w1": rn(rng, 3, 4), "w2": rn(rng, 3, 5), "b1": rn(rng, 1, 4), "b2": rn(rng, 2, 5)}
    products = {n: f64(x["x"]) @ f64(x[f"w{n}"]) for n in (1, 2)}
    expected = {f"y{n}": products[n] + f64(x[f"b{n}"]) for n in (1, 2)}
    run_case(two_matmuls(), [(x, expected)])
    s = schedule(as_written(two_matmuls()), Target("sm_80"), bind={"m": 2, "k": 3})[0]
    joined = {"y1": expected["y1"], "y2": products[2] + f64(x["b2"])[:1]}
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        np.testing.assert_allclose(emulate(generate(s), x)["y2"], joined["y2"], rtol=RTOL, atol=ATOL)
    assert refused(two_matmuls(), two_matmuls(one_row=True))
