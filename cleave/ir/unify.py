"""Two graphs as one: the same inputs, dims and constraints, the outputs of both.

    a: y[m] = f(x[m, k])        b: y[m] = g(x[m, k])        ->        y[m] = f(x[m, k]),  y__other[m] = g(x[m, k])

Inputs and outputs correspond by name, dims by name, whatever axes are called. What both graphs say of a dim holds in
the joint graph; a dim that only one of them has (the count of a split) is one more dim of the joint graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import TypeVar

from cleave.errors import GraphError, ShapeError
from cleave.ir.axis import Axis
from cleave.ir.dim import facts
from cleave.ir.graph import (
    Graph,
    Input,
    Output,
    Term,
    children,
    graph,
    walk,
)
from cleave.ir.index import (
    Atom,
    Index,
    Position,
    Pred,
    Symbol,
    indices_of,
    of,
    show,
    spell,
    substitute,
    substitute_pred,
    symbols_of,
)
from cleave.ir.renaming import renamed

OTHER = "{}__other"

_Buffer = TypeVar("_Buffer", Input, Output)


@dataclass(frozen=True)
class Joint:
    """The joint graph; ``outputs`` are the names of the common outputs, those of the second graph are ``OTHER``.

    ``notes`` say what the two graphs state differently.
    """

    graph: Graph
    outputs: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def pair(self, name: str) -> tuple[Output, Output]:
        """An output of the first graph and its counterpart."""
        known = {o.name: o for o in self.graph.outputs}
        return known[name], known[OTHER.format(name)]


def unify(a: Graph, b: Graph, names: tuple[str, str] = ("the first graph", "the second")) -> Joint:
    """Both graphs as one; ``names`` is what messages call them.

    Errors: inputs, outputs or dims that do not correspond (GraphError, ShapeError), the first that is found.
    """
    _check_names("input", [i.name for i in a.inputs], [i.name for i in b.inputs], names)
    _check_names("output", [o.name for o in a.outputs], [o.name for o in b.outputs], names)
    symbols, notes = _common_symbols(a, b, names)
    first, second = _with_symbols(a, symbols), _with_symbols(b, symbols)
    _check_buffers("input", first.inputs, second.inputs, names)
    _check_buffers("output", first.outputs, second.outputs, names)
    taken = {buffer.name for buffer in (*first.inputs, *first.outputs)}
    for o in first.outputs:
        if OTHER.format(o.name) in taken:
            raise GraphError(f"the name {OTHER.format(o.name)} is taken", location=names[0])
    others = [replace(o, name=OTHER.format(o.name)) for o in second.outputs]
    constraints = dict.fromkeys((*first.constraints, *second.constraints))
    joint = graph(a.name, first.inputs, (*first.outputs, *others), tuple(constraints))
    found = Joint(joint, tuple(o.name for o in a.outputs))
    notes += [note for name in found.outputs for note in _stored_otherwise(*found.pair(name), names)]
    if _shared(first, second) != _shared(second, first):
        notes.append("the graphs have different constraints on dims: compared where all of them hold")
    return replace(found, notes=tuple(notes))


def _shared(g: Graph, other: Graph) -> set[Pred]:
    """Constraints of a graph on dims that another one has too."""
    known = set(other.symbols)
    return {p for p in g.constraints if frozenset[Symbol]().union(*map(symbols_of, indices_of(p))) <= known}


# ---- names and buffers


def _check_names(kind: str, a: Sequence[str], b: Sequence[str], names: tuple[str, str]) -> None:
    for here, there, own, other in ((a, b, *names), (b, a, *reversed(names))):
        only = [n for n in here if n not in there]
        if only:
            message = f"{other} has no {kind} {only[0]!r}: it has {', '.join(there) or 'none'}"
            raise GraphError(message, location=own)


def _check_buffers(kind: str, a: Iterable[_Buffer], b: Iterable[_Buffer], names: tuple[str, str]) -> None:
    others = {buffer.name: buffer for buffer in b}
    for mine in a:
        other = others[mine.name]
        where = f"{kind} {mine.name}"
        if mine.dtype != other.dtype:
            raise GraphError(f"{mine.dtype} in {names[0]}, {other.dtype} in {names[1]}", location=where)
        if len(mine.shape) != len(other.shape):
            ranks = f"rank {len(mine.shape)} in {names[0]}, {len(other.shape)} in {names[1]}"
            raise ShapeError(ranks, location=where)
        for number, (x, y) in enumerate(zip(mine.shape, other.shape, strict=True)):
            if x is not y and (_number(x) is None or _number(x) != _number(y)):
                extents = f"axis {number} has extent {show(x)} in {names[0]}, {show(y)} in {names[1]}"
                raise ShapeError(extents, location=where)


def _number(extent: Index) -> int | None:
    """The only value that an extent can have, if there is one."""
    atom = extent.atom
    return atom.value if isinstance(atom, Symbol) else extent.constant


def _stored_otherwise(a: Output, b: Output, names: tuple[str, str]) -> list[str]:
    if a.indices == b.indices:
        return []
    mine, other = (", ".join(map(spell, o.indices)) for o in (a, b))
    return [
        f"output {a.name} is stored at [{mine}] in {names[0]}, at [{other}] in {names[1]}: "
        f"no rule rewrites a store, so no derivation can be found"
    ]


# ---- dims


def _common_symbols(a: Graph, b: Graph, names: tuple[str, str]) -> tuple[dict[Symbol, Symbol], list[str]]:
    """What each symbol becomes: one that has the facts of both graphs."""
    known = {s.name: s for s in a.symbols}
    out: dict[Symbol, Symbol] = {}
    notes: list[str] = []
    for s in b.symbols:
        mine = known.get(s.name, s)
        if mine is not s:
            common = _narrowed(mine, s, names)
            out |= {mine: common, s: common}
            said = [f"{x.name}{facts(x)}" if facts(x) else f"any {x.name}" for x in (mine, s)]
            notes.append(f"{said[0]} in {names[0]}, {said[1]} in {names[1]}: compared for {common.name}{facts(common)}")
    return out, notes


def _narrowed(a: Symbol, b: Symbol, names: tuple[str, str]) -> Symbol:
    """The facts of both. Errors: no value meets them."""
    maxima = [s.maximum for s in (a, b) if s.maximum is not None]
    multiple = lcm(a.multiple, b.multiple)
    least = max(a.minimum, b.minimum)
    least += -least % multiple
    greatest = min(maxima) // multiple * multiple if maxima else None
    if greatest is not None and greatest < least:
        message = f"{names[0]} has {a.name}{facts(a)}, {names[1]} has {b.name}{facts(b)}: no value meets both"
        raise ShapeError(message, location=f"dim {a.name}")
    if least == greatest:
        multiple = 1
    return Symbol(a.name, least, greatest, multiple)


def _with_symbols(g: Graph, symbols: Mapping[Symbol, Symbol]) -> Graph:
    """The graph with other symbols, extents of axes included."""
    atoms: dict[Atom, Index] = {old: of(new) for old, new in symbols.items()}
    if not atoms:
        return g
    axes: dict[Axis, Axis] = {}
    for a in g.axes:
        axes[a] = Axis(a.name, substitute(a.extent, atoms), a.kind)
        atoms[Position(a)] = axes[a].position
    made: dict[Term, Term] = {}
    for t in walk(*g.terms):
        made[t] = renamed(t, [made[c] for c in children(t)], axes.__getitem__, atoms)

    def put(extents: Iterable[Index]) -> tuple[Index, ...]:
        return tuple(substitute(i, atoms) for i in extents)

    return graph(
        g.name,
        [Input(i.name, i.dtype, put(i.shape)) for i in g.inputs],
        [Output(o.name, o.dtype, put(o.shape), put(o.indices), made[o.term]) for o in g.outputs],
        [substitute_pred(p, atoms) for p in g.constraints],
    )
