"""Stage 1, without a GPU: search the graph of every operator and write its candidates."""

from __future__ import annotations

from experiments.candidates import search_and_save
from experiments.e02_dynamic.config import CANDIDATES, graph_of
from experiments.e02_dynamic.workloads import Point, operators, points


def search() -> int:
    """One file an operator; candidates are ranked at the shape that stands for it."""
    from experiments.e02_dynamic import large

    found = points()
    known = operators(found)
    wanted = {name: (graph_of(const), middle(found, name).dims) for name, const in known.items()}
    for x in large.points():
        if x.operator not in known:
            wanted[x.operator] = graph_of(x.point.const), x.point.dims
        wanted[x.dense.operator] = large.contiguous_graph(), x.dense.dims
    for name, (graph, dims) in wanted.items():
        search_and_save(graph, CANDIDATES / f"{name}.json", dims)
    return 0


def middle(found: tuple[Point, ...], operator: str) -> Point:
    """The shape that stands for an operator: the one with the median work among its batches of several requests.

    Most shapes of an operator may be one short request, at which any schedule takes what a launch takes, and the
    choice of one decides nothing. Batches decide how long requests that differ are balanced over the device.
    """
    own = [p for p in found if p.operator == operator]
    batches = sorted((p for p in own if p.requests > 1), key=_work) or sorted(own, key=_work)
    return batches[len(batches) // 2]


def planned(found: tuple[Point, ...], operator: str) -> tuple[Point, ...]:
    """Shapes at which schedules are made: one with little work, the one that stands for the operator, one with much."""
    own = sorted((p for p in found if p.operator == operator), key=_work)
    return tuple({p.uuid: p for p in (own[len(own) // 8], middle(found, operator), own[7 * len(own) // 8])}.values())


def sampled(found: tuple[Point, ...], operator: str) -> tuple[Point, ...]:
    """The shape that stands for an operator, and of single requests, of small batches and of large ones those with more
    work than a quarter, than three quarters and than all others: what a rule says between them was not measured. With
    less work all schedules take what a launch takes, so that the least would decide nothing.
    """
    own = sorted((p for p in found if p.operator == operator), key=_work)
    sizes = sorted({p.requests for p in own if p.requests > 1})
    small = sizes[(len(sizes) - 1) // 2] if sizes else 1
    groups = (
        [p for p in own if p.requests <= 1],
        [p for p in own if 1 < p.requests <= small],
        [p for p in own if p.requests > small],
    )
    chosen = [p for g in groups if g for p in (g[len(g) // 4], g[3 * len(g) // 4], g[-1])]
    return tuple({p.uuid: p for p in (middle(found, operator), *chosen)}.values())


def _work(p: Point) -> float:
    return p.work
