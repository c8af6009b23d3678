"""Pointwise operations and monoids: name, arity, meaning. Everything that names an operation reads these tables.

All operations are total on the extended reals that graphs contain (−inf allowed, see ``exp_diff`` and ``recip0``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class MapOp:
    """A pointwise operation; ``meaning`` is the float64 one, ``transcendental`` ones take special-function units.

    A ``step`` jumps: next to a jump, rounding of its argument changes the value by a whole unit.
    """

    name: str
    arity: int
    meaning: Callable[..., Any]
    symbol: str | None = None
    transcendental: bool = False
    commutative: bool = False
    step: bool = False


@dataclass(frozen=True, slots=True)
class Monoid:
    """A commutative monoid: what a reduction folds with. ``identity`` is its value over an empty axis."""

    name: str
    identity: float
    combine: Callable[[Any, Any], Any]
    reduce: Callable[..., Any]


def _exp_diff(a: Array, b: Array) -> Array:
    """exp(a − b), and 0 when a = −inf, whatever b."""
    return np.where(np.isneginf(a), 0.0, np.exp(a - b))


def _recip(a: Array) -> Array:
    return 1.0 / a


def _rsqrt(a: Array) -> Array:
    return 1.0 / np.sqrt(a)


def _recip0(a: Array) -> Array:
    """1 / a, and 0 at 0: the quotient by it is 0 whenever the divisor is."""
    return np.where(a == 0, 0.0, 1.0 / np.where(a == 0, 1.0, a))


def _sigmoid(a: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-a))


def _silu(a: Array) -> Array:
    return a * _sigmoid(a)


def _table(*ops: MapOp) -> dict[str, MapOp]:
    return {op.name: op for op in ops}


MAPS: dict[str, MapOp] = _table(
    MapOp("add", 2, np.add, "+", commutative=True),
    MapOp("sub", 2, np.subtract, "-"),
    MapOp("mul", 2, np.multiply, "*", commutative=True),
    MapOp("maximum", 2, np.maximum, commutative=True),
    MapOp("minimum", 2, np.minimum, commutative=True),
    MapOp("neg", 1, np.negative),
    MapOp("abs", 1, np.abs),
    MapOp("sq", 1, np.square),
    MapOp("round", 1, np.rint, step=True),
    MapOp("exp", 1, np.exp, transcendental=True),
    MapOp("exp_diff", 2, _exp_diff, transcendental=True),
    MapOp("log", 1, np.log, transcendental=True),
    MapOp("recip", 1, _recip, transcendental=True),
    MapOp("recip0", 1, _recip0, transcendental=True),
    MapOp("sqrt", 1, np.sqrt, transcendental=True),
    MapOp("rsqrt", 1, _rsqrt, transcendental=True),
    MapOp("tanh", 1, np.tanh, transcendental=True),
    MapOp("sigmoid", 1, _sigmoid, transcendental=True),
    MapOp("silu", 1, _silu, transcendental=True),
)

MONOIDS: dict[str, Monoid] = {
    "sum": Monoid("sum", 0.0, np.add, np.sum),
    "max": Monoid("max", -np.inf, np.maximum, np.max),
    "min": Monoid("min", np.inf, np.minimum, np.min),
}

TOP_K_PARTS = ("value", "index")
"""What a selection by rank gives of the element that it finds."""

DTYPES: dict[str, int] = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8, "bool": 1}
"""Storage types and their size in bytes."""

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
INTEGERS = frozenset({"int32", "int64"})

MANTISSA_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
"""Significant bits, the hidden one included: unit roundoff u = 2**-bits."""


def round_to(value: Array, dtype: str) -> Array:
    """Round float64 values to a storage type and back; bfloat16 is the upper half of float32, to nearest even."""
    if dtype == "float64":
        return value
    if dtype == "bfloat16":
        with np.errstate(over="ignore"):
            single = np.asarray(value, dtype=np.float32)  # of rank 0 too
        bits = single.view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        return np.where(np.isfinite(single), rounded.view(np.float32), single).astype(np.float64)
    with np.errstate(over="ignore"):
        return value.astype(dtype).astype(np.float64)
