"""Kernel partition: cutting a graph at terms, which become temporaries between kernels.

    Y = f(t)   ->   part = t;  Y = f(part)

A temporary is dense: a ragged axis is stored at the length that bounds it, and an axis without such a bound can't be
cut. Axes that are summed one inside the other may be one axis of a temporary, see ``Nested``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from math import prod

from cleave.candidate import Fold, Split
from cleave.errors import ScheduleError
from cleave.ir.axis import Axis
from cleave.ir.dim import is_dim
from cleave.ir.graph import (
    Graph,
    Input,
    Load,
    Map,
    Output,
    Reduce,
    Term,
    Where,
    axes_in,
    children,
    free,
    product_factors,
    reductions,
    replace,
    term_indices,
    walk,
)
from cleave.ir.index import Index, index, inputs_of, of, pred_inputs, symbols_of
from cleave.ir.ragged import Packing
from cleave.schedule.clashes import fresh_name
from cleave.schedule.contraction import NARROW, narrow_type
from cleave.schedule.roles import stored_axes
from cleave.schedule.rows import Contraction, matmuls, read_beside, structure
from cleave.tile.program import Buffer


@dataclass(frozen=True)
class Piece:
    """One kernel's worth of the graph, with the folds that still hold in it."""

    graph: Graph
    folds: tuple[Fold, ...]


@dataclass(frozen=True)
class Partition:
    """Pieces in order of execution and the temporaries between them."""

    pieces: tuple[Piece, ...]
    temporaries: tuple[Buffer, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Nested:
    """Sums directly inside one another of a product of two computed values: a matmul, once those are stored side by
    side along the summed axes.

        sum(a, sum(b, x[.., a, b] * y[.., a, b]))  ->  part0[.., a * |b| + b] = x;  part1[.., a * |b| + b] = y
                                                       sum(ab, part0[.., ab] * part1[.., ab])

    axes    summed, as the temporaries have them, slowest first
    joined  the axis ab
    """

    reduce: Reduce
    axes: tuple[Axis, ...]
    joined: Axis
    operands: tuple[Term, Term]

    @property
    def position(self) -> Index:
        at = index(0)
        for a in self.axes:
            at = at * a.extent + a.position
        return at


EVEN: Mapping[Axis, Packing] = {}
"""No axis is packed."""


def uncut(piece: Piece) -> Partition:
    return Partition((piece,))


def cut(
    whole: Piece,
    waves: Sequence[Sequence[Term]],
    splits: Sequence[Split] = (),
    note: str = "",
    nested: Sequence[Nested] = (),
    packed: Mapping[Axis, Packing] = EVEN,
) -> Partition:
    """Materialise terms, wave by wave; a wave's terms may read those of earlier waves.

    Terms of one wave that have the same axes are outputs of one kernel. Sums in ``nested`` become matmuls, their
    operands are among the terms. ``packed``: ragged axes of which temporaries have one place a piece, in the place of
    the axis and its owner. Errors: a term over a ragged axis that nothing bounds.
    """
    cutter = _Cutter(whole, splits, nested, packed)
    for wave in waves:
        cutter.store([t for t in wave if t not in cutter.mapping])
    g = whole.graph
    cutter.piece([replaced(o, term=replace(o.term, cutter.mapping)) for o in g.outputs])
    return Partition(tuple(cutter.pieces), tuple(cutter.buffers), note)


class _Cutter:
    """A graph while it is cut: terms that are stored, where, and the kernels so far."""

    def __init__(
        self, whole: Piece, splits: Sequence[Split], nested: Sequence[Nested], packed: Mapping[Axis, Packing]
    ) -> None:
        self.whole, self.splits, self.nested, self.packed = whole, splits, nested, packed
        self.matmuls = matmuls(whole.graph)
        self.contractions = frozenset({*self.matmuls, *(n.reduce for n in nested)})
        self.joined = {t: n for n in nested for t in n.operands}
        self.order = _axis_order(whole.graph)
        self.mapping: dict[Term, Term] = {}
        self.buffers: list[Buffer] = []
        self.pieces: list[Piece] = []

    def store(self, terms: Sequence[Term]) -> None:
        made: dict[Term, Term] = {}
        for bundle in _bundles(terms):
            outputs: list[Output] = []
            for t in bundle:
                axes = self.axes(t)
                indices = self.indices(t, axes)
                buffer = self.buffer(t, axes)
                outputs.append(Output(buffer.name, buffer.dtype, buffer.shape, indices, replace(t, self.mapping)))
                made[t] = Load(buffer.name, indices)
            self.piece(outputs)
        self.mapping |= made
        for n in self.nested:
            if n.reduce not in self.mapping and all(t in self.mapping for t in n.operands):
                self.mapping[n.reduce] = self.matmul(n)

    def indices(self, t: Term, axes: Sequence[Axis]) -> tuple[Index, ...]:
        indices = tuple(index for index, _ in self.places(axes))
        return (*indices, self.joined[t].position) if t in self.joined else indices

    def places(self, axes: Sequence[Axis]) -> list[tuple[Index, Index]]:
        """Position and extent of every dimension of a temporary."""
        inside = {self.packed[a].owner for a in axes if a in self.packed}
        out: list[tuple[Index, Index]] = []
        for a in axes:
            if a in self.packed:
                out.append((self.packed[a].first + a.position, self.packed[a].total))
            elif a not in inside:
                out.append((a.position, dense_extent(a, self.splits)))
        return out

    def matmul(self, n: Nested) -> Reduce:
        """The sums over one axis, of operands that are stored."""
        loads = {t: self.mapping[t] for t in n.operands}
        along = {
            t: Load(u.input, (*u.indices[:-1], n.joined.position)) for t, u in loads.items() if isinstance(u, Load)
        }
        return Reduce("sum", n.joined, replace(summed(n.reduce), {**self.mapping, **along}))

    def axes(self, t: Term) -> list[Axis]:
        """Axes of a temporary, slowest first, without joined ones. Columns of a matmul that lie side by side in an
        operand do so in it, unless others already would: the next matmul reads either."""
        kept = free(t).difference(self.joined[t].axes if t in self.joined else ())
        axes = sorted(kept, key=self.order.__getitem__)
        if not isinstance(t, Reduce) or t not in self.matmuls or t in self.joined:
            return axes
        beside = read_beside(t) - self.matmuls[t]
        return axes if axes[-1] in beside else sorted(axes, key=lambda a: a in beside)

    def buffer(self, t: Term, axes: Sequence[Axis]) -> Buffer:
        g = self.whole.graph
        name = f"part{len(self.buffers)}"
        if name in {b.name for b in (*g.inputs, *g.outputs)}:
            name = fresh_name(name, (b.name for b in (*g.inputs, *g.outputs, *self.buffers)))
        shape = tuple(extent for _, extent in self.places(axes))
        shape = (*shape, self.joined[t].joined.extent) if t in self.joined else shape
        self.buffers.append(Buffer(name, _storage(t, g, self.contractions), shape))
        return self.buffers[-1]

    def piece(self, outputs: Sequence[Output]) -> None:
        g = self.whole.graph
        inputs = (*g.inputs, *(Input(b.name, b.dtype, b.shape) for b in self.buffers))
        used = inputs_read(outputs)
        name = f"{g.name}_{len(self.pieces)}"
        graph = Graph(name, tuple(i for i in inputs if i.name in used), tuple(outputs), g.constraints)
        self.pieces.append(Piece(graph, self.folds()))

    def folds(self) -> tuple[Fold, ...]:
        """Folds none of whose members is stored."""
        kept: list[Fold] = []
        for f in self.whole.folds:
            members = tuple(replace(m, self.mapping) for m in f.members)
            if all(isinstance(m, Reduce) for m in members):
                kept.append(replaced(f, members=members))
        return tuple(kept)


def _axis_order(g: Graph) -> dict[Axis, tuple[int, int, bool, str]]:
    """Outer axes first, then as the outputs store them, then bound axes, lengths before fixed extents.

    The last one lies side by side in memory.
    """
    stored = stored_axes(g.outputs)
    rank: dict[Axis, tuple[int, int, bool, str]] = {}
    for a in axes_in(g.terms, (i for o in g.outputs for i in o.indices)):
        place = stored.index(a) if a in stored else len(stored)
        fixed = is_dim(a.extent) and all(s.value is not None for s in symbols_of(a.extent))
        rank[a] = (0 if a.kind == "outer" else 1, place, fixed, a.name)
    return rank


def dense_extent(a: Axis, splits: Sequence[Split]) -> Index:
    """The extent at which an axis is stored, a chunk axis at its chunk length. Errors: a ragged axis without bound."""
    if is_dim(a.extent):
        return a.extent
    for s in splits:
        if s.inner is a:
            chunk = next((x for x in symbols_of(a.extent) if x.name == s.chunk), None)
            if chunk is not None:
                return of(chunk)
    raise ScheduleError(
        f"a value over a ragged axis of extent {a.extent} can't be stored between kernels", location=f"axis {a}"
    )


def _storage(t: Term, g: Graph, contractions: Container[Reduce]) -> str:
    """FP32, but the storage type of matmuls if every use of the term is as a factor of one, or as several of them."""
    dtypes = {i.name: i.dtype for i in g.inputs}
    dtype = narrow_type(t, dtypes.__getitem__)
    sums = [
        r
        for r in reductions(*g.terms)
        if r in contractions and t in (*product_factors(summed(r)), *_spine(summed(r))) and r.axis in free(t)
    ]
    spines = {u for r in sums for u in (*_spine(summed(r)), *_levels(r))}
    elsewhere = any(t in children(u) and u not in spines for u in walk(*g.terms)) or t in g.terms
    return dtype if dtype in NARROW and sums and not elsewhere else "float32"


def _levels(r: Reduce) -> list[Reduce]:
    """A sum and those directly inside it, outermost first."""
    out = [r]
    while r.op == "sum" and isinstance(r.body, Reduce) and r.body.op == "sum":
        r = r.body
        out.append(r)
    return out


def summed(r: Reduce) -> Term:
    """What sums directly inside one another add up."""
    return _levels(r)[-1].body


def _spine(body: Term) -> list[Term]:
    """The multiplications between a sum and its factors."""
    leaves = set(product_factors(body))
    out: list[Term] = []
    stack = [body]
    while stack:
        t = stack.pop()
        if t not in leaves:
            out.append(t)
            stack += children(t)
    return out


def _bundles(terms: Sequence[Term]) -> list[list[Term]]:
    """Terms with the same free axes in one kernel."""
    out: dict[frozenset[Axis], list[Term]] = {}
    for t in terms:
        out.setdefault(free(t), []).append(t)
    return list(out.values())


def inputs_read(outputs: Iterable[Output]) -> frozenset[str]:
    """Inputs that loads, indices, predicates and extents of some outputs read."""
    kept = list(outputs)
    used: set[str] = set()
    for t in walk(*(o.term for o in kept)):
        if isinstance(t, Load):
            used.add(t.input)
        if isinstance(t, Where):
            used |= pred_inputs(t.pred)
        for i in term_indices(t):
            used |= inputs_of(i)
    for i in (i for o in kept for i in o.indices):
        used |= inputs_of(i)
    for a in axes_in([o.term for o in kept], (i for o in kept for i in o.indices)):
        used |= inputs_of(a.extent)
    return frozenset(used)


# ---- where to cut


def waves_of_reductions(g: Graph) -> list[list[Reduce]]:
    """Every reduction that another one needs, in waves: what a system without loops over tiles has to store."""
    every = reductions(*g.terms)
    needed = {u for r in every for u in reductions(r.body)}
    return in_waves([r for r in every if r in needed])


def crossings(found: Mapping[Reduce, frozenset[Axis]]) -> list[Reduce]:
    """Matmuls that are operands of one of other batch axes, as they are or element by element: heads may be the rows of
    one and the batch of the other, and one kernel has them in one role. ``found``: matmuls with their batch axes."""
    out: dict[Reduce, None] = {}
    for r, batch in found.items():
        stack: list[Term] = [r.body]
        while stack:
            t = stack.pop()
            if not isinstance(t, Reduce):
                stack += children(t)
            elif found.get(t, batch) != batch:
                out[t] = None
    return list(out)


def in_waves(terms: Sequence[Reduce]) -> list[list[Reduce]]:
    """Those that need others of them after those."""
    level: dict[Reduce, int] = {}
    for t in sorted(terms, key=lambda t: len(set(walk(t)))):
        below = set(walk(t.body))
        level[t] = 1 + max((level[u] for u in level if u in below), default=-1)
    return [[t for t in terms if level[t] == n] for n in sorted(set(level.values()))]


def inner_contractions(g: Graph, is_contraction: Iterable[Reduce]) -> list[Reduce]:
    """Matmuls whose results other reductions use: cutting there gives the unfused form."""
    found = set(is_contraction)
    users = reductions(*g.terms)
    return [r for r in users if r in found and any(r in walk(u.body) for u in users)]


def computed_operands(contractions: Iterable[Contraction]) -> list[Term]:
    """Operands of matmuls that are computed without another matmul, as far as the graph has them as one term: stored,
    they are computed once, and every tile reads them as they are."""
    found = tuple(contractions)
    sums = {c.reduce for c in found}
    out: dict[Term, None] = {}
    for c in found:
        stack = [c.reduce.body]
        while stack:
            t = stack.pop()
            own = free(t) - {c.reduce.axis}
            if isinstance(t, Map) and t.op == "mul" and own & c.left and own & c.right:
                stack += t.args
            elif not isinstance(t, Load) and c.reduce.axis in free(t) and own and not sums & set(walk(t)):
                out[t] = None
    return list(out)


def nested_sums(g: Graph) -> list[Nested]:
    """Sums over several axes that are matmuls once their operands are stored: two computed values with all of these
    axes, whose extents are known, and one of their own each. Inputs would have to be copied."""
    every = reductions(*g.terms)
    inside = {u for r in every for u in _levels(r)[1:]}
    taken: dict[Term, frozenset[Axis]] = {}
    out: list[Nested] = []
    for r in every:
        axes = frozenset(u.axis for u in _levels(r))
        factors = [t for t in product_factors(summed(r)) if axes & free(t)]
        if r in inside or len(axes) < 2 or not _are_sides(factors, axes):
            continue
        if all(taken.setdefault(t, axes) == axes for t in factors):
            beside = read_beside(*factors)
            order = tuple(sorted(axes, key=lambda a: (a in beside, a.name)))
            out.append(Nested(r, order, _joined(order, g), (factors[0], factors[1])))
    return out


def _are_sides(factors: Sequence[Term], axes: frozenset[Axis]) -> bool:
    known = all(is_dim(a.extent) and all(s.value is not None for s in symbols_of(a.extent)) for a in axes)
    if not known or len(factors) != 2 or any(isinstance(t, Load) or not axes <= free(t) for t in factors):
        return False
    left, right = map(free, factors)
    return bool(left - right and right - left)


def _joined(order: Sequence[Axis], g: Graph) -> Axis:
    name, names = "_".join(a.name for a in order), {a.name for a in g.axes}
    extent = prod((a.extent for a in order[1:]), start=order[0].extent)
    return Axis(fresh_name(name, names) if name in names else name, extent)


def repeated_in_loops(g: Graph, rows: frozenset[Axis]) -> list[Term]:
    """What is made of reductions without matmul that lack the rows, and change inside: every tile of rows computes them
    again. With everything that is made of one alone, as far as that has the same axes."""
    s = structure(g)
    sums = {c.reduce for c in s.contractions}
    found = [q for q in reductions(*g.terms) if not rows & free(q) and free(q) - set(s.stored)]
    kept = [q for q in found if not sums & set(reductions(q))]
    return list(dict.fromkeys(_made_of(g, q) for q in kept))


def _made_of(g: Graph, t: Term) -> Term:
    every = walk(*g.terms)
    while True:
        users = [u for u in every if t in children(u)]
        if len(users) != 1 or t in g.terms or not isinstance(users[0], Map) or free(users[0]) != free(t):
            return t
        t = users[0]
