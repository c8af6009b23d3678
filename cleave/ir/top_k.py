"""The meaning of selections by rank: the fold with the monoid of the k best (value, index) pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def selected(part: str, values: Array, exists: Array, rank: Array, number: int) -> Array:
    """The value or the index of the element of each rank along dimension ``number``, the largest first.

    Of equal values the one at the lower index comes first, NaN before all numbers, positions that do not exist never.
    ``values`` and ``exists`` have one shape, ``rank`` has size 1 along the dimension.
    """
    shape = np.broadcast_shapes(_along(values.shape, number, 1), rank.shape)
    whole = _along(shape, number, values.shape[number])
    values, exists = np.broadcast_to(values, whole), np.broadcast_to(exists, whole)
    rank = np.broadcast_to(rank, shape)
    count = exists.sum(axis=number, keepdims=True)
    there = (rank >= 0) & (rank < count)
    missing = -np.inf if part == "value" else count
    if not values.shape[number]:
        return np.broadcast_to(np.asarray(missing, dtype=np.float64), shape)
    position = np.take_along_axis(
        _order(values, exists, number), np.where(there, rank, 0).astype(np.int64), axis=number
    )
    chosen = np.take_along_axis(values, position, axis=number) if part == "value" else position
    return np.where(there, chosen, missing)


def _along(shape: tuple[int, ...], number: int, size: int) -> tuple[int, ...]:
    return (*shape[:number], size, *shape[number + 1 :])


def _order(values: Array, exists: Array, number: int) -> Array:
    """Positions by rank: those that exist first, then NaN, then the larger; the sort is stable."""
    numbers = np.where(np.isnan(values), np.inf, values)
    return np.lexsort((-numbers, ~np.isnan(values), ~exists), axis=number)
