"""Price of an e-node: the volume of what it iterates over, from the axes of its class, at representative sizes.
What is made of weights alone is free: it is made once, not in each call.

This ranks graphs inside the e-graph; the candidates themselves are ranked by ``cleave.cost``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from cleave.cost.graph import DEFAULT_COUNT, TRANSCENDENTAL_WEIGHT, at_sizes, representative
from cleave.ir.graph import Load
from cleave.ir.op import MAPS
from cleave.search.egraph import EGraph, ENode
from cleave.search.encode import Encoding
from cleave.search.term import AxisRef, camel

_SPECIAL = frozenset(camel(op.name) for op in MAPS.values() if op.transcendental)
_FREE = frozenset({"Leaf", "Const", "NegInf", "Size"})
_EACH = 1e-3
"""Price of existing, so that of two graphs of equal work the smaller one wins."""


def prices(graph: EGraph, encoding: Encoding, sizes: Mapping[str, int] | None = None) -> list[list[float]]:
    """``prices[c][i]`` for e-node i of class c."""
    at = representative(encoding.graph, sizes=sizes)
    extent: dict[AxisRef, float] = {}
    for name, axis in encoding.axes.items():
        extent[AxisRef(name)] = max(at_sizes(encoding.graph, axis.extent, at), 1.0)
        extent[AxisRef(name, "outer")] = float((sizes or {}).get(f"S_{name}", DEFAULT_COUNT))
        extent[AxisRef(name, "inner")] = math.ceil(extent[AxisRef(name)] / extent[AxisRef(name, "outer")])
    volumes = [_volume(axes, extent) for axes in graph.axes]
    ahead = _ahead(graph, encoding)
    return [
        [(0.0 if c in ahead else _price(n, volumes[c], volumes)) + _EACH for n in members]
        for c, members in enumerate(graph.classes)
    ]


def _ahead(graph: EGraph, encoding: Encoding) -> frozenset[int]:
    """Classes that can be made before any call: some member is made of weights and numbers."""
    out: set[int] = set()
    changed = bool(encoding.weights)
    while changed:
        changed = False
        for c, members in enumerate(graph.classes):
            if c not in out and any(_is_weight(n, encoding) and out.issuperset(n.operands) for n in members):
                out.add(c)
                changed = True
    return frozenset(out)


def _is_weight(n: ENode, encoding: Encoding) -> bool:
    if n.op != "Leaf":
        return n.op != "Where"  # whose predicate may read any input
    leaf = encoding.leaves[int(str(n.plain[0]))]
    return isinstance(leaf, Load) and leaf.input in encoding.weights


def _volume(axes: Iterable[AxisRef], extent: Mapping[AxisRef, float]) -> float:
    """A split axis counts by its pieces: with both of them it is whole, with the outer one a chunk index."""
    refs = set(axes)
    pieces = {ref.name for ref in refs if ref.part != "whole"}
    kept = sorted(ref for ref in refs if ref.part != "whole" or ref.name not in pieces)
    return math.prod(extent[ref] for ref in kept)


def _price(n: ENode, own: float, volumes: list[float]) -> float:
    if n.op in _FREE:
        return 0.0
    if n.op in ("Red", "TopK"):
        return volumes[n.operands[0]]
    return own * (TRANSCENDENTAL_WEIGHT if n.op in _SPECIAL else 1.0)
