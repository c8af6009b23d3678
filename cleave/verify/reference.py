"""The input graph on the instances of every step: drawn and evaluated once, for all candidates of the graph."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar, cast

import numpy as np

from cleave.errors import CleaveError
from cleave.ir.graph import Graph, Load, Map, Reduce, Term, children, free, walk
from cleave.ir.hash import graph_hash
from cleave.ir.index import show_pred
from cleave.ir.instance import Instance, fixed_dims, footprint, greatest_extents, shape_of
from cleave.ir.interp import MOST_AXES, Evaluation, interpret_terms, operands
from cleave.ir.op import FLOATS, INTEGERS
from cleave.verify.instantiate import (
    MOST_ELEMENTS,
    Array,
    Chunks,
    Data,
    Sizes,
    draw_data,
    masked,
    medium_sizes,
    small_sizes,
)
from cleave.verify.metric import with_magnitudes

T = TypeVar("T")

_FIRST = ((Chunks.ONE, 0), (Chunks.SOME, 1), (Chunks.MANY, 0))
"""Of the small instantiations: one chunk, some with slack, more than the extent; and the largest, where a mask leaves
several chunks of a row."""

_DRAWS = 60
_LIMIT = 4 * MOST_ELEMENTS
_MEDIUM_ELEMENTS = 200_000


@dataclass(frozen=True)
class Reference:
    """An instance with the values and magnitudes of the input graph's outputs, and how to cut axes there."""

    sizes: Sizes
    instance: Instance
    values: dict[str, Array]
    regular: bool = True
    """No term of the input graph is NaN or +inf here: an instance for candidates that assume finite values."""


@dataclass(frozen=True)
class References:
    """What verification needs of one input graph; made when it is first asked for, and kept."""

    origin: Graph
    seed: int = 0
    kept: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any], repr=False)

    def once(self, key: Hashable, make: Callable[[np.random.Generator], T]) -> T:
        """What ``make`` made the first time; its data is the same for the same graph, seed and key."""
        if key not in self.kept:
            words = (self.seed, int(graph_hash(self.origin)[:12], 16), zlib.crc32(repr(key).encode()))
            self.kept[key] = make(np.random.default_rng(words))
        return cast(T, self.kept[key])

    def why_none(self) -> str:
        """Why ``small`` is empty."""
        return why_none(self.origin, self.once("sizes", lambda rng: list(small_sizes(self.origin, rng))))

    def small(self) -> list[Reference]:
        return self.once("small", lambda rng: references(self.origin, small_sizes(self.origin, rng), rng))

    def medium(self) -> list[Reference]:
        return self.once(
            "medium", lambda rng: references(self.origin, medium_sizes(self.origin, rng, _MEDIUM_ELEMENTS), rng)
        )


def references(g: Graph, sizes: Iterable[Sizes], rng: np.random.Generator) -> list[Reference]:
    """The input graph evaluated once a size; none where no data fits (a read outside an input at every draw)."""
    fitting = [s for s in sizes if not _unfit(g, s.dims)]
    measured = with_magnitudes(g)
    own = measured.terms[: len(g.outputs)]
    return [found for s in fitting if (found := _reference(measured, own, s, rng)) is not None]


def why_none(g: Graph, sizes: Iterable[Sizes]) -> str:
    """Why a graph has no instance: its constraints, its sizes, or what its integer inputs would have to hold."""
    faults = [_unfit(g, s.dims) for s in sizes]
    if not faults:
        said = ", ".join(map(show_pred, g.constraints)) or "the ranges of its dims"
        return f"no sizes of the input graph were found that meet {said}"
    if all(faults):
        return f"the smallest instance is too large: {faults[-1]}"
    return "the input graph reads beyond an input in every instance that was drawn"


def _unfit(g: Graph, dims: Mapping[str, int]) -> str:
    """Why an instance of some size can't be evaluated, or ""."""
    if len(g.axes) > MOST_AXES:
        return f"{len(g.axes)} axes, allowed are {MOST_AXES}"
    values = {**fixed_dims(g), **dims}
    largest = footprint(g.terms, greatest_extents(g.axes, values, {}))
    largest = max([largest, *(prod(shape_of(i, values)) for i in g.inputs)])
    return f"an array of {largest} elements, allowed are {_LIMIT}" if largest > _LIMIT else ""


def _reference(measured: Graph, own: Sequence[Term], s: Sizes, rng: np.random.Generator) -> Reference | None:
    dims = {**fixed_dims(measured), **s.dims}
    masks = _maskable(measured, own) if s.data is Data.LOWEST else []
    tries = _DRAWS if any(i.dtype in INTEGERS for i in measured.inputs) else max(len(masks), 1)
    for attempt in range(tries if masks or s.data is not Data.LOWEST else 0):
        inputs = draw_data(measured, dims, s.data, rng)
        if masks:
            inputs = masked(inputs, masks[attempt % len(masks)], rng)
        try:
            found = interpret_terms(measured, inputs, dims)
        except CleaveError:
            continue  # integer data that points outside a table: not an instance of this graph
        if not masks or _is_masked(found, own):
            return Reference(s, Instance(dims, inputs, s.data), found.outputs, found.regular(*own))
    return None


def _maskable(g: Graph, own: Sequence[Term]) -> list[str]:
    """Inputs that may be additive masks: none where nothing takes a maximum."""
    if not any(isinstance(t, Reduce) and t.op == "max" for t in walk(*own)):
        return []
    factors = {u for t in walk(*own) if _is_product(t) for u in children(t)}
    loads = (t for t in walk(*own) if isinstance(t, Load) and t not in factors)
    names = {t.input for t in loads}
    return [i.name for i in g.inputs if i.name in names and i.dtype in FLOATS and i.shape]


def _is_masked(found: Evaluation, own: Sequence[Term]) -> bool:
    """Whether -inf only meets maxima and exponentials, as that of a mask: in sums and products no law holds for it."""
    made = (t for t in walk(*own, below=operands) if (isinstance(t, Reduce) and t.op == "sum") or _is_product(t))
    return all((np.isfinite(found.memo[t]) | ~found.space.valid_for(free(t))).all() for t in made)


def _is_product(t: Term) -> bool:
    return isinstance(t, Map) and t.op == "mul"


def representative(found: Sequence[Reference], rng: np.random.Generator, more: int) -> list[Reference]:
    """One for each way to cut, the largest ones, and some others at random: for checks that cost more than a value."""
    wanted = [next((r for r in found if (r.sizes.chunks, r.sizes.slack) == kind), None) for kind in _FIRST]
    large = sorted(found, key=lambda r: -prod(max(n, 1) for n in r.sizes.dims.values()))
    wanted += [next((r for r in large if r.sizes.chunks is kind), None) for kind in (Chunks.SOME, Chunks.MANY)]
    first = list({id(r): r for r in wanted if r is not None}.values())
    rest = [found[int(n)] for n in rng.permutation(len(found))]
    return [*first, *[r for r in rest if not any(r is f for f in first)][:more]]
