"""Tensor graphs: a term is a function from named axes to reals; broadcasting is implicit.

    Term   ::= Load input [Index ..] | Const value | IndexValue index
             | Map op [Term ..] | Reduce monoid axis Term | Where pred Term Term | Cast dtype Term
             | TopK part axis rank Term
    Output ::= name dtype shape, stored at [Index ..]
    Graph  ::= name, inputs (name, dtype, shape), outputs, constraints on dims

Matmul is ``Reduce(sum, k, a * b)``. Terms are hash-consed. A graph made by ``graph()`` has canonical axis names, so
graphs that are equal up to the names of their axes have the same terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TypeAlias

from cleave.errors import GraphError
from cleave.ir.axis import Axis
from cleave.ir.index import (
    Atom,
    Index,
    IndexLike,
    Position,
    Pred,
    Symbol,
    axes_of,
    index,
    indices_of,
    of,
    spell,
    substitute,
    substitute_pred,
    symbols_of,
)
from cleave.ir.intern import Interned, Node, node
from cleave.ir.op import MAPS, MONOIDS, TOP_K_PARTS


class _Term(Node):
    __slots__ = ()

    def __repr__(self) -> str:
        from cleave.ir.text import show_term

        return show_term(self)  # type: ignore[arg-type]


@node
class Load(_Term, metaclass=Interned):
    """The element of an input at indices."""

    input: str
    indices: tuple[Index, ...]


@node
class Const(_Term, metaclass=Interned):
    value: float


@node
class IndexValue(_Term, metaclass=Interned):
    """An integer expression as a number."""

    index: Index


@node
class Map(_Term, metaclass=Interned):
    """A pointwise operation of ``op.MAPS``."""

    op: str
    args: tuple[Term, ...]


@node
class Reduce(_Term, metaclass=Interned):
    """The fold of the body over an axis with a monoid of ``op.MONOIDS``; binds the axis."""

    op: str
    axis: Axis
    body: Term


@node
class Where(_Term, metaclass=Interned):
    pred: Pred
    then: Term
    otherwise: Term


@node
class Cast(_Term, metaclass=Interned):
    """Rounding to a storage type, written by the user or by the scheduler; no rule crosses it."""

    dtype: str
    operand: Term


@node
class TopK(_Term, metaclass=Interned):
    """The element of some rank among the body over an axis, the largest first: its ``value``, or its ``index``.

    Binds the axis; no rule looks inside. All ranks below k together are the fold with the monoid of the k best (value,
    index) pairs. NaN ranks before every number, ties go to the lower index. A rank that no position has gives the value
    −inf and the extent of the axis as index.
    """

    part: str
    axis: Axis
    rank: Index
    body: Term


@node
class Ref(_Term, metaclass=Interned):
    """A value computed elsewhere, by name, with its free axes. Folds and tile programs only; ``graph()`` refuses it."""

    name: str
    axes: tuple[Axis, ...]


Term: TypeAlias = Load | Const | IndexValue | Map | Reduce | Where | Cast | TopK | Ref


@dataclass(frozen=True)
class Input:
    name: str
    dtype: str
    shape: tuple[Index, ...]


@dataclass(frozen=True)
class Output:
    """``name[indices] = term``; ``indices`` are affine and injective, ``shape`` is that of the buffer."""

    name: str
    dtype: str
    shape: tuple[Index, ...]
    indices: tuple[Index, ...]
    term: Term


@dataclass(frozen=True)
class Graph:
    """Made by ``graph()``, which canonicalises and checks."""

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    constraints: tuple[Pred, ...] = ()

    def input(self, name: str) -> Input:
        for candidate in self.inputs:
            if candidate.name == name:
                return candidate
        raise GraphError(f"no input {name!r}: the graph has {', '.join(i.name for i in self.inputs)}")

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(o.term for o in self.outputs)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """Every dim symbol of the graph, by name."""
        return _graph_symbols(self)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Every axis, owners of ragged extents before what they own, otherwise by name."""
        return _graph_axes(self)

    def text(self) -> str:
        from cleave.ir.text import show_graph

        return show_graph(self)

    def save(self, path: str) -> None:
        from pathlib import Path

        Path(path).write_text(self.text())

    def __str__(self) -> str:
        return self.text()

    def svg(self, *, limit: int = 80) -> str:
        """The terms as boxes, as SVG; no more than ``limit`` of them."""
        from cleave.display import drawing
        from cleave.ir.text import boxes

        return drawing(boxes(self), limit=limit)

    def _repr_html_(self) -> str:
        from cleave.display import preformatted

        return f"{self.svg()}<details><summary>text</summary>{preformatted(self.text())}</details>"


# ---- making terms


def load(name: str, *indices: IndexLike) -> Load:
    return Load(name, tuple(index(i) for i in indices))


def const(value: float) -> Const:
    return Const(float(value))


def apply(op: str, *args: Term) -> Map:
    """A pointwise operation; unknown names and wrong arities are errors."""
    if op not in MAPS:
        raise GraphError(f"operation {op!r}: allowed are {', '.join(MAPS)}")
    if MAPS[op].arity != len(args):
        raise GraphError(f"{op} takes {MAPS[op].arity} operands, {len(args)} given")
    return Map(op, args)


def fold(op: str, axis: Axis, body: Term) -> Reduce:
    """A reduction; unknown monoids are errors."""
    if op not in MONOIDS:
        raise GraphError(f"reduction {op!r}: allowed are {', '.join(MONOIDS)}")
    return Reduce(op, axis, body)


def top_k(part: str, axis: Axis, rank: IndexLike, body: Term) -> TopK:
    """A selection by rank; a part other than value and index is an error."""
    if part not in TOP_K_PARTS:
        raise GraphError(f"top-k part {part!r}: allowed are {', '.join(TOP_K_PARTS)}")
    return TopK(part, axis, index(rank), body)


# ---- walking


def children(term: Term) -> tuple[Term, ...]:
    match term:
        case Map(_, args):
            return args
        case Reduce(_, _, body) | TopK(_, _, _, body):
            return (body,)
        case Where(_, a, b):
            return (a, b)
        case Cast(_, a):
            return (a,)
        case Load() | Const() | IndexValue() | Ref():
            return ()


def rebuild(term: Term, new: Sequence[Term]) -> Term:
    """The same operation over other children."""
    match term:
        case Map(op, _):
            return Map(op, tuple(new))
        case Reduce(op, axis, _):
            return Reduce(op, axis, new[0])
        case TopK(part, axis, rank, _):
            return TopK(part, axis, rank, new[0])
        case Where(pred, _, _):
            return Where(pred, new[0], new[1])
        case Cast(dtype, _):
            return Cast(dtype, new[0])
        case Load() | Const() | IndexValue() | Ref():
            return term


def walk(*roots: Term, below: Callable[[Term], tuple[Term, ...]] = children) -> list[Term]:
    """Every distinct term, children first, in a fixed order; ``below`` says what counts as a child."""
    seen: set[Term] = set()
    out: list[Term] = []
    stack: list[tuple[Term, Iterator[Term]]] = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack.append((root, iter(below(root))))
        while stack:
            top, rest = stack[-1]
            for child in rest:
                if child not in seen:
                    seen.add(child)
                    stack.append((child, iter(below(child))))
                    break
            else:
                stack.pop()
                out.append(top)
    return out


def replace(term: Term, mapping: Mapping[Term, Term]) -> Term:
    """Substitute whole subterms; the caller answers for scope."""
    made: dict[Term, Term] = {}
    for t in walk(term):
        made[t] = mapping[t] if t in mapping else rebuild(t, [made[c] for c in children(t)]) if children(t) else t
    return made[term]


def product_factors(t: Term) -> tuple[Term, ...]:
    """a * (b * c) -> (a, b, c)."""
    if isinstance(t, Map) and t.op == "mul":
        return tuple(f for a in t.args for f in product_factors(a))
    return (t,)


def reductions(*roots: Term) -> list[Reduce]:
    return [t for t in walk(*roots) if isinstance(t, Reduce)]


def bound_axis(term: Term) -> Axis | None:
    """The axis that a term binds."""
    return term.axis if isinstance(term, Reduce | TopK) else None


def _rebound(term: Reduce | TopK, name: str) -> Term:
    """The term with its bound axis under another name, which is neither free in the body nor captured there."""
    bound = Axis(name, term.axis.extent, term.axis.kind)
    body = rename_axis(term.body, term.axis, bound)
    return Reduce(term.op, bound, body) if isinstance(term, Reduce) else TopK(term.part, bound, term.rank, body)


def is_position(term: Term) -> bool:
    """Whether the value is the position of an element, which an integer type stores."""
    return isinstance(term, TopK) and term.part == "index"


def term_indices(term: Term) -> tuple[Index, ...]:
    """Index expressions written in this very node (of a predicate too)."""
    match term:
        case Load(_, indices):
            return indices
        case IndexValue(i):
            return (i,)
        case Where(pred, _, _):
            return indices_of(pred)
        case TopK(_, _, rank, _):
            return (rank,)
        case _:
            return ()


@cache
def free(term: Term) -> frozenset[Axis]:
    """Axes that the value depends on. A reduction depends on what its extent depends on as well."""
    out = frozenset[Axis]().union(*(free(c) for c in children(term)))
    if isinstance(term, Reduce | TopK):
        out = (out - {term.axis}) | axes_of(term.axis.extent)
    out = out.union(*(axes_of(i) for i in term_indices(term)))
    return out | frozenset(term.axes) if isinstance(term, Ref) else out


# ---- substitution of axes


def substitute_axes(term: Term, mapping: Mapping[Axis, Index]) -> Term:
    """Put index expressions in the place of free axes, down to the loads.

    Extents of bound axes that read a replaced axis change with it. The caller answers for capture: no replacement may
    mention an axis that is bound in the term where it lands.
    """
    made: dict[tuple[Term, tuple[tuple[Axis, Index], ...]], Term] = {}

    def go(t: Term, m: Mapping[Axis, Index]) -> Term:
        live = {a: i for a, i in m.items() if a in free(t)}
        if not live:
            return t
        key = (t, tuple(live.items()))
        if key not in made:
            made[key] = _substitute_node(t, live, go)
        return made[key]

    return go(term, mapping)


def _substitute_node(t: Term, m: Mapping[Axis, Index], go: Callable[[Term, Mapping[Axis, Index]], Term]) -> Term:
    atoms: dict[Atom, Index] = {Position(a): i for a, i in m.items()}
    match t:
        case Load(name, indices):
            return Load(name, tuple(substitute(i, atoms) for i in indices))
        case IndexValue(i):
            return IndexValue(substitute(i, atoms))
        case Where(pred, a, b):
            return Where(substitute_pred(pred, atoms), go(a, m), go(b, m))
        case Ref(name, axes):
            return Ref(name, tuple(_only_axis(m[a]) if a in m else a for a in axes))
        case Reduce(op, axis, body):
            bound = Axis(axis.name, substitute(axis.extent, atoms), axis.kind)
            inside = {a: i for a, i in m.items() if a is not axis}
            return Reduce(op, bound, go(body, inside if bound is axis else {**inside, axis: bound.position}))
        case TopK(part, axis, rank, body):
            selected = _substitute_node(Reduce("max", axis, body), m, go)  # the same scope
            assert isinstance(selected, Reduce)
            return TopK(part, selected.axis, substitute(rank, atoms), selected.body)
        case _:
            return rebuild(t, [go(c, m) for c in children(t)])


def _only_axis(position: Index) -> Axis:
    atom = position.atom
    if not isinstance(atom, Position):
        raise GraphError(f"a reference by name can only be renamed along an axis, not read at {position}")
    return atom.axis


def rename_axis(term: Term, old: Axis, new: Axis) -> Term:
    return substitute_axes(term, {old: new.position})


# ---- canonical names


def base_name(axis: Axis) -> str:
    """What a canonical name starts with: ``t`` for extent t, ``n64`` for 64, ``kv_len_b`` for ``kv_len[b]``.

    What axes in the extent are called at the moment is of no account. The axes of a split keep their names.
    """
    if axis.kind != "plain":
        return axis.name
    owners: dict[Atom, Index] = {Position(a): of(Symbol(base_name(a))) for a in axes_of(axis.extent)}
    words = re.sub(r"\W+", "_", spell(substitute(axis.extent, owners)).replace("dim.", "")).strip("_")
    return f"n{words}" if words[:1].isdigit() else words or "r"


@cache
def _blocked(term: Term, axis: Axis) -> frozenset[str]:
    """Names bound in the term by binders whose body mentions the axis: renaming it to one of them would be captured."""
    if axis not in free(term):
        return frozenset()
    inner = frozenset[str]().union(*(_blocked(c, axis) for c in children(term)))
    bound = bound_axis(term)
    return inner if bound is None else inner | {bound.name}


def _fresh(base: str, taken: Iterable[str]) -> str:
    taken = frozenset(taken)
    for number in range(len(taken) + 1):
        name = f"{base}{number}" if number else base
        if name not in taken:
            return name
    raise AssertionError("more names than taken ones")


def _taken(term: Reduce | TopK) -> frozenset[str]:
    """Names that the bound axis can't have: of other axes beside it, and of binders that would capture it."""
    others = free(term.body).union(*(axes_of(i) for i in term_indices(term))) - {term.axis}
    return frozenset(a.name for a in others) | _blocked(term.body, term.axis)


def canonical(term: Term) -> Term:
    """Bottom-up, a bound axis gets the smallest name of its kind that is neither free in its body nor captured there.

    Alpha-equal terms become the same object, and axes that range over one shared subterm keep one name (unique names
    would tear the maximum and the sum of a softmax apart).
    """
    made: dict[Term, Term] = {}
    for t in walk(term):
        new = rebuild(t, [made[c] for c in children(t)]) if children(t) else t
        if isinstance(new, Reduce | TopK):
            new = _rebound(new, _fresh(base_name(new.axis), _taken(new)))
        made[t] = new
    return made[term]


def graph(name: str, inputs: Sequence[Input], outputs: Sequence[Output], constraints: Sequence[Pred] = ()) -> Graph:
    """A checked graph with canonical axis names."""
    from cleave.ir.check import check_graph

    made = Graph(name, tuple(inputs), _canonical_outputs(outputs), tuple(constraints))
    check_graph(made)
    return made


def _canonical_outputs(outputs: Sequence[Output]) -> tuple[Output, ...]:
    """Each output by itself: its store binds its axes, so equal axes of two outputs get one name and are shared."""
    return tuple(map(_canonical_output, outputs))


def _canonical_output(o: Output) -> Output:
    order = list(dict.fromkeys(a for i in o.indices for a in _in_order(i)))
    temporary = {a: Axis(f"%{n}", a.extent, a.kind) for n, a in enumerate(order)}
    final = _settle(order)
    # Through temporary names, so that a swap of two cannot capture; bound names settle last, around the free ones.
    term = _rename_all(canonical(_rename_all(o.term, temporary)), {temporary[a]: final[a] for a in order})
    atoms: dict[Atom, Index] = {Position(a): final[a].position for a in order}
    return Output(o.name, o.dtype, o.shape, tuple(substitute(i, atoms) for i in o.indices), canonical(term))


def _in_order(i: Index) -> list[Axis]:
    """Axes of a store index; their names decide only where nothing else does."""

    def stride(a: Axis) -> str:
        linear = i.linear_in(Position(a))
        return spell(linear[0]) if linear else ""

    return sorted(axes_of(i), key=lambda a: (stride(a), base_name(a), a.name))


def _settle(order: Sequence[Axis]) -> dict[Axis, Axis]:
    """Canonical names of the axes of an output in order of occurrence; extents that read an output axis follow it."""
    names: dict[Axis, str] = {}
    for a in order:
        names[a] = _fresh(base_name(a), names.values())
    final: dict[Axis, Axis] = {}

    def settle(a: Axis) -> Axis:
        if a not in final:
            atoms: dict[Atom, Index] = {Position(b): settle(b).position for b in axes_of(a.extent) if b in names}
            final[a] = Axis(names[a], substitute(a.extent, atoms), a.kind)
        return final[a]

    return {a: settle(a) for a in order}


def _rename_all(term: Term, names: Mapping[Axis, Axis]) -> Term:
    """Rename free axes; bound axes that carry one of the new names step aside first."""
    taken = {a.name for a in names.values()}
    made: dict[Term, Term] = {}
    for t in walk(term):
        new = rebuild(t, [made[c] for c in children(t)]) if children(t) else t
        if isinstance(new, Reduce | TopK) and new.axis.name in taken:
            new = _rebound(new, _fresh(new.axis.name + "_", taken | _taken(new)))
        made[t] = new
    return substitute_axes(made[term], {a: b.position for a, b in names.items()})


# ---- tables of a graph


def axes_in(terms: Iterable[Term], indices: Iterable[Index] = ()) -> tuple[Axis, ...]:
    """Every axis of some terms and index expressions, owners of ragged extents first, otherwise by name."""
    found: set[Axis] = set()
    for t in walk(*terms):
        bound = bound_axis(t)
        found |= free(t) if bound is None else free(t) | {bound}
    for i in indices:
        found |= axes_of(i)
    out: dict[Axis, None] = {}

    def add(a: Axis) -> None:
        for owner in sorted(axes_of(a.extent), key=lambda b: b.name):
            add(owner)
        out.setdefault(a)

    for a in sorted(found, key=lambda b: (b.name, spell(b.extent))):
        add(a)
    return tuple(out)


def _graph_axes(g: Graph) -> tuple[Axis, ...]:
    return axes_in(g.terms, (i for o in g.outputs for i in o.indices))


def _graph_symbols(g: Graph) -> tuple[Symbol, ...]:
    found: set[Symbol] = set()
    for buffer in (*g.inputs, *g.outputs):
        found = found.union(*(symbols_of(i) for i in buffer.shape))
    for pred in g.constraints:
        found = found.union(*(symbols_of(i) for i in indices_of(pred)))
    for a in g.axes:
        found |= symbols_of(a.extent)
    for t in walk(*g.terms):
        found = found.union(*(symbols_of(i) for i in term_indices(t)))
    return tuple(sorted(found, key=lambda s: s.name))


def tensor_key(term: Term) -> Term:
    """The term with its free axes renamed in order of first occurrence: two readings of one tensor share it."""
    order: dict[Axis, None] = {}
    for t in walk(term):
        for i in term_indices(t):
            for a in sorted(axes_of(i) & free(term), key=lambda b: b.name):
                order.setdefault(a)
    return canonical(_rename_all(term, {a: Axis(f"%{n}", a.extent, a.kind) for n, a in enumerate(order)}))


@dataclass(frozen=True)
class Place:
    """A position in a graph: the output's name and the child numbers down from its term."""

    output: str
    path: tuple[int, ...] = field(default=())


def at(g: Graph, place: Place) -> Term:
    """The term at a place."""
    term = next(o.term for o in g.outputs if o.name == place.output)
    for step in place.path:
        term = children(term)[step]
    return term
