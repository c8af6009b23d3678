"""The operators of a graph, as plain enumeration uses them: those that the graph itself has, and no others.

    leaf       an input as the graph reads it, or a number (a constant, an extent)
    pointwise  Map, Cast, or Where with a constant branch
    fold       a reduction over an axis that the graph reduces with the same monoid
    product    sum_k a * b in one, k in both: a matrix product
    quotient   a * recip(b) in one, where the graph divides

A split axis is the pair of its pieces: leaves are read at o * C + i, and folds are over o and over i.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal

from cleave.errors import CleaveError
from cleave.ir.axis import Axis, SplitAxis
from cleave.ir.graph import (
    Cast,
    Const,
    Graph,
    IndexValue,
    Load,
    Map,
    Reduce,
    Term,
    Where,
    apply,
    children,
    fold,
    free,
    reductions,
    substitute_axes,
    walk,
)
from cleave.ir.index import Position, Pred, show_pred, substitute_pred
from cleave.ir.op import MAPS

RECIPROCALS = ("recip", "recip0")


Shape = Literal["one", "ordered", "unordered"]
"""Of the operands of an operator: one, or two whose order means something or not."""


@dataclass(frozen=True)
class Operator:
    """A kind of node: its name, its operands, and the axis that it reduces, which each of them must have.

    ``make`` gives the term of a node from those of its operands.
    """

    name: str
    shape: Shape
    make: Callable[..., Term] = field(compare=False)
    axis: Axis | None = None


@dataclass(frozen=True)
class Vocabulary:
    """Leaves and operators of a graph of one output, ``split`` along at most one axis."""

    graph: Graph
    split: SplitAxis | None = None

    @property
    def term(self) -> Term:
        (output,) = self.graph.outputs
        return output.term

    @cached_property
    def leaves(self) -> tuple[Term, ...]:
        found = [t for t in nodes(self.term) if is_leaf(t)]
        return tuple(dict.fromkeys(self.at_chunks(t) for t in found))

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        out: dict[Operator, None] = {}
        for t in nodes(self.term):
            if not is_leaf(t):
                out |= dict.fromkeys(self._operators(t))
        return tuple(out)

    def axes(self, monoid: str) -> tuple[Axis, ...]:
        """Axes that may be reduced with a monoid: those that the graph so reduces, one of them in pieces."""
        whole = dict.fromkeys(r.axis for r in reductions(self.term) if r.op == monoid)
        return tuple(piece for a in whole for piece in self.pieces(a))

    def pieces(self, a: Axis) -> tuple[Axis, ...]:
        return (self.split.outer, self.split.inner) if self.split is not None and a is self.split.base else (a,)

    def at_chunks(self, t: Term) -> Term:
        return t if self.split is None else substitute_axes(t, {self.split.base: self.split.position})

    def _operators(self, t: Term) -> Iterable[Operator]:
        name = kind(t)
        match t:
            case Reduce(op, _, body):
                yield from (_fold(op, a) for a in self.axes(op))
                if op == "sum" and isinstance(body, Map) and body.op == "mul":
                    yield from (_product(a) for a in self.axes(op))
            case Map("mul", _) if _divides(t):
                yield _quotient(name, _divisor(t).op)
            case Map(op, _):
                yield Operator(name, _shape(op), partial(apply, op))
            case Where(pred, _, Const(value)):
                yield Operator(name, "one", partial(_masked, self._in_chunks(pred), value))
            case Cast(dtype, _):
                yield Operator(name, "one", partial(Cast, dtype))
            case _:
                raise CleaveError(f"{type(t).__name__} is no operator of an enumeration", location=self.graph.name)

    def _in_chunks(self, pred: Pred) -> Pred:
        return pred if self.split is None else substitute_pred(pred, {Position(self.split.base): self.split.position})


# ---- operators


def _shape(op: str) -> Shape:
    if MAPS[op].arity == 1:
        return "one"
    return "unordered" if MAPS[op].commutative else "ordered"


def _fold(op: str, axis: Axis) -> Operator:
    return Operator(op, "one", partial(fold, op, axis), axis)


def _product(axis: Axis) -> Operator:
    return Operator("product", "unordered", lambda a, b: fold("sum", axis, apply("mul", a, b)), axis)


def _quotient(name: str, reciprocal: str) -> Operator:
    return Operator(name, "ordered", lambda a, b: apply("mul", a, apply(reciprocal, b)))


def _masked(pred: Pred, value: float, a: Term) -> Term:
    return Where(pred, a, Const(value))


# ---- reading a graph in these operators


def _is_reciprocal(t: Term) -> bool:
    return isinstance(t, Map) and t.op in RECIPROCALS and not is_leaf(t)


def is_leaf(t: Term) -> bool:
    """An input or a number; also a choice between inputs, which is a table."""
    if isinstance(t, (Load, Const, IndexValue)):
        return True
    if reductions(t):
        return False
    loads = any(isinstance(u, Load) for u in walk(t))
    return (not loads and not free(t)) or (isinstance(t, Where) and not isinstance(t.otherwise, Const))


def kind(t: Term) -> str:
    """The name of the operator of a term."""
    match t:
        case Reduce(op, _, _):
            return "product" if len(below(t)) == 2 else op
        case Map(op, _):
            return f"quotient {_divisor(t).op}" if _divides(t) else op
        case Where(pred, _, other):
            return f"where {show_pred(pred)} else {other!r}"
        case Cast(dtype, _):
            return f"cast {dtype}"
        case _:
            return "leaf"


def below(t: Term) -> tuple[Term, ...]:
    """The operands of a term as a node: products and quotients are one node each."""
    if is_leaf(t):
        return ()
    match t:
        case Reduce("sum", axis, Map("mul", (a, b)) as body) if not _divides(body) and axis in free(a) & free(b):
            return (a, b)
        case Map("mul", args) if _divides(t):
            divisor = _divisor(t)
            return tuple(a for a in args if a is not divisor) + divisor.args
        case Where(_, a, Const()):
            return (a,)
        case _:
            return children(t)


def _divides(t: Map) -> bool:
    return t.op == "mul" and sum(map(_is_reciprocal, t.args)) == 1


def _divisor(t: Map) -> Map:
    return next(a for a in t.args if isinstance(a, Map) and _is_reciprocal(a))


def nodes(t: Term) -> list[Term]:
    """Leaves and operators of a term, operands first."""
    return walk(t, below=below)


def node_count(t: Term) -> int:
    """Operators of a term."""
    return sum(not is_leaf(u) for u in nodes(t))
