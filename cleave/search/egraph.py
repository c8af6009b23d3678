"""A snapshot of the e-graph as plain data: classes of e-nodes, the axes of each class, the recorded matches of the
rules.

Classes are numbered canonically (from the leaves up, by structure), so that neither egglog's ids nor hash seeds show
anywhere. Operands of commutative operators are sorted, which drops the mirror images that commutativity makes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cleave.rewrite.rule import Signature
from cleave.search.term import COMMUTATIVE, AxisRef, ETerm, Plain, walk

_RECORD = "At-Fired-"


@dataclass(frozen=True, order=True)
class ENode:
    """A constructor, its arguments that are no terms, and the classes of its operands."""

    op: str
    plain: tuple[Plain, ...]
    operands: tuple[int, ...]

    @property
    def axis(self) -> AxisRef:
        """The axis that a reduction binds."""
        axis = self.plain[-1]
        assert isinstance(axis, AxisRef)
        return axis

    def __str__(self) -> str:
        return f"{self.op}({', '.join([*map(_spelt, self.plain), *(f'c{k}' for k in self.operands)])})"


@dataclass(frozen=True)
class Record:
    """A match: the rule, the round in which it was new, and the values of ``Rule.variables``, in that order; terms as
    classes.
    """

    rule: str
    round: int
    values: tuple[Plain, ...]


@dataclass(frozen=True)
class EGraph:
    """Classes by number; ``axes[c]`` is what class c may depend on; ``roots`` are the classes of the outputs."""

    classes: tuple[tuple[ENode, ...], ...]
    axes: tuple[frozenset[AxisRef], ...]
    roots: tuple[int, ...]
    records: tuple[Record, ...] = field(default=(), repr=False)

    @cached_property
    def class_of(self) -> Mapping[ENode, int]:
        return {n: c for c, members in enumerate(self.classes) for n in members}

    @property
    def node_count(self) -> int:
        return sum(map(len, self.classes))

    @property
    def mirrored_count(self) -> int:
        """E-nodes with both orders of commutative operands, as reports of searches and their limits count them."""
        return sum(1 + (n.op in COMMUTATIVE and len(set(n.operands)) > 1) for _, n in self.nodes())

    def nodes(self) -> Iterator[tuple[int, ENode]]:
        """(class, e-node), in order."""
        return ((c, n) for c, members in enumerate(self.classes) for n in members)

    def find(self, term: ETerm) -> int | None:
        """The class of a term, if the e-graph holds it."""
        found: dict[ETerm, int] = {}
        for t in walk(term):
            known = [found[k] for k in t.operands if k in found]
            c = self.class_of.get(enode(t.op, t.plain, known)) if len(known) == len(t.operands) else None
            if c is None:
                return None
            found[t] = c
        return found[term]

    def text(self, limit: int = 200) -> str:
        """Classes and their e-nodes, at most ``limit`` of them."""
        from cleave.search.draw import text

        return text(self, limit)

    def dot(self, limit: int = 200) -> str:
        """Graphviz source: a box for each class."""
        from cleave.search.draw import dot

        return dot(self, limit)

    def svg(self, limit: int = 120) -> str:
        """A drawing without Graphviz: classes by height, an edge for each operand."""
        from cleave.search.draw import svg

        return svg(self, limit)

    def __str__(self) -> str:
        both = self.mirrored_count
        more = f" ({both} with both orders of operands)" if both > self.node_count else ""
        return f"e-graph: {len(self.classes)} classes, {self.node_count} e-nodes{more}"

    def _repr_html_(self) -> str:
        return self.svg()


def enode(op: str, plain: tuple[Plain, ...], operands: Sequence[int]) -> ENode:
    return ENode(op, plain, tuple(sorted(operands)) if op in COMMUTATIVE else tuple(operands))


def _spelt(value: Plain) -> str:
    if isinstance(value, AxisRef):
        return value.name if value.part == "whole" else f"{value.name}.{value.part}"
    return str(value)


# ---- reading


_Raw = tuple[str, tuple[Plain, ...], tuple[str, ...]]
"""An e-node over classes of egglog's: constructor, arguments that are no terms, operands."""


@dataclass
class _Reader:
    """egglog's serialized nodes, and what has been read of them."""

    nodes: Mapping[str, Mapping[str, Any]]
    signature: Signature
    plain: dict[str, Plain] = field(default_factory=dict[str, Plain])

    def is_term(self, node: str) -> bool:
        return self.signature.get(self.nodes[node]["op"], ("",))[0] == "E"

    def value(self, node: str) -> Plain:
        """An axis, monoid, number or name."""
        if node not in self.plain:
            self.plain[node] = self._read(self.nodes[node])
        return self.plain[node]

    def _read(self, n: Mapping[str, Any]) -> Plain:
        op, inside = str(n["op"]), [self.value(c) for c in n["children"]]
        match op, inside:
            case "A", [str(name)]:
                return AxisRef(name)
            case "Outer", [AxisRef(name, _), _]:
                return AxisRef(name, "outer")
            case "Inner", [AxisRef(name, _), _]:
                return AxisRef(name, "inner")
            case "DSym", [str(name)]:
                return name
            case _, []:
                return _literal(op, str(n["eclass"]))
            case _:
                raise ValueError(f"{op} is no axis, monoid, number or name")


def _literal(op: str, eclass: str) -> Plain:
    if eclass.startswith("i64-"):
        return int(op)
    if eclass.startswith("f64-"):
        return float(op)
    return op.strip('"')


def read_snapshot(serialized: bytes, signature: Signature, roots: Sequence[ETerm]) -> EGraph:
    """The e-graph of egglog's JSON. ``roots`` are terms that were put in."""
    reader = _Reader(json.loads(serialized)["nodes"], signature)
    raw: dict[str, set[_Raw]] = {}
    for n in reader.nodes.values():
        if signature.get(n["op"], ("",))[0] == "E" and not n.get("subsumed"):
            kinds = [(c, reader.is_term(c)) for c in n["children"]]
            plain = tuple(reader.value(c) for c, is_term in kinds if not is_term)
            operands = tuple(str(reader.nodes[c]["eclass"]) for c, is_term in kinds if is_term)
            raw.setdefault(n["eclass"], set()).add((n["op"], plain, operands))
    number = _numbered(raw)
    classes: list[tuple[ENode, ...]] = [()] * len(number)
    for eclass, c in number.items():
        members = {
            enode(op, plain, [number[k] for k in ks]) for op, plain, ks in raw[eclass] if all(k in number for k in ks)
        }
        classes[c] = tuple(sorted(members, key=_order))
    found = EGraph(tuple(classes), _axes(reader, number), (), _records(reader, number))
    return EGraph(found.classes, found.axes, tuple(_root(found, t) for t in roots), found.records)


def _root(g: EGraph, term: ETerm) -> int:
    c = g.find(term)
    assert c is not None, f"{term} was put into the e-graph and is not in it"
    return c


def _order(n: ENode) -> tuple[Any, ...]:
    return (n.op, tuple(map(repr, n.plain)), n.operands)


def _numbered(raw: Mapping[str, set[_Raw]]) -> dict[str, int]:
    """Numbers for classes, from the leaves up: those with a node over numbered classes come next, by their least such
    node.
    """
    number: dict[str, int] = {}
    above: dict[str, list[tuple[str, _Raw]]] = {}
    missing: dict[tuple[str, _Raw], int] = {}
    ready: dict[str, list[_Raw]] = {}
    for eclass, members in raw.items():
        for n in members:
            missing[eclass, n] = len(set(n[2]))
            for k in set(n[2]):
                above.setdefault(k, []).append((eclass, n))
            if not n[2]:
                ready.setdefault(eclass, []).append(n)
    while ready:
        least = {c: min(_order(enode(op, plain, [number[k] for k in ks])) for op, plain, ks in ready[c]) for c in ready}
        added = sorted(least, key=lambda c: (least[c], c))
        number |= {eclass: len(number) + n for n, eclass in enumerate(added)}
        ready = {}
        for eclass, n in (over for c in added for over in above.get(c, ())):
            missing[eclass, n] -= 1
            if missing[eclass, n] == 0 and eclass not in number:
                ready.setdefault(eclass, []).append(n)
    return number


def _axes(reader: _Reader, number: Mapping[str, int]) -> tuple[frozenset[AxisRef], ...]:
    sets = {n["eclass"]: n["children"] for n in reader.nodes.values() if n["op"] in ("set-of", "set-empty")}
    out: list[frozenset[AxisRef]] = [frozenset()] * len(number)
    for n in reader.nodes.values():
        if n["op"] == "axes":
            owner = number.get(str(reader.nodes[n["children"][0]]["eclass"]))
            if owner is not None:
                refs = (reader.value(c) for c in sets[n["eclass"]])
                out[owner] = frozenset(ref for ref in refs if isinstance(ref, AxisRef))
    return tuple(out)


def _records(reader: _Reader, number: Mapping[str, int]) -> tuple[Record, ...]:
    integers = (n for n in reader.nodes.values() if str(n["eclass"]).startswith("i64-") and not n["children"])
    rounds = {n["eclass"]: int(n["op"]) for n in integers}
    out: list[Record] = []
    for n in reader.nodes.values():
        if str(n["op"]).startswith(_RECORD):
            values = tuple(_record_value(reader, c, number) for c in n["children"])
            out.append(Record(str(n["op"])[len(_RECORD) :], rounds[n["eclass"]], values))
    return tuple(sorted(out, key=lambda r: (r.round, r.rule, tuple(map(repr, r.values)))))


def _record_value(reader: _Reader, node: str, number: Mapping[str, int]) -> Plain:
    return number[str(reader.nodes[node]["eclass"])] if reader.is_term(node) else reader.value(node)
