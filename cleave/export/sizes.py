"""Where an exported program gets its dims from: shapes of its inputs first, integer arguments for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cleave.candidate import Candidate
from cleave.errors import GraphError
from cleave.export.access import bound
from cleave.ir.dim import check_binding
from cleave.ir.graph import Graph
from cleave.ir.index import Index, Symbol, ceildiv, of, symbols_of


@dataclass(frozen=True)
class Learnt:
    """``symbol = (size of an input's dimension − rest) / factor``."""

    symbol: Symbol
    input: str
    dimension: int
    factor: Index
    rest: Index


@dataclass(frozen=True)
class DimPlan:
    """``values`` are fixed, ``learnt`` come from shapes in order, ``chunks`` from counts; ``free`` are arguments."""

    values: Mapping[str, int]
    learnt: tuple[Learnt, ...]
    free: tuple[Symbol, ...]
    chunks: Mapping[str, Index]


def plan_dims(g: Graph, bind: Mapping[str, int], candidate: Candidate | None) -> DimPlan:
    """How the dims of a graph are known in a call.

    Errors: a dim that the graph does not have, or a value that its facts forbid (GraphError).
    """
    values = _values(g, bind)
    known = set(values)
    learnt: list[Learnt] = []
    while (found := _next(g, known)) is not None:
        learnt.append(found)
        known.add(found.symbol.name)
    chunks = _chunks(candidate, known) if candidate else {}
    free = tuple(s for s in g.symbols if s.name not in known and s.name not in chunks)
    return DimPlan(values, tuple(learnt), free, chunks)


def _values(g: Graph, bind: Mapping[str, int]) -> dict[str, int]:
    symbols = {s.name: s for s in g.symbols}
    for name, value in bind.items():
        if name not in symbols:
            raise GraphError(f"no dim {name!r}: the graph has {', '.join(symbols) or 'none'}", location=g.name)
        check_binding(symbols[name], value)
    return {**{n: s.value for n, s in symbols.items() if s.value is not None}, **bind}


def _next(g: Graph, known: set[str]) -> Learnt | None:
    """An extent with one dim that is not known; extents that are the dim itself first."""
    affine: Learnt | None = None
    for i in g.inputs:
        for dimension, extent in enumerate(i.shape):
            unknown = [s for s in symbols_of(extent) if s.name not in known]
            linear = extent.linear_in(unknown[0]) if len(unknown) == 1 else None
            if linear is None:
                continue
            found = Learnt(unknown[0], i.name, dimension, *linear)
            if extent.atom is unknown[0]:
                return found
            affine = affine or found
    return affine


def _chunks(candidate: Candidate, known: set[str]) -> dict[str, Index]:
    """The chunk length of every split: the axis' extent over the count, rounded up."""
    axes = {a.name: a for a in candidate.origin.axes}
    counts = {s.name: of(s) for s in candidate.graph.symbols}
    out: dict[str, Index] = {}
    for s in candidate.splits:
        extent = bound(axes[s.base].extent) if s.base in axes else None
        if extent is not None and s.chunk not in known:
            out[s.chunk] = ceildiv(extent, counts[s.count])
    return out
