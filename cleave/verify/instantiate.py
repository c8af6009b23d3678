"""Instances of a graph: sizes that divide nothing, counts of chunks, and data that is awkward on purpose.

sizes     free dims are different primes, in one order and in the reverse (s < t and t < s both occur); or one is 1 or 0
splits    S = 1, 1 < S < extent, S > extent; chunks of the least length, or longer, so that some are empty
data      both signs, negative scalars, zeros, large, tiny, blocks of zeros or of large values; masks make infinities
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cleave.candidate import Candidate, Split
from cleave.errors import CleaveError
from cleave.ir.axis import Axis, owners
from cleave.ir.graph import Graph, Input, Reduce, Term, free, walk
from cleave.ir.index import Symbol, evaluate, evaluate_pred, inputs_of, symbols_of
from cleave.ir.interp import make_space, operands
from cleave.ir.op import FLOATS

Array = NDArray[Any]

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
_TRIES = 400
_LEAST_MEDIUM = 13


class Data(StrEnum):
    """Patterns of floating inputs."""

    PLAIN = "both signs"
    NEGATIVE = "negative scalars"
    POSITIVE = "positive"
    ZEROS = "zeros"
    LARGE = "large"
    TINY = "tiny"
    BLOCKS = "blocks"


class Chunks(StrEnum):
    """How many chunks an axis is split into."""

    ONE = "S = 1"
    SOME = "1 < S < extent"
    MANY = "S > extent"


@dataclass(frozen=True)
class Sizes:
    """Values of the free dims of an input graph, and how to cut the axes of its candidates."""

    dims: Mapping[str, int]
    chunks: Chunks
    slack: int = 0
    data: Data = Data.PLAIN


@dataclass(frozen=True)
class Instance:
    """Everything that is needed to evaluate a graph and its candidate."""

    dims: Mapping[str, int]
    inputs: Mapping[str, Array] = field(repr=False)
    data: Data

    def __str__(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in self.dims.items()) + f", data: {self.data}"


# ---- sizes


def small_sizes(g: Graph, rng: np.random.Generator) -> Iterator[Sizes]:
    """Every way to cut at two assignments of different primes, then assignments with a 1 or a 0 in them."""
    patterns = _cycle(tuple(Data))
    for dims in prime_dims(g, rng, _PRIMES):
        for chunks in Chunks:
            for slack in (0, 1):
                yield Sizes(dims, chunks, slack, next(patterns))
    for number, dims in enumerate(_special_dims(g, rng)):
        yield Sizes(dims, tuple(Chunks)[number % 3], number % 2, next(patterns))


def medium_sizes(g: Graph, rng: np.random.Generator, limit: int) -> Iterator[Sizes]:
    """Every data pattern at larger primes; dims over which nothing is reduced stay small where memory asks for it."""
    pool = [p for p in _PRIMES if p >= _LEAST_MEDIUM]
    for number, dims in enumerate(prime_dims(g, rng, pool)):
        dims = _shrunk(g, dims, limit)
        for position, data in enumerate(Data):
            yield Sizes(dims, (Chunks.SOME, Chunks.MANY)[(number + position) % 2], position % 3, data)


def _shrunk(g: Graph, dims: Mapping[str, int], limit: int) -> dict[str, int]:
    """Dims with small values in the place of some, until every array has at most ``limit`` elements."""
    reduced = {s.name for t in walk(*g.terms) if isinstance(t, Reduce) for s in symbols_of(t.axis.extent)}
    out = dict(dims)
    small = [p for p in _PRIMES if p not in out.values()]
    for s in sorted(free_symbols(g), key=lambda s: (s.name in reduced, s.name)):
        if footprint(g.terms, greatest_extents(g.axes, {**fixed_dims(g), **out}, {})) <= limit:
            break
        changed = {**out, s.name: _fitted(s, small[0] if small else 2)}
        if _holds(g, changed):
            out, small = changed, small[1:]
    return out


def _cycle(values: Sequence[Data]) -> Iterator[Data]:
    while True:
        yield from values


def prime_dims(g: Graph, rng: np.random.Generator, pool: Sequence[int]) -> Iterator[dict[str, int]]:
    """One assignment of different values from the pool, and one in the reverse order, as the constraints allow."""
    symbols = free_symbols(g)
    order = [s.name for s in symbols]
    rng.shuffle(order)
    for names in (order, order[::-1]):
        wish = dict(zip(names, _different(pool, len(names)), strict=True))
        found = _near(g, symbols, wish, rng)
        if found is not None:
            yield found


def _different(pool: Sequence[int], count: int) -> tuple[int, ...]:
    """The first values of the pool, continued by odd numbers."""
    last = max(pool)
    return (*pool[:count], *range(last + 2, last + 2 + 2 * max(0, count - len(pool)), 2))


def _special_dims(g: Graph, rng: np.random.Generator) -> Iterator[dict[str, int]]:
    symbols = free_symbols(g)
    bases = list(prime_dims(g, rng, _PRIMES))
    if not bases:
        return
    for s in symbols:
        for value in (1, 0):
            base = bases[below(len(bases), rng)]
            changed = {**base, s.name: value}
            if _allowed(s, value) and _holds(g, changed):
                yield changed


def free_symbols(g: Graph) -> tuple[Symbol, ...]:
    """Dims that are not fixed by their facts."""
    return tuple(s for s in g.symbols if s.value is None)


def fixed_dims(g: Graph) -> dict[str, int]:
    return {s.name: s.value for s in g.symbols if s.value is not None}


def _near(
    g: Graph, symbols: Sequence[Symbol], wish: Mapping[str, int], rng: np.random.Generator
) -> dict[str, int] | None:
    """The wished values, moved to what the facts allow; shuffled and repeated until the constraints hold."""
    values = list(wish.values())
    for attempt in range(_TRIES):
        dims = {s.name: _fitted(s, wish[s.name]) for s in symbols} if attempt == 0 else {}
        if attempt:
            # Constraints that tie dims to one another leave no room for different primes: try small values freely.
            drawn = rng.permutation(values) if attempt < _TRIES // 4 else rng.integers(1, 13, len(values))
            dims = {s.name: _fitted(s, int(v)) for s, v in zip(symbols, drawn, strict=True)}
        if _holds(g, dims):
            return dims
    return None


def _fitted(s: Symbol, value: int) -> int:
    """A value that the symbol's facts allow: a multiple, within its range."""
    value = max(s.minimum, value * s.multiple)
    value += -value % s.multiple
    if s.maximum is not None and value > s.maximum:
        value = s.maximum - s.maximum % s.multiple
    return value


def _allowed(s: Symbol, value: int) -> bool:
    return s.minimum <= value and (s.maximum is None or value <= s.maximum) and value % s.multiple == 0


def _holds(g: Graph, dims: Mapping[str, int]) -> bool:
    values = {**fixed_dims(g), **dims}
    return all(bool(evaluate_pred(p, values)) for p in g.constraints)


# ---- splits


def split_values(c: Candidate, sizes: Sizes, inputs: Mapping[str, Array], rng: np.random.Generator) -> dict[str, int]:
    """Counts and chunk lengths of the candidate's splits: S * C >= extent, with the least C or longer."""
    out: dict[str, int] = {}
    for split in c.splits:
        extent = base_extent(c, split, {**fixed_dims(c.origin), **sizes.dims}, inputs)
        count = out.setdefault(split.count, _count(extent, sizes.chunks, rng))
        least = max(-(-extent // count), 1) + sizes.slack
        out[split.chunk] = max(out.get(split.chunk, 0), least)
    return out


def _count(extent: int, chunks: Chunks, rng: np.random.Generator) -> int:
    match chunks:
        case Chunks.ONE:
            return 1
        case Chunks.MANY:
            return extent + 1 + below(3, rng)
        case Chunks.SOME:
            uneven = [n for n in range(2, min(extent, 12)) if extent % n]
            return int(rng.choice(uneven)) if uneven else 2


def base_extent(c: Candidate, split: Split, dims: Mapping[str, int], inputs: Mapping[str, Array]) -> int:
    """The greatest extent of the axis that a split divides, under values of the dims and of the integer inputs."""
    base = next((a for a in c.origin.axes if a.name == split.base), None)
    if base is None:
        raise CleaveError(f"split of {split.base}, which the input graph does not have", location=c.name)
    order = tuple(a for a in c.origin.axes if a is base or a in owners(base))
    space = make_space(order, inputs, dims)
    return int(np.asarray(evaluate(base.extent, space.environment, inputs)).max(initial=0))


# ---- data


def draw_inputs(g: Graph, dims: Mapping[str, int], data: Data, rng: np.random.Generator) -> dict[str, Array]:
    """Fresh values of every input, integers included (see ``_integers``: they may have to be drawn again)."""
    values = {**fixed_dims(g), **dims}
    return {i.name: _draw(i, tuple(int(evaluate(e, values)) for e in i.shape), data, rng) for i in g.inputs}


def _draw(source: Input, shape: tuple[int, ...], data: Data, rng: np.random.Generator) -> Array:
    if source.dtype in FLOATS:
        return floats(shape, data, rng)
    if source.dtype == "bool":
        return _booleans(shape, rng)
    return _integers(shape, rng)


def floats(shape: tuple[int, ...], data: Data, rng: np.random.Generator) -> Array:
    """Values of a pattern. A scalar (no axes) is a parameter: a scale, an epsilon."""
    plain = rng.uniform(0.3, 1.6, shape) * rng.choice([-1.0, 1.0], shape)
    match data:
        case Data.PLAIN:
            return plain
        case Data.POSITIVE:
            return np.abs(plain)
        case Data.NEGATIVE:
            return plain if shape else -np.abs(plain)
        case Data.ZEROS:
            return plain * (rng.random(shape) < 0.5) if shape else plain * 0.0
        case Data.LARGE:
            return plain * 40.0 if shape else plain
        case Data.TINY:
            return plain * 1e-5 if shape else plain
        case Data.BLOCKS:
            return _blocks(plain, rng)


def _blocks(values: Array, rng: np.random.Generator) -> Array:
    """A block along some dimensions becomes zero or large: tiles that are all zero, maxima that jump."""
    out = values.copy()
    for dimension, extent in enumerate(values.shape):
        if extent > 1 and rng.random() < 0.7:
            cut = 1 + below(extent - 1, rng)
            block = slice(0, cut) if rng.random() < 0.5 else slice(cut, None)
            out[(slice(None),) * dimension + (block,)] *= float(rng.choice([0.0, 20.0, -20.0]))
    return out


def _booleans(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """About half true, with one row that is false."""
    out = rng.random(shape) < 0.5
    if out.ndim and out.shape[0]:
        out[below(out.shape[0], rng)] = False
    return out


def _integers(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Lengths, positions in a table, or offsets: which of them an input holds shows when the graph is evaluated."""
    highest = 1 + below(5, rng)
    drawn = rng.integers(0, highest + 1, shape)
    if len(shape) == 1 and rng.random() < 0.5:
        drawn = np.sort(drawn)
        drawn[:1] = 0
    return drawn


def below(limit: int, rng: np.random.Generator) -> int:
    """A random integer 0 <= n < limit."""
    return int(cast(Any, rng.integers(limit)))


# ---- size of an evaluation


def footprint(terms: Iterable[Term], positions: Mapping[Axis, int]) -> int:
    """Elements of the largest array that evaluating terms makes, given how many positions each axis has."""
    return max((prod(max(positions[a], 1) for a in free(t)) for t in walk(*terms, below=operands)), default=1)


def greatest_extents(axes: Iterable[Axis], dims: Mapping[str, int], inputs: Mapping[str, Array]) -> dict[Axis, int]:
    """The greatest extent of every axis (owners of ragged ones first); 1 where it reads an input that is not given."""
    known = tuple(a for a in axes if inputs_of(a.extent) <= inputs.keys())
    space = make_space(known, inputs, dims)
    return {a: space.environment[a].size if a in space.environment else 1 for a in axes}
