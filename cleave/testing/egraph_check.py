"""Every e-node has the value of its class, and no class depends on an axis that its analysis does not list."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cleave.rewrite.rule import Signature
from cleave.rewrite.sexp import Sexp, show
from cleave.testing.meaning import Meaning
from cleave.testing.world import Array, base_of


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with an e-node: ``difference`` from its class (NaN: no number), or an axis the analysis lacks."""

    constructor: str
    difference: float | None = None
    axis: str | None = None

    def __str__(self) -> str:
        if self.axis is not None:
            return f"{self.constructor}: its class depends on {self.axis}, the analysis says it does not"
        if self.difference is not None and np.isnan(self.difference):
            return f"{self.constructor}: NaN where the class has a value"
        return f"{self.constructor}: off by {self.difference:.3g}"


@dataclass(frozen=True, slots=True)
class Audit:
    """``nodes``: how many were evaluated."""

    nodes: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A constructor, its arguments that are no terms, and the classes of its operands; ``eclass`` is its own."""

    eclass: str
    constructor: str
    plain: tuple[Sexp, ...]
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Classes:
    """An e-graph as it is checked: e-nodes, and the axes of each class as far as the analysis knows them."""

    nodes: tuple[Node, ...]
    axes: Mapping[str, frozenset[Sexp]]


def audit(classes: Classes, meaning: Meaning, chosen: Container[int] | None = None, *, is_huge: bool = False) -> Audit:
    """Evaluate every e-node from the values of its child classes and compare it with its class.

    ``chosen``: numbers of the e-nodes to compare, where all are too many; others give a class its value at most.
    ``is_huge``: whether values are so large that what is left of a difference is rounding.
    """
    values: dict[str, Array] = {}
    magnitudes: dict[str, Array] = {}
    faults: list[Fault] = []
    waiting, done = tuple(enumerate(classes.nodes)), 0
    while waiting:
        known = frozenset(values)
        ready = [(number, node) for number, node in waiting if known.issuperset(node.children)]
        if not ready:
            break
        for number, node in ready:
            if chosen is not None and number not in chosen and node.eclass in values:
                continue
            operands = [values[child] for child in node.children]
            value = meaning.apply(node.constructor, node.plain, operands)
            magnitude: Array | float = 0.0
            if is_huge:
                below = [magnitudes[child] for child in node.children]
                own = meaning.magnitude(node.constructor, node.plain, operands, below, value)
                with np.errstate(over="ignore"):  # a sum of two that are near the largest number
                    magnitude = own + magnitudes.setdefault(node.eclass, own)
            known_value = values.setdefault(node.eclass, value)
            difference = None if known_value is value else meaning.difference(known_value, value, magnitude)
            faults += [Fault(node.constructor, difference)] * (difference is not None)
            done += 1
        waiting = tuple((number, node) for number, node in waiting if not known.issuperset(node.children))
    return Audit(done, (*faults, *(() if is_huge else _scope_faults(classes, values, meaning))))


def _scope_faults(classes: Classes, values: Mapping[str, Array], meaning: Meaning) -> Iterator[Fault]:
    made_of = {node.eclass: node.constructor for node in reversed(classes.nodes)}
    for eclass, known in classes.axes.items():
        if eclass in values:
            for ax in sorted(meaning.depends_on(values[eclass]) - known, key=show):
                yield Fault(made_of[eclass], axis=f"{ax[0]} {base_of(ax)}" if ax[0] != "A" else show(base_of(ax)))


# ---- reading


Serialized = Mapping[str, Mapping[str, Any]]


def classes_of(nodes: Serialized, signature: Signature) -> Classes:
    """From what egglog serializes."""
    sets = {node["eclass"]: node for node in nodes.values() if node["op"].startswith("set-")}
    axes: dict[str, frozenset[Sexp]] = {}
    for node in nodes.values():
        if node["op"] == "axes":
            members = sets[node["eclass"]]["children"]
            axes[nodes[node["children"][0]]["eclass"]] = frozenset(_plain(nodes[child], nodes) for child in members)
    return Classes(tuple(_terms(nodes, signature)), axes)


def _terms(nodes: Serialized, signature: Signature) -> Iterator[Node]:
    for node in sorted(nodes.values(), key=lambda n: (n["eclass"], n["op"])):
        sort, _ = signature.get(node["op"], ("", ()))
        if sort == "E":
            arguments = [nodes[child] for child in node["children"]]
            kinds = [signature.get(argument["op"], ("", ()))[0] == "E" for argument in arguments]
            plain = tuple(_plain(a, nodes) for a, is_child in zip(arguments, kinds, strict=True) if not is_child)
            children = tuple(a["eclass"] for a, is_child in zip(arguments, kinds, strict=True) if is_child)
            yield Node(node["eclass"], node["op"], plain, children)


def _plain(node: Mapping[str, Any], nodes: Serialized) -> Sexp:
    """An axis, monoid, number or name, read back from the serialized nodes."""
    if node["op"][0].isalpha():
        return (node["op"], *(_plain(nodes[child], nodes) for child in node["children"]))
    return node["op"]
