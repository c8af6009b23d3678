"""Split binding: where the count of a split is bound, and how the partials are merged.

Second launch: cut at the partials; the second kernel is an ordinary graph over the temporaries. Last-arriving: the
same two programs, the body of the second runs in the block that arrives last, so its grid is the first one's without
the outer axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as replaced

from cleave.candidate import Candidate, Fold, Split
from cleave.errors import ScheduleError
from cleave.ir.axis import Axis
from cleave.ir.graph import Graph, Reduce, Term, children, free, rebuild, rename_axis, substitute_axes, walk
from cleave.ir.index import Index, Symbol, index, of
from cleave.ir.ragged import Packing
from cleave.schedule.clashes import fresh_name
from cleave.schedule.partition import Partition, Piece, cut
from cleave.schedule.roles import Role
from cleave.tile.plan import Chunk


def partials(g: Graph, outer: Axis) -> list[Reduce]:
    """Reductions below one over the outer axis that vary with it: what each chunk contributes."""
    found: dict[Reduce, None] = {}

    def visit(t: Term) -> None:
        if isinstance(t, Reduce) and t.axis is not outer:
            if outer in free(t):
                found.setdefault(t)
            return
        for c in children(t):
            visit(c)

    for r in walk(*g.terms):
        if isinstance(r, Reduce) and r.axis is outer:
            visit(r.body)
    return list(found)


def cut_at_partials(
    c: Candidate,
    folds: tuple[Fold, ...],
    split: Split,
    before: Sequence[Sequence[Term]] = (),
    joined: Sequence[Term] = (),
    packing: Packing | None = None,
) -> Partition:
    """Two kernels: partials of every chunk, then the outer stage over them; and those of what is stored ``before``.

    ``joined``: sums over the chunks, all with the same axes, that are stored as well: the second kernel makes them, and
    a last one everything else. ``packing``: where chunks lie, if not so many for each request.
    """
    found = partials(c.graph, split.outer)
    if not found:
        raise ScheduleError(f"no reduction over chunks of {split.base} to merge", location=c.name)
    packed = {} if packing is None else {split.outer: packing}
    waves = [*before, found, *([joined] if joined else [])]
    parted = cut(Piece(c.graph, folds), waves, c.splits, packed=packed)
    bundles, merge = len({free(t) for t in found}), len(parted.pieces) - (2 if joined else 1)
    first, second = _one_kernel(parted.pieces[merge - bundles : merge]), parted.pieces[merge]
    named = (
        *parted.pieces[: merge - bundles],
        replaced(first, graph=replaced(first.graph, name=f"{c.graph.name}_partial")),
        replaced(second, graph=replaced(second.graph, name=f"{c.graph.name}_merge")),
        *parted.pieces[merge + 1 :],
    )
    return replaced(parted, pieces=named)


def _one_kernel(pieces: tuple[Piece, ...]) -> Piece:
    """Partials with different axes are outputs of one kernel all the same: they are one state."""
    inputs = tuple(dict.fromkeys(i for p in pieces for i in p.graph.inputs))
    outputs = tuple(o for p in pieces for o in p.graph.outputs)
    first = pieces[0].graph
    return Piece(Graph(first.name, inputs, outputs, first.constraints), pieces[0].folds)


def collapse(c: Candidate, folds: tuple[Fold, ...], split: Split) -> Piece:
    """A split into one chunk is no split: the outer axis is at 0, reductions over it are their bodies, the chunk is
    the axis."""
    names = {a.name for a in c.graph.axes if a is not split.inner}
    base = Axis(split.base if split.base not in names else fresh_name(split.base, names), base_extent(c, split))
    made: dict[Term, Term] = {}

    def go(t: Term) -> Term:
        for u in walk(t):
            if u not in made:
                made[u] = _collapsed(rebuild(u, [made[x] for x in children(u)]) if children(u) else u, split, base)
        return substitute_axes(made[t], {split.outer: index(0)})

    outputs = tuple(replaced(o, term=go(o.term)) for o in c.graph.outputs)
    kept: list[Fold] = []
    for f in folds:
        members = tuple(go(m) for m in f.members)
        if f.axis is split.inner and all(isinstance(m, Reduce) for m in members):
            kept.append(replaced(f, axis=base, members=members))
        elif f.axis is not split.outer and members == f.members:
            kept.append(f)
    return Piece(replaced(c.graph, outputs=outputs), tuple(kept))


def _collapsed(t: Term, split: Split, base: Axis) -> Term:
    match t:
        case Reduce(_, axis, body) if axis is split.outer:
            return body
        case Reduce(op, axis, body) if axis is split.inner:
            return Reduce(op, base, rename_axis(body, split.inner, base))
        case _:
            return t


def symbol_named(g: Graph, name: str) -> Symbol:
    for s in g.symbols:
        if s.name == name:
            return s
    raise ScheduleError(f"no dim {name!r}: the graph has {', '.join(s.name for s in g.symbols)}", location=g.name)


def chunk_of(c: Candidate, split: Split, tile: int) -> Chunk:
    """The chunk length of a split in whole tiles of the inner axis."""
    return Chunk(
        symbol_named(c.graph, split.chunk), base_extent(c, split), of(symbol_named(c.graph, split.count)), tile
    )


def base_extent(c: Candidate, split: Split) -> Index:
    """Extent of the axis that was split: the axis of that name in the input graph, or what the inner extent says."""
    for a in c.origin.axes:
        if a.name == split.base:
            return a.extent
    raise ScheduleError(f"no axis {split.base!r} in the input graph", location=c.name)


def merge_roles(main: Mapping[Axis, Role], merge: Graph, outer: Axis, whole: Role) -> dict[Axis, Role]:
    """Roles of a merge that runs in the blocks of the first kernel: the same grid, chunks step by step.

    ``whole`` is the role of what the first kernel holds whole.
    """
    roles: dict[Axis, Role] = {}
    for a in merge.axes:
        if a is outer:
            roles[a] = ("step",)
        elif a in main:
            roles[a] = whole if main[a] == ("whole",) else main[a]
        else:
            roles[a] = ("loop",)
    return roles
