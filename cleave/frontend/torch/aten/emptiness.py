"""The guard that torch puts around the softmax of attention: 0 on rows that are −inf everywhere.

    where(not any(not (x == −inf)), 0, softmax(x))  ->  softmax(x)

A comparison of floating values has no meaning in a graph; this one says what the softmax of a graph does by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from cleave.errors import GraphError
from cleave.frontend.torch import reductions
from cleave.frontend.torch.array import Array
from cleave.ir.graph import Const, canonical

State = Literal["is", "is not", "some is not", "none is"]
_NEGATED: dict[State, State] = {"is": "is not", "is not": "is", "some is not": "none is", "none is": "some is not"}


@dataclass(frozen=True)
class Emptiness:
    """Whether elements of an array are −inf: each, or any along some dimensions ("none is": all of them are −inf)."""

    source: Array
    state: State
    dims: tuple[int, ...] = ()


def is_empty(x: Array, other: Any) -> Emptiness | None:
    """``x == −inf``"""
    return Emptiness(x, "is") if other == -inf else None


def negated(x: Emptiness) -> Emptiness:
    return Emptiness(x.source, _NEGATED[x.state], x.dims)


def any_of(x: Emptiness, dims: tuple[int, ...]) -> Emptiness:
    if x.state != "is not":
        raise GraphError("an element that is −inf")
    return Emptiness(x.source, "some is not", dims)


def guarded(condition: Emptiness, then: Array, otherwise: Array) -> Array:
    """The softmax; errors: anything else that depends on values."""
    zero = isinstance(then.value, Const) and then.value.value == 0
    if zero and condition.state == "none is" and len(condition.dims) == 1:
        expected = reductions.softmax(condition.source, condition.dims[0])
        same = canonical(reductions.real(expected)) is canonical(reductions.real(otherwise))
        if same and expected.dims == otherwise.dims:
            return otherwise
    raise GraphError("a choice that depends on which values are −inf")
