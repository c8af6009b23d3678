"""Plain bounded enumeration, the way of the Cleave paper and of Mirage: every graph of up to so many operators.

Graphs are built node by node, by number of nodes. A node is an operator over leaves and earlier nodes. Each set of
nodes is built once: nodes that could come next stand in a list, and its head is either taken or given up for good. The
last node must use every node that nothing else uses. A graph that ends well is compared with the goal in finite fields
(``fingerprint.py``), and what is equal there is verified by the caller.

Pruned is what no completion can save:

    operands      every operand has the axis that is reduced; a difference or quotient of a node and itself is a number
    joining       n nodes can join no more than n + 1 loose ends and unread inputs
    reducing      each axis too many costs a node
    abstract      a product or sum that is no part of the goal (``abstract.py``)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from itertools import combinations_with_replacement, permutations
from operator import or_

import numpy as np

from cleave.errors import CleaveError
from cleave.ir.axis import Axis
from cleave.ir.graph import Load, Term, axes_in, free, walk
from cleave.ir.index import axes_of
from experiments.e03_search.abstract import Abstract, abstract, fits, leaf, monomials
from experiments.e03_search.fingerprint import Fingerprints, fingerprints
from experiments.e03_search.vocabulary import Operator, Shape, Vocabulary, below, is_leaf, kind, nodes

_BETWEEN_LOOKS = 64
"""Graphs between two looks at the clock."""


class End(StrEnum):
    COMPLETE = "complete"
    SECONDS = "seconds"


@dataclass(frozen=True)
class Bounds:
    """Operators a graph, and seconds of wall time."""

    nodes: int
    seconds: float


@dataclass
class Enumeration:
    """What was found: terms equal to the goal's in the finite fields, fewest operators first.

    ``complete``: all graphs of up to so many operators were built. ``graphs``: those built, partial ones included.
    """

    equal: list[Term] = field(default_factory=list[Term])
    complete: int = 0
    graphs: int = 0
    tested: int = 0
    seconds: float = 0.0
    end: End = End.COMPLETE


@dataclass(frozen=True, eq=False, slots=True)
class _Node:
    """A leaf (no operator) or an operator over others, with what pruning asks for: sets of axes and of inputs that are
    read, as bits, and the number of its abstract."""

    operator: Operator | None
    operands: tuple[_Node, ...]
    axes: int
    reads: int
    abstract: int


@dataclass(frozen=True, eq=False, slots=True)
class _Kind:
    """An operator with its axis as a bit, what its result depends on for that, and the axes that must go before it."""

    number: int
    operator: Operator
    bit: int
    owners: int
    before: int


class _Late(Exception):
    """The time is over."""


def enumerated(v: Vocabulary, bounds: Bounds, seed: int = 0) -> Enumeration:
    """Graphs of up to ``bounds.nodes`` operators with the value of the vocabulary's graph, by number of operators.

    Errors: a graph without a small instance in the finite fields (CleaveError).
    """
    began = time.perf_counter()
    search = _Search(v, fingerprints(v, np.random.default_rng(seed)), began + bounds.seconds)
    try:
        for size in range(1, bounds.nodes + 1):
            search.run(size)
            search.out.complete = size
    except _Late:
        search.out.end = End.SECONDS
    search.out.seconds = time.perf_counter() - began
    return search.out


@dataclass(frozen=True, slots=True)
class _Partial:
    """Nodes so far, which of them nothing uses, the inputs that are read, and what may come next."""

    nodes: tuple[_Node, ...] = ()
    loose: frozenset[_Node] = frozenset()
    reads: int = 0
    waiting: tuple[_Node, ...] = ()


class _Search:
    """One enumeration."""

    def __init__(self, v: Vocabulary, values: Fingerprints, deadline: float) -> None:
        self.out = Enumeration()
        self._values, self._deadline = values, deadline
        self._bits = {a: 1 << number for number, a in enumerate(axes_in((v.term, *v.leaves)))}
        self._kinds = tuple(self._kind(number, op) for number, op in enumerate(v.operators))
        self._shapes: frozenset[Shape] = frozenset(op.shape for op in v.operators)
        goal = goal_of(v)
        self._goals = monomials(goal)
        self._numbers: dict[Abstract, int] = {}
        self._abstracts: list[Abstract] = []
        self._known: dict[tuple[int, ...], int | None] = {}
        self._leaves = {self._leaf(number, t): t for number, t in enumerate(v.leaves)}
        self._needed = reduce(or_, (x.reads for x in self._leaves))
        self._axes = self._set(free(v.term))
        self._goal = self._number(goal)

    def _set(self, axes: Iterable[Axis]) -> int:
        return reduce(or_, (self._bits[a] for a in axes), 0)

    def _kind(self, number: int, op: Operator) -> _Kind:
        if op.axis is None:
            return _Kind(number, op, 0, 0, 0)
        owned = [a for a in self._bits if op.axis in axes_of(a.extent)]
        return _Kind(number, op, self._bits[op.axis], self._set(axes_of(op.axis.extent)), self._set(owned))

    def _leaf(self, number: int, t: Term) -> _Node:
        reads = 1 << number if any(isinstance(u, Load) for u in walk(t)) else 0
        return _Node(None, (), self._set(free(t)), reads, self._number(leaf(number)))

    def _number(self, a: Abstract) -> int:
        if a not in self._numbers:
            self._numbers[a] = len(self._abstracts)
            self._abstracts.append(a)
        return self._numbers[a]

    def run(self, size: int) -> None:
        """All graphs of exactly so many operators."""
        first = tuple(self._over((*self._leaves,), None))
        if size == 1:
            for x in first:
                self._finish(x)
        else:
            self._extend(_Partial(waiting=first), size)

    def _extend(self, p: _Partial, left: int) -> None:
        """Take each waiting node in turn, those before it given up; ``left`` counts it and those after it."""
        for number, x in enumerate(p.waiting):
            self._look()
            loose, reads = p.loose.difference(x.operands) | {x}, p.reads | x.reads
            if self._hopeless(loose, reads, left - 1):
                continue
            nodes = (*p.nodes, x)
            if left == 2:
                self._end(nodes, loose, x)
            else:
                waiting = (*p.waiting[number + 1 :], *self._over((*self._leaves, *nodes), x))
                self._extend(_Partial(nodes, loose, reads, waiting), left - 1)

    def _hopeless(self, loose: frozenset[_Node], reads: int, left: int) -> bool:
        if len(loose) + (self._needed & ~reads).bit_count() - 1 > left:
            return True
        return any((x.axes & ~self._axes).bit_count() > left for x in loose)

    def _end(self, nodes: tuple[_Node, ...], loose: frozenset[_Node], newest: _Node) -> None:
        """Every last node: it uses the newest, and the other loose one if there is one."""
        others = tuple(loose - {newest})
        for last in self._over((newest, *others) if others else (*self._leaves, *nodes), newest):
            if loose.issubset(last.operands):
                self._finish(last)

    def _look(self) -> None:
        self.out.graphs += 1
        if self.out.graphs % _BETWEEN_LOOKS == 0 and time.perf_counter() > self._deadline:
            raise _Late

    def _finish(self, x: _Node) -> None:
        self._look()
        if x.axes == self._axes and x.reads == self._needed and x.abstract == self._goal:
            self.out.tested += 1
            term = self._term(x)
            if self._values.equal(term):
                self.out.equal.append(term)

    def _term(self, x: _Node) -> Term:
        return self._leaves[x] if x.operator is None else x.operator.make(*map(self._term, x.operands))

    # ---- nodes

    def _over(self, operands: Sequence[_Node], newest: _Node | None) -> Iterator[_Node]:
        """Every node over some operands of which one is the newest, if there is one."""
        chosen = {shape: _choices(shape, operands, newest) for shape in self._shapes}
        for k in self._kinds:
            for args in chosen[k.operator.shape]:
                made = self._node(k, args)
                if made is not None:
                    yield made

    def _node(self, kind: _Kind, args: tuple[_Node, ...]) -> _Node | None:
        """None if it is pruned."""
        a, b = args[0], args[-1]
        if a.axes & b.axes & kind.bit != kind.bit:
            return None
        key = (kind.number, a.abstract, b.abstract)
        found = self._known[key] if key in self._known else self._abstract(key, kind.operator)
        if found is None:
            return None
        axes = a.axes | b.axes
        if axes & kind.before:  # a chunk's positions mean nothing without its number
            return None
        return _Node(kind.operator, args, axes & ~kind.bit | kind.owners, a.reads | b.reads, found)

    def _abstract(self, key: tuple[int, int, int], op: Operator) -> int | None:
        """None if it is no part of the goal."""
        made = abstract(op.name, tuple(self._abstracts[n] for n in key[1 : 2 if op.shape == "one" else 3]))
        self._known[key] = self._number(made) if made is not None and fits(made, self._goals) else None
        return self._known[key]


def _choices(shape: Shape, operands: Sequence[_Node], newest: _Node | None) -> list[tuple[_Node, ...]]:
    """Operands of an operator: unordered where the order means nothing, else different ones (a difference or quotient
    of a node and itself is a number)."""
    commutative = shape == "unordered"
    if shape == "one":
        return [(x,) for x in operands] if newest is None else [(newest,)]
    if newest is None:
        return list(combinations_with_replacement(operands, 2) if commutative else permutations(operands, 2))
    if commutative:
        return [(newest, x) for x in operands]
    return [pair for x in operands if x is not newest for pair in ((newest, x), (x, newest))]


def goal_of(v: Vocabulary) -> Abstract:
    """The abstract of the graph itself.

    Errors: it is too long.
    """
    number = {t: n for n, t in enumerate(v.leaves)}
    known: dict[Term, Abstract] = {}
    for t in nodes(v.term):
        made = leaf(number[v.at_chunks(t)]) if is_leaf(t) else abstract(kind(t), tuple(known[c] for c in below(t)))
        if made is None:
            raise CleaveError("too many terms in a sum for an enumeration", location=v.graph.name)
        known[t] = made
    return known[v.term]
