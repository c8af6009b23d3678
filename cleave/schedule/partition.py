"""Kernel partition: cutting a graph at terms, which become temporaries between kernels.

    Y = f(t)   ->   part = t;  Y = f(part)

A temporary is dense: a ragged axis is stored at the length that bounds it, and an axis without such a bound can't be
cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced

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
from cleave.ir.index import Index, inputs_of, of, pred_inputs, symbols_of
from cleave.schedule.clashes import fresh_name
from cleave.schedule.contraction import NARROW, narrow_type
from cleave.schedule.roles import stored_axes
from cleave.schedule.rows import Contraction, structure
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


def uncut(piece: Piece) -> Partition:
    return Partition((piece,))


def cut(whole: Piece, waves: Sequence[Sequence[Term]], splits: Sequence[Split] = (), note: str = "") -> Partition:
    """Materialise terms, wave by wave; a wave's terms may read those of earlier waves.

    Terms of one wave that have the same axes are outputs of one kernel. Errors: a term over a ragged axis that nothing
    bounds.
    """
    cutter = _Cutter(whole, splits)
    for wave in waves:
        cutter.store([t for t in wave if t not in cutter.mapping])
    g = whole.graph
    cutter.piece([replaced(o, term=replace(o.term, cutter.mapping)) for o in g.outputs])
    return Partition(tuple(cutter.pieces), tuple(cutter.buffers), note)


class _Cutter:
    """A graph while it is cut: terms that are stored, where, and the kernels so far."""

    def __init__(self, whole: Piece, splits: Sequence[Split]) -> None:
        self.whole, self.splits = whole, splits
        self.contractions = frozenset(c.reduce for c in structure(whole.graph).contractions)
        self.order = _axis_order(whole.graph)
        self.mapping: dict[Term, Term] = {}
        self.buffers: list[Buffer] = []
        self.pieces: list[Piece] = []

    def store(self, terms: Sequence[Term]) -> None:
        made: dict[Term, Term] = {}
        for bundle in _bundles(terms):
            outputs: list[Output] = []
            for t in bundle:
                indices = tuple(a.position for a in sorted(free(t), key=self.order.__getitem__))
                buffer = self.buffer(t)
                outputs.append(Output(buffer.name, buffer.dtype, buffer.shape, indices, replace(t, self.mapping)))
                made[t] = Load(buffer.name, indices)
            self.piece(outputs)
        self.mapping |= made

    def buffer(self, t: Term) -> Buffer:
        g = self.whole.graph
        name = f"part{len(self.buffers)}"
        if name in {b.name for b in (*g.inputs, *g.outputs)}:
            name = fresh_name(name, (b.name for b in (*g.inputs, *g.outputs, *self.buffers)))
        axes = sorted(free(t), key=self.order.__getitem__)
        shape = tuple(dense_extent(a, self.splits) for a in axes)
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


def _storage(t: Term, g: Graph, contractions: frozenset[Reduce]) -> str:
    """FP32, but the storage type of matmuls if every use of the term is as a factor of one, or as several of them."""
    dtypes = {i.name: i.dtype for i in g.inputs}
    dtype = narrow_type(t, dtypes.__getitem__)
    sums = [
        r
        for r in reductions(*g.terms)
        if r in contractions and t in (*product_factors(r.body), *_spine(r.body)) and r.axis in free(t)
    ]
    spines = {u for r in sums for u in (*_spine(r.body), r)}
    elsewhere = any(t in children(u) and u not in spines for u in walk(*g.terms)) or t in g.terms
    return dtype if dtype in NARROW and sums and not elsewhere else "float32"


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
    below = {r: [u for u in reductions(r.body)] for r in every}
    needed = {u for r in every for u in below[r]}
    level: dict[Reduce, int] = {}
    for r in every:
        level[r] = 1 + max((level[u] for u in below[r]), default=-1)
    waves: dict[int, list[Reduce]] = {}
    for r in every:
        if r in needed:
            waves.setdefault(level[r], []).append(r)
    return [waves[k] for k in sorted(waves)]


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
