"""An extraction problem: an e-graph with the e-nodes that are allowed and their prices; bounds, and what they exclude.

needed      classes that every derivation of a class contains; of the roots: *forced* classes
bound       the cheapest e-nodes of some classes that a graph must contain: no such graph costs less
regions     where choices touch one another. A choice adds the classes below it that are not forced; choices that can
            add a common class are of one region. The cheapest graph is the cheapest of every region, put together
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cleave.search.deadline import Deadline
from cleave.search.egraph import EGraph, ENode

Choice = Mapping[int, int]
"""Class -> number of its chosen e-node."""


@dataclass
class Problem:
    """``allowed[c]`` are numbers of e-nodes of class c, ``cost[c][i]`` their prices; sets of classes are bits."""

    graph: EGraph
    allowed: list[list[int]]
    cost: Sequence[Sequence[float]]
    cheapest: list[float] = field(default_factory=list[float])
    needed: list[int] = field(default_factory=list[int])
    forced: int = 0

    def node(self, c: int, i: int) -> ENode:
        return self.graph.classes[c][i]

    def successors(self, c: int) -> Iterator[int]:
        return (k for i in self.allowed[c] for k in self.node(c, i).operands)

    def price(self, classes: int) -> float:
        """The cheapest e-nodes of some classes together."""
        return sum(self.cheapest[c] for c in bits(classes))

    def total(self, choice: Choice) -> float:
        return sum(self.cost[c][choice[c]] for c in in_order(self.graph, choice, self.graph.roots))


def bits(classes: int) -> Iterator[int]:
    while classes:
        lowest = classes & -classes
        yield lowest.bit_length() - 1
        classes ^= lowest


def make_problem(graph: EGraph, allowed: list[list[int]], cost: Sequence[Sequence[float]]) -> Problem | None:
    """The problem without e-nodes over classes that cannot be derived; None if a root is one."""
    p = Problem(graph, allowed, cost)
    return p if _settle(p) else None


def _settle(p: Problem) -> bool:
    derivable: set[int] = set()
    changed = True
    while changed:
        changed = False
        for c, allowed in enumerate(p.allowed):
            if c not in derivable and any(derivable.issuperset(p.node(c, i).operands) for i in allowed):
                derivable.add(c)
                changed = True
    if not derivable.issuperset(p.graph.roots):
        return False
    reached = _reachable(p, derivable)
    p.allowed = [
        [i for i in allowed if derivable.issuperset(p.node(c, i).operands)] if c in reached else []
        for c, allowed in enumerate(p.allowed)
    ]
    p.cheapest = [min((p.cost[c][i] for i in a), default=0.0) for c, a in enumerate(p.allowed)]
    p.needed = _needed(p)
    p.forced = 0
    for r in p.graph.roots:
        p.forced |= p.needed[r]
    return True


def _reachable(p: Problem, derivable: set[int]) -> set[int]:
    reached: set[int] = set()
    stack = list(p.graph.roots)
    while stack:
        c = stack.pop()
        if c not in reached:
            reached.add(c)
            for i in p.allowed[c]:
                if derivable.issuperset(p.node(c, i).operands):
                    stack += p.node(c, i).operands
    return reached


def _needed(p: Problem) -> list[int]:
    """Greatest fixpoint of {c} and what all e-nodes of c need."""
    everything = (1 << len(p.allowed)) - 1
    needed = [everything] * len(p.allowed)
    changed = True
    while changed:
        changed = False
        for c, allowed in enumerate(p.allowed):
            common = everything
            for i in allowed:
                below = 0
                for k in p.node(c, i).operands:
                    below |= needed[k]
                common &= below
            new = common | 1 << c
            if new != needed[c]:
                needed[c], changed = new, True
    return needed


def within(p: Problem, most: float, deadline: Deadline) -> Problem:
    """The problem without e-nodes that no graph of at most that price contains, as far as there is time."""
    kept = p
    while not deadline.passed:
        least = _Bounds(kept)
        allowed = [[i for i in a if least.of(c, i) <= most] for c, a in enumerate(kept.allowed)]
        if allowed == kept.allowed:
            return kept
        tried = make_problem(p.graph, allowed, p.cost)
        if tried is None:  # nothing is that cheap
            return kept
        kept = tried
    return kept


class _Bounds:
    """What graphs that contain an e-node cost at least: the forced classes, and what the e-node adds to them."""

    def __init__(self, p: Problem) -> None:
        self.problem = p
        self.base = p.price(p.forced)
        self.added: dict[int, float] = {}

    def of(self, c: int, i: int) -> float:
        p = self.problem
        contains = 1 << c
        for k in p.node(c, i).operands:
            contains |= p.needed[k]
        contains &= ~p.forced
        if contains not in self.added:
            self.added[contains] = p.price(contains)
        own = p.cost[c][i] - p.cheapest[c]
        return self.base + self.added[contains] + own


def regions(p: Problem) -> list[int]:
    """Sets of classes with choices that touch one another, in order of their least class."""
    above: dict[int, int] = {}

    def top(c: int) -> int:
        while c in above:
            c = above[c]
        return c

    reached = [c for c, a in enumerate(p.allowed) if a]
    for c in reached:
        for k in p.successors(c):
            if not p.forced >> k & 1 and top(c) != top(k):
                above[max(top(c), top(k))] = min(top(c), top(k))
    members: dict[int, int] = {}
    for c in reached:
        members[top(c)] = members.get(top(c), 0) | 1 << c
    return [m for _, m in sorted(members.items()) if any(len(p.allowed[c]) > 1 for c in bits(m))]


def size(p: Problem, region: int) -> int:
    """Number of e-nodes."""
    return sum(len(p.allowed[c]) for c in bits(region))


# ---- graphs


def in_order(graph: EGraph, choice: Choice, roots: Sequence[int]) -> list[int]:
    """Classes of a chosen graph, operands first."""
    seen: set[int] = set()
    out: list[int] = []
    stack = [(r, 0) for r in reversed(roots)]
    while stack:
        c, at = stack.pop()
        if at == 0:
            if c in seen:
                continue
            seen.add(c)
        operands = graph.classes[c][choice[c]].operands
        if at < len(operands):
            stack.append((c, at + 1))
            if operands[at] not in seen:
                stack.append((operands[at], 0))
        else:
            out.append(c)
    return out


def is_acyclic(graph: EGraph, choice: Choice) -> bool:
    """Whether no class of a chosen graph is above itself."""
    done: set[int] = set()
    open_classes: set[int] = set()
    stack = [(r, False) for r in graph.roots]
    while stack:
        c, left = stack.pop()
        if left:
            open_classes.discard(c)
            done.add(c)
        elif c in open_classes:
            return False
        elif c not in done:
            open_classes.add(c)
            stack.append((c, True))
            stack += [(k, False) for k in graph.classes[c][choice[c]].operands if k not in done]
    return True


def reaches(graph: EGraph, choice: Choice, start: Sequence[int], target: int) -> bool:
    """Whether a class is one of some classes or below them, as far as e-nodes are chosen."""
    stack, seen = list(start), set[int]()
    while stack:
        c = stack.pop()
        if c == target:
            return True
        if c not in seen:
            seen.add(c)
            if c in choice:
                stack += graph.classes[c][choice[c]].operands
    return False
