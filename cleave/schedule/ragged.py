"""Splits of axes whose extent is read from inputs: how long the chunks of a request are, the device computes.

    n = min(S, max(1, ceil(t / L)))     chunks of a request of extent t
    C = M ceil(t / (n M))               their length, whole tiles of M elements

S bounds the chunks of a request and is compiled in. L is the length that chunks should have at least, which the host
computes from the dims of a call: as many blocks as at the representative shape, where a request of average extent has
S / slack chunks. Requests are as short or long as they like, and may change without a new plan.

Blocks beyond n go out at once, and who merges expects n partials. Blocks of a cluster, and those that meet, are S, and
have a slack of 1: each takes the place of one that works.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced

from cleave.candidate import Candidate, Fold, Split
from cleave.errors import ScheduleError
from cleave.ir.axis import Axis
from cleave.ir.dim import is_dim
from cleave.ir.generic import Freed, Rewriting
from cleave.ir.graph import Graph, Load, Reduce, walk
from cleave.ir.index import Atom, Index, Symbol, ceildiv, evaluate, index, maximum, minimum, of, show
from cleave.ir.ragged import Lengths, lengths, positions
from cleave.schedule.clashes import fresh_name
from cleave.tile.plan import Binding, Chunk
from cleave.tile.program import Program

SLACK = 4
"""How many times as long as the average a request may be before its chunks are longer than those of others, where
blocks without a chunk cost next to nothing."""


@dataclass(frozen=True)
class Ragged:
    """A split candidate whose chunks the device measures; ``granule`` is the symbol M, ``average`` the extent of a
    request as the dims of a call tell it."""

    graph: Graph
    folds: tuple[Fold, ...]
    split: Split
    granule: Symbol
    average: Index
    known: Lengths
    slack: int

    def length(self, count: int, multiple: int, dims: Mapping[str, int]) -> int:
        """L at the representative shape."""
        return -(-self.slack * int(evaluate(self.average, dims)) // (count * multiple)) * multiple

    def chunk(self, multiple: int, dims: Mapping[str, int], program: Program, binding: Binding) -> Chunk:
        """L in a call: as many blocks as the first kernel, which is given, has at the representative shape."""
        blocks = index(1)
        for a in (a for a in program.grid if a.kind != "outer"):
            blocks = blocks * self._tiles(a, 1 if a in program.unit else binding.tile(a))
        extent = maximum(ceildiv(self.average * blocks * self.slack, max(int(evaluate(blocks, dims)), 1)), 1)
        symbols = {s.name: s for s in self.graph.symbols}
        return Chunk(symbols[self.split.chunk], extent, of(symbols[self.split.count]), multiple)

    def _tiles(self, a: Axis, size: int) -> Index:
        """Tiles of a grid axis in an average request."""
        extent = self.known.average(a.extent, _counts(self.graph))
        return index(1) if extent is None else ceildiv(extent, size)


def graph_lengths(g: Graph) -> Lengths:
    """What the tables of a graph hold."""
    shapes = {b.name: b.shape for b in (*g.inputs, *g.outputs)}
    loads = [(t.input, t.indices) for t in walk(*g.terms) if isinstance(t, Load)]
    stored = [(o.name, o.indices) for o in g.outputs]
    return lengths((a.extent for a in g.axes), positions([*loads, *stored], shapes))


def _counts(g: Graph) -> dict[str, Index]:
    """Differences of neighbours along the last axis of each input."""
    return {i.name: maximum(i.shape[-1] - 1, 1) for i in g.inputs if i.shape}


def average_extent(c: Candidate, name: str, base: Index) -> Index:
    """The extent of an axis as the dims of a call tell it. Errors: one that nothing bounds."""
    g = c.origin
    found = base if is_dim(base) else graph_lengths(g).average(base, _counts(g))
    if found is None:
        raise ScheduleError(
            f"split of {name!r}: its extent {show(base)} is read from an input, and no array bounds what that holds",
            location=c.name,
        )
    return found


def ragged(c: Candidate, folds: Iterable[Fold], split: Split, base: Index, *, alone: bool) -> Ragged:
    """The candidate with chunks that are measured on the device; ``alone``: blocks without a chunk do nothing."""
    g = c.graph
    symbols = {s.name: s for s in g.symbols}
    wish, names = f"M_{split.base}", {b.name for b in (*g.inputs, *g.outputs)} | symbols.keys()
    granule = Symbol(fresh_name(wish, names) if wish in names else wish, 1)
    count, least = symbols[split.count], symbols[split.chunk]
    chunks = minimum(of(count), maximum(ceildiv(base, of(least)), 1))
    made: dict[Atom, Index] = {least: ceildiv(base, chunks * of(granule)) * of(granule)}
    rewriting = Rewriting(Freed(made | ({count: chunks} if alone else {}), {}), g.axes)
    graph = rewriting.graph(g)
    kept = tuple(_rewritten(f, rewriting) for f in folds)
    pieces = replaced(split, outer=rewriting.axis(split.outer), inner=rewriting.axis(split.inner))
    average = average_extent(c, split.base, base)
    return Ragged(graph, kept, pieces, granule, average, graph_lengths(graph), SLACK if alone else 1)


def _rewritten(f: Fold, to: Rewriting) -> Fold:
    members = [to.term(m) for m in f.members]
    kept = tuple(m for m in members if isinstance(m, Reduce))
    return Fold(to.axis(f.axis), kept, tuple(map(to.term, f.carry)), f.absorbing)
