"""Trouble with extents of 1, labels and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cleave
from cleave import ops
from cleave.errors import CleaveError
from cleave.ir.interp import interpret
from tests.cases.reference import INF, f64, rn
from tests.cases.stages import run_case, run_search


def test_s06_a_symbolic_extent_meets_a_fixed_one() -> None:
    """[2, n] + [3]: without a common name it is refused; with one, n is 3, and n = 2 is an error at the call."""

    def total(x: Any, y: Any) -> Any:
        return x + y

    with pytest.raises(CleaveError) as caught:
        cleave.trace(total, x="2 n", y="3")
    assert "axis n (extent n) of x and axis y.0 (extent 3) of y do not match" in str(caught.value)
    g = cleave.trace(total, x="2 n", y="n=3")
    with pytest.raises(CleaveError) as caught:
        interpret(g, {"x": np.zeros((2, 2)), "y": np.zeros(3)})
    assert str(caught.value) == "input x, axis 1: extent 2, expected 3 (n, as axis 0 of input y)"


def test_s07_reductions_over_an_axis_of_length_one_and_over_none(rng: np.random.Generator) -> None:
    def program(x: Any, s: Any) -> Any:
        return {"norm": ops.sqrt(ops.sum(x**2, axis=-1)), "scalar": ops.max(ops.sum(s))}

    x = {"x": rn(rng, 5, 7, 1), "s": rn(rng, 4)}
    expected = {"norm": np.sqrt((f64(x["x"]) ** 2).sum(-1)), "scalar": np.asarray(f64(x["s"]).sum().max())}
    run_case(cleave.trace(program, x="5 7 1", s="n"), [(x, expected)])


def test_f03_an_axis_of_length_one_under_a_label() -> None:
    def program(a: Any, b: Any, c: Any, d: Any) -> Any:
        return {"first": ops.einsum("t...i,ti->t...", a, b), "second": ops.einsum("i,i", c, d)}

    x = {"a": np.ones((10, 2)), "b": np.ones((1, 2)), "c": np.array([1.0, 2.0]), "d": np.array([3.0])}
    expected = {"first": (x["a"] * x["b"]).sum(1), "second": np.asarray((x["c"] * x["d"]).sum())}
    assert expected["first"].tolist() == [2.0] * 10
    assert expected["second"] == 9.0
    run_case(cleave.trace(program, a="10 2", b="1 2", c="2", d="1", dtype="float32"), [(x, expected)])


def test_f04_contractions_of_five_operands_and_a_label_in_one_only(rng: np.random.Generator) -> None:
    def program(a: Any, r: Any) -> Any:
        five = ops.einsum("ijk,ilm,njm,nlk,abc->", a, a, a, a, a)
        return {"five": five, "free": ops.einsum("obk,ijk->ioj", r, r)}

    x = {"a": np.ones((2, 4, 8)), "r": rn(rng, 2, 4, 8)}
    expected = {
        "five": np.asarray(2.0 * 4 * 8 * 4 * 8 * 2 * 64),
        "free": (f64(x["r"]).sum(1) @ f64(x["r"]).reshape(8, 8).T).reshape(2, 2, 4).transpose(1, 0, 2),
    }
    g = cleave.trace(program, a="2 4 8", r="2 4 8", outputs={"five": "float32[]"})
    run_search(g, [(x, expected)])  # tiles with three axes besides their rows are not scheduled


def test_f05_a_label_twice_in_the_output() -> None:
    with pytest.raises(CleaveError) as caught:
        cleave.trace(lambda x: ops.einsum("i->ii", x), x="5")
    assert str(caught.value).endswith("einsum 'i->ii': label i appears twice in the output")


def test_f06_an_ellipsis_in_the_input_and_none_in_the_output() -> None:
    """Of the two answers, the documentation states the one of NumPy: an error."""
    with pytest.raises(CleaveError) as caught:
        cleave.trace(lambda x: ops.einsum("i...->i", x), x="3 3 3")
    assert str(caught.value).endswith(
        "einsum 'i...->i': operands have axes under ..., the output has no ...: sum over them with ops.sum"
    )


def test_f07_a_sum_over_an_axis_of_length_one_after_a_reshape(rng: np.random.Generator) -> None:
    def program(x: Any) -> Any:
        return ops.sum(ops.abs(x.reshape(1, 54)), axis=0, keepdims=True)

    x = {"x": rn(rng, 3, 3, 2, 3)}
    expected = {"out": np.abs(f64(x["x"])).reshape(1, 54).sum(0, keepdims=True)}
    run_case(cleave.trace(program, x="3 3 2 3"), [(x, expected)])


EMPTY: dict[str, tuple[Any, dict[str, str], tuple[int, ...], float]] = {
    # program, its inputs, the shape of what comes out and its value
    "sum": (lambda x: ops.sum(x * x, "n"), {"x": "n=0 t"}, (5,), 0.0),
    "maximum": (lambda x: ops.max(x, "n"), {"x": "n=0 t"}, (5,), -INF),
    "minimum": (lambda x: ops.min(x, 0), {"x": "0 t"}, (5,), INF),
    "map": (lambda x: ops.exp(x), {"x": "n=0 t"}, (0, 5), 0.0),
    "softmax": (lambda x: ops.softmax(x, "n"), {"x": "t n=0"}, (5, 0), 0.0),
    "product over nothing": (lambda x, y: x @ y, {"x": "t k=0", "y": "k=0 n"}, (5, 5), 0.0),
    "product of no row": (lambda x, y: x @ y, {"x": "m=0 k", "y": "k n"}, (0, 5), 0.0),
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_literal_extent_of_0_is_one_as_a_size_of_0_is(name: str) -> None:
    """Reductions over nothing give their identity, outputs without an element pass every stage."""
    program, specs, shape, value = EMPTY[name]
    g = cleave.trace(program, name="empty", dtype="float32", **specs)
    inputs = {n: np.ones([0 if "0" in word else 5 for word in text.split()]) for n, text in specs.items()}
    run_case(g, [(inputs, {"out": np.full(shape, value)})])


def test_attention_over_no_key_of_a_literal_number(rng: np.random.Generator) -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return ops.softmax(q @ k.T, "t") @ v

    g = cleave.trace(attention, q="s d", k="t=0 d", v="t e", dtype="float32")
    x = {"q": rn(rng, 3, 7), "k": rn(rng, 0, 7), "v": rn(rng, 0, 4)}
    run_search(g, [(x, {"out": np.zeros((3, 4))})])
