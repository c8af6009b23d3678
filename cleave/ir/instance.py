"""Instances of graphs: values for the dims, and random inputs, at which a graph has a value.

dims      wished values, moved to what the facts of each symbol allow, shuffled until the constraints hold
floats    normal, or what the caller draws
booleans  about half true, with one row that is false
integers  lengths, positions or offsets: which of them an input holds shows only when the graph is evaluated
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cleave.errors import CleaveError
from cleave.ir.axis import Axis, owners, owners_first
from cleave.ir.graph import Graph, Input, Term, bound_axis, free, walk
from cleave.ir.index import Symbol, evaluate, evaluate_pred, inputs_of, symbols_of
from cleave.ir.interp import make_space, operands, value
from cleave.ir.op import FLOATS, INTEGERS

Array = NDArray[Any]
Real = Callable[[tuple[int, ...]], Array]
"""Draws a floating input of a shape."""

CHUNKS = 4
"""Chunks of a split axis in an instance: three that hold something, with a short last one, and one that is empty."""

_SIZES = (5, 4, 3, 2, 6, 7)
_WITH_TABLES = (7, 8, 9, 11, 10, 12)
"""Larger, so that what integer inputs hold lies inside."""
_TRIES = 400
_MOST_INTEGER = 5


@dataclass(frozen=True)
class Instance:
    """Everything that is needed to evaluate a graph; ``data`` says what the inputs are like."""

    dims: Mapping[str, int]
    inputs: Mapping[str, Array] = field(repr=False)
    data: str = ""

    def __str__(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in self.dims.items()) + (f", data: {self.data}" if self.data else "")


def small_instances(g: Graph, count: int = 4, *, most: int | None = None) -> list[Instance]:
    """Instances that differ in data and in how far integer inputs reach: one alone may hide what it should show.

    A mask that leaves one key hides a division by the number of keys; lengths within a chunk hide what joins two.
    """
    made = (small_instance(g, seed, greatest=3 + 2 * seed, most=most) for seed in range(count))
    return [at for at in made if at is not None]


def small_instance(
    g: Graph,
    seed: int = 0,
    attempts: int = 6,
    greatest: int = 3,
    *,
    sizes: Sequence[int] = (),
    real: Real | None = None,
    most: int | None = None,
) -> Instance | None:
    """An instance in which every term has a value, or None.

    ``greatest``: of integer inputs, less where that does not fit. ``sizes``: wished for the free dims, those first that
    are reduced. ``real`` draws floating inputs (default: normal). ``most``: elements of an array.
    """
    rng = np.random.default_rng(seed)
    has_tables = any(i.dtype in INTEGERS for i in g.inputs)
    for attempt in range(attempts):
        dims = small_dims(g, sizes or (_WITH_TABLES if has_tables else _SIZES), rng, attempt)
        if dims is None or (most is not None and largest(g, dims) > most):
            return None
        made = Instance(dims, draw_inputs(g, dims, rng, real=real, greatest=max(greatest - attempt, 1)))
        if _has_values(g, made):
            return made
    return None


def _has_values(g: Graph, at: Instance) -> bool:
    try:
        space = make_space(g.axes, at.inputs, at.dims)
        memo: dict[Term, Array] = {}
        for t in walk(*g.terms):
            value(t, space, memo)
    except (CleaveError, IndexError, RuntimeError):  # RuntimeError: more axes than an array can have
        return False
    return True


# ---- dims


def free_symbols(g: Graph) -> tuple[Symbol, ...]:
    """Dims that are not fixed by their facts."""
    return tuple(s for s in g.symbols if s.value is None)


def fixed_dims(g: Graph) -> dict[str, int]:
    return {s.name: s.value for s in g.symbols if s.value is not None}


def small_dims(g: Graph, sizes: Sequence[int], rng: np.random.Generator, attempt: int = 0) -> dict[str, int] | None:
    """Sizes for the free dims, the first ones for those that are reduced; ``attempt`` rotates which dim gets which."""
    bound = (a for a in map(bound_axis, walk(*g.terms)) if a is not None)
    reduced = frozenset[Symbol]().union(*(symbols_of(a.extent) for a in bound))
    free = sorted(free_symbols(g), key=lambda s: (s not in reduced, s.name))
    rotated = itertools.islice(itertools.cycle(sizes), attempt, None)
    return dims_near(g, {s.name: -(-n // s.multiple) for s, n in zip(free, rotated, strict=False)}, rng)


def fitted(s: Symbol, wish: int) -> int:
    """A value that the symbol's facts allow: the wished multiple, moved into its range."""
    value = max(s.minimum, wish * s.multiple)
    value += -value % s.multiple
    if s.maximum is not None and value > s.maximum:
        value = s.maximum - s.maximum % s.multiple
    return value


def meets(g: Graph, dims: Mapping[str, int]) -> bool:
    """Whether the constraints of a graph hold under values of its free dims."""
    return all(bool(evaluate_pred(p, dims)) for p in g.constraints)


def dims_near(g: Graph, wish: Mapping[str, int], rng: np.random.Generator) -> dict[str, int] | None:
    """Values of the free dims: as wished, then shuffled, then small ones, until the constraints hold; None if never."""
    symbols = [s for s in free_symbols(g) if s.name in wish]
    values = [wish[s.name] for s in symbols]
    for attempt in range(_TRIES):
        drawn: Iterable[Any] = values
        if attempt:
            # Constraints that tie dims to one another leave no room for different primes: try small values freely.
            drawn = rng.permutation(values) if attempt < _TRIES // 4 else rng.integers(1, 13, len(values))
        dims = {s.name: fitted(s, int(v)) for s, v in zip(symbols, drawn, strict=True)}
        if meets(g, dims):
            return dims
    return None


def chunked(count_name: str, chunk_name: str, extent: int, count: int = CHUNKS) -> dict[str, int]:
    """Count and chunk length for an extent: the last chunk is empty, the one before it short where that can be."""
    return {count_name: count, chunk_name: max(-(-extent // max(count - 1, 1)), 1)}


def greatest_extents(axes: Iterable[Axis], dims: Mapping[str, int], inputs: Mapping[str, Array]) -> dict[Axis, int]:
    """The greatest extent of every axis (owners of ragged ones first); 1 where it reads an input that is not given.

    Only axes that others depend on are laid out: the extents may be far longer than what fits into memory.
    """
    known = tuple(a for a in axes if inputs_of(a.extent) <= inputs.keys())
    owning = frozenset[Axis]().union(*(owners(a) for a in known))
    space = make_space(tuple(a for a in known if a in owning), inputs, dims)
    extents = {a: np.asarray(evaluate(a.extent, space.environment, inputs)) for a in known}
    return {a: max(int(extents[a].max(initial=0)), 0) if a in extents else 1 for a in axes}


def largest(g: Graph, dims: Mapping[str, int]) -> int:
    """Elements of the largest array that evaluating a graph makes, inputs included."""
    inputs = max((prod(shape_of(i, dims)) for i in g.inputs), default=0)
    return max(inputs, footprint(g.terms, greatest_extents(g.axes, dims, {})))


def greatest_extent(a: Axis, dims: Mapping[str, int], inputs: Mapping[str, Array]) -> int:
    """The greatest extent of one axis, wherever its owners are."""
    return greatest_extents(owners_first({a, *owners(a)}), dims, inputs)[a]


# ---- inputs


def draw_inputs(
    g: Graph,
    dims: Mapping[str, int],
    rng: np.random.Generator,
    *,
    real: Real | None = None,
    greatest: int | None = None,
) -> dict[str, Array]:
    """Fresh values of every input; integers are at most ``greatest`` (by default drawn as well) and may not fit."""

    def normal(shape: tuple[int, ...]) -> Array:
        return np.asarray(rng.normal(size=shape))

    return {i.name: _draw(i, dims, real or normal, greatest, rng) for i in g.inputs}


def shape_of(i: Input, dims: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(evaluate(extent, dims)) for extent in i.shape)


def _draw(i: Input, dims: Mapping[str, int], real: Real, greatest: int | None, rng: np.random.Generator) -> Array:
    shape = shape_of(i, dims)
    if i.dtype in FLOATS:
        return real(shape)
    if i.dtype == "bool":
        return _booleans(shape, rng)
    return _integers(shape, 1 + below(_MOST_INTEGER, rng) if greatest is None else greatest, rng)


def _booleans(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    out: Array = np.asarray(rng.random(shape) < 0.5)
    if out.ndim and out.shape[0]:
        out[below(out.shape[0], rng)] = False
    return out


def _integers(shape: tuple[int, ...], greatest: int, rng: np.random.Generator) -> Array:
    drawn: Array = np.asarray(rng.integers(0, greatest + 1, shape))
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
