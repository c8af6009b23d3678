"""The meaning of selections by rank: the fold with the monoid of the k best (value, index) pairs.

The largest is of rank 0. NaN ranks before every number, −inf as the least number, positions that do not exist never. Of
equal values the one at the lower index comes first, so −0 and 0 keep their order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def selected(part: str, values: Array, exists: Array, rank: Array, number: int) -> Array:
    """The value or the index of the element of each rank along dimension ``number``.

    ``values`` and ``exists`` have one shape, ``rank`` has size 1 along the dimension. A rank that no position has gives
    −inf, and the number of positions as index.
    """
    position, there = position_of_rank(values, exists, rank, number)
    count = exists.sum(axis=number, keepdims=True)
    if part == "index":
        return np.where(there, position, count)
    if not values.shape[number]:
        return np.full(there.shape, -np.inf)
    whole = _along(there.shape, number, values.shape[number])
    return np.where(there, np.take_along_axis(np.broadcast_to(values, whole), position, axis=number), -np.inf)


def position_of_rank(values: Array, exists: Array, rank: Array, number: int) -> tuple[Array, Array]:
    """Where the element of each rank is along dimension ``number``, and whether there is one (0 where not)."""
    shape = np.broadcast_shapes(_along(values.shape, number, 1), rank.shape)
    there = np.broadcast_to((rank >= 0) & (rank < exists.sum(axis=number, keepdims=True)), shape)
    if not values.shape[number]:
        return np.zeros(shape, dtype=np.int64), there
    order = np.broadcast_to(_order(values, exists, number), _along(shape, number, values.shape[number]))
    wanted = np.where(there, rank, 0).astype(np.int64)
    return np.take_along_axis(order, wanted, axis=number), there


def _along(shape: tuple[int, ...], number: int, size: int) -> tuple[int, ...]:
    return (*shape[:number], size, *shape[number + 1 :])


def _order(values: Array, exists: Array, number: int) -> Array:
    """Positions by rank: those that exist first, then NaN, then the larger; the sort is stable."""
    numbers = np.where(np.isnan(values), np.inf, values)
    return np.lexsort((-numbers, ~np.isnan(values), ~exists), axis=number)
