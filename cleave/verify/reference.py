"""The input graph on the instances of every step: drawn and evaluated once, for all candidates of the graph."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np

from cleave.errors import CleaveError
from cleave.ir.graph import Graph
from cleave.ir.hash import graph_hash
from cleave.ir.instance import Instance, fixed_dims
from cleave.ir.interp import interpret
from cleave.ir.op import INTEGERS
from cleave.verify.instantiate import Array, Sizes, draw_data, medium_sizes, small_sizes
from cleave.verify.metric import with_magnitudes

T = TypeVar("T")

_DRAWS = 60
_MEDIUM_ELEMENTS = 200_000


@dataclass(frozen=True)
class Reference:
    """An instance with the values and magnitudes of the input graph's outputs, and how to cut axes there."""

    sizes: Sizes
    instance: Instance
    values: dict[str, Array]


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
    return [found for s in sizes if (found := _reference(measured, s, rng)) is not None]


def _reference(measured: Graph, s: Sizes, rng: np.random.Generator) -> Reference | None:
    dims = {**fixed_dims(measured), **s.dims}
    tries = _DRAWS if any(i.dtype in INTEGERS for i in measured.inputs) else 1
    for _ in range(tries):
        inputs = draw_data(measured, dims, s.data, rng)
        try:
            values = interpret(measured, inputs, dims)
        except CleaveError:
            continue  # integer data that points outside a table: not an instance of this graph
        return Reference(s, Instance(dims, inputs, s.data), values)
    return None
