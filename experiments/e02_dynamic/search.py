"""Stage 1, without a GPU: search the graph of every operator and write its candidates."""

from __future__ import annotations

from experiments.candidates import search_and_save
from experiments.e02_dynamic.config import CANDIDATES, graph_of
from experiments.e02_dynamic.workloads import Point, operators, points


def search() -> int:
    """One file an operator; candidates are ranked at the shape with the median number of keys."""
    found = points()
    for name, const in operators(found).items():
        search_and_save(graph_of(const), CANDIDATES / f"{name}.json", middle(found, name).dims)
    return 0


def middle(found: tuple[Point, ...], operator: str) -> Point:
    """The shape that stands for an operator: the one with the median number of keys."""
    own = sorted((p for p in found if p.operator == operator), key=lambda p: sum(p.keys))
    return own[len(own) // 2]
