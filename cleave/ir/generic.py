"""The generic form of a graph: literal extents become free dims, so that small sizes are small; and the other way.

A graph over weights of 4096 x 4096 has no small instance; its generic form has. Literals inside index expressions (an
offset, a stride) stay what they are, and so do constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from cleave.ir.axis import Axis, rest
from cleave.ir.dim import check_binding
from cleave.ir.graph import Graph, IndexValue, Output, Term, children, walk
from cleave.ir.index import Atom, Index, Position, Symbol, axes_of, of, substitute, substitute_pred, symbols_of
from cleave.ir.renaming import renamed

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


def literals(g: Graph, above: int = LITERAL) -> Freed:
    """The literal extents of a graph that are worth freeing."""
    large = [s for s in g.symbols if s.value is not None and s.value > above]
    taken = {s.name for s in g.symbols}
    extents = [*(a.extent for a in g.axes), *(e for b in (*g.inputs, *g.outputs) for e in b.shape)]
    numbers = {e: e.constant for e in extents if e.constant is not None and e.constant > above}
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
    return Rewriting(freed, g.axes).graph(g)


def fixed_graph(g: Graph, values: Mapping[str, int]) -> Graph:
    """The graph with literal extents in the place of some dims: ``n`` -> ``n=4096``. What is no dim of it is left out.

    Errors: a value that the dim can't have.
    """
    fixed: dict[Atom, Index] = {}
    for s in g.symbols:
        if s.name in values:
            check_binding(s, values[s.name])
            fixed[s] = of(Symbol(s.name, values[s.name], values[s.name]))
    return Rewriting(Freed(fixed, {}), g.axes).graph(g)


class Rewriting:
    """Of axes, index expressions and terms, all axes at once, so that nothing can be captured.

    ``axes`` has owners before what they own. Pieces of splits keep their names.
    """

    def __init__(self, freed: Freed, axes: Iterable[Axis]) -> None:
        self.freed = freed
        self.atoms: dict[Atom, Index] = dict(freed.symbols)
        self.axes: dict[Axis, Axis] = {}
        self.terms: dict[Term, Term] = {}
        for a in axes:  # owners come before what they own
            self._add(a)

    def _add(self, a: Axis) -> None:
        piece = self._piece(a)
        self.axes[a] = Axis(a.name, self.extent(a.extent) if piece is None else piece, a.kind)
        self.atoms[Position(a)] = self.axes[a].position

    def axis(self, a: Axis) -> Axis:
        if a not in self.axes:
            self._add(a)
        return self.axes[a]

    def _piece(self, a: Axis) -> Index | None:
        """The extent of a position in a chunk of an axis whose extent is a number."""
        for outer in (b for b in axes_of(a.extent) if a.kind == "inner" and b.kind == "outer"):
            for chunk in map(of, symbols_of(a.extent)):
                for number, freed in self.freed.numbers.items():
                    if a.extent is rest(number, outer, chunk):
                        return rest(freed, self.axis(outer), chunk)
        return None

    def extent(self, i: Index) -> Index:
        return self.freed.numbers[i] if i in self.freed.numbers else substitute(i, self.atoms)

    def term(self, root: Term) -> Term:
        for t in walk(root):
            if t not in self.terms:
                self.terms[t] = self._node(t)
        return self.terms[root]

    def _node(self, t: Term) -> Term:
        match t:
            case IndexValue(i):
                return IndexValue(self.extent(i))
            case _:
                return renamed(t, [self.terms[c] for c in children(t)], self.axis, self.atoms)

    def graph(self, g: Graph) -> Graph:
        inputs = tuple(replace(i, shape=tuple(map(self.extent, i.shape))) for i in g.inputs)
        constraints = tuple(substitute_pred(p, self.atoms) for p in g.constraints)
        return Graph(g.name, inputs, tuple(map(self._output, g.outputs)), constraints)

    def _output(self, o: Output) -> Output:
        indices = tuple(substitute(i, self.atoms) for i in o.indices)
        return Output(o.name, o.dtype, tuple(map(self.extent, o.shape)), indices, self.term(o.term))
