"""Reductions, and what is built from them."""

from __future__ import annotations

from dataclasses import replace

from cleave.errors import ShapeError
from cleave.frontend.context import current, fail
from cleave.frontend.spec import fixed_value, is_unit, merged_extent
from cleave.frontend.tensor import (
    AxisLike,
    Tensor,
    TensorLike,
    arithmetic,
    promoted,
    replaced,
    slot_numbers,
    tensor,
    term,
    unary,
)
from cleave.ir.axis import Axis
from cleave.ir.dim import of_value
from cleave.ir.graph import Term, fold

_ONE = of_value(1)
WORDS = {"max": "maximum", "min": "minimum"}


def reduction(op: str, x: TensorLike, axis: AxisLike, *, keepdims: bool = False) -> Tensor:
    """The fold of x over some axes, all for None; over an axis of extent 1 nothing happens."""
    x = tensor(x)
    numbers = slot_numbers(x, axis)
    for n in numbers:
        if op in WORDS and fixed_value(x.slots[n].extent) == 0:
            fail(f"axis {x.slots[n].name} of {x.name} has extent 0: the {WORDS[op]} of nothing", ShapeError)
    value = term(x)
    for n in reversed(numbers):
        value = bind(op, x.slots[n], value)
    kept = [Axis(a.name, _ONE) if n in numbers else a for n, a in enumerate(x.slots)]
    slots = kept if keepdims else [a for n, a in enumerate(x.slots) if n not in numbers]
    return Tensor(value, tuple(slots), promoted(x))


def bind(op: str, axis: Axis, value: Term) -> Term:
    """The reduction over an axis under a name that occurs nowhere else."""
    if is_unit(axis):
        return value
    bound = current().fresh(axis)
    body = replaced(value, {axis: bound.position})
    return fold(op, bound, body)  # type: ignore[arg-type]


def mean(x: TensorLike, axis: AxisLike, *, keepdims: bool = False) -> Tensor:
    """Sum divided by the number of elements; NaN over an empty axis, as in NumPy."""
    x = tensor(x)
    count = merged_extent([x.slots[n] for n in slot_numbers(x, axis)])
    return reduction("sum", x, axis, keepdims=keepdims) / count


def softmax(x: TensorLike, axis: AxisLike) -> Tensor:
    """exp(x − max x) / sum exp(x − max x), and 0 on a row that is −inf everywhere."""
    x = tensor(x)
    weights, total, _ = _exponentials(x, axis)
    return replace(arithmetic("mul", weights, unary("recip0", total)), slots=x.slots, storage=x.storage)


def logsumexp(x: TensorLike, axis: AxisLike, *, keepdims: bool = False) -> Tensor:
    """log sum exp x, natural; −inf on a row that is −inf everywhere."""
    x = tensor(x)
    _, total, largest = _exponentials(x, axis)
    result = arithmetic("add", largest, unary("log", total))
    slots = [a for n, a in enumerate(x.slots) if n not in slot_numbers(x, axis)]
    return replace(result, slots=result.slots if keepdims else tuple(slots), storage=x.storage)


def _exponentials(x: Tensor, axis: AxisLike) -> tuple[Tensor, Tensor, Tensor]:
    """exp(x − m), its sum and m, both with the axes kept."""
    largest = reduction("max", x, axis, keepdims=True)
    weights = arithmetic("exp_diff", x, largest)
    return weights, reduction("sum", weights, axis, keepdims=True), largest
