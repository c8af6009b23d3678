"""Cheapest choices: best-first within a region, combined over regions in order of price; and the greedy stand-in.

A partial choice costs what it chose and the cheapest e-node of every class that any completion must contain, so the
first complete choice that leaves the heap is the cheapest, and the next ones follow in order.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cleave.search.deadline import Deadline, OutOfTime
from cleave.search.problem import Choice, Problem, bits, in_order, is_acyclic, reaches


@dataclass
class Budget:
    """What a search may still spend: partial choices looked at, and a time at which it ends (a safety only)."""

    pops: int
    deadline: Deadline
    spent: int = 0
    ended: bool = False

    def spend(self) -> bool:
        """Whether there is one more."""
        if self.spent >= self.pops or self.deadline.passed:
            self.ended = True
            return False
        self.spent += 1
        return True


# ---- one region


@dataclass(frozen=True)
class _State:
    """A partial choice: a linked list of (class, e-node), the open classes, the classes in any completion."""

    before: _State | None
    chosen: tuple[int, int] | None
    open: tuple[int, ...]
    contains: int
    bound: float

    def choice(self) -> dict[int, int]:
        out: dict[int, int] = {}
        state: _State | None = self
        while state is not None and state.chosen is not None:
            out[state.chosen[0]] = state.chosen[1]
            state = state.before
        return out


@dataclass
class Region:
    """Choices of one region, cheapest first, made on demand; ``cut`` if the budget ended them."""

    problem: Problem
    classes: int
    budget: Budget
    found: list[tuple[float, Choice]] = field(default_factory=list[tuple[float, Choice]])
    cut: bool = False

    def __post_init__(self) -> None:
        p = self.problem
        self.sole = {c: a[0] for c, a in enumerate(p.allowed) if len(a) == 1 and p.forced >> c & 1}
        self.source = self._choices()

    def get(self, number: int) -> tuple[float, Choice] | None:
        while len(self.found) <= number:
            made = next(self.source, None)
            if made is None:
                return None
            self.found.append(made)
        return self.found[number]

    def _choices(self) -> Iterator[tuple[float, Choice]]:
        p, order = self.problem, itertools.count()
        contains = p.forced & self.classes
        start = _State(None, None, tuple(bits(contains)), contains, p.price(contains))
        heap = [(start.bound, next(order), start)]
        while heap:
            if not self.budget.spend():
                self.cut = True
                return
            state = heapq.heappop(heap)[2]
            if not state.open:
                yield state.bound, state.choice()
                continue
            for successor in self._successors(state):
                heapq.heappush(heap, (successor.bound, next(order), successor))

    def _successors(self, state: _State) -> Iterator[_State]:
        """Ways to choose an e-node for the open class with the fewest; those that would close a circle are left out."""
        p = self.problem
        c = min(state.open, key=lambda k: (len(p.allowed[k]), -k))
        rest = tuple(k for k in state.open if k != c)
        choice = {**self.sole, **state.choice()}
        for i in p.allowed[c]:
            operands = p.node(c, i).operands
            if reaches(p.graph, choice, operands, c):
                continue
            contains = state.contains
            for k in operands:
                contains |= p.needed[k] & self.classes
            bound = state.bound + p.cost[c][i] - p.cheapest[c] + p.price(contains & ~state.contains)
            inside = (k for k in dict.fromkeys(operands) if self.classes >> k & 1)
            new = tuple(k for k in inside if k not in choice and k not in rest)
            yield _State(state, (c, i), rest + new, contains, bound)


# ---- all regions


def combined(p: Problem, parts: Sequence[Region], budget: Budget) -> Iterator[Choice]:
    """Whole choices without circles, cheapest first: of every region one choice. Nothing is spent on those with."""
    everywhere = {c: a[0] for c, a in enumerate(p.allowed) if len(a) == 1}
    heap: list[tuple[float, tuple[int, ...]]] = []
    seen: set[tuple[int, ...]] = set()

    def push(numbers: tuple[int, ...]) -> None:
        chosen = [part.get(n) for part, n in zip(parts, numbers, strict=True)]
        if numbers not in seen and all(c is not None for c in chosen):
            seen.add(numbers)
            heapq.heappush(heap, (sum(c[0] for c in chosen if c is not None), numbers))

    push((0,) * len(parts))
    while heap:
        if budget.deadline.passed:
            budget.ended = True
            return
        numbers = heapq.heappop(heap)[1]
        choice = dict(everywhere)
        for part, n in zip(parts, numbers, strict=True):
            choice |= part.found[n][1]
        if is_acyclic(p.graph, choice):
            yield choice
        for at in range(len(parts)):
            push((*numbers[:at], numbers[at] + 1, *numbers[at + 1 :]))


# ---- greedy


def greedy(p: Problem, deadline: Deadline) -> Choice | None:
    """Each class takes the e-node whose chosen graph is cheapest, shared parts counted once; not always the best,
    always quick. Raises OutOfTime.
    """
    best: dict[int, tuple[float, int, frozenset[int]]] = {}
    price: dict[int, float] = {}
    changed = True
    while changed:
        changed = False
        for c, allowed in enumerate(p.allowed):
            if allowed:
                deadline.check()
            for i in allowed:
                operands = p.node(c, i).operands
                if not all(k in best for k in operands):
                    continue
                below = frozenset[int]().union(*(best[k][2] for k in operands))
                if c in below:
                    continue
                total = p.cost[c][i] + sum(price[k] for k in below)
                if c not in best or total < best[c][0] - 1e-9 * abs(total):
                    best[c], price[c], changed = (total, i, below | {c}), p.cost[c][i], True
    choice = {c: i for c, (_, i, _) in best.items()}
    return choice if all(r in best for r in p.graph.roots) and is_acyclic(p.graph, choice) else None


def near(p: Problem, first: Choice, budget: Budget, most: float) -> Iterator[Choice]:
    """What greedy graphs of at most some price become when an e-node of a chosen graph is banned, from the roots
    down.
    """
    for c in in_order(p.graph, first, p.graph.roots)[::-1]:
        if len(p.allowed[c]) > 1 and budget.spend():
            others = [[i for i in a if k != c or i != first[c]] for k, a in enumerate(p.allowed)]
            try:
                made = greedy(Problem(p.graph, others, p.cost), budget.deadline)
            except OutOfTime:
                return
            if made is not None and p.total(made) <= most:
                yield made
