"""Integer inputs of a graph as callers give them: what each holds, as the graph uses it, and fresh values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.ir.graph import Graph, Load, walk
from cleave.ir.index import Index, Read, evaluate
from cleave.ir.op import INTEGERS
from cleave.ir.ragged import Lengths, lengths, positions

Array = NDArray[Any]

EMPTY = 0.1
"""Part of the requests of a drawn batch that hold nothing."""


def graph_lengths(g: Graph) -> Lengths:
    """What the tables of a graph hold."""
    return lengths((a.extent for a in g.axes), _positions(g))


def _positions(g: Graph) -> Iterator[tuple[Index, Index]]:
    shapes = {b.name: b.shape for b in (*g.inputs, *g.outputs)}
    loads = [(t.input, t.indices) for t in walk(*g.terms) if isinstance(t, Load)]
    return iter(positions([*loads, *((o.name, o.indices) for o in g.outputs)], shapes))


def draw_tables(g: Graph, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
    """Batches of requests of which some are far longer than others and some hold nothing: pointers that rise from 0 to
    the end of what they point into, rests that are full or not, places inside arrays. Inputs of whose use nothing is
    known are left out."""
    found, places = graph_lengths(g), _places(g, dims)
    out: dict[str, Array] = {}
    for i in g.inputs:
        if i.dtype not in INTEGERS:
            continue
        shape = [int(evaluate(n, dims)) for n in i.shape]
        if i.name in found.pointers and shape:
            out[i.name] = _pointers(shape, int(evaluate(found.pointers[i.name], dims)), rng)
        elif i.name in found.rests:
            out[i.name] = rng.integers(1, found.rests[i.name] + 1, shape)
        elif i.name in places:
            out[i.name] = rng.integers(0, max(places[i.name], 1), shape)
    return out


def _pointers(shape: list[int], end: int, rng: np.random.Generator) -> Array:
    """Lengths are exponentially distributed, as in batches that servers work on."""
    count = max(shape[-1] - 1, 1)
    weights = rng.exponential(size=(*shape[:-1], count)) * (rng.random((*shape[:-1], count)) >= EMPTY)
    weights[..., 0] += weights.sum(-1) == 0
    steps = np.cumsum(weights, -1) / weights.sum(-1, keepdims=True)
    ends = np.floor(steps * end + 0.5).astype(int)
    return np.concatenate([np.zeros((*shape[:-1], 1), int), ends], -1)[..., : shape[-1]]


def _places(g: Graph, dims: Mapping[str, int]) -> dict[str, int]:
    """Integer inputs whose elements are positions in arrays, with how many positions there are."""
    out: dict[str, int] = {}
    for position, extent in _positions(g):
        if isinstance(position.atom, Read):
            name, most = position.atom.input, int(evaluate(extent, dims))
            out[name] = min(out.get(name, most), most)
    return out
