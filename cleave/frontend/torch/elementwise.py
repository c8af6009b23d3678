"""Elementwise operations, masks, casts and constant arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import pi, sqrt

import numpy as np

from cleave.errors import GraphError
from cleave.frontend.tensor import (
    PREDICATES,
    Tensor,
    arithmetic,
    comparison,
    integers,
    is_integer,
    logic,
    power,
    term,
    unary,
    where,
)
from cleave.frontend.torch.array import Array, broadcast, new_axes, position
from cleave.ir.dim import Dim
from cleave.ir.graph import Cast, Const
from cleave.ir.index import Compare, Index, Pred, compare, index
from cleave.ir.op import FLOATS, INTEGERS, MANTISSA_BITS, round_to

Scalar = bool | int | float | Index
Operand = Array | Scalar
Function = Callable[..., Tensor]

TRUE = Compare("<=", index(0), index(0))


def array(x: Operand) -> Array:
    """Numbers and dims as arrays without dimensions."""
    match x:
        case Array():
            return x
        case bool():
            return Array(TRUE if x else ~TRUE, (), "bool")
        case int():
            return Array(index(x), (), "int64")
        case float():
            return Array(Const(x), (), "float32")
        case Index():
            return Array(x, (), "int64")
        case _:
            raise GraphError("an operand that is neither an array nor a number")


def apply(function: Function, storage: str, *operands: Operand) -> Array:
    """A function of values over the dimensions of all operands."""
    values, dims = broadcast(*map(array, operands))
    tensors = (Tensor(v, label="an operand") for v in values)
    return Array(function(*tensors).value, dims, storage)


def is_mask(x: Operand) -> bool:
    return isinstance(array(x).value, PREDICATES)


# ---- functions of values


def binary(op: str) -> Function:
    """A map of two operands of ``ir.op.MAPS``."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        return arithmetic(op, x, y)

    return function


def elementwise(op: str) -> Function:
    """A map of one operand."""

    def function(x: Tensor) -> Tensor:
        return unary(op, x)

    return function


def scaled(x: Tensor, factor: Scalar) -> Tensor:
    """``alpha`` of add and sub."""
    return x if factor == 1 else arithmetic("mul", x, factor)


def extreme(op: str) -> Function:
    def function(x: Tensor, y: Tensor) -> Tensor:
        both = is_integer(x) and is_integer(y)
        return integers(op, x, y) if both else arithmetic(op, x, y)

    return function


def magnitude(x: Tensor) -> Tensor:
    return integers("maximum", x, -x) if is_integer(x) else unary("abs", x)


def raised(x: Tensor, exponent: Scalar) -> Tensor:
    """x**e; 3 is x² · x, which the language of programs leaves to its writer."""
    return arithmetic("mul", power(x, 2), x) if exponent == 3 else power(x, exponent)


def raised_to(exponent: Scalar) -> Function:
    def function(x: Tensor) -> Tensor:
        return raised(x, exponent)

    return function


def negated(x: Tensor) -> Tensor:
    """The opposite of a mask."""
    return ~x


def relu(x: Tensor) -> Tensor:
    return arithmetic("maximum", x, 0.0)


def gelu_tanh(x: Tensor) -> Tensor:
    """x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))"""
    inner = arithmetic("add", x, arithmetic("mul", raised(x, 3), 0.044715))
    curve = arithmetic("add", unary("tanh", arithmetic("mul", inner, sqrt(2 / pi))), 1.0)
    return arithmetic("mul", arithmetic("mul", x, 0.5), curve)


def floor_quotient(x: Tensor, y: Tensor) -> Tensor:
    return integers("//", x, y)


def remainder(x: Tensor, y: Tensor) -> Tensor:
    return integers("%", x, y)


def compared(op: str, *, swapped: bool = False, negated: bool = False) -> Function:
    def function(x: Tensor, y: Tensor) -> Tensor:
        made = comparison(op, y, x) if swapped else comparison(op, x, y)
        return ~made if negated else made

    return function


def joined(op: str) -> Function:
    """``&`` and ``|`` of masks; what is true everywhere says nothing beside another mask."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        for one, other in ((x, y), (y, x)):
            if one.value is TRUE:
                return other if op == "&" else one
        return logic(op, x, y)

    return function


def chosen(mask: Tensor, x: Tensor, y: Tensor) -> Tensor:
    if any(isinstance(t.value, PREDICATES) for t in (x, y)):
        raise GraphError("a choice between masks")
    return where(mask, x, y)


# ---- casts


def cast(x: Array, storage: str, *, rounding: bool = True) -> Array:
    """A conversion: rounding only where the new type holds fewer bits; a wider one changes no value."""
    if storage == x.storage:
        return x
    if storage in FLOATS:
        value = term(Tensor(x.value))
        if isinstance(value, Const):
            value = Const(float(round_to(np.asarray(value.value), storage)))
        elif rounding and x.storage in FLOATS and not _holds(storage, x.storage):
            value = Cast(storage, value)
        return Array(value, x.dims, storage)
    if storage in INTEGERS and isinstance(x.value, Index):
        return replace(x, storage=storage)
    if storage == "bool" and isinstance(x.value, Index):
        return replace(x, value=~compare("==", x.value, 0), storage=storage)
    raise GraphError(f"a conversion of {x.storage} to {storage}")


def _holds(wide: str, narrow: str) -> bool:
    """Whether every value of one type is one of another; float16 and bfloat16 hold neither of each other."""
    return {wide, narrow} != {"float16", "bfloat16"} and MANTISSA_BITS[wide] >= MANTISSA_BITS[narrow]


# ---- arrays that are made


def filled(value: Scalar, shape: tuple[Dim, ...], storage: str) -> Array:
    number: Scalar = value
    if storage in FLOATS and isinstance(value, int):
        number = float(value)
    if storage == "bool":
        number = bool(value)
    return Array(array(number).value, tuple(map(new_axes, shape)), storage)


def arange(start: Scalar, step: Scalar, shape: tuple[Dim, ...], storage: str) -> Array:
    """start, start + step, ..; of whole numbers."""
    if not isinstance(start, (int, Index)) or not isinstance(step, (int, Index)):
        raise GraphError("a range of fractions")
    axes = new_axes(shape[0])
    made = Array(position(axes) * step + start, (axes,), "int64")
    return cast(made, storage) if storage in FLOATS else made


def triangle(x: Array, diagonal: int, *, upper: bool) -> Array:
    """Elements below (above) a diagonal of the last two dimensions, 0 elsewhere."""
    rows, columns = (Array(position(axes), (), "int64") for axes in x.dims[-2:])
    if not isinstance(rows.value, Index) or not isinstance(columns.value, Index):
        raise GraphError("a triangle of something without positions")
    limit = rows.value + diagonal
    inside: Pred = compare("<=", limit, columns.value) if upper else compare("<=", columns.value, limit)
    if is_mask(x):
        return replace(x, value=joined("&")(Tensor(inside), Tensor(x.value)).value)
    if isinstance(x.value, Index):
        raise GraphError("a triangle of integers")
    return replace(x, value=where(Tensor(inside), Tensor(x.value), 0.0).value)
