"""The float64 meaning of graphs: the specification that everything else is compared with.

Values are NumPy arrays with one dimension per axis of the graph (size 1 where a term does not depend on it). Positions
beyond a ragged extent do not exist: reductions see the identity there, and stores leave them alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod
from operator import mul as multiply
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.errors import GraphError
from cleave.ir.axis import Axis
from cleave.ir.bind import bind_dims
from cleave.ir.graph import (
    Cast,
    Const,
    Graph,
    IndexValue,
    Load,
    Map,
    Output,
    Reduce,
    Ref,
    Term,
    TopK,
    Where,
    children,
    free,
    product_factors,
    walk,
)
from cleave.ir.index import Index, Pred, axes_of, evaluate, evaluate_pred, read_clipped
from cleave.ir.op import MAPS, MONOIDS, round_to
from cleave.ir.top_k import selected

Array = NDArray[Any]


MOST_AXES = 32
"""Of a space: what arrays that broadcast may have."""
_SMALL = 4096
"""Elements of a product that is cheaper to make than to contract."""


@dataclass
class Space:
    """Axes, where they are, and which positions exist, under values of the dims and of the integer inputs."""

    order: tuple[Axis, ...]
    inputs: Mapping[str, Array]
    environment: dict[Any, Any]
    precision: str = "float64"
    """The type that every value is rounded to; sums are taken in it."""
    valid: dict[Axis, Array] = field(default_factory=dict[Axis, Array])
    whole: set[Axis] = field(default_factory=set[Axis])
    """Axes all of whose positions exist."""

    def copy(self) -> Space:
        return replace(self, environment=dict(self.environment), valid=dict(self.valid), whole=set(self.whole))

    def number(self, a: Axis) -> int:
        return self.order.index(a)

    def place(self, a: Axis, positions: Array) -> None:
        """Put an axis, whose owners have been placed, at some positions."""
        shape = [1] * len(self.order)
        shape[self.number(a)] = len(positions)
        self.environment[a] = positions = positions.reshape(shape)
        extent = np.asarray(evaluate(a.extent, self.environment, self.inputs))
        self.valid[a] = (positions < extent) & (positions >= 0)
        if self.valid[a].all():
            self.whole.add(a)
        else:
            self.whole.discard(a)

    def valid_for(self, axes: Iterable[Axis]) -> Array:
        """Where positions on all of some axes exist; of size 1 along those that are whole."""
        out: Array = np.ones([1] * len(self.order), dtype=bool)
        for a in sorted(set(axes) - self.whole, key=self.number):
            out = out & self.valid[a]
        return out


def make_space(
    order: tuple[Axis, ...],
    inputs: Mapping[str, Array],
    dims: Mapping[str, int],
    at: Mapping[Axis, Array] | None = None,
    precision: str = "float64",
) -> Space:
    """Positions 0 .. greatest extent on every axis, or those in ``at``; ``order`` has owners before what they own."""
    if len(order) > MOST_AXES:
        raise GraphError(f"{len(order)} axes: allowed are at most {MOST_AXES} in what is evaluated together")
    space = Space(order, inputs, dict(dims), precision)
    for a in order:
        if at is not None and a in at:
            space.place(a, np.asarray(at[a]))
        else:
            extent: Array = np.asarray(evaluate(a.extent, space.environment, inputs))
            space.place(a, np.arange(max(int(extent.max(initial=0)), 0)))
    return space


def value(term: Term, space: Space, memo: dict[Term, Array] | None = None) -> Array:
    """The value of a term at every position of a space; unspecified where an axis of the term has no position."""
    memo = {} if memo is None else memo
    known = memo
    with np.errstate(all="ignore"):
        for t in walk(term, below=lambda u: () if u in known else operands(u)):
            if t not in memo:
                memo[t] = _node_value(t, space, memo).astype(space.precision, copy=False)
    return memo[term]


def operands(t: Term) -> tuple[Term, ...]:
    """What a value is computed from: children, but the factors of a product under a sum, which is never made."""
    return product_factors(t.body) if isinstance(t, Reduce) and t.op == "sum" else children(t)


def _node_value(t: Term, space: Space, memo: Mapping[Term, Array]) -> Array:
    match t:
        case Load(name, indices):
            return load_value(name, indices, space.valid_for(free(t)), space.inputs, space.environment)
        case Const(number):
            return np.full([1] * len(space.order), number)
        case IndexValue(i):
            return _full_rank(evaluate(i, space.environment, space.inputs), space).astype(np.float64)
        case Map(op, args):
            return MAPS[op].meaning(*(memo[a] for a in args))
        case Where(pred, a, b):
            return np.where(pred_value(pred, space), memo[a], memo[b])
        case Cast(dtype, a):
            return round_to(memo[a], dtype)
        case Reduce():
            return _reduce_value(t, space, memo)
        case TopK():
            return _selected_value(t, space, memo[t.body])
        case Ref(name, _):
            raise GraphError(f"{name} has no value: put it into the memo")


def _full_rank(number: Any, space: Space) -> Array:
    array: Array = np.asarray(number)
    return array.reshape([1] * len(space.order)) if array.ndim == 0 else array


def load_value(
    name: str,
    indices: tuple[Index, ...],
    valid: Array,
    inputs: Mapping[str, Array],
    environment: Mapping[Any, Any],
) -> Array:
    """Elements of an input; reading outside it at a position that exists is an error, never clipped silently."""
    array = inputs[name]
    where: list[Array] = [np.asarray(evaluate(i, environment, inputs)) for i in indices]
    for number, (position, extent) in enumerate(zip(where, array.shape, strict=True)):
        beyond = (position < 0) | (position >= extent)
        if beyond.any() and (outside := valid & beyond).any():
            bad = int(np.broadcast_to(position, outside.shape)[outside][0])
            raise GraphError(f"index {bad}, allowed is 0 <= index < {extent}", location=f"input {name}, axis {number}")
    found = _gathered(array, where, valid.ndim)
    return found if valid.all() else np.where(valid, found, 0.0)


def _gathered(array: Array, where: Sequence[Array], rank: int) -> Array:
    """``array[where]`` with positions clipped; dimension by dimension if no axis is in the index of two."""
    axes = [[k for k, n in enumerate(p.shape) if n != 1] for p in where]
    order = [k for along in axes for k in along]
    drawn = type(array) is not np.ndarray  # something that computes its elements when they are read
    if drawn or len(set(order)) < len(order) or 0 in array.shape:
        found: Array = np.asarray(read_clipped(array, where), dtype=np.float64)
        return found if found.ndim else found.reshape([1] * rank)
    out: Array = array
    for dimension, position in enumerate(where):
        flat = position.ravel()
        if len(flat) != out.shape[dimension] or (flat != np.arange(len(flat))).any():
            out = out.take(flat, axis=dimension, mode="clip")
    sizes = [p.shape[k] for p, along in zip(where, axes, strict=True) for k in along]
    shape = [1] * rank
    for k, n in zip(order, sizes, strict=True):
        shape[k] = n
    return out.reshape(sizes).transpose(np.argsort(order)).reshape(shape).astype(np.float64, copy=False)


def pred_value(pred: Pred, space: Space) -> Array:
    return np.asarray(evaluate_pred(pred, space.environment, space.inputs))


def _reduce_value(t: Reduce, space: Space, memo: Mapping[Term, Array]) -> Array:
    number, monoid = space.number(t.axis), MONOIDS[t.op]
    factors = operands(t)
    if t.op == "sum" and len(factors) > 1:
        contracted = _contract(factors, t.axis, space, memo)
        if contracted is not None:
            return contracted
    body = reduce(multiply, (memo[f] for f in factors))
    if t.axis not in space.whole:
        body = np.where(space.valid[t.axis], body, np.asarray(monoid.identity, dtype=space.precision))
    size = space.environment[t.axis].shape[number]
    if body.shape[number] != size:
        body = np.broadcast_to(body, [size if k == number else n for k, n in enumerate(body.shape)])
    return monoid.reduce(body, axis=number, keepdims=True, initial=monoid.identity)


def _selected_value(t: TopK, space: Space, body: Array) -> Array:
    exists = np.broadcast_to(space.valid[t.axis], np.broadcast_shapes(space.valid[t.axis].shape, body.shape))
    return selected(t.part, np.broadcast_to(body, exists.shape), exists, ranks(t, space), space.number(t.axis))


def ranks(t: TopK, space: Space) -> Array:
    """The rank that a top-k asks for at each position, of size 1 along its axis."""
    return _full_rank(evaluate(t.rank, space.environment, space.inputs), space)


def _contract(factors: Sequence[Term], axis: Axis, space: Space, memo: Mapping[Term, Array]) -> Array | None:
    """Sum over an axis of a product without making the product; None where a factor is not finite.

    There an infinity could meet a zero that stands for a position that does not exist.
    """
    arrays = [memo[f] for f in factors]
    if not all(np.isfinite(a.sum()) for a in arrays):  # a sum that overflows is not finite either, and only slower
        return None
    number, size = space.number(axis), space.environment[axis].size
    along = [k for k, a in enumerate(arrays) if a.shape[number] != 1]
    if not along and size != 1:
        along = [len(arrays)]
        ones: Array = np.ones_like(space.environment[axis], dtype=space.precision)
        arrays.append(ones)
    if axis not in space.whole:
        k = min(along or [0], key=lambda k: arrays[k].size)
        arrays[k] = np.where(space.valid[axis], arrays[k], np.zeros((), dtype=space.precision))
    return contract(arrays, number)


def contract(arrays: Sequence[Array], number: int) -> Array:
    """Sum over one dimension of a product of arrays that broadcast, without making the product unless it is small."""
    rank = arrays[0].ndim
    if prod(np.broadcast_shapes(*(a.shape for a in arrays))) <= _SMALL:
        return np.sum(reduce(np.multiply, arrays), axis=number, keepdims=True)
    operands: list[Any] = []
    kept: set[int] = set()
    for array in arrays:
        labels = [k for k, n in enumerate(array.shape) if n != 1]
        operands += [array.reshape([array.shape[k] for k in labels]), labels]
        kept |= set(labels)
    out = sorted(kept - {number})
    result: Array = np.einsum(*operands, out, optimize=True)
    shape = [1] * rank
    for k, n in zip(out, result.shape, strict=True):
        shape[k] = n
    return result.reshape(shape)


@dataclass(frozen=True)
class Evaluation:
    """Outputs of a graph, and the value of each of its terms in the space where they were computed."""

    outputs: dict[str, Array]
    space: Space
    memo: dict[Term, Array]

    def regular(self, *roots: Term) -> bool:
        """Whether terms are finite or −inf wherever they exist: what a rule that assumes finite values asks for."""
        return all(self._is_regular(t, self.memo[t]) for t in walk(*roots, below=operands))

    def _is_regular(self, t: Term, found: Array) -> bool:
        irregular = np.isnan(found) | np.isposinf(found)
        return not irregular.any() or not (irregular & self.space.valid_for(free(t))).any()


def interpret(
    g: Graph,
    inputs: Mapping[str, Any],
    dims: Mapping[str, int] | None = None,
    at: Mapping[Axis, Array] | None = None,
    precision: str = "float64",
) -> dict[str, Array]:
    """Outputs of a graph, every operation rounded to ``precision``; NaN where nothing is stored.

    ``dims`` binds symbols that no input shape fixes. ``at`` restricts output axes to some positions: then only the
    elements there are computed and the rest stays NaN.
    """
    return interpret_terms(g, inputs, dims, at, precision).outputs


def interpret_terms(
    g: Graph,
    inputs: Mapping[str, Any],
    dims: Mapping[str, int] | None = None,
    at: Mapping[Axis, Array] | None = None,
    precision: str = "float64",
) -> Evaluation:
    """As ``interpret``, with what was computed on the way."""
    arrays = {i.name: np.asarray(inputs[i.name]) for i in g.inputs if i.name in inputs}
    for i in g.inputs:
        if i.name not in arrays:
            raise GraphError("missing", location=f"input {i.name}")
    values = bind_dims(g, {n: a.shape for n, a in arrays.items()}, dims)
    space = make_space(g.axes, arrays, values, at, precision)
    memo: dict[Term, Array] = {}
    return Evaluation({o.name: _stored(o, space, value(o.term, space, memo)) for o in g.outputs}, space, memo)


def _stored(o: Output, space: Space, result: Array) -> Array:
    shape = tuple(int(evaluate(extent, space.environment)) for extent in o.shape)
    out = np.full(shape, np.nan)
    store(out, o.name, o.indices, result, space)
    return out


def store(out: Array, name: str, indices: tuple[Index, ...], result: Array, space: Space) -> None:
    """Write a value at the positions that exist; outside the buffer is an error."""
    stored = frozenset[Axis]().union(*(axes_of(i) for i in indices))
    where: list[Array] = [np.asarray(evaluate(i, space.environment, space.inputs)) for i in indices]
    valid = space.valid_for(stored)
    if not valid.all() or not indices or np.broadcast(*where).shape != np.broadcast(result, *where).shape:
        aligned = np.broadcast_arrays(valid, result, *where)
        keep = aligned[0]
        result, where = aligned[1][keep], [p[keep] for p in aligned[2:]]
    for number, (position, extent) in enumerate(zip(where, out.shape, strict=True)):
        if position.size and (position.min() < 0 or position.max() >= extent):
            bad = int(position.min() if position.min() < 0 else position.max())
            raise GraphError(f"stored at {bad}, extent is {extent}", location=f"output {name}, axis {number}")
    out[tuple(where)] = result if indices else result.reshape(())
