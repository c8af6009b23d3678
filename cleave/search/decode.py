"""Chosen e-nodes -> graph terms.

In the e-graph the index of a split axis k means the whole position, below reductions over its pieces too. Here a
reduction over Inner k puts  o * C + i  in the place of k, down to the loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cleave.candidate import Split
from cleave.ir.axis import Axis
from cleave.ir.graph import (
    Cast,
    Const,
    Graph,
    IndexValue,
    Map,
    Output,
    Reduce,
    Term,
    TopK,
    Where,
    free,
    graph,
    substitute_axes,
)
from cleave.ir.index import Pred, axes_of, compare, inputs_of, symbols_of
from cleave.ir.op import MAPS
from cleave.search.egraph import EGraph
from cleave.search.encode import Encoding
from cleave.search.problem import Choice, in_order
from cleave.search.term import MONOIDS, AxisRef, ETerm, camel, walk

_MAPS = {camel(name): name for name in MAPS}


def chosen_terms(g: EGraph, choice: Choice, roots: Sequence[int]) -> dict[int, ETerm]:
    """The term of each class that a choice reaches."""
    out: dict[int, ETerm] = {}
    for c in in_order(g, choice, roots):
        n = g.classes[c][choice[c]]
        out[c] = ETerm(n.op, n.plain, tuple(out[k] for k in n.operands))
    return out


@dataclass
class Decoder:
    """Terms of the rule language as graph terms, under one encoding; keeps what it has made."""

    encoding: Encoding
    made: dict[ETerm, Term] = field(default_factory=dict[ETerm, Term])
    first_leaf: dict[ETerm, float] = field(default_factory=dict[ETerm, float])

    def term(self, root: ETerm) -> Term:
        for t in walk(root):
            if t not in self.made:
                self.first_leaf[t] = self._leaf(t)
                self.made[t] = self._node(t)
        return self.made[root]

    def axis(self, ref: AxisRef) -> Axis:
        if ref.part == "whole":
            return self.encoding.axes[ref.name]
        pieces = self.encoding.splits[ref.name].pieces
        return pieces.outer if ref.part == "outer" else pieces.inner

    def in_chunks(self, term: Term) -> Term:
        """The term with o * C + i for every splittable axis that is free in it next to one of its pieces or on its
        own.
        """
        mapping = {s.axis: s.pieces.position for s in self.encoding.splits.values() if s.axis in free(term)}
        return substitute_axes(term, mapping)

    def _leaf(self, t: ETerm) -> float:
        """Number of the first leaf below: the order of factors that a reader expects, Q before K before V, scalars
        last.
        """
        if t.op == "Leaf":
            number = t.plain[0]
            assert isinstance(number, int)
            return number
        return min((self.first_leaf[k] for k in t.operands), default=float("inf"))

    def _node(self, t: ETerm) -> Term:
        operands = [self.made[k] for k in t.operands]
        match t.op, t.plain:
            case "Leaf", (int(number),):
                return self.encoding.leaves[number]
            case "Const", (float(value),):
                return Const(value)
            case "NegInf", ():
                return Const(float("-inf"))
            case "Size", (AxisRef() as ref,):
                return IndexValue(self.axis(ref).extent)
            case "Where", (int(number),):
                return Where(self.encoding.predicates[number], operands[0], operands[1])
            case "Cast", (str(dtype),):
                return Cast(dtype, operands[0])
            case "TopK", (str(part), AxisRef() as ref, int(number)):
                rank = self.encoding.leaves[number]
                assert isinstance(rank, IndexValue)
                return TopK(part, self.encoding.axes[ref.name], rank.index, operands[0])
            case "Red", (str(op), AxisRef() as ref):
                return self._reduction(MONOIDS[op], ref, operands[0])
            case _:
                return Map(_MAPS[t.op], self._ordered(t, operands))

    def _ordered(self, t: ETerm, operands: list[Term]) -> tuple[Term, ...]:
        if t.op not in ("Mul", "Add"):
            return tuple(operands)
        pairs = sorted(zip(t.operands, operands, strict=True), key=lambda pair: self.first_leaf[pair[0]])
        return tuple(term for _, term in pairs)

    def _reduction(self, op: str, ref: AxisRef, body: Term) -> Term:
        if ref.part == "outer":
            return Reduce(op, self.axis(ref), body)
        base = self.encoding.axes[ref.name]
        split = self.encoding.splits.get(ref.name)
        if split is None:
            return Reduce(op, base, body)
        pieces = split.pieces
        if ref.part == "inner":
            return Reduce(op, pieces.inner, substitute_axes(body, {base: pieces.position}))
        if pieces.outer in free(body):  # the whole axis is the pair: half-way in a derivation a body may mention both
            return Reduce(op, pieces.outer, Reduce(op, pieces.inner, substitute_axes(body, {base: pieces.position})))
        return Reduce(op, base, body)


def decode(encoding: Encoding, roots: Sequence[ETerm], name: str) -> tuple[Graph, tuple[Split, ...]] | None:
    """The graph of chosen terms, one for each output, with its splits; None if an output would depend on an axis it
    lacks.

    Each split adds the constraint count * chunk >= extent (for a ragged extent, which is no dim, the caller must see to
    it).
    """
    source = encoding.graph
    decoder = Decoder(encoding)
    outputs: list[Output] = []
    for o, root in zip(source.outputs, roots, strict=True):
        term = decoder.term(root)
        if not free(term) <= free(o.term) | frozenset[Axis]().union(*(axes_of(i) for i in o.indices)):
            return None
        outputs.append(Output(o.name, o.dtype, o.shape, o.indices, term))
    used = {p.name for t in walk(*roots) for p in t.plain if isinstance(p, AxisRef) and p.part == "outer"}
    constraints: list[Pred] = list(source.constraints)
    for split in (encoding.splits[k] for k in sorted(used)):
        if not _is_ragged(split.axis):
            constraints.append(compare("<=", split.axis.extent, split.pieces.outer.extent * split.pieces.chunk))
    made = graph(name, source.inputs, outputs, constraints)
    return made, _splits(made, encoding, used)


def _is_ragged(axis: Axis) -> bool:
    return bool(axes_of(axis.extent) or inputs_of(axis.extent))


def _splits(made: Graph, encoding: Encoding, used: set[str]) -> tuple[Split, ...]:
    """Splits with the axis objects of the made graph, one for each pair of pieces (names differ only if pairs nest)."""
    out: list[Split] = []
    for split in (encoding.splits[name] for name in sorted(used)):
        outers = [a for a in made.axes if a.kind == "outer" and a.extent is split.pieces.outer.extent]
        for inner in (a for a in made.axes if a.kind == "inner"):
            if any(s.name == split.chunk for s in symbols_of(inner.extent)):
                outer = next(a for a in outers if a in axes_of(inner.extent))
                out.append(Split(split.name, outer, inner, split.count, split.chunk))
    return tuple(out)
