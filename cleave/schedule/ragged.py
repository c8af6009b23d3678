"""Splits of axes whose extent is read from inputs: how long the chunks of a request are, the device computes.

    n = max(1, min(room, ceil(t / M)))      chunks of a request of extent t, which has so many places (``ir.ragged``)
    C = M ceil(t / (n M))                   their length, whole tiles of M elements

Places are chunks of at most L elements of all requests, one behind the other: as many blocks are launched as there are
places, and a block finds its request from its number. L is computed by the host from the dims of a call: what gives
blocks of a whole number of waves about as long as those of the representative shape. So long requests have many chunks
and short ones one, and lengths may change without a new plan.

Where the blocks of a request are a cluster, or meet, there are S of them for each, and

    n = min(S, max(1, ceil(t / L)))
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
from cleave.ir.graph import Graph, Reduce
from cleave.ir.index import Atom, Index, Symbol, ceildiv, evaluate, index, maximum, minimum, of, show
from cleave.ir.ragged import Lengths, Packing, Table
from cleave.ir.tables import graph_lengths
from cleave.schedule.clashes import fresh_name
from cleave.tile.plan import Binding, Chunk
from cleave.tile.program import Program

LEAST_CHUNK = 64
"""Elements of an axis that are worth a block of their own."""


@dataclass(frozen=True)
class Ragged:
    """A split candidate whose chunks the device measures; ``granule`` is the symbol M, ``average`` the extent of a
    request as the dims of a call tell it, ``table`` where requests begin if their chunks lie one behind the other."""

    graph: Graph
    folds: tuple[Fold, ...]
    split: Split
    granule: Symbol
    average: Index
    known: Lengths
    table: Table | None

    @property
    def length_symbol(self) -> Symbol:
        return {s.name: s for s in self.graph.symbols}[self.split.chunk]

    @property
    def packing(self) -> Packing | None:
        return None if self.table is None else self.table.packed(of(self.length_symbol))

    def length(self, count: int, multiple: int, dims: Mapping[str, int]) -> int:
        """L at the representative shape, where an average request has ``count`` chunks."""
        if self.table is None:
            return -(-int(evaluate(self.average, dims)) // (count * multiple)) * multiple
        limit, owners = (int(evaluate(i, dims)) for i in (self.table.limit, self.table.owner.extent))
        return max(-(-limit // max((count - 1) * owners, 1)), 1) if count > 1 else limit + 1

    def chunk(
        self, count: int, multiple: int, dims: Mapping[str, int], program: Program, binding: Binding, places: int
    ) -> Chunk:
        """L in a call. ``program``: the first kernel; ``places``: blocks of it that run at once."""
        blocks, table = index(1), self.table
        for a in (a for a in program.grid if a.kind != "outer" and (table is None or a is not table.owner)):
            blocks = blocks * self._tiles(a, 1 if a in program.unit else binding.tile(a))
        if table is None:
            extent = maximum(ceildiv(self.average * blocks, max(int(evaluate(blocks, dims)), 1)), 1)
            symbols = {s.name: s for s in self.graph.symbols}
            return Chunk(self.length_symbol, extent, of(symbols[self.split.count]), multiple)
        blocks, usual = maximum(blocks, 1), self.length(count, multiple, dims)
        wanted = blocks * (table.limit // usual + table.owner.extent)
        waves = maximum((wanted + places // 2) // places, 1)
        room = maximum(waves * places // blocks - table.owner.extent, 1)
        least = max(LEAST_CHUNK, multiple * binding.teams)
        extent = maximum(minimum(ceildiv(table.limit, room), 2 * usual), least)
        return Chunk(self.length_symbol, extent, index(1), 1)

    def _tiles(self, a: Axis, size: int) -> Index:
        """Tiles of a grid axis in an average request."""
        extent = self.known.average(a.extent, _counts(self.graph))
        return index(1) if extent is None else ceildiv(extent, size)


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


def ragged(c: Candidate, folds: Iterable[Fold], split: Split, base: Index, *, packed: bool) -> Ragged:
    """The candidate with chunks that are measured on the device; ``packed``: those of all requests lie one behind the
    other. Errors: requests that do not lie so themselves."""
    g = c.graph
    symbols = {s.name: s for s in g.symbols}
    wish, names = f"M_{split.base}", {b.name for b in (*g.inputs, *g.outputs)} | symbols.keys()
    granule = Symbol(fresh_name(wish, names) if wish in names else wish, 1)
    count, least = symbols[split.count], symbols[split.chunk]
    table = graph_lengths(c.origin).table(base) if packed else None
    if table is not None:
        chunks = maximum(minimum(table.packed(of(least)).room, ceildiv(base, of(granule))), 1)
    elif packed:
        raise ScheduleError(
            f"split of {split.base!r}: its extent {show(base)} is no difference of neighbours in a table"
        )
    else:
        chunks = minimum(of(count), maximum(ceildiv(base, of(least)), 1))
    made: dict[Atom, Index] = {least: ceildiv(ceildiv(base, of(granule)), chunks) * of(granule)}
    rewriting = Rewriting(Freed(made | ({count: chunks} if packed else {}), {}), g.axes)
    graph = rewriting.graph(g)
    kept = tuple(_rewritten(f, rewriting) for f in folds)
    pieces = replaced(split, outer=rewriting.axis(split.outer), inner=rewriting.axis(split.inner))
    average = average_extent(c, split.base, base)
    return Ragged(graph, kept, pieces, granule, average, graph_lengths(graph), table)


def _rewritten(f: Fold, to: Rewriting) -> Fold:
    members = [to.term(m) for m in f.members]
    kept = tuple(m for m in members if isinstance(m, Reduce))
    return Fold(to.axis(f.axis), kept, tuple(map(to.term, f.carry)), f.absorbing)
