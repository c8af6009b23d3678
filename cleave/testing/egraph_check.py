"""Every e-node has the value of its class, and no class depends on an axis that its analysis does not list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cleave.rewrite.rule import Signature
from cleave.rewrite.sexp import Sexp, show
from cleave.testing.meaning import Meaning
from cleave.testing.world import Array, base_of

Nodes = Mapping[str, Mapping[str, Any]]


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
    nodes: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class _ENode:
    eclass: str
    constructor: str
    plain: tuple[Sexp, ...]
    children: tuple[str, ...]


def audit(nodes: Nodes, meaning: Meaning, signature: Signature) -> Audit:
    """Evaluate every e-node from the values of its child classes and compare it with its class."""
    terms = list(_terms(nodes, signature))
    values: dict[str, Array] = {}
    faults: list[Fault] = []
    waiting, done = terms, 0
    while waiting:
        known = frozenset(values)
        ready = [node for node in waiting if known.issuperset(node.children)]
        if not ready:
            break
        for node in ready:
            value = meaning.apply(node.constructor, node.plain, [values[child] for child in node.children])
            difference = meaning.difference(values.setdefault(node.eclass, value), value)
            faults += [Fault(node.constructor, difference)] * (difference is not None)
        done += len(ready)
        waiting = [node for node in waiting if not known.issuperset(node.children)]
    return Audit(done, (*faults, *_scope_faults(nodes, values, meaning, signature)))


def _terms(nodes: Nodes, signature: Signature) -> Iterator[_ENode]:
    for node in sorted(nodes.values(), key=lambda n: (n["eclass"], n["op"])):
        sort, _ = signature.get(node["op"], ("", ()))
        if sort == "E":
            arguments = [nodes[child] for child in node["children"]]
            kinds = [signature.get(argument["op"], ("", ()))[0] == "E" for argument in arguments]
            plain = tuple(_plain(a, nodes) for a, is_child in zip(arguments, kinds, strict=True) if not is_child)
            children = tuple(a["eclass"] for a, is_child in zip(arguments, kinds, strict=True) if is_child)
            yield _ENode(node["eclass"], node["op"], plain, children)


def _plain(node: Mapping[str, Any], nodes: Nodes) -> Sexp:
    """An axis, monoid, number or name, read back from the serialized nodes."""
    if node["op"][0].isalpha():
        return (node["op"], *(_plain(nodes[child], nodes) for child in node["children"]))
    return node["op"]


def _scope_faults(nodes: Nodes, values: Mapping[str, Array], meaning: Meaning, signature: Signature) -> Iterator[Fault]:
    sets = {node["eclass"]: node for node in nodes.values() if node["op"].startswith("set-")}
    for node in nodes.values():
        if node["op"] != "axes":
            continue
        owner = nodes[node["children"][0]]
        known = {_plain(nodes[child], nodes) for child in sets[node["eclass"]]["children"]}
        if owner["eclass"] in values:
            for ax in sorted(meaning.depends_on(values[owner["eclass"]]) - known, key=show):
                yield Fault(owner["op"], axis=f"{ax[0]} {base_of(ax)}" if ax[0] != "A" else show(base_of(ax)))
