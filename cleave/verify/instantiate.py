"""Instances of a graph: sizes that divide nothing, counts of chunks, and data that is awkward on purpose.

sizes     free dims are different primes, in one order and in the reverse (s < t and t < s both occur); all alike; or
          one is 1 or 0; medium ones are also multiples of 16
splits    S = 1, 1 < S < extent, S > extent; chunks of the least length, or longer, so that some are empty
data      both signs, negative scalars, zeros, large, huge (a plain exponential overflows), tiny, all equal, of one
          magnitude (sums cancel to nothing), blocks of zeros or of large values, -inf in some inputs
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.candidate import Candidate, Split
from cleave.errors import CleaveError, ShapeError
from cleave.ir.graph import Graph, bound_axis, walk
from cleave.ir.index import symbols_of
from cleave.ir.instance import (
    below,
    dims_near,
    draw_inputs,
    fitted,
    footprint,
    free_symbols,
    greatest_extent,
    greatest_extents,
    meets,
)

Array = NDArray[Any]

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
_LEAST_MEDIUM = 13
_EVEN = (32, 16, 48, 64, 80, 96)
MOST_ELEMENTS = 2_000_000
"""Of the largest array of an instance."""
_SMALL_ELEMENTS = 60_000
_FEW = 3
_ALIKE = 4
"""Every dim at once: what is wrong of square matrices only, or of even sizes."""


class Data(StrEnum):
    """Patterns of floating inputs."""

    PLAIN = "both signs"
    NEGATIVE = "negative scalars"
    POSITIVE = "positive"
    ZEROS = "zeros"
    LARGE = "large"
    TINY = "tiny"
    BLOCKS = "blocks"
    HUGE = "huge"
    EQUAL = "all equal"
    CANCELLING = "of one magnitude"
    LOWEST = "some -inf"


_SCALE = {Data.LARGE: 40.0, Data.HUGE: 1e4, Data.TINY: 1e-5}


class Chunks(StrEnum):
    """How many chunks an axis is split into."""

    ONE = "S = 1"
    SOME = "1 < S < extent"
    MANY = "S > extent"
    EVEN = "S divides"


SMALL_CHUNKS = (Chunks.ONE, Chunks.SOME, Chunks.MANY)
"""Ways to cut at sizes that divide nothing."""


@dataclass(frozen=True)
class Sizes:
    """Values of the free dims of an input graph, and how to cut the axes of its candidates."""

    dims: Mapping[str, int]
    chunks: Chunks
    slack: int = 0
    data: Data = Data.PLAIN


# ---- sizes


def small_sizes(g: Graph, rng: np.random.Generator) -> Iterator[Sizes]:
    """Every way to cut at two assignments of different primes, then assignments with a 1 or a 0 in them.

    With few dims these are 2 and 3, which a slice may use up: one more assignment has larger ones.
    """
    patterns = _cycle(tuple(Data))
    larger = islice(prime_dims(g, rng, _PRIMES[3:]), 1) if len(free_symbols(g)) <= _FEW else ()
    for dims in (*prime_dims(g, rng, _PRIMES), *larger):
        dims = _shrunk(g, dims, _SMALL_ELEMENTS)
        for chunks in SMALL_CHUNKS:
            for slack in (0, 1):
                yield Sizes(dims, chunks, slack, next(patterns))
    shown = _cycle(tuple(d for d in Data if d is not Data.LOWEST))
    for number, dims in enumerate(_special_dims(g, rng)):
        # Next to an axis without elements no term of the input graph shows that an input is infinite.
        data = next(shown if 0 in dims.values() else patterns)
        yield Sizes(dims, SMALL_CHUNKS[number % 3], number % 2, data)


def medium_sizes(g: Graph, rng: np.random.Generator, limit: int) -> Iterator[Sizes]:
    """Every data pattern at larger primes, the assignments in turn.

    Dims over which nothing is reduced stay small where memory asks for it.
    """
    pools = ([p for p in _PRIMES if p >= _LEAST_MEDIUM], _EVEN)
    found = [list(prime_dims(g, rng, pool)) for pool in pools]
    assignments = [_shrunk(g, dims, limit) for dims in (*found[0], *found[1][:1])]
    for position, data in enumerate(Data if assignments else ()):
        chunks = (Chunks.SOME, Chunks.MANY)[position // 2 % 2]
        yield Sizes(assignments[position % len(assignments)], chunks, position % 3, data)


def _shrunk(g: Graph, dims: Mapping[str, int], limit: int) -> dict[str, int]:
    """Dims with small values in the place of some, until every array has at most ``limit`` elements.

    Different ones first, then 2 and 1: a graph of many axes has no instance in which all are different.
    """
    reduced = {s.name for a in map(bound_axis, walk(*g.terms)) if a is not None for s in symbols_of(a.extent)}
    out = dict(dims)
    small = [p for p in _PRIMES if p not in out.values()]
    order = sorted(free_symbols(g), key=lambda s: (s.name in reduced, s.name))
    for s, wish in [*zip(order, small, strict=False), *((s, n) for n in (2, 1) for s in order)]:
        if footprint(g.terms, greatest_extents(g.axes, out, {})) <= limit:
            break
        value = fitted(s, -(-wish // s.multiple))
        if value < out.get(s.name, value) and meets(g, {**out, s.name: value}):
            out[s.name] = value
    return out


def _cycle(values: Sequence[Data]) -> Iterator[Data]:
    while True:
        yield from values


def prime_dims(g: Graph, rng: np.random.Generator, pool: Sequence[int]) -> Iterator[dict[str, int]]:
    """One assignment of different values from the pool, and one in the reverse order, as the constraints allow."""
    order = [s.name for s in free_symbols(g)]
    rng.shuffle(order)
    for names in (order, order[::-1]):
        wish = dict(zip(names, _different(pool, len(names)), strict=True))
        found = dims_near(g, wish, rng)
        if found is not None:
            yield found


def _different(pool: Sequence[int], count: int) -> tuple[int, ...]:
    """The first values of the pool, continued by odd numbers."""
    last = max(pool)
    return (*pool[:count], *range(last + 2, last + 2 + 2 * max(0, count - len(pool)), 2))


def _special_dims(g: Graph, rng: np.random.Generator) -> Iterator[dict[str, int]]:
    bases = list(prime_dims(g, rng, _PRIMES))
    if not bases:
        return
    alike = dims_near(g, {s.name: -(-_ALIKE // s.multiple) for s in free_symbols(g)}, rng)
    if alike is not None:
        yield alike
    for s in free_symbols(g):
        for value in (1, 0):
            base = bases[below(len(bases), rng)]
            changed = {**base, s.name: value}
            if fitted(s, -(-value // s.multiple)) == value and meets(g, changed):
                yield changed


# ---- splits


def split_values(
    c: Candidate,
    sizes: Sizes,
    inputs: Mapping[str, Array],
    rng: np.random.Generator,
    given: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Counts and chunk lengths of the candidate's splits: S * C >= extent, with the least C or longer.

    ``given``: those that the caller chose; a count without a length gets the least length, and the reverse.
    """
    chosen, out = given or {}, dict[str, int]()
    for split in c.splits:
        extent = base_extent(c, split, sizes.dims, inputs)
        count = out.setdefault(split.count, chosen.get(split.count) or _count_for(extent, split, sizes, chosen, rng))
        least = max(-(-extent // count), 1) + (sizes.slack if split.count not in chosen else 0)
        out[split.chunk] = chosen.get(split.chunk, max(out.get(split.chunk, 0), least))
        if out[split.chunk] * count < extent:
            what = f"{count} chunks of {out[split.chunk]} for {extent} positions of {split.base}"
            raise ShapeError(f"{what}: allowed are enough for all", location=c.name)
    return out


def _count_for(extent: int, split: Split, sizes: Sizes, chosen: Mapping[str, int], rng: np.random.Generator) -> int:
    if split.chunk in chosen:
        return max(-(-extent // chosen[split.chunk]), 1)
    return _count(extent, sizes.chunks, rng)


def _count(extent: int, chunks: Chunks, rng: np.random.Generator) -> int:
    match chunks:
        case Chunks.ONE:
            return 1
        case Chunks.MANY:
            return extent + 1 + below(3, rng)
        case Chunks.SOME:
            uneven = [n for n in range(2, min(extent, 12)) if extent % n]
            return int(rng.choice(uneven)) if uneven else 2
        case Chunks.EVEN:
            even = [n for n in range(2, min(extent, 33)) if extent % n == 0]
            return int(rng.choice(even)) if even else 2


def base_extent(c: Candidate, split: Split, dims: Mapping[str, int], inputs: Mapping[str, Array]) -> int:
    """The greatest extent of the axis that a split divides, under values of the dims and of the integer inputs."""
    base = next((a for a in c.origin.axes if a.name == split.base), None)
    if base is None:
        raise CleaveError(f"split of {split.base}, which the input graph does not have", location=c.name)
    return greatest_extent(base, dims, inputs)


# ---- data


def draw_data(g: Graph, dims: Mapping[str, int], data: Data, rng: np.random.Generator) -> dict[str, Array]:
    """Fresh values of every input, floats of a pattern; integers may have to be drawn again until they fit."""
    return draw_inputs(g, dims, rng, real=lambda shape: floats(shape, data, rng))


def masked(inputs: Mapping[str, Array], name: str, rng: np.random.Generator) -> dict[str, Array]:
    """Inputs of which one holds -inf here and there, as an additive mask does."""
    array = inputs[name]
    return {**inputs, name: np.where(rng.random(array.shape) < 0.2, -np.inf, array)}


def floats(shape: tuple[int, ...], data: Data, rng: np.random.Generator) -> Array:
    """Values of a pattern. A scalar (no axes) is a parameter: a scale, an epsilon."""
    plain = rng.uniform(0.3, 1.6, shape) * rng.choice([-1.0, 1.0], shape)
    if not shape:
        return _scalar(plain, data)
    match data:
        case Data.PLAIN | Data.NEGATIVE:
            return plain
        case Data.POSITIVE:
            return np.abs(plain)
        case Data.ZEROS:
            return plain * (rng.random(shape) < 0.5)
        case Data.LARGE | Data.HUGE | Data.TINY:
            return plain * _SCALE[data]
        case Data.BLOCKS:
            return _blocks(plain, rng)
        case Data.EQUAL:
            return np.full(shape, float(rng.choice([-1.0, 1.0])) * float(rng.uniform(0.3, 1.6)))
        case Data.CANCELLING:
            return np.sign(plain) * float(2.0 ** rng.integers(-2, 2))
        case Data.LOWEST:
            return plain  # one input alone is a mask, see ``masked``


def _scalar(plain: Array, data: Data) -> Array:
    match data:
        case Data.NEGATIVE:
            return -np.abs(plain)
        case Data.POSITIVE:
            return np.abs(plain)
        case Data.ZEROS:
            return plain * 0.0
        case _:
            return plain


def _blocks(values: Array, rng: np.random.Generator) -> Array:
    """A block along some dimensions becomes zero or large: tiles that are all zero, maxima that jump."""
    out = values.copy()
    for dimension, extent in enumerate(values.shape):
        if extent > 1 and rng.random() < 0.7:
            cut = 1 + below(extent - 1, rng)
            block = slice(0, cut) if rng.random() < 0.5 else slice(cut, None)
            out[(slice(None),) * dimension + (block,)] *= float(rng.choice([0.0, 20.0, -20.0]))
    return out
