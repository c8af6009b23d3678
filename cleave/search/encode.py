"""Graph -> egglog program: one let-binding per shared node, and the facts about axes, leaves and predicates.

    whole k   what a reader of the index k depends on: {k}, or {k, Outer k S, Inner k S} if k may be split
    exts k    what the extent depends on: what owns a ragged extent; for Inner k S also k and Outer k S
    axes      of a leaf; paxes of a predicate: the whole of every axis in their index expressions
    place k   the order in which the graph nests reductions, inner ones first; Inner k S, Outer k S, k

Index expressions and predicates are opaque numbers; the rank of a top-k is that of a leaf. Splitting axis k brings one
count S_k and one chunk length C_k, S_k * C_k >= k.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cleave.errors import SearchError
from cleave.ir.axis import Axis, SplitAxis, owners, split_axis
from cleave.ir.dim import dim
from cleave.ir.graph import Cast, Const, Graph, IndexValue, Load, Map, Reduce, Ref, Term, TopK, Where
from cleave.ir.graph import children as term_children
from cleave.ir.graph import walk as walk_graph
from cleave.ir.index import Index, Pred, axes_of, pred_axes
from cleave.rewrite.rule import Signature
from cleave.search import term as language
from cleave.search.pieces import Pieces, folded
from cleave.search.term import AxisRef, ETerm, Plain, camel


@dataclass(frozen=True)
class AxisSplit:
    """An axis that may be split: the symbols that the split brings, and the two axes."""

    name: str
    axis: Axis
    pieces: SplitAxis
    count: str
    chunk: str


@dataclass(frozen=True)
class Encoding:
    """A graph as a program of the rule language, and the way back. ``bound``: what the program calls a term;
    ``weights``: inputs that are parameters.
    """

    graph: Graph
    program: str
    axes: Mapping[str, Axis]
    splits: Mapping[str, AxisSplit]
    leaves: tuple[Term, ...]
    predicates: tuple[Pred, ...]
    sources: Mapping[Term, ETerm]
    bound: Mapping[ETerm, str]
    weights: frozenset[str] = frozenset()

    @property
    def roots(self) -> tuple[ETerm, ...]:
        return tuple(self.sources[t] for t in self.graph.terms)


@dataclass
class _Tables:
    """Names of axes, numbers of leaves and predicates, while a graph is walked."""

    refs: dict[Axis, AxisRef]
    leaves: dict[Term, int]
    predicates: dict[Pred, int]
    sizes: dict[Index, str]
    terms: dict[Term, ETerm]


def encode(
    g: Graph,
    splittable: Iterable[Axis],
    signature: Signature,
    weights: Iterable[str] = (),
    pieces: Sequence[Pieces] = (),
) -> Encoding:
    """The program of a graph. ``weights`` names inputs that are parameters (rules may combine them ahead of time),
    ``pieces`` are axes of the graph that divide another one.

    Raises SearchError where the rule language has no word for an operation.
    """
    names, weights = _axis_names(g, pieces), frozenset(weights)
    sizes = {a.extent: name for a, name in names.items() if a.extent.constant is None}
    tables = _Tables(_refs(names, pieces), {}, {}, sizes, {})
    whole_terms = folded(g.terms, pieces)
    for t in walk_graph(*(whole_terms[t] for t in g.terms)):
        tables.terms[t] = _encoded(t, tables, signature)
    splits = _splits(g, names, splittable, pieces)
    lines = [*_axis_facts(names, splits), *_leaf_facts(tables, splits, weights)]
    lines += [*_places(tables, splits), *_size_facts(names, tables, splits)]
    sources = {**tables.terms, **{t: tables.terms[whole_terms[t]] for t in g.terms}}
    bound = _bound(sources[t] for t in g.terms)
    lines += [f"(let {name} {_shown(t, bound, splits)})" for t, name in bound.items()]
    axes = {name: a for a, name in names.items()}
    leaves, predicates = tuple(tables.leaves), tuple(tables.predicates)
    return Encoding(g, "\n".join(lines), axes, splits, leaves, predicates, sources, bound, weights)


def _axis_names(g: Graph, pieces: Sequence[Pieces]) -> dict[Axis, str]:
    """A name per axis object, pieces of others left out: ragged axes may share one in the graph."""
    divided = {a for p in pieces for a in (p.split.outer, p.split.inner)}
    out: dict[Axis, str] = {}
    used: set[str] = set()
    for a in (a for a in g.axes if a not in divided):
        name, number = a.name, 1
        while name in used:
            number += 1
            name = f"{a.name}_{number}"
        used.add(name)
        out[a] = name
    return out


def _refs(names: Mapping[Axis, str], pieces: Sequence[Pieces]) -> dict[Axis, AxisRef]:
    """The word for each axis."""
    out = {a: AxisRef(name) for a, name in names.items()}
    for p in pieces:
        name = names[p.split.base]
        out |= {p.split.outer: AxisRef(name, "outer"), p.split.inner: AxisRef(name, "inner")}
    return out


def _splits(
    g: Graph, names: Mapping[Axis, str], splittable: Iterable[Axis], pieces: Sequence[Pieces]
) -> dict[str, AxisSplit]:
    taken = {s.name for s in g.symbols}
    out = {names[p.split.base]: AxisSplit(names[p.split.base], p.split.base, p.split, p.count, p.chunk) for p in pieces}
    for a in (a for a in splittable if names[a] not in out):
        count, chunk = (_fresh(f"{letter}_{names[a]}", taken) for letter in "SC")
        taken |= {count, chunk}
        named = Axis(names[a], a.extent)  # pieces keep their names in candidates, so those must be told apart
        divided = split_axis(named, dim(count, minimum=1), dim(chunk, minimum=1))
        out[names[a]] = AxisSplit(names[a], a, divided, count, chunk)
    return out


def _fresh(name: str, taken: Iterable[str]) -> str:
    taken, number, found = set(taken), 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


# ---- terms


def _encoded(t: Term, tables: _Tables, signature: Signature) -> ETerm:
    op, plain = _constructor(t, tables)
    if op not in signature:
        raise SearchError(f"the rule language has no constructor {op} for {type(t).__name__.lower()} terms")
    return ETerm(op, plain, tuple(tables.terms[c] for c in term_children(t)))


def _constructor(t: Term, tables: _Tables) -> tuple[str, tuple[Plain, ...]]:
    match t:
        case Const(value) if value == float("-inf"):
            return "NegInf", ()
        case Const(value) if abs(value) < float("inf"):
            return "Const", (value,)
        case IndexValue(i) if i in tables.sizes:
            return "Size", (AxisRef(tables.sizes[i]),)
        case Load() | Const() | IndexValue():
            return "Leaf", (_leaf_number(t, tables),)
        case Map(op, _):
            return camel(op), ()
        case Reduce() | TopK():
            return _binder(t, tables)
        case Where(pred, _, _):
            return "Where", (tables.predicates.setdefault(pred, len(tables.predicates)),)
        case Cast(dtype, _):
            return "Cast", (dtype,)
        case Ref(name, _):
            raise SearchError(f"reference {name} to a value outside the graph")


def _binder(t: Reduce | TopK, tables: _Tables) -> tuple[str, tuple[Plain, ...]]:
    axis = tables.refs[t.axis]
    if isinstance(t, Reduce):
        return "Red", (language.CONSTRUCTORS.get(t.op, t.op), axis)
    if axis.part != "whole":
        raise SearchError(f"top-k over axis {t.axis}, a piece of a split axis: the rule language has no word for it")
    return "TopK", (t.part, axis, _leaf_number(IndexValue(t.rank), tables))


def _leaf_number(t: Term, tables: _Tables) -> int:
    return tables.leaves.setdefault(t, len(tables.leaves))


# ---- facts


def _axis_facts(names: Mapping[Axis, str], splits: Mapping[str, AxisSplit]) -> list[str]:
    lines: list[str] = []
    for a, name in names.items():
        owned_by = [ref for b in _sorted(owners(a), names) for ref in whole(names[b], splits)]
        base = AxisRef(name)
        lines += [f"(Axis {show_axis(base, splits)})"]
        facts = {base: (whole(name, splits), owned_by)}
        if name in splits:
            outer, inner = AxisRef(name, "outer"), AxisRef(name, "inner")
            lines.append(f'(Splittable {show_axis(base, splits)} (DSym "{splits[name].count}"))')
            facts |= {outer: ([outer], []), inner: ([inner], [base, outer, *owned_by])}
        for ref, (depends, extent) in facts.items():
            lines.append(f"(set (whole {show_axis(ref, splits)}) {_set(depends, splits)})")
            lines.append(f"(set (exts {show_axis(ref, splits)}) {_set(extent, splits)})")
    return lines


def _places(tables: _Tables, splits: Mapping[str, AxisSplit]) -> list[str]:
    """Of the axes that reductions bind; a nest as written is in order, unless another one is in the opposite order."""
    reduced = dict.fromkeys(tables.refs[t.axis].name for t in tables.terms if isinstance(t, Reduce))
    parts = [ref for name in reduced for ref in reversed(whole(name, splits))]
    return [f"(set (place {show_axis(ref, splits)}) {number})" for number, ref in enumerate(parts)]


def _size_facts(names: Mapping[Axis, str], tables: _Tables, splits: Mapping[str, AxisSplit]) -> list[str]:
    """An extent that the graph uses as a number is the size of every axis of that extent."""
    lines: list[str] = []
    for i, first in tables.sizes.items():
        others = [name for a, name in names.items() if a.extent is i and name != first]
        if any(isinstance(t, IndexValue) and t.index is i for t in tables.terms):
            size = f"(Size {show_axis(AxisRef(first), splits)})"
            lines += [f"(union {size} (Size {show_axis(AxisRef(name), splits)}))" for name in others]
    return lines


def whole(name: str, splits: Mapping[str, AxisSplit]) -> list[AxisRef]:
    """What a reader of the index depends on."""
    if name not in splits:
        return [AxisRef(name)]
    return [AxisRef(name), AxisRef(name, "outer"), AxisRef(name, "inner")]


def _leaf_facts(tables: _Tables, splits: Mapping[str, AxisSplit], weights: frozenset[str]) -> list[str]:
    lines: list[str] = []
    for t, number in tables.leaves.items():
        axes = _leaf_axes(t)
        lines.append(f"(set (axes (Leaf {number})) {_refined(axes, tables.refs, splits)})")
        if isinstance(t, Load) and t.input in weights and axes:
            lines.append(f"(Param (Leaf {number}))")
    for pred, number in tables.predicates.items():
        lines.append(f"(set (paxes {number}) {_refined(pred_axes(pred), tables.refs, splits)})")
    return lines


def _leaf_axes(t: Term) -> frozenset[Axis]:
    match t:
        case Load(_, indices):
            return frozenset[Axis]().union(*(axes_of(i) for i in indices))
        case IndexValue(i):
            return axes_of(i)
        case _:
            return frozenset()


def _refined(axes: Iterable[Axis], refs: Mapping[Axis, AxisRef], splits: Mapping[str, AxisSplit]) -> str:
    read = sorted(refs[a] for a in axes)
    return _set(
        dict.fromkeys(part for ref in read for part in (whole(ref.name, splits) if ref.part == "whole" else [ref])),
        splits,
    )


def _sorted(axes: Iterable[Axis], names: Mapping[Axis, str]) -> list[Axis]:
    return sorted(axes, key=lambda a: names[a])


# ---- text


def show_axis(ref: AxisRef, splits: Mapping[str, AxisSplit]) -> str:
    base = f'(A "{ref.name}")'
    return base if ref.part == "whole" else f'({ref.part.capitalize()} {base} (DSym "{splits[ref.name].count}"))'


def _set(refs: Iterable[AxisRef], splits: Mapping[str, AxisSplit]) -> str:
    inside = " ".join(show_axis(ref, splits) for ref in refs)
    return f"(set-of {inside})" if inside else "(set-empty)"


def _bound(roots: Iterable[ETerm]) -> dict[ETerm, str]:
    # The end is no digit: where a term uses $v1 for the eleventh time beside $v11, egglog names both @$v11.
    return {t: f"$v{number}_" for number, t in enumerate(language.walk(*roots))}


def _shown(t: ETerm, bound: Mapping[ETerm, str], splits: Mapping[str, AxisSplit]) -> str:
    return f"({' '.join([t.op, *(_plain(p, splits) for p in t.plain), *(bound[k] for k in t.operands)])})"


def _plain(value: Plain, splits: Mapping[str, AxisSplit]) -> str:
    match value:
        case AxisRef():
            return show_axis(value, splits)
        case str() if value in language.MONOIDS:
            return f"({value})"
        case str():
            return f'"{value}"'
        case float():
            text = repr(value)
            return text if "." in text or "e" in text else text + ".0"
        case int():
            return str(value)
