"""Invariants of graphs, checked when one is made: they are what every later stage relies on."""

from __future__ import annotations

from collections.abc import Iterable

from cleave.errors import GraphError
from cleave.ir.axis import Axis, owners
from cleave.ir.dim import is_dim, is_name
from cleave.ir.graph import (
    Cast,
    Graph,
    Input,
    Load,
    Map,
    Output,
    Reduce,
    Ref,
    Term,
    TopK,
    Where,
    children,
    free,
    is_position,
    term_indices,
    walk,
)
from cleave.ir.index import (
    And,
    BoolRead,
    Index,
    Not,
    Or,
    Position,
    Pred,
    Read,
    axes_of,
    index,
    inputs_of,
    mentions,
    parts,
    pred_axes,
    show,
)
from cleave.ir.op import DTYPES, FLOATS, INTEGERS, MAPS, MONOIDS, TOP_K_PARTS

MOST_NESTED = 200
"""Operations in one another in a program: passes over terms recurse."""
MOST_REWRITTEN = 300
"""In a graph that is read: what rewriting makes of a program may be deeper."""


def check_nesting(name: str | None, outputs: Iterable[Output], most: int = MOST_NESTED) -> None:
    """Raise GraphError for a program that is too deep for one graph: hundreds of layers are a model, not a kernel."""
    height: dict[Term, int] = {}
    for t in walk(*(o.term for o in outputs)):
        height[t] = max((1 + height[c] for c in children(t)), default=0)
    found = max(height.values(), default=0)
    if found > most:
        what = f"{found} operations in one another: allowed are {most}"
        raise GraphError(f"{what}, so a longer program is several graphs", location=name)


def check_graph(g: Graph) -> None:
    """Names, dtypes and ranks of buffers; operations known; scopes closed; extents without cycles; stores injective."""
    _check_names(g)
    for buffer in (*g.inputs, *g.outputs):
        _check_buffer(g, buffer)
    for t in walk(*g.terms):
        _check_term(g, t)
    for a in g.axes:
        if a in owners(a):
            raise GraphError(f"the extent of axis {a} depends on the axis itself", location=g.name)
        _check_reads(g, a.extent)
    for o in g.outputs:
        _check_output(g, o)
    for pred in g.constraints:
        if pred_axes(pred):
            raise GraphError(f"constraint {pred} mentions an axis: constraints are over dims", location=g.name)


def _check_names(g: Graph) -> None:
    names = [b.name for b in (*g.inputs, *g.outputs)]
    for name in names:
        if not is_name(name):
            raise GraphError(f"a buffer is called {name!r}, which is no name", location=g.name)
        if names.count(name) > 1:
            raise GraphError(f"two buffers are called {name!r}", location=g.name)
    if not g.outputs:
        raise GraphError("no output", location=g.name)
    symbols: dict[str, object] = {}
    for s in g.symbols:
        if symbols.setdefault(s.name, s) is not s:
            raise GraphError(f"dim {s.name} is declared twice, with different facts", location=g.name)


def _check_buffer(g: Graph, buffer: Input | Output) -> None:
    where = f"{g.name}, {buffer.name}"
    if buffer.dtype not in DTYPES:
        raise GraphError(f"dtype {buffer.dtype!r}: allowed are {', '.join(DTYPES)}", location=where)
    for extent in buffer.shape:
        if not is_dim(extent):
            raise GraphError(f"extent {extent} is no dim", location=where)


def _check_term(g: Graph, t: Term) -> None:
    match t:
        case Load(name, indices):
            _check_access(g, name, indices, FLOATS | INTEGERS)
        case Map(op, args) if op not in MAPS or MAPS[op].arity != len(args):
            raise GraphError(f"operation {op} of {len(args)} operands is unknown", location=g.name)
        case Reduce(op, _, _) if op not in MONOIDS:
            raise GraphError(f"reduction {op}: allowed are {', '.join(MONOIDS)}", location=g.name)
        case Cast(dtype, _) if dtype not in FLOATS:
            raise GraphError(f"cast to {dtype}: allowed are {', '.join(sorted(FLOATS))}", location=g.name)
        case TopK():
            _check_top_k(g, t)
        case Ref(name, _):
            raise GraphError(f"reference {name} to a value outside the graph", location=g.name)
        case Where(pred, _, _):
            _check_pred(g, pred)
        case _:
            pass
    for i in term_indices(t):
        _check_reads(g, i)


def _check_top_k(g: Graph, t: TopK) -> None:
    if t.part not in TOP_K_PARTS:
        raise GraphError(f"top-k part {t.part!r}: allowed are {', '.join(TOP_K_PARTS)}", location=g.name)
    if t.axis in axes_of(t.rank):
        raise GraphError(f"top-k over axis {t.axis}: its rank {show(t.rank)} mentions that axis", location=g.name)


def _check_pred(g: Graph, pred: Pred) -> None:
    match pred:
        case BoolRead(name, indices):
            _check_access(g, name, indices, frozenset({"bool"}))
        case And(p, q) | Or(p, q):
            _check_pred(g, p)
            _check_pred(g, q)
        case Not(p):
            _check_pred(g, p)
        case _:
            pass


def _reads(i: Index) -> Iterable[Read]:
    for atom in i.atoms():
        if isinstance(atom, Read):
            yield atom
        if not isinstance(atom, Position):
            for part in parts(atom):
                yield from _reads(part)


def _check_reads(g: Graph, i: Index) -> None:
    for r in _reads(i):
        _check_access(g, r.input, r.indices, INTEGERS)


def _check_access(g: Graph, name: str, indices: tuple[Index, ...], allowed: frozenset[str]) -> None:
    source = g.input(name)
    if len(indices) != len(source.shape):
        raise GraphError(f"{name} has rank {len(source.shape)}, read with {len(indices)} indices", location=g.name)
    if source.dtype not in allowed:
        raise GraphError(f"{name} is {source.dtype}: {' or '.join(sorted(allowed))} is needed here", location=g.name)


def _check_output(g: Graph, o: Output) -> None:
    where = f"{g.name}, output {o.name}"
    allowed = FLOATS | INTEGERS if is_position(o.term) else FLOATS
    if o.dtype not in allowed:
        raise GraphError(f"dtype {o.dtype}: allowed are {', '.join(sorted(allowed))}", location=where)
    if len(o.indices) != len(o.shape):
        raise GraphError(f"rank {len(o.shape)}, stored with {len(o.indices)} indices", location=where)
    stored = frozenset[Axis]().union(*(axes_of(i) for i in o.indices))
    loose = free(o.term) - stored
    if loose:
        names = ", ".join(sorted(a.name for a in loose))
        what = f"depends on {names}, which no store index mentions: reduce over it or store along it"
        raise GraphError(what, location=where)
    for i in o.indices:
        for a in sorted(axes_of(i), key=lambda a: a.name):
            if not _is_affine(i, a):
                raise GraphError(f"store index {show(i)} is not affine in {a}", location=where)
        if not inputs_of(i) and not _is_mixed_radix(i):
            raise GraphError(f"store index {show(i)} may meet one element twice", location=where)


def _is_affine(i: Index, a: Axis) -> bool:
    """Whether the axis occurs as a factor, or in a read: that a table sends rows apart is the caller's promise."""
    inside = [atom for atom in i.atoms() if not isinstance(atom, (Position, Read)) and mentions(atom, Position(a))]
    read = any(isinstance(atom, Read) and mentions(atom, Position(a)) for atom in i.atoms())
    return not inside and (read or i.linear_in(Position(a)) is not None)


def _is_mixed_radix(i: Index) -> bool:
    """Whether positions a * (B * C) + b * C + c, B and C the extents of b and c, are all different."""
    strides = {a: linear[0] for a in axes_of(i) if (linear := i.linear_in(Position(a))) is not None}
    if len(strides) < 2 or any(a.kind == "inner" for a in strides):  # chunks of a split lie one behind the other
        return True
    expected = index(min((s.constant for s in strides.values() if s.constant is not None), default=1))
    while strides:
        found = next((a for a, stride in strides.items() if stride is expected), None)
        if found is None:
            return False
        expected = strides.pop(found) * found.extent
    return True
