"""Kernel partitions of a candidate, with its split bound: what the chooser costs against each other.

Fused and cut forms are both in the race: a row statistic inside a large matmul is computed again by every tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from cleave.candidate import Split
from cleave.errors import ScheduleError
from cleave.ir.axis import Axis
from cleave.ir.dim import is_dim
from cleave.ir.graph import Graph, Reduce, Term, free, product_factors, reductions, walk
from cleave.ir.index import evaluate
from cleave.schedule.partition import (
    Nested,
    Partition,
    Piece,
    computed_operands,
    crossings,
    cut,
    in_waves,
    inner_contractions,
    nested_sums,
    repeated_in_loops,
    uncut,
    waves_of_reductions,
)
from cleave.schedule.placement import MOST_ROWS, is_long, placements
from cleave.schedule.ragged import LEAST_CHUNK, Ragged, average_extent, ragged
from cleave.schedule.request import Request
from cleave.schedule.rows import matmuls, row_sets, rowless, structure
from cleave.schedule.splits import base_extent, collapse, cut_at_partials, partials
from cleave.tile.plan import Merge

SPLIT_COUNTS = (1, 2, 3, 4, 6, 8, 16, 32, 64)
JOINED = "cut at joined sums that another matmul multiplies"
CROSSED = "cut at matmuls whose batch axes are not those of the next"


@dataclass(frozen=True)
class Variant:
    """A partition, how its partials are merged, and the split counts to try. ``ragged``: the device measures chunks."""

    partition: Partition
    merge: Merge = "none"
    split: Split | None = None
    counts: tuple[int, ...] = (1,)
    ragged: Ragged | None = None


def variants(r: Request) -> Iterator[Variant]:
    if not r.config.ablation.iterative_tiling:
        yield from _untiled(r)
    elif not r.candidate.splits:
        for partition in _partitions(r, Piece(r.candidate.graph, r.folds)):
            yield Variant(partition)
    else:
        yield from _split(r, r.candidate.splits[0])


def _split(r: Request, split: Split) -> Iterator[Variant]:
    c, merge = r.candidate, r.forced.merge
    asked = r.forced.split.get(split.base, r.forced.split.get(split.count))
    base = base_extent(c, split)
    extent = int(evaluate(average_extent(c, split.base, base), r.dims))
    filling = _filling(r, collapse(c, r.folds, split))
    tried = sorted({*SPLIT_COUNTS, *filling})
    useful = tuple(n for n in tried if n == 1 or n <= extent // LEAST_CHUNK)
    counts = (asked,) if asked is not None else useful
    if merge == "none" and asked not in (None, 1):
        raise ScheduleError(f"split count {asked} without a merge: allowed is 1", location=f"axis {split.base}")
    if 1 in counts and merge in (None, "none"):
        for partition in _partitions(r, collapse(c, r.folds, split)):
            yield Variant(partition, "none", split)
    merged = tuple(n for n in counts if n > 1 or merge is not None)
    yield from _split_after(r, split, merged)
    for way in ("second-launch", "last-arriving", "spread", "cluster"):
        fitting = tuple(n for n in merged if _fits(r, way, n))
        if fitting and merge in (None, way):
            yield from _merged(r, split, way, fitting)
        elif merge == way:
            most = _most(r, way)
            allowed = f"at most {most} on {r.target.arch}" if most > 1 else f"none on {r.target.arch}"
            what = "merge" if asked is None else f"split count {asked}"
            where = "in a cluster" if way == "cluster" else "of blocks that wait for one another"
            raise ScheduleError(f"{what} {where}: allowed is {allowed}", location=f"axis {split.base}")


def _merged(r: Request, split: Split, way: Merge, counts: tuple[int, ...]) -> Iterator[Variant]:
    """Cut at the partials, and once more at what they are joined to if that is an operand of a matmul, which would
    join them again for each of its tiles. Where chunks are measured on the device, those of all requests lie one behind
    the other, unless the blocks of a request are neighbours."""
    c, base = r.candidate, base_extent(r.candidate, split)
    try:
        if is_dim(base):
            yield Variant(cut_at_partials(c, r.folds, split), way, split, counts)
            joined = _joined_operands(c.graph, split)
            if joined:
                made = cut_at_partials(c, r.folds, split, joined=joined)
                yield Variant(replace(made, note=JOINED), way, split, counts)
            return
        made = ragged(c, r.folds, split, base, packed=way in ("second-launch", "last-arriving"))
        known = replace(c, graph=made.graph, splits=(made.split,))
        parted = cut_at_partials(known, made.folds, made.split, packing=made.packing)
        yield Variant(parted, way, made.split, counts, made)
    except ScheduleError as error:
        r.reject(str(error))


def _joined_operands(g: Graph, split: Split) -> list[Reduce]:
    """The joined sums, if all of them are factors of matmuls and have the same axes."""
    joined = [q for q in reductions(*g.terms) if q.axis is split.outer]
    factors = {t for q in matmuls(g) for t in product_factors(q.body)}
    alike = len({free(q) for q in joined}) == 1
    return joined if alike and factors.issuperset(joined) else []


def _split_after(r: Request, split: Split, counts: tuple[int, ...]) -> Iterator[Variant]:
    """Partials of a kernel whose operands other kernels compute before it: a second launch joins them."""
    c = r.candidate
    if not is_dim(base_extent(c, split)):
        return
    found = partials(c.graph, split.outer)
    stored = [q for q in _crossings(r, c.graph) if q not in found and any(q in walk(t.body) for t in found)]
    if stored and counts and r.forced.merge in (None, "second-launch"):
        try:
            made = cut_at_partials(c, r.folds, split, in_waves(stored))
        except ScheduleError as error:
            r.reject(str(error))
            return
        yield Variant(replace(made, note=CROSSED), "second-launch", split, counts)


def _most(r: Request, way: Merge) -> int:
    """Chunks that a way to merge allows: those whose blocks wait for one another have to run together."""
    facts = r.target.facts
    return {"cluster": facts.cluster_blocks, "spread": facts.multiprocessors}.get(way, 2**31)


def _fits(r: Request, way: Merge, count: int) -> bool:
    """Whether a merge may be tried for so many chunks; one that spreads is for who asks for it, see ``Merge``.

    A target without clusters has none of one block either: the merge that was asked for would be another.
    """
    if way == "spread" and r.forced.merge is None:
        return False
    if way in ("cluster", "spread") and r.forced.multicast > 1:
        return False
    return count <= _most(r, way) > 1


def _filling(r: Request, piece: Piece) -> set[int]:
    """Counts of chunks that give every multiprocessor one block or two, if one tile holds all rows."""
    sizes, units = r.sizes({}), r.target.facts.multiprocessors
    blocks = {
        prod(max(sizes.extent(a) or 1, 1) for a, role in p.roles.items() if role == ("unit",))
        for p in placements(piece.graph, sizes)
    }
    return {n for b in blocks for n in (units // b, 2 * units // b) if n > 0}


def _untiled(r: Request) -> Iterator[Variant]:
    """No loop over tiles: every reduction reads its whole axis, and what another reduction needs is stored; operands
    that tiles compute again may be too."""
    c = r.candidate
    split = c.splits[0] if c.splits else None
    piece = Piece(c.graph, ()) if split is None else collapse(c, (), split)
    waves = waves_of_reductions(piece.graph)
    yield Variant(cut(piece, waves, c.splits, "reductions read whole, kernels cut between them"), "none", split)
    operands = computed_operands(structure(piece.graph).contractions)
    if operands and _columns(r, piece.graph):
        for partition in _tried(r, piece, [*waves, operands], "reductions read whole, kernels cut at operands too"):
            yield Variant(partition, "none", split)


def _partitions(r: Request, piece: Piece) -> Iterator[Partition]:
    """Fused if every matmul carries the rows; cut at reductions that tiles repeat; cut at matmuls inside others."""
    s = structure(piece.graph)
    sets = row_sets(piece.graph, s)
    lost = rowless(sets[0], s.contractions) if sets else []
    waves: list[list[Reduce]] = [lost] if lost else []
    if lost:
        yield from _tried(r, piece, waves, "cut at matmuls that carry no rows")
    else:
        yield uncut(piece)
    crossed = _crossings(r, piece.graph)
    if crossed:
        yield from _tried(r, piece, in_waves(crossed), CROSSED)
    repeated = _repeated(r, piece.graph)
    if repeated:
        yield from _tried(r, piece, [*waves, repeated], "cut at reductions that tiles repeat")
    operands = computed_operands(s.contractions)
    if operands and _columns(r, piece.graph):
        yield from _tried(r, piece, [*waves, operands], "cut at operands that tiles compute again")
    yield from _cut_at_repeats(r, piece, waves)
    inner = [q for q in inner_contractions(piece.graph, (x.reduce for x in s.contractions)) if q not in lost]
    if inner:
        yield from _tried(r, piece, [*waves, inner], "cut at matmuls inside other reductions")


def _cut_at_repeats(r: Request, piece: Piece, waves: Sequence[Sequence[Term]]) -> Iterator[Partition]:
    """What tiles of rows compute again in their loops, stored: reductions, or operands of matmuls that hold them; and
    operands of sums that are no matmul as they are."""
    s, rows = structure(piece.graph), _many_rows(r, piece.graph)
    nested = nested_sums(piece.graph)
    if nested:
        operands = list(dict.fromkeys(t for n in nested for t in n.operands))
        yield from _tried(r, piece, [*waves, operands], "cut at operands of sums over several axes", nested)
    repeated = repeated_in_loops(piece.graph, rows) if rows else []
    if not repeated:
        return
    yield from _tried(r, piece, [*waves, repeated], "cut at reductions that loops repeat for each tile of rows")
    every = computed_operands(s.contractions)
    operands = [t for t in every if any(q in walk(t) for q in repeated)]
    if operands:
        yield from _tried(r, piece, [*waves, operands], "cut at operands that loops compute for each tile of rows")
    if operands and operands != every:
        yield from _tried(r, piece, [*waves, every], "cut at all operands that are computed")


def _many_rows(r: Request, g: Graph) -> frozenset[Axis]:
    """Rows that one tile does not hold; none, if some placement has so few."""
    sizes = r.sizes({})

    def is_long(a: Axis) -> bool:
        extent = sizes.extent(a)
        return extent is None or extent > MOST_ROWS

    found = [frozenset(filter(is_long, p.rows)) for p in placements(g, sizes)]
    return frozenset[Axis]().union(*found) if all(found) else frozenset()


def _tried(
    r: Request, piece: Piece, waves: Sequence[Sequence[Term]], note: str, nested: Sequence[Nested] = ()
) -> Iterator[Partition]:
    try:
        yield cut(piece, waves, r.candidate.splits, note, nested)
    except ScheduleError as error:
        r.reject(str(error))


def _crossings(r: Request, g: Graph) -> list[Reduce]:
    """Matmuls that another one of other batch axes needs; short sums of products are none."""
    sizes = r.sizes({})
    return crossings({q: batch for q, batch in matmuls(g).items() if is_long(q.axis, sizes)})


def _repeated(r: Request, g: Graph) -> list[Reduce]:
    """Reductions without a matmul that lack a column: with that axis on the grid, each tile computes them again."""
    s = structure(g)
    contractions = {x.reduce for x in s.contractions}
    columns, stored = _columns(r, g), frozenset(s.stored)
    return [q for q in reductions(*g.terms) if q not in contractions and free(q) <= stored and columns - free(q)]


def _columns(r: Request, g: Graph) -> set[Axis]:
    """Axes beside the rows that are tiled: what lacks them is computed in each tile."""
    return {a for p in placements(g, r.sizes({})) for a in p.columns if p.roles[a] == ("grid",)}
