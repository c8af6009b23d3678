"""The input graph on the instances of every step: drawn and evaluated once, for all candidates of the graph."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar, cast

import numpy as np

from cleave.errors import CleaveError
from cleave.ir.graph import Graph, Term
from cleave.ir.hash import graph_hash
from cleave.ir.instance import Instance, fixed_dims
from cleave.ir.interp import interpret_terms
from cleave.ir.op import INTEGERS
from cleave.verify.instantiate import Array, Chunks, Sizes, draw_data, medium_sizes, small_sizes
from cleave.verify.metric import with_magnitudes

T = TypeVar("T")

_FIRST = ((Chunks.ONE, 0), (Chunks.SOME, 1), (Chunks.MANY, 0))
"""Of the small instantiations: one chunk, some with slack, more than the extent; and the largest, where a mask leaves
several chunks of a row."""

_DRAWS = 60
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

    def small(self) -> list[Reference]:
        return self.once("small", lambda rng: references(self.origin, small_sizes(self.origin, rng), rng))

    def medium(self) -> list[Reference]:
        return self.once(
            "medium", lambda rng: references(self.origin, medium_sizes(self.origin, rng, _MEDIUM_ELEMENTS), rng)
        )


def references(g: Graph, sizes: Iterable[Sizes], rng: np.random.Generator) -> list[Reference]:
    """The input graph evaluated once a size; none where no data fits (a read outside an input at every draw)."""
    measured = with_magnitudes(g)
    own = measured.terms[: len(g.outputs)]
    return [found for s in sizes if (found := _reference(measured, own, s, rng)) is not None]


def _reference(measured: Graph, own: Sequence[Term], s: Sizes, rng: np.random.Generator) -> Reference | None:
    dims = {**fixed_dims(measured), **s.dims}
    tries = _DRAWS if any(i.dtype in INTEGERS for i in measured.inputs) else 1
    for _ in range(tries):
        inputs = draw_data(measured, dims, s.data, rng)
        try:
            found = interpret_terms(measured, inputs, dims)
        except CleaveError:
            continue  # integer data that points outside a table: not an instance of this graph
        return Reference(s, Instance(dims, inputs, s.data), found.outputs, found.regular(*own))
    return None


def representative(found: Sequence[Reference], rng: np.random.Generator, more: int) -> list[Reference]:
    """One for each way to cut, the largest ones, and some others at random: for checks that cost more than a value."""
    wanted = [next((r for r in found if (r.sizes.chunks, r.sizes.slack) == kind), None) for kind in _FIRST]
    large = sorted(found, key=lambda r: -prod(max(n, 1) for n in r.sizes.dims.values()))
    wanted += [next((r for r in large if r.sizes.chunks is kind), None) for kind in (Chunks.SOME, Chunks.MANY)]
    first = list({id(r): r for r in wanted if r is not None}.values())
    rest = [found[int(n)] for n in rng.permutation(len(found))]
    return [*first, *[r for r in rest if not any(r is f for f in first)][:more]]
