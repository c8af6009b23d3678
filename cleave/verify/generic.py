"""The generic form of a candidate: literal extents become free dims, so that small sizes are small.

A graph over weights of 4096 x 4096 has no small instance. Its generic form has, and where the two graphs agree on all
of those, the literal size is one more. It is evidence beside the sampled test at the literal sizes, never instead of
it: literals inside index expressions (an offset, a stride) stay what they are, and so do constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from cleave.candidate import Candidate, Fold, Split
from cleave.ir.axis import Axis
from cleave.ir.graph import Graph, IndexValue, Load, Output, Reduce, Ref, Term, Where, axes_in, children, rebuild, walk
from cleave.ir.index import Atom, Index, Position, Symbol, of, substitute, substitute_pred

LITERAL = 16
"""Extents up to this one stay: pairs, groups and the like are small already, and mean something."""


@dataclass(frozen=True)
class Freed:
    """Which literal extents of an input graph become free dims: symbols with one value by name, numbers by value."""

    symbols: Mapping[Atom, Index]
    numbers: Mapping[Index, Index]

    def __bool__(self) -> bool:
        return bool(self.symbols or self.numbers)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(str(i) for i in (*self.symbols.values(), *self.numbers.values())))


def literals(g: Graph) -> Freed:
    """The literal extents of a graph that are worth freeing."""
    large = [s for s in g.symbols if s.value is not None and s.value > LITERAL]
    taken = {s.name for s in g.symbols}
    extents = [*(a.extent for a in g.axes), *(e for b in (*g.inputs, *g.outputs) for e in b.shape)]
    numbers = {e: e.constant for e in extents if e.constant is not None and e.constant > LITERAL}
    return Freed(
        {s: of(Symbol(s.name, 1)) for s in large},
        {e: of(Symbol(_fresh(f"n{value}", taken), 1)) for e, value in numbers.items()},
    )


def _fresh(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name += "_"
    return name


def generic_graph(g: Graph, freed: Freed) -> Graph:
    """The graph with free dims in the place of literal extents; axes keep their names."""
    return _Rewriting(freed, g.axes).graph(g)


def generic_candidate(c: Candidate, freed: Freed) -> Candidate:
    """The candidate of the generic input graph, with its folds and splits."""
    parts = [*(t for f in c.folds for t in (*f.members, *f.carry)), *c.graph.terms]
    rewriting = _Rewriting(freed, axes_in(parts, (i for o in c.graph.outputs for i in o.indices)))
    return replace(
        c,
        graph=rewriting.graph(c.graph),
        origin=generic_graph(c.origin, freed),
        folds=tuple(map(rewriting.fold, c.folds)),
        splits=tuple(map(rewriting.split, c.splits)),
    )


class _Rewriting:
    """Of axes, index expressions and terms, all axes at once, so that nothing can be captured."""

    def __init__(self, freed: Freed, axes: Iterable[Axis]) -> None:
        self.freed = freed
        self.atoms: dict[Atom, Index] = dict(freed.symbols)
        self.axes: dict[Axis, Axis] = {}
        self.terms: dict[Term, Term] = {}
        for a in axes:  # owners come before what they own
            self._add(a)

    def _add(self, a: Axis) -> None:
        self.axes[a] = Axis(a.name, self.extent(a.extent), a.kind)
        self.atoms[Position(a)] = self.axes[a].position

    def axis(self, a: Axis) -> Axis:
        if a not in self.axes:
            self._add(a)
        return self.axes[a]

    def extent(self, i: Index) -> Index:
        return self.freed.numbers[i] if i in self.freed.numbers else substitute(i, self.atoms)

    def term(self, root: Term) -> Term:
        for t in walk(root):
            if t not in self.terms:
                self.terms[t] = self._node(t)
        return self.terms[root]

    def _node(self, t: Term) -> Term:
        match t:
            case Load(name, indices):
                return Load(name, tuple(substitute(i, self.atoms) for i in indices))
            case IndexValue(i):
                return IndexValue(self.extent(i))
            case Where(pred, a, b):
                return Where(substitute_pred(pred, self.atoms), self.terms[a], self.terms[b])
            case Reduce(op, axis, body):
                return Reduce(op, self.axis(axis), self.terms[body])
            case Ref(name, axes):
                return Ref(name, tuple(map(self.axis, axes)))
            case _:
                return rebuild(t, [self.terms[c] for c in children(t)])

    def graph(self, g: Graph) -> Graph:
        inputs = tuple(replace(i, shape=tuple(map(self.extent, i.shape))) for i in g.inputs)
        constraints = tuple(substitute_pred(p, self.atoms) for p in g.constraints)
        return Graph(g.name, inputs, tuple(map(self._output, g.outputs)), constraints)

    def _output(self, o: Output) -> Output:
        indices = tuple(substitute(i, self.atoms) for i in o.indices)
        return Output(o.name, o.dtype, tuple(map(self.extent, o.shape)), indices, self.term(o.term))

    def fold(self, f: Fold) -> Fold:
        members = tuple(m for m in map(self.term, f.members) if isinstance(m, Reduce))
        return Fold(self.axis(f.axis), members, tuple(map(self.term, f.carry)), f.absorbing)

    def split(self, s: Split) -> Split:
        return replace(s, outer=self.axis(s.outer), inner=self.axis(s.inner))


__all__ = ["Freed", "generic_candidate", "generic_graph", "literals"]
