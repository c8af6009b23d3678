"""A whole e-graph of a real graph: every e-node evaluated and compared with its class.

    report = examine_graph(graph)          # saturates it under the rules, as a search does
    report.faults                          # none, or which e-nodes are wrong

The sizes are small ones of the generic form, in which literal extents are free: no rule knows a size. Chunks of split
axes are short and empty ones among them, and positions beyond an extent hold NaN, so that whatever reads one shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from cleave.config import Config
from cleave.ir.axis import Axis, owners
from cleave.ir.generic import Freed, Rewriting, generic_graph, literals
from cleave.ir.graph import Const, Graph, IndexValue, Load, Term, free
from cleave.ir.index import evaluate, evaluate_pred, substitute_pred
from cleave.ir.instance import CHUNKS, Instance, Real, small_instance
from cleave.ir.interp import load_value
from cleave.rewrite.rulebook import Rulebook
from cleave.rewrite.sexp import Sexp
from cleave.search.egraph import EGraph
from cleave.search.encode import Encoding, encode
from cleave.search.reducibility import reducibility_table
from cleave.search.saturate import saturated
from cleave.search.select import selected
from cleave.search.term import MONOIDS, AxisRef, Plain
from cleave.testing.egraph_check import Audit, Classes, Fault, Node, audit
from cleave.testing.meaning import Meaning
from cleave.testing.world import Array, base_of

MOST_NODES = 20_000
"""Of a larger e-graph a sample is compared; every class gets a value all the same."""

MANY_ELEMENTS, MOST_ELEMENTS = 1 << 20, 1 << 24
"""Of the values of all classes together. Many are made at smaller sizes; the largest of too many are not made."""

_SMALLER = (3, 2)


@dataclass(frozen=True)
class GraphReport:
    """What was evaluated of an e-graph. ``compared``: e-nodes, all of them unless ``nodes`` says more.

    Then the e-graph, or a value in it, was too large for all.
    """

    name: str
    classes: int
    nodes: int
    compared: int
    stop: str
    instances: tuple[Instance, ...]
    faults: tuple[Fault, ...]

    @property
    def is_right(self) -> bool:
        """Whether something was evaluated, and nothing was wrong."""
        return self.compared > 0 and not self.faults

    def __str__(self) -> str:
        seen = f"{self.nodes} e-nodes" if self.compared == self.nodes else f"{self.compared} of {self.nodes} e-nodes"
        found = ", ".join(f"{n} times {fault}" for fault, n in Counter(map(str, self.faults)).most_common(3))
        where = f"{seen} in {self.classes} classes ({self.stop}), {len(self.instances)} instances"
        right = "every e-node has the value of its class" if self.compared else "nothing could be evaluated"
        return f"{self.name}: {found or right}; {where}"


def examine_graph(
    graph: Graph,
    rules: Rulebook | None = None,
    config: Config | None = None,
    *,
    weights: Iterable[str] = (),
) -> GraphReport:
    """Saturate a graph under the rules of a search and compare every e-node with its class.

    ``config.ablation.reducibility`` off splits every reduction, as there.
    """
    config = config or Config()
    book, _ = selected(rules, config)
    table = reducibility_table(graph)
    split = table.worth_splitting if config.ablation.reducibility else table.reduced
    encoding = encode(graph, split, book.signature, tuple(weights))
    state = saturated(encoding, book, config)
    classes = classes_of(state.graph, encoding)
    values = _values(encoding, classes, config.seed)
    audits = [_audit(_small_enough(classes, at), at, config.seed) for at in values]
    faults = tuple(fault for found in audits for fault in found.faults)
    compared = min((found.nodes for found in audits), default=0)
    instances = tuple(v.at for v in values)
    nodes = len(classes.nodes)
    return GraphReport(graph.name, len(state.graph.classes), nodes, compared, str(state.stop), instances, faults)


def _audit(classes: Classes, values: GraphValues, seed: int) -> Audit:
    return audit(classes, Meaning(values), _sample(len(classes.nodes), seed))


def _sample(nodes: int, seed: int) -> frozenset[int] | None:
    if nodes <= MOST_NODES:
        return None
    return frozenset(np.random.default_rng(seed).choice(nodes, MOST_NODES, replace=False).tolist())


def _small_enough(classes: Classes, values: GraphValues) -> Classes:
    """The classes with the smallest values, as many as fit."""
    sizes = values.elements(classes)
    order = sorted(sizes, key=lambda eclass: (sizes[eclass], eclass))
    totals = accumulate(sizes[eclass] for eclass in order)
    kept = {eclass for eclass, total in zip(order, totals, strict=True) if total <= MOST_ELEMENTS}
    nodes = tuple(node for node in classes.nodes if node.eclass in kept)
    return Classes(nodes, {eclass: axes for eclass, axes in classes.axes.items() if eclass in kept})


def _values(encoding: Encoding, classes: Classes, seed: int) -> list[GraphValues]:
    """At one instance with normal inputs, and at one whose inputs are often 0 and sometimes large."""
    freed = literals(encoding.graph)
    generic = generic_graph(encoding.graph, freed) if freed else encoding.graph
    found: list[GraphValues] = []
    for real in (None, _mixed(seed)):
        for sizes in ((), _SMALLER):
            at = small_instance(generic, seed, sizes=sizes, real=real)
            values = GraphValues(encoding, freed, at) if at else None
            if values is not None and (sizes or sum(values.elements(classes).values()) <= MANY_ELEMENTS):
                found.append(values)
                break
    return found


def _mixed(seed: int) -> Real:
    rng = np.random.default_rng(seed)

    def draw(shape: tuple[int, ...]) -> Array:
        values = rng.normal(size=shape) * rng.choice([1.0, 1.0, 8.0])
        return np.where(rng.random(shape) < rng.choice([0.0, 0.3]), 0.0, values)

    return draw


# ---- classes


def classes_of(g: EGraph, encoding: Encoding) -> Classes:
    nodes = tuple(
        Node(str(c), n.op, tuple(_sexp(p, encoding) for p in n.plain), tuple(map(str, n.operands)))
        for c, n in g.nodes()
    )
    return Classes(nodes, {str(c): frozenset(_axis(ax, encoding) for ax in axes) for c, axes in enumerate(g.axes)})


def _sexp(value: Plain, encoding: Encoding) -> Sexp:
    match value:
        case AxisRef():
            return _axis(value, encoding)
        case str() if value in MONOIDS:
            return (value,)
        case str():
            return f'"{value}"'
        case _:
            return str(value)


def _axis(ref: AxisRef, encoding: Encoding) -> Sexp:
    base: Sexp = ("A", f'"{ref.name}"')
    return (
        base if ref.part == "whole" else (ref.part.capitalize(), base, ("DSym", f'"{encoding.splits[ref.name].count}"'))
    )


# ---- values


@dataclass
class GraphValues:
    """Values of the leaves and predicates of an encoded graph, at an instance of its generic form."""

    encoding: Encoding
    freed: Freed
    at: Instance
    slots: tuple[Sexp, ...] = ()
    leaves: list[Array] = field(default_factory=list[Array])
    predicates: list[Array] = field(default_factory=list[Array])
    positions: dict[str, Array] = field(default_factory=dict[str, Array])
    existing: dict[str, Array] = field(default_factory=dict[str, Array])
    environment: dict[Any, Any] = field(default_factory=dict[Any, Any])
    dims: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    inside: dict[tuple[int, ...], Array] = field(default_factory=dict[tuple[int, ...], Array])

    def __post_init__(self) -> None:
        self.slots = tuple(slot for name in self.encoding.axes for slot in self._slots(name))
        names = [base_of(slot) for slot in self.slots]
        self.dims = {name: tuple(d for d, n in enumerate(names) if n == name) for name in self.encoding.axes}
        self.environment |= self.at.dims
        to = Rewriting(self.freed, self.encoding.axes.values())
        self.axes: dict[Axis, str] = {}
        for name, axis in self.encoding.axes.items():  # owners come before what they own
            self._place(name, to.axis(axis))
        self.leaves = [self._leaf(to.term(leaf)) for leaf in self.encoding.leaves]
        predicates = (substitute_pred(p, to.atoms) for p in self.encoding.predicates)
        self.predicates = [np.asarray(evaluate_pred(p, self.environment, self.at.inputs)) for p in predicates]

    def dimensions(self, ax: Sexp) -> tuple[int, ...]:
        dims = self.dims[base_of(ax)]
        return dims if ax[0] == "A" else dims[:1] if ax[0] == "Outer" else dims[1:]

    def elements(self, classes: Classes) -> dict[str, int]:
        """How many the value of each class has."""
        lengths = {slot: self.positions[base_of(slot)].shape[d] for d, slot in enumerate(self.slots)}
        return {eclass: prod(lengths.get(ax, 1) for ax in axes) for eclass, axes in classes.axes.items()}

    def exists_for(self, shape: tuple[int, ...]) -> Array:
        """Where a value of that shape has a meaning: at positions that exist, as far as it tells them apart."""
        if shape not in self.inside:
            self.inside[shape] = self._exists_for(shape)
        return self.inside[shape]

    def _exists_for(self, shape: tuple[int, ...]) -> Array:
        out: Array = np.ones([1] * len(self.slots), dtype=bool)
        for name, dims in self.dims.items():
            if all(shape[d] > 1 for d in dims):
                hidden = tuple(d for d, n in enumerate(shape) if n == 1)
                out = out & self.existing[name].any(axis=hidden, keepdims=True)
        return out

    def _slots(self, name: str) -> tuple[Sexp, ...]:
        if name not in self.encoding.splits:
            return (_axis(AxisRef(name), self.encoding),)
        return _axis(AxisRef(name, "outer"), self.encoding), _axis(AxisRef(name, "inner"), self.encoding)

    def _place(self, name: str, axis: Axis) -> None:
        extent = np.asarray(evaluate(axis.extent, self.environment, self.at.inputs))
        longest = max(int(extent.max(initial=0)), 0)
        shape = [1] * len(self.slots)
        if name in self.encoding.splits:
            chunk = max(-(-longest // (CHUNKS - 1)), 2)
            grid = np.arange(CHUNKS)[:, None] * chunk + np.arange(chunk)
        else:
            grid = np.arange(max(longest, 2))
        for d, n in zip(self.dims[name], grid.shape, strict=True):
            shape[d] = n
        self.positions[name] = self.environment[axis] = grid.reshape(shape)
        self.existing[name] = self.positions[name] < extent
        self.axes[axis] = name

    def _leaf(self, leaf: Term) -> Array:
        valid: Array = np.ones([1] * len(self.slots), dtype=bool)
        for axis in free(leaf):
            for a in (axis, *owners(axis)):
                valid = valid & self.existing[self.axes[a]]
        match leaf:
            case Load(name, indices):
                found = load_value(name, indices, valid, self.at.inputs, self.environment)
            case IndexValue(index):
                found = np.asarray(evaluate(index, self.environment, self.at.inputs), dtype=np.float64)
            case Const(number):
                found = np.asarray(number)
            case _:
                raise AssertionError(f"{leaf} is no leaf")
        found = found if found.ndim else found.reshape([1] * len(self.slots))
        return np.where(valid, found, np.nan)
