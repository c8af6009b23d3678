"""Outputs of a graph at chosen positions, at sizes where whole arrays would not fit into memory.

Reductions stay whole; positions are chosen on output axes only. Inputs may be ``Drawn``: arrays whose elements are
computed from their position when they are read, so that an input of any size costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cleave.ir.axis import Axis, owners_first
from cleave.ir.graph import Graph, Output, Term, axes_in, free, rename_axis
from cleave.ir.index import Atom, Index, Position, axes_of, evaluate, substitute
from cleave.ir.instance import fitted, footprint, free_symbols, greatest_extents, meets
from cleave.ir.interp import make_space, value

Array = NDArray[Any]

_FLOAT64 = np.dtype(np.float64)
_SIGN = np.uint64(1)
_STORED = 4_000_000
"""Elements up to which a drawn input is stored: all candidates read it, and reading is quicker than drawing."""
_TOGETHER = 256
"""Positions on small axes that a sweep takes together: a mistake in one head of one group."""
_BUDGET = 1_000_000
"""Elements of the largest array of a sweep."""
_FEWEST = 4
_LEAST = 32
"""No dim is halved below that: smaller sizes have been tried."""
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True)
class Drawn:
    """A pseudo-random input of any shape: |x| in [0.3, 1.6) times ``scale``, both signs; ``zeros`` of them are 0."""

    shape: tuple[int, ...]
    seed: int
    scale: float = 1.0
    zeros: float = 0.0
    dtype: Any = _FLOAT64

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, where: tuple[Array, ...]) -> Array:
        state = np.asarray(self.seed, dtype=np.uint64)
        for position in where:
            state = mixed(state ^ np.asarray(position).astype(np.uint64))
        negative: Array = (state & _SIGN) == 0
        if self.dtype == np.dtype(np.bool_):
            return negative
        # One number gives the magnitude (its upper 53 bits), the sign, and whether it is zero (the ten bits between).
        values: Array = (state >> np.uint64(11)).astype(np.float64)
        values *= 1.3 * self.scale * 2.0**-53
        values += 0.3 * self.scale
        np.negative(values, out=values, where=negative)
        if self.zeros:
            share = (state >> np.uint64(1)) & np.uint64(1023)
            values[share < np.uint64(round(1024 * self.zeros))] = 0.0
        return values


def materialised(x: Drawn) -> Drawn | Array:
    """The same input, as an array where it is small."""
    if prod(x.shape) > _STORED:
        return x
    return np.asarray(x[tuple(np.ix_(*map(np.arange, x.shape)))])


def mixed(state: Array) -> Array:
    """The finaliser of splitmix64, on arrays."""
    with np.errstate(over="ignore"):
        z: Array = state + _MIX[0]
        for shift, factor in ((30, _MIX[1]), (27, _MIX[2])):
            z ^= z >> np.uint64(shift)
            z *= factor
        z ^= z >> np.uint64(31)
        return z


# ---- outputs at positions


@dataclass(frozen=True)
class Stored:
    """An output with axes of its own names, so that choosing positions on them restricts no reduction."""

    axes: tuple[Axis, ...]
    indices: tuple[Index, ...]
    terms: tuple[Term, ...]


def stored(o: Output, *more: Term) -> Stored:
    """The output, and further terms over its axes (its magnitude), with renamed axes."""
    names: dict[Axis, Axis] = {}
    for a in owners_first(frozenset[Axis]().union(*(axes_of(i) for i in o.indices))):
        names[a] = Axis(f"{a.name}@", substitute(a.extent, _atoms(names)), a.kind)
    terms: list[Term] = []
    for t in (o.term, *more):
        for old, new in names.items():
            t = rename_axis(t, old, new) if old in free(t) else t
        terms.append(t)
    return Stored(tuple(names.values()), tuple(substitute(i, _atoms(names)) for i in o.indices), tuple(terms))


def _atoms(names: Mapping[Axis, Axis]) -> dict[Atom, Index]:
    return {Position(a): b.position for a, b in names.items()}


@dataclass(frozen=True)
class Values:
    """Elements of one output buffer: ``where``, one position a row, sorted; the values of each term there."""

    where: Array
    values: tuple[Array, ...]

    def spot(self, element: int) -> str:
        """The position of one of them, for people."""
        return str(tuple(int(p) for p in self.where[element])) if len(self.where) else "()"


def shown(dims: Mapping[str, int]) -> str:
    """For people."""
    return ", ".join(f"{k}={v}" for k, v in dims.items())


def values_at(s: Stored, inputs: Mapping[str, Any], dims: Mapping[str, int], at: Mapping[Axis, Array]) -> Values:
    """The terms at the product of some positions, those that do not exist (ragged) left out."""
    arrays = cast("Mapping[str, Array]", inputs)
    space = make_space(axes_in(s.terms, s.indices), arrays, dims, at)
    memo: dict[Term, Array] = {}
    results = [value(t, space, memo) for t in s.terms]
    where = [np.asarray(evaluate(i, space.environment, arrays)) for i in s.indices]
    aligned = np.broadcast_arrays(space.valid_for(s.axes), *where, *results)
    keep = aligned[0]
    table = np.stack([p[keep] for p in aligned[1 : 1 + len(where)]], axis=-1) if where else np.zeros((1, 0), dtype=int)
    columns = [r[keep].ravel() for r in aligned[1 + len(where) :]]
    order = np.lexsort(table.T[::-1]) if where else np.zeros(1, dtype=int)
    return Values(table[order], tuple(c[order] for c in columns))


def choices(
    s: Stored, inputs: Mapping[str, Any], dims: Mapping[str, int], wanted: Mapping[Axis, Array], limit: int
) -> Iterator[dict[Axis, Array]]:
    """Products of positions that fit into ``limit`` elements and together have every wanted position of every axis.

    All at once if that fits. Otherwise the positions of the axis that has most are halved until it does, and the n-th
    parts of all axes go together. Nothing where not even single positions fit.
    """
    extents = greatest_extents(axes_in(s.terms, s.indices), dims, cast("Mapping[str, Array]", inputs))
    parts: dict[Axis, list[Array]] = {a: [p] for a, p in wanted.items()}
    while footprint(s.terms, {**extents, **{a: max(map(len, p)) for a, p in parts.items()}}) > limit:
        largest = max(parts, key=lambda a: max(map(len, parts[a])), default=None)
        if largest is None or max(map(len, parts[largest])) <= 1:
            return
        parts[largest] = [half for p in parts[largest] for half in np.array_split(p, 2) if len(half)]
    runs = max((len(p) for p in parts.values()), default=1)
    for run in range(runs):
        yield {a: p[run % len(p)] for a, p in parts.items()}


def fits(g: Graph, dims: Mapping[str, int], limit: int) -> bool:
    """Whether single points of the outputs can be evaluated; ragged extents are unknown and count as 1."""
    for o in g.outputs:
        s = stored(o)
        extents = greatest_extents(axes_in(s.terms, s.indices), dims, {})
        if footprint(s.terms, {**extents, **dict.fromkeys(s.axes, 1)}) > limit:
            return False
    return True


def halved(g: Graph, dims: Mapping[str, int], limit: int) -> dict[str, int] | None:
    """Dims of which the largest are halved until single points of the outputs fit; None if they never do."""
    out = dict(dims)
    while not fits(g, out, limit):
        for s in sorted(free_symbols(g), key=lambda s: (-out[s.name], s.name)):
            value = fitted(s, -(-out[s.name] // (2 * s.multiple)))
            if _LEAST <= value < out[s.name] and meets(g, {**out, s.name: value}):
                out[s.name] = value
                break
        else:
            return None
    return out


def edge_positions(extent: int, rng: np.random.Generator, tiles: Sequence[int] = (), extra: int = 2) -> Array:
    """First, last, random positions, and both sides of the border of the tail tile of some tile sizes."""
    if extent <= 0:
        return np.arange(0)
    wished = {0, extent - 1, *rng.integers(0, extent, extra).tolist()}
    for tile in tiles:
        tail = (extent - 1) // tile * tile
        wished |= {tail - 1, tail, min(tile, extent) - 1}
    return np.array(sorted(p for p in wished if 0 <= p < extent))


def sweeps(
    s: Stored, inputs: Mapping[str, Any], dims: Mapping[str, int], rng: np.random.Generator
) -> list[dict[Axis, Array]]:
    """Positions all over one axis, at the last and a random position of the others; small axes go together.

    A mistake in one head, in one block or beyond some row shows there. How many positions depends on what one costs.
    """
    extents = greatest_extents(axes_in(s.terms, s.indices), dims, cast("Mapping[str, Array]", inputs))
    small: list[Axis] = []
    for a in sorted(s.axes, key=lambda a: (extents[a], a.name)):
        if prod(extents[b] for b in (*small, a)) <= _TOGETHER:
            small.append(a)
    groups = [small, *([a] for a in s.axes if a not in small)]
    made = (_sweep(s, group, extents, rng) for group in groups if any(extents[a] > 1 for a in group))
    return [at for at in made if at is not None]


def _sweep(
    s: Stored, group: Sequence[Axis], extents: Mapping[Axis, int], rng: np.random.Generator
) -> dict[Axis, Array] | None:
    """As many positions on the axes of a group as the budget allows; None where it allows too few to be of use."""
    rest = {a: _last_and_another(extents[a], rng) for a in s.axes if a not in group}
    count = min(max((extents[a] for a in group), default=0), _BUDGET)
    while count > _FEWEST:
        at = {**{a: spread(extents[a], count, rng) for a in group}, **rest}
        size = footprint(s.terms, {**extents, **{a: len(p) for a, p in at.items()}})
        if size <= _BUDGET:
            return at
        count = max(count // 2, count * _BUDGET // size - 2)
    return None


def _last_and_another(extent: int, rng: np.random.Generator) -> Array:
    return np.unique([max(extent - 1, 0), int(rng.integers(0, max(extent, 1)))])


def spread(extent: int, count: int, rng: np.random.Generator) -> Array:
    """Both ends and one random position in each of ``count`` equal parts of an axis; all of it where that is less."""
    if extent <= count:
        return np.arange(extent)
    borders = np.linspace(0, extent, count + 1).astype(int)
    return np.unique([0, extent - 1, *rng.integers(borders[:-1], borders[1:]).tolist()])
