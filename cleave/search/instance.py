"""A small instance of a graph: values for its dims and random inputs, for checking steps and folds in float64.

Dims that are not fixed get different small values. Integer inputs hold numbers so small that every index built from
them lies inside; what does not fit after a few tries has no instance. ``verify`` tests candidates at many sizes; this
is one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.candidate import Split
from cleave.errors import CleaveError
from cleave.ir.axis import owners
from cleave.ir.graph import Graph, Input, Term, reductions, walk
from cleave.ir.index import Symbol, evaluate, evaluate_pred, symbols_of
from cleave.ir.interp import Space, make_space, value
from cleave.ir.op import INTEGERS

Array = NDArray[Any]

_SIZES = (5, 4, 3, 2, 6, 7)
_SIZES_WITH_TABLES = (7, 8, 9, 11, 10, 12)
CHUNKS = 4
"""Chunks of a split axis in an instance: three that hold something, with a short last one, and one that is empty."""


@dataclass(frozen=True)
class Instance:
    dims: Mapping[str, int]
    inputs: Mapping[str, Array]

    def space(self, g: Graph, splits: Sequence[Split] = (), count: int = CHUNKS) -> Space:
        """All positions on the axes of a graph, with every split in ``count`` chunks (1: the whole axis in one)."""
        dims = dict(self.dims)
        for s in splits:
            dims |= chunked(s.count, s.chunk, self._longest(g, s), count)
        return make_space(g.axes, self.inputs, dims)

    def _longest(self, g: Graph, split: Split) -> int:
        """Extent of the axis that was split: that of its inner piece if there is but one chunk, and room for
        anything.
        """
        dims = {**self.dims, split.count: 1, split.chunk: 1 << 20}
        needed = owners(split.inner)
        space = make_space(tuple(a for a in g.axes if a in needed), self.inputs, dims)
        return int(np.max(evaluate(split.inner.extent, space.environment, self.inputs), initial=0))


def chunked(count_name: str, chunk_name: str, extent: int, count: int = CHUNKS) -> dict[str, int]:
    """Count and chunk length for an extent: the last chunk is empty, the one before it short where that can be."""
    return {count_name: count, chunk_name: max(-(-extent // max(count - 1, 1)), 1)}


def small_instance(g: Graph, seed: int = 0, attempts: int = 6) -> Instance | None:
    """An instance in which every term has a value, or None."""
    rng = np.random.default_rng(seed)
    has_tables = any(i.dtype in INTEGERS for i in g.inputs)
    for attempt in range(attempts):
        dims = _dims(g, _SIZES_WITH_TABLES if has_tables else _SIZES, attempt)
        if dims is None:
            return None
        greatest = max(3 - attempt, 1)
        try:
            made = Instance(dims, {i.name: _values(i, dims, greatest, rng) for i in g.inputs})
            space = made.space(g)
            memo: dict[Term, Array] = {}
            for t in walk(*g.terms):
                value(t, space, memo)
            return made
        except (CleaveError, IndexError, RuntimeError):  # RuntimeError: more axes than an array can have
            continue
    return None


def _dims(g: Graph, sizes: Sequence[int], attempt: int) -> dict[str, int] | None:
    """Different sizes for the free dims under which the constraints hold; ``attempt`` rotates which dim gets which."""
    reduced = frozenset[Symbol]().union(*(symbols_of(r.axis.extent) for r in reductions(*g.terms)))
    free = sorted((s for s in g.symbols if s.value is None), key=lambda s: (s not in reduced, s.name))
    rotated = [*sizes[attempt % len(sizes) :], *sizes[: attempt % len(sizes)]]
    cycle = list(itertools.islice(itertools.cycle(rotated), len(free)))
    fixed = {s.name: s.value for s in g.symbols if s.value is not None}
    for order in itertools.islice(itertools.permutations(cycle), 200):
        dims = {**fixed, **{s.name: _fitted(s, n) for s, n in zip(free, order, strict=True)}}
        if all(bool(evaluate_pred(p, dims)) for p in g.constraints):
            return dims
    return None


def _fitted(s: Symbol, wanted: int) -> int:
    least = -(-max(wanted, s.minimum) // s.multiple) * s.multiple
    return least if s.maximum is None else min(least, s.maximum // s.multiple * s.multiple)


def _values(i: Input, dims: Mapping[str, int], greatest: int, rng: np.random.Generator) -> Array:
    shape = tuple(int(evaluate(extent, dims)) for extent in i.shape)
    if i.dtype in INTEGERS:
        return rng.integers(0, greatest + 1, shape)
    if i.dtype == "bool":
        return rng.random(shape) < 0.6
    return rng.normal(size=shape)
