"""Spearman's rank correlation: how well one order agrees with another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Pearson's correlation of ranks; equal values share the mean of their ranks. None: all of one side are equal."""
    x, y = ranks(a), ranks(b)
    if len(x) < 2 or x.std() == 0 or y.std() == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def ranks(values: Sequence[float]) -> NDArray[Any]:
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + last - 1) / 2)[inverse]
