"""Integers as lines of Python: what they compute is what ``evaluate`` does."""

from __future__ import annotations

from contextlib import AbstractContextManager
from operator import eq, le, lt
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cleave.ir.index as reference
from cleave.errors import GraphError
from cleave.ir.axis import Axis
from cleave.ir.dim import dim, dims
from cleave.ir.index import Index, Pred, ceildiv, compare, evaluate, evaluate_pred, index, maximum, minimum, of, read
from cleave.ir.polynomial import And, BoolRead, Max, Min, Not, Or, Symbol
from cleave.ir.python import Lines

S, T, U = dims("s t u")
SYMBOLS = (S, T, U)


def value_of(lines: Lines, text: str, values: dict[str, int]) -> Any:
    names: dict[str, Any] = {f"n_{name}": value for name, value in values.items()}
    exec("\n".join([*lines.lines, f"result = {text}"]), names)
    return names["result"]


def fresh() -> Lines:
    return Lines({name: f"n_{name}" for name in "stu"})


@st.composite
def expressions(draw: st.DrawFn) -> Index:
    """Divisors may be zero for some values."""
    made = [*SYMBOLS, index(draw(st.integers(-9, 9)))]
    for _ in range(draw(st.integers(1, 8))):
        a, b = draw(st.sampled_from(made)), draw(st.sampled_from(made))
        positive = draw(st.integers(1, 7))
        made.append(
            draw(
                st.sampled_from(
                    (a + b, a - b, a * b, a * a, a // positive, a % positive, minimum(a, b), maximum(a, b),
                     ceildiv(a, positive), a // (b * b + positive), a % (of(Symbol("t")) + positive))
                )
            )
        )  # fmt: skip
    return made[-1]


numbers = st.fixed_dictionaries({name: st.integers(0, 2**33) for name in "stu"})


@given(expressions(), expressions(), numbers)
def test_values_are_those_of_evaluate(a: Index, b: Index, values: dict[str, int]) -> None:
    lines = fresh()
    text = f"({lines.value(a)}, {lines.value(b)})"
    for found, expression in zip(value_of(lines, text, values), (a, b), strict=True):
        assert type(found) is int
        with exact():
            assert found == evaluate(expression, values)


def exact() -> AbstractContextManager[object]:
    """NumPy's own integers, which ``evaluate``'s minimum and maximum give, would wrap."""
    return patch.dict(reference._ATOM_FUNCTIONS, {Min: min, Max: max})


@given(expressions(), expressions(), st.sampled_from(("<", "<=", "==")), numbers)
def test_predicates_are_those_of_evaluate_pred(a: Index, b: Index, op: str, values: dict[str, int]) -> None:
    first, second = compare(op, a, b), compare("<", b, index(5))
    preds: tuple[Pred, ...] = (first, Not(first), And(first, second), Or(Not(first), second))
    for pred in preds:
        lines = fresh()
        text = lines.holds(pred)
        with exact(), patch.dict(reference._COMPARISONS, {"<": lt, "<=": le, "==": eq}):
            assert value_of(lines, text, values) is bool(evaluate_pred(pred, values))


def test_an_atom_that_comes_twice_is_computed_once() -> None:
    lines = fresh()
    texts = [lines.value(ceildiv(S, 16) * 2 + T), lines.value(ceildiv(S, 16) * U)]
    assert lines.lines == ["_0 = (-1*n_s) // (16)"]
    assert texts == ["(-2*_0 + n_t)", "-1*_0*n_u"]


def test_a_dim_with_one_value_is_that_and_others_need_one() -> None:
    assert Lines({}).value(dim("d=64") * 2) == "128"
    with pytest.raises(GraphError, match=r"^dim t has no value: bind it \(t=\.\.\.\)$"):
        Lines({"s": "n"}).value(S + T)


def test_what_only_kernels_know_is_refused() -> None:
    axis = Axis("i", S)
    for expression in (axis.position, read("table", S), minimum(read("table", S), T)):
        with pytest.raises(GraphError, match=r"is no matter of dims alone"):
            fresh().value(expression)
    with pytest.raises(GraphError, match=r"is no matter of dims alone"):
        fresh().holds(BoolRead("mask", (S,)))
