"""The k best graphs that an e-graph holds, in one configuration.

A *configuration* says for each splittable axis whether it stays whole or is split. It bans e-nodes: a whole axis has no
reduction over its pieces, a split axis none over the axis itself, and a split is *chunk-local*: a reduction over Inner
k depends on no reduction over Outer k nor over k. Without the constraint of locality (an ablation) a split axis bans
nothing, but a graph must split it somewhere. In each configuration the cheapest graphs of different form are kept.

A large e-graph is cut into regions, which are solved one by one; that alone loses nothing. Where a region is still
large, e-nodes of graphs that are much dearer than the greedy one are left out, more the larger it is; and where the
budget ends before the search, greedy choices stand in. ``Extraction`` says so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cleave.search.best import Budget, Region, combined, greedy, near
from cleave.search.deadline import NEVER, Deadline, OutOfTime
from cleave.search.egraph import EGraph, ENode
from cleave.search.fewest import fewest_passes
from cleave.search.form import Form, form
from cleave.search.problem import Choice, Problem, in_order, make_problem, regions, size, within

REGION = 100
"""E-nodes of a region that is searched whole."""

_DEAREST = 4.0
"""A graph that is so many times dearer than the greedy one is nobody's choice in a large e-graph."""

_FACTORS = (_DEAREST, 2.0, 1.5, 1.2, 1.05, 1.0)
"""How much dearer than the greedy graph a graph may be, until regions are small."""

_HOPELESS = 8
"""A larger region gets so much less of the budget: what is found in it is hardly ever the whole."""

_PAIRED = 3
"""Up to so many axes are also split in pairs."""


@dataclass(frozen=True)
class Limits:
    """Of one extraction: partial choices looked at, which do not depend on the machine; how many graphs are wanted; and
    a time at which it ends.
    """

    pops: int = 20_000
    wanted: int = 4
    deadline: Deadline = NEVER


@dataclass(frozen=True)
class Extraction:
    """Chosen graphs of one configuration, cheapest first.

    ``exact``: the first one is the cheapest; else a limit was met. ``factor``: the others are the next ones among
    graphs that cost at most so many times the greedy one; infinite where nothing was left out. ``late``: it was the
    deadline that ended it.
    """

    split: frozenset[str]
    choices: tuple[Choice, ...]
    exact: bool = True
    pops: int = 0
    nodes: int = 0
    regions: int = 0
    factor: float = math.inf
    late: bool = False


def extract(
    graph: EGraph,
    cost: Sequence[Sequence[float]],
    split: frozenset[str],
    splittable: frozenset[str],
    limits: Limits,
    *,
    local: bool = True,
    fewest: bool = False,
) -> Extraction:
    """The best graphs in which exactly the axes ``split`` are split. ``cost[c][i]`` is the price of e-node i of class
    c. ``local``: all reductions over an axis are split, so that chunks need nothing of one another. ``fewest``: only
    graphs with the fewest passes over each axis, if there are others.
    """
    if limits.deadline.passed:
        return Extraction(split, (), exact=False, late=True)
    allowed = _allowed(graph, split, splittable, local=local)
    if fewest:
        every, allowed = allowed, fewest_passes(graph, allowed)
        if allowed == every:
            return Extraction(split, ())
    problem = make_problem(graph, allowed, cost)
    if problem is None:
        return Extraction(split, ())
    nodes = sum(map(len, problem.allowed))
    try:
        first = greedy(problem, limits.deadline)
    except OutOfTime:
        return Extraction(split, (), exact=False, nodes=nodes, late=True)
    wide, cut, factor = _cut(problem, first, limits.deadline)
    pops = limits.pops if _largest(cut) <= REGION else limits.pops // _HOPELESS
    budget = Budget(pops, limits.deadline)
    parts = [Region(cut, r, budget) for r in regions(cut)]
    kept = _Kept(graph, split, local, limits.wanted)
    exact = False
    for found in kept.different(combined(cut, parts, budget), budget):
        exact = exact or (found and not any(part.cut for part in parts))
    everything = factor == math.inf and not budget.ended
    if first is not None and len(kept.found) < limits.wanted and not everything:
        nearby = near(wide, first, Budget(len(first), budget.deadline), problem.total(first) * _DEAREST)
        for _ in kept.different(nearby if exact else itertools.chain([first], nearby)):
            pass
    found = sorted(kept.found, key=problem.total)
    late = limits.deadline.passed and not everything
    return Extraction(split, tuple(found), exact or everything, budget.spent, nodes, len(parts), factor, late)


def _cut(p: Problem, first: Choice | None, deadline: Deadline) -> tuple[Problem, Problem, float]:
    """The problem without what is much dearer, the same with small regions or as small as leaves the best graph in,
    and how much dearer graphs of that may be; less is left out where there is no time.
    """
    if first is None or _largest(p) <= REGION:
        return p, p, math.inf
    best, made = p.total(first), p
    wide = made = within(p, best * _DEAREST, deadline)
    for factor in _FACTORS:
        made = within(made, best * factor * (1 + 1e-9), deadline)
        if _largest(made) <= REGION:
            return wide, made, factor
    return wide, made, _FACTORS[-1]


def _largest(p: Problem) -> int:
    return max((size(p, r) for r in regions(p)), default=0)


@dataclass
class _Kept:
    """Graphs of different forms that belong to a configuration."""

    graph: EGraph
    split: frozenset[str]
    local: bool
    wanted: int

    def __post_init__(self) -> None:
        self.found: list[Choice] = []
        self.forms: set[Form] = set()

    def different(self, choices: Iterable[Choice], budget: Budget | None = None) -> Iterator[bool]:
        """Take choices until there are enough or the budget ends: for each, whether it was a new one."""
        for choice in choices if len(self.found) < self.wanted else ():
            if budget is not None and not budget.spend():
                return
            shape = form(self.graph, choice)
            new = shape not in self.forms and self._accepts(choice)
            if new:
                self.forms.add(shape)
                self.found.append(choice)
            yield new
            if len(self.found) == self.wanted:
                return

    def _accepts(self, choice: Choice) -> bool:
        """What bans on single e-nodes can't tell."""
        return (is_local if self.local else _splits_all)(self.graph, choice, self.split)


# ---- bans


def _allowed(graph: EGraph, split: frozenset[str], splittable: frozenset[str], *, local: bool) -> list[list[int]]:
    inside = {k: local_classes(graph, k) for k in split} if local else {}

    def banned(n: ENode) -> bool:
        if n.op != "Red" or n.axis.name not in splittable:
            return False
        if n.axis.name not in split:
            return n.axis.part != "whole"
        if not local:
            return False
        return n.axis.part == "whole" or (n.axis.part == "inner" and n.operands[0] not in inside[n.axis.name])

    return [[i for i, n in enumerate(members) if not banned(n)] for members in graph.classes]


def local_classes(graph: EGraph, name: str) -> frozenset[int]:
    """Classes that some derivation reaches without a reduction over the axis or over its chunk index."""
    local: set[int] = set()
    changed = True
    while changed:
        changed = False
        for c, members in enumerate(graph.classes):
            if c not in local and any(local.issuperset(n.operands) and not _crosses(n, name) for n in members):
                local.add(c)
                changed = True
    return frozenset(local)


def _crosses(n: ENode, name: str) -> bool:
    return n.op == "Red" and n.axis.name == name and n.axis.part != "inner"


def is_local(graph: EGraph, choice: Choice, split: frozenset[str]) -> bool:
    """No reduction over Inner k, k split, depends on one over Outer k or k."""
    crossed: dict[int, frozenset[str]] = {}
    for c in in_order(graph, choice, graph.roots):
        n = graph.classes[c][choice[c]]
        below = frozenset[str]().union(*(crossed[k] for k in n.operands))
        if n.op == "Red" and n.axis.name in split:
            if n.axis.part == "inner" and n.axis.name in below:
                return False
            if n.axis.part != "inner":
                below = below | {n.axis.name}
        crossed[c] = below
    return True


def _splits_all(graph: EGraph, choice: Choice, split: frozenset[str]) -> bool:
    """Whether each of some axes is split by some reduction."""
    chosen = (graph.classes[c][choice[c]] for c in in_order(graph, choice, graph.roots))
    return split <= {n.axis.name for n in chosen if n.op == "Red" and n.axis.part == "outer"}


# ---- configurations


def configurations(splittable: Sequence[str], most: int) -> tuple[list[frozenset[str]], bool]:
    """Which axes to split: none, each, of up to three each pair; at most ``most``; and whether some are left out."""
    together = 2 if len(splittable) <= _PAIRED else 1
    every = [frozenset(c) for n in range(together + 1) for c in itertools.combinations(splittable, n)]
    return every[:most], len(every) > most or len(splittable) > together
