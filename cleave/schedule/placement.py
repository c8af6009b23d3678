"""Roles of the axes of one kernel, proposed from the structure of its graph and the representative shape.

rows       grid, a product of tiles that makes 16 rows a warp
column     grid, or whole where tiling it would repeat a matmul
batch      unit
summed     loop; whole where it is short and known at compile time
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced

from cleave.ir.axis import Axis
from cleave.ir.dim import is_dim
from cleave.ir.graph import Graph, Load, Reduce, free, reductions, walk
from cleave.ir.index import evaluate, symbols_of
from cleave.schedule.roles import Level, Role
from cleave.schedule.rows import Structure, contiguous, read_beside, row_sets, rowless, structure
from cleave.tile.box import is_beside

WHOLE_LIMIT, WIDE_LIMIT = 256, 512
"""Longest axis that a block holds in one tile; and if warpgroups divide its columns."""

LEAST_ROWS, MOST_ROWS = 16, 128
"""Rows of the smallest and largest tiles; an axis of fewer leaves room for others, such as the heads of a group."""

SHORT = 64
"""Longest axis that is added to the rows of another."""


@dataclass(frozen=True)
class Placement:
    """Roles of one kernel; ``rows`` slowest first: at the representative shape, all but the first lie in one tile.

    ``rank`` orders the choices of rows: a later one is a fallback, for graphs whose first one can't be expressed.
    ``is_wide``: a block holds more columns than a warpgroup can.
    """

    roles: Mapping[Axis, Role]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    rank: int = 0
    is_wide: bool = False


@dataclass(frozen=True)
class Sizes:
    """Extents at the representative shape; ``fixed`` symbols have one value in every call."""

    dims: Mapping[str, int]
    fixed: frozenset[str]

    def extent(self, a: Axis) -> int | None:
        """The representative extent of an axis; None if it is read from an input."""
        return int(evaluate(a.extent, self.dims)) if is_dim(a.extent) else None

    def is_fixed(self, a: Axis) -> bool:
        return is_dim(a.extent) and all(s.value is not None or s.name in self.fixed for s in symbols_of(a.extent))


def placements(g: Graph, sizes: Sizes, *, tiled: bool = True) -> Iterator[Placement]:
    """Placements worth trying, best first; ``tiled`` False: no reduction is a loop over tiles."""
    s = structure(g)
    for rank, chosen in enumerate(row_sets(g, s)):
        if rowless(chosen, s.contractions):
            continue
        for rows, is_fallback in _row_axes(chosen, s, sizes):
            found = [_placement(g, s, sizes, rows, limit, tiled=tiled) for limit in (WHOLE_LIMIT, WIDE_LIMIT)]
            for placement in found if found[0].roles != found[1].roles else found[:1]:
                yield replaced(placement, rank=2 * rank + is_fallback)


def _row_axes(chosen: frozenset[Axis], s: Structure, sizes: Sizes) -> Iterator[tuple[tuple[Axis, ...], bool]]:
    """The longest axis together with short ones, so that all of them share a tile of the other operand; and alone.

    Alone is a fallback where it can't be better: it fills tiles, and the short ones fill their part of one.
    """
    ordered = [a for a in s.stored if a in chosen]
    if not ordered:
        return
    varying = [a for a in ordered if not sizes.is_fixed(a)] or ordered
    longest = max(varying, key=lambda a: (known_extent(a, sizes), ordered.index(a)))
    joined = _joined(longest, ordered, sizes)
    if len(joined) > 1:
        yield joined, False
    fills = known_extent(longest, sizes) >= LEAST_ROWS and all(_padding(a, sizes) == 1 for a in joined[1:])
    yield (longest,), len(joined) > 1 and fills


def _joined(longest: Axis, ordered: list[Axis], sizes: Sizes) -> tuple[Axis, ...]:
    """An axis and short others, as far as the largest tile holds them.

    The first may have any tile, and is the one that a power of two would pad most; an axis that is read comes first.
    """
    is_read = sizes.extent(longest) is None
    if known_extent(longest, sizes) >= MOST_ROWS and not is_read:
        return (longest,)
    short = [a for a in ordered if a is not longest and 1 < (sizes.extent(a) or 1) <= SHORT]
    free = [a for a in short if sizes.is_fixed(a) == sizes.is_fixed(longest) and not is_read]
    first = max([longest, *free], key=lambda a: (_padding(a, sizes), known_extent(a, sizes), ordered.index(a)))
    others: list[Axis] = []
    rows = 1
    for a in (a for a in reversed(ordered) if a is not first and (a in short or a is longest)):
        if rows * power_of_two(known_extent(a, sizes)) <= MOST_ROWS:
            rows *= power_of_two(known_extent(a, sizes))
            others.insert(0, a)
    return (first, *others)


def known_extent(a: Axis, sizes: Sizes) -> int:
    """The representative extent; an axis whose extent is read may be as long as a tile."""
    extent = sizes.extent(a)
    return MOST_ROWS if extent is None else extent


def _padding(a: Axis, sizes: Sizes) -> float:
    return power_of_two(known_extent(a, sizes)) / max(known_extent(a, sizes), 1)


def power_of_two(n: int) -> int:
    """The least one that is not below n."""
    return 1 << max(n - 1, 0).bit_length()


def _placement(g: Graph, s: Structure, sizes: Sizes, rows: tuple[Axis, ...], limit: int, *, tiled: bool) -> Placement:
    columns = _columns(g, s, rows)
    roles: dict[Axis, Role] = {}
    for a in s.stored:
        if a in rows:
            roles[a] = ("grid",)
        elif a in columns:
            roles[a] = (_column_level(a, s, sizes, limit),)
        elif a in s.bound:
            roles[a] = (_bound_level(g, a, sizes, limit, tiled=tiled),)
        else:
            roles[a] = ("unit",)
    for a in g.axes:
        if a not in roles:
            roles[a] = (_bound_level(g, a, sizes, limit, tiled=tiled),)
    return Placement(roles, rows, columns, is_wide=limit > WHOLE_LIMIT)


def _columns(g: Graph, s: Structure, rows: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """One stored axis beside the rows, on the other side of the contractions: the one that lies side by side in the
    outputs, or else in an operand that is read."""
    free_axes = [a for a in s.stored if a not in rows and a not in s.batch and a not in s.bound]
    across = [a for a in free_axes if any(a in (c.left if rows[0] in c.right else c.right) for c in s.contractions)]
    beside = contiguous(g)
    allowed = across if s.contractions else [a for a in free_axes if a in beside]
    read = read_beside(*(c.reduce for c in s.contractions))
    ranked = sorted(allowed, key=lambda a: (a not in beside, a not in read))
    return tuple(ranked[:1])


def _column_level(a: Axis, s: Structure, sizes: Sizes, limit: int) -> Level:
    """Tiling a column repeats every contraction that lacks it: whole instead, if the axis is short enough to be
    held."""
    repeats = any(a not in free(c.reduce) and a is not c.reduce.axis for c in s.contractions)
    extent = sizes.extent(a)
    return "whole" if repeats and extent is not None and extent <= limit else "grid"


def _bound_level(g: Graph, a: Axis, sizes: Sizes, limit: int, *, tiled: bool) -> Level:
    if a.kind == "outer":
        return "step"
    if not tiled:
        return "whole"
    extent = sizes.extent(a)
    if extent is None or extent > limit:
        return "loop"
    return "whole" if sizes.is_fixed(a) or _is_nested(g, a) else "loop"


def _is_nested(g: Graph, a: Axis) -> bool:
    """Whether a reduction over the axis runs inside one over another axis."""
    every = reductions(*g.terms)
    inner = [r for r in every if r.axis is a]
    return any(_contains(q, r) for q in every if q.axis is not a for r in inner)


def _contains(outer: Reduce, inner: Reduce) -> bool:
    return outer is not inner and outer.axis in free(inner.body) and inner in walk(outer.body)


# ---- rows that threads share


SHORT_SUM = 16
"""Longest axis of a sum of products that is added element by element, as a rotation's pairs are."""


def has_matmul(g: Graph, sizes: Sizes) -> bool:
    """Whether a sum of products is worth a matmul of tiles."""
    return any(is_long(c.reduce.axis, sizes) for c in structure(g).contractions)


def is_long(a: Axis, sizes: Sizes) -> bool:
    """Whether a sum over an axis is more than a few products."""
    return not sizes.is_fixed(a) or (sizes.extent(a) or 0) > SHORT_SUM


def shared_row_placements(g: Graph, sizes: Sizes, *, tiled: bool = True) -> Iterator[Placement]:
    """Placements of a graph without a matmul, whose columns lie side by side in the threads of a row.

    columns are the axes along which the outputs lie side by side in memory; or those that reductions read so, alone.
    """
    s = structure(g)
    beside = contiguous(g)
    yield _shared_rows(g, s, sizes, beside, tiled=tiled)
    if s.bound and beside - s.bound:
        yield _shared_rows(g, s, sizes, beside & s.bound, tiled=tiled)


def _shared_rows(g: Graph, s: Structure, sizes: Sizes, columns: frozenset[Axis], *, tiled: bool) -> Placement:
    loops = _loops_over_columns(g, s, columns) - {c.reduce.axis for c in s.contractions}
    roles: dict[Axis, Role] = {}
    for a in (*s.stored, *(a for a in g.axes if a not in s.stored)):
        if a in loops:
            roles[a] = ("loop" if tiled else "whole",)
        elif a in s.bound:
            roles[a] = ("step",)
        else:
            roles[a] = ("grid" if a in columns else "unit",)
    possible = [a for a in s.stored if roles[a] == ("unit",) and a not in s.batch and a.kind != "outer"]
    rows = tuple([max(possible, key=lambda a: (known_extent(a, sizes), s.stored.index(a)))] if possible else ())
    return Placement({**roles, **{a: ("grid",) for a in rows}}, rows, tuple(a for a in s.stored if a in columns))


def _loops_over_columns(g: Graph, s: Structure, columns: frozenset[Axis]) -> frozenset[Axis]:
    """Bound axes of which threads share the elements: none of them meets another one, or a column, in one value."""
    loads = [t for t in walk(*g.terms) if isinstance(t, Load) and t.indices]
    beside = {a for t in loads for a in free(t) if is_beside(t.indices[-1], a)}
    chosen = list(columns)
    for a in sorted(s.bound - columns, key=lambda a: (a not in beside, a.name)):
        bodies = [free(r.body) for r in reductions(*g.terms) if r.axis is a]
        if a.kind != "outer" and (a in beside or not chosen) and not any(axes & set(chosen) for axes in bodies):
            chosen.append(a)
    return frozenset(chosen) & s.bound
