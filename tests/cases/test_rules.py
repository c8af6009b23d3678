"""Trouble with rewrites: identities that hold for most values, folded weights, casts that somebody wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cleave
from cleave import Config, ops
from cleave.ir.interp import interpret
from cleave.pipeline.equality import Verdict
from tests.cases.reference import INF, f16, f64, rn, softmax
from tests.cases.stages import run_case

QUICK = Config(isolate=False)


def softmax_written_out(x: Any) -> Any:
    e = ops.exp(x - ops.max(x, 0, keepdims=True))
    return e / ops.sum(e, 0, keepdims=True)


A19 = {
    # program: what a row with inf, one that is finite and one that is -inf everywhere give
    "written out": (softmax_written_out, [np.nan, 1.0, np.nan]),
    "ops.softmax": (lambda x: ops.softmax(x, 0), [np.nan, 1.0, 0.0]),
}


@pytest.mark.parametrize("length", ["m", "1"], ids=["symbolic", "literal"])
@pytest.mark.parametrize("name", A19)
def test_a19_softmax_over_one_element_is_1_only_where_it_is_finite(name: str, length: str) -> None:
    """As in NumPy; but in ``ops.softmax`` −inf is a row in which nothing is visible, which gives 0, as documented."""
    program, values = A19[name]
    x, expected = np.array([[INF, 1.0, -INF]], np.float32), np.array([values])
    if name == "written out":
        np.testing.assert_array_equal(softmax(x, 0), expected)
    else:
        assert "0 on a row that is −inf everywhere, NaN on one that holds inf" in (ops.softmax.__doc__ or "")
    g = cleave.trace(program, name="softmax", x=f"{length} n", dtype="float32")
    ran = run_case(g, [({"x": x}, {"out": expected})])
    assert any(c.graph is g for c in ran.found.candidates)
    for c in ran.found.candidates:
        bind = {size: 1 for s in c.splits for size in (s.count, s.chunk)}
        if "finite" not in c.assumptions:
            np.testing.assert_array_equal(interpret(c.graph, {"x": x}, bind)["out"], expected)


def test_r15_a_scale_folded_into_the_weights_leaves_the_outputs_alone(rng: np.random.Generator) -> None:
    specs = {"x": "m k", "w": "k n", "g": "n", "b": "n"}
    behind = cleave.trace(lambda x, w, g, b: (x @ w) * g + b, name="affine", **specs)
    folded = cleave.trace(lambda x, w, g, b: x @ (w * g) + b, name="affine", **specs)
    x = {"x": rn(rng, 3, 6), "w": rn(rng, 6, 4), "g": rn(rng, 4), "b": rn(rng, 4)}
    expected = {"out": f64(x["x"]) @ f64(x["w"]) * f64(x["g"]) + f64(x["b"])}
    for g in (behind, folded):
        for weights in ((), ("w", "g", "b")):
            for c in cleave.search(g, config=QUICK, weights=weights).candidates:
                assert [(o.name, o.dtype, o.shape, o.indices) for o in c.graph.outputs] == [
                    (o.name, o.dtype, o.shape, o.indices) for o in g.outputs
                ]
        run_case(g, [(x, expected)])
    assert cleave.equal(behind, folded, config=QUICK).verdict is Verdict.EQUAL


@pytest.mark.parametrize(
    ("program", "square"),
    [
        (lambda x: x * x, 25e6),
        (lambda x: (x * x).astype("float16"), INF),
    ],
    ids=["no cast", "cast to half"],
)
def test_r16_a_cast_is_there_if_it_was_written(program: Any, square: float) -> None:
    """Halves are loaded exactly and multiplied as numbers; ``astype`` rounds, and nothing removes it."""
    x = {"x": f16([[5000.0, 2.0]])}
    g = cleave.trace(program, name="square", x="m n", dtype="float16", outputs="float32[m n]")
    run_case(g, [(x, {"out": np.array([[square, 4.0]])})])


def test_r17_the_root_of_a_square_is_the_magnitude() -> None:
    x = {"x": f16([[65504.0, -300.0, 0.0]])}
    g = cleave.trace(lambda x: ops.sqrt(x * x), name="root", x="m n", dtype="float16")
    run_case(g, [(x, {"out": np.abs(f64(x["x"]))})])
    plain = cleave.trace(lambda x: x, name="root", x="m n", dtype="float16")
    magnitude = cleave.trace(lambda x: abs(x), name="root", x="m n", dtype="float16")
    assert cleave.equal(g, plain, config=QUICK).verdict is Verdict.DIFFERENT
    assert cleave.equal(g, magnitude, config=QUICK).verdict is Verdict.EQUAL
