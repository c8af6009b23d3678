"""Index expressions: canonical arithmetic, values, substitution, and what they refuse."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleave.errors import GraphError
from cleave.ir.axis import Axis, owners, split_axis
from cleave.ir.dim import dim, dims, of_value
from cleave.ir.index import (
    Index,
    Position,
    axes_of,
    ceildiv,
    evaluate,
    evaluate_pred,
    index,
    inputs_of,
    maximum,
    minimum,
    pred_axes,
    pred_inputs,
    read,
    spell,
    substitute,
    symbols_of,
)

S, T = dims("s t")
ROW, COLUMN = Axis("i", S), Axis("j", T)
ARRAYS = {"table": np.array([4, 1, 7, 2])}
ATOMS = (S, T, ROW.position, COLUMN.position, read("table", ROW), index(3), index(-2), index(0))


@st.composite
def expressions(draw: st.DrawFn) -> tuple[Index, str]:
    """An expression, and the same as Python text over s, t, i, j and table, built beside it."""
    texts = ("s", "t", "i", "j", "table[min(max(i, 0), 3)]", "3", "(-2)", "0")
    at = draw(st.integers(0, len(ATOMS) - 1))
    value, text = ATOMS[at], texts[at]
    for _ in range(draw(st.integers(0, 5))):
        other = draw(st.integers(0, len(ATOMS) - 1))
        divisor = draw(st.integers(1, 5))
        match draw(st.sampled_from(("+", "-", "*", "//", "%", "min", "max", "ceil", "r-"))):
            case "+":
                value, text = value + ATOMS[other], f"({text} + {texts[other]})"
            case "-":
                value, text = value - ATOMS[other], f"({text} - {texts[other]})"
            case "r-":
                value, text = 5 - value, f"(5 - {text})"
            case "*":
                value, text = value * ATOMS[other], f"({text} * {texts[other]})"
            case "//":
                value, text = value // divisor, f"({text} // {divisor})"
            case "%":
                value, text = value % (T + divisor), f"({text} % (t + {divisor}))"
            case "min":
                value, text = minimum(value, ATOMS[other]), f"min({text}, {texts[other]})"
            case "max":
                value, text = maximum(value, ATOMS[other]), f"max({text}, {texts[other]})"
            case _:
                value, text = ceildiv(value, divisor), f"(-(-{text} // {divisor}))"
    return value, text


def at(s: int, t: int, i: int, j: int) -> dict[object, int]:
    return {"s": s, "t": t, ROW: i, COLUMN: j}


@given(expressions(), st.integers(1, 6), st.integers(1, 6), st.data())
def test_arithmetic_is_that_of_integers(drawn: tuple[Index, str], s: int, t: int, data: st.DataObject) -> None:
    expression, text = drawn
    i, j = data.draw(st.integers(0, s - 1)), data.draw(st.integers(0, t - 1))
    expected = eval(text, {"s": s, "t": t, "i": i, "j": j, "table": ARRAYS["table"], "min": min, "max": max})
    assert evaluate(expression, at(s, t, i, j), ARRAYS) == expected


@given(expressions(), expressions(), st.integers(1, 6), st.integers(1, 6))
def test_substitution_is_evaluation(first: tuple[Index, str], second: tuple[Index, str], s: int, t: int) -> None:
    outer, inner = first[0], second[0]
    put = substitute(outer, {Position(COLUMN): inner})
    environment = at(s, t, 0, 0)
    moved = {**environment, COLUMN: evaluate(inner, environment, ARRAYS)}
    assert evaluate(put, environment, ARRAYS) == evaluate(outer, moved, ARRAYS)


def test_equal_polynomials_are_one_object() -> None:
    assert (S + T) * (S - T) is S * S - T * T
    assert 2 * S + S is 3 * S
    assert S - S is index(0)
    assert minimum(S + 1, S) is S
    assert maximum(S, T) is maximum(T, S)


def test_grouped_heads_come_apart() -> None:
    kv_heads, group = dims("kv_heads group")
    kv, g = Axis("kv", kv_heads), Axis("g", group)
    head = kv.position * group + g
    assert head // group is kv.position
    assert head % group is g.position


def test_a_position_inside_its_extent() -> None:
    assert ROW.position // S is index(0)
    assert ROW.position % S is ROW.position
    assert (ROW.position + S) // S is index(1)
    assert ROW.position // T is not index(0)


def test_division_by_a_negative_and_of_a_negative() -> None:
    assert (index(-7) // 2).constant == -4
    assert (index(-7) % 2).constant == 1
    assert ceildiv(7, 2).constant == 4
    assert evaluate(ceildiv(S, 4), {"s": 9}) == 3


def test_what_an_expression_mentions() -> None:
    expression = read("table", ROW.position + T) * 2 + S
    assert axes_of(expression) == {ROW}
    assert {s.name for s in symbols_of(expression)} == {"s", "t"}
    assert inputs_of(expression) == {"table"}
    mask = (COLUMN.position <= expression) & ~(ROW.position < 2)
    assert pred_axes(mask) == {ROW, COLUMN}
    assert pred_inputs(mask) == {"table"}


def test_linear_in() -> None:
    expression = ROW.position * T + COLUMN + 5
    assert expression.linear_in(Position(ROW)) == (T, COLUMN.position + 5)
    assert (ROW.position * ROW.position).linear_in(Position(ROW)) is None
    assert ((ROW.position // 2) * ROW.position).linear_in(Position(ROW)) is None


def test_predicates() -> None:
    i, j = np.arange(3)[:, None], np.arange(4)[None, :]
    mask = (COLUMN.position <= ROW.position + T - S) | (COLUMN.position > 2)
    expected = (j <= i + 1) | (j > 2)
    np.testing.assert_array_equal(evaluate_pred(mask, {"s": 3, "t": 4, ROW: i, COLUMN: j}), expected)
    np.testing.assert_array_equal(evaluate_pred(~mask, {"s": 3, "t": 4, ROW: i, COLUMN: j}), ~expected)


def test_a_split_axis_reads_every_position_once() -> None:
    split = split_axis(COLUMN, "S", "C")
    assert owners(split.inner) == {split.outer}
    seen: list[int] = []
    for outer in range(3):
        environment = {"t": 7, "S": 3, "C": 3, split.outer: outer}
        for inner in range(evaluate(split.inner.extent, environment)):
            seen.append(evaluate(split.position, {**environment, split.inner: inner}))
    assert seen == list(range(7))


def test_nodes_survive_pickling_and_copying() -> None:
    expression = minimum(read("table", ROW.position // 2), T) + 1
    assert pickle.loads(pickle.dumps(expression)) is expression
    assert copy.deepcopy(expression) is expression
    assert of_value(1) is not of_value(2)


def test_text_of_people_and_of_the_parser() -> None:
    assert repr(T - S) == "t - s"
    assert repr(ROW.position + T) == "i + dim.t"
    assert spell(ROW.position * 2 - T) == "2*i - dim.t"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: S // 0, "s // 0"),
        (lambda: S % 0, "s % 0"),
        (lambda: bool(S), "s has no truth value: it is symbolic"),
        (lambda: bool(S < T), "dim.s < dim.t has no truth value: it is symbolic; use & | ~ and where()"),
        (lambda: index(True), "True is no index"),
        (lambda: index(1.5), "1.5 is no index: an integer, a dim, an axis or an expression of them is"),
        (lambda: evaluate(S, {}), "dim s has no value: bind it (s=...)"),
        (lambda: evaluate(ROW.position, {"s": 3}), "axis i has no position here"),
    ],
)
def test_errors(bad: object, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        bad()  # type: ignore[operator]
    assert str(caught.value) == message


def test_other_types_get_their_turn() -> None:
    class Other:
        def __radd__(self, left: object) -> str:
            return "mine"

    assert S + Other() == "mine"  # type: ignore[operator]
    with pytest.raises(GraphError, match=r"0\.5 is no index"):
        S + 0.5  # type: ignore[operator]


def test_facts_decide_nothing_they_should_not() -> None:
    assert dim("d=64").constant is None
    assert math.prod(evaluate(x, {}) for x in dims("d=64 e=2")) == 128
