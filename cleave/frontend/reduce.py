"""Reductions, and what is built from them."""

from __future__ import annotations

from dataclasses import replace

from cleave.errors import ShapeError
from cleave.frontend.context import current, fail
from cleave.frontend.spec import describe, fixed_value, is_unit, merged_extent
from cleave.frontend.tensor import (
    AxisLike,
    Tensor,
    TensorLike,
    arithmetic,
    promoted,
    replaced,
    slot_number,
    slot_numbers,
    tensor,
    term,
    unary,
)
from cleave.ir.axis import Axis
from cleave.ir.dim import is_name, of_value
from cleave.ir.graph import Term, fold, substitute_axes
from cleave.ir.graph import top_k as of_rank
from cleave.ir.index import index
from cleave.ir.op import TOP_K_PARTS

_ONE = of_value(1)


def reduction(op: str, x: TensorLike, axis: AxisLike, *, keepdims: bool = False) -> Tensor:
    """The fold of x over some axes, all for None; over an axis of extent 1 nothing happens."""
    x = tensor(x)
    numbers = slot_numbers(x, axis)
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


def top_k(x: TensorLike, k: int, axis: str | int, name: str) -> tuple[Tensor, Tensor]:
    """Values and indices of the k largest along an axis, whose place the axis ``name`` of extent k takes."""
    x = tensor(x)
    number = slot_number(x, axis)
    chosen = x.slots[number]
    extent = fixed_value(chosen.extent)
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        fail(f"top_k: k = {k!r}: a whole number >= 1 is expected")
    if extent is not None and extent < k:
        fail(f"top_k: k = {k}, axis {chosen.name} of {x.name} has extent {describe(chosen.extent)}", ShapeError)
    if not is_name(name) or name in {a.name for a in x.slots if a is not chosen}:
        fail(f"top_k: the new axis can't be called {name!r}: {x.name} has {', '.join(x.axes)}")
    rank = Axis(name, of_value(k))
    slots = tuple(rank if n == number else a for n, a in enumerate(x.slots))
    bound = current().fresh(chosen)
    body = term(x) if is_unit(chosen) else substitute_axes(term(x), {chosen: bound.position})
    place = index(0) if is_unit(rank) else rank.position
    value, position = (of_rank(part, bound, place, body) for part in TOP_K_PARTS)
    return Tensor(value, slots, promoted(x)), Tensor(position, slots, "int32")


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
