"""The k best graphs that an e-graph holds: exact best-first search over choices of one e-node a class, for several
roots.

A *configuration* says for each splittable axis whether it stays whole or is split. It bans e-nodes: a whole axis has no
reduction over its pieces, a split axis none over the axis itself, and a split is *chunk-local*: a reduction over Inner
k depends on no reduction over Outer k nor over k. Without the constraint of locality (an ablation) a split axis bans
nothing, but a graph must split it somewhere. In each configuration the cheapest graphs of different form are kept,
where the form is the multiset of reductions with the operations between them and what they depend on.

Bound of a partial choice: its cost so far plus the cheapest e-node of every class that any completion must contain
(``needed``).
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cleave.search.egraph import EGraph, ENode
from cleave.search.term import AxisRef

_PAIRED = 3
"""Up to so many axes are also split in pairs."""

Choice = Mapping[int, int]
"""Class -> number of its chosen e-node."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one best-first search: heap pops and seconds; and how many graphs are wanted."""

    pops: int = 20_000
    seconds: float = 0.3
    wanted: int = 4


@dataclass(frozen=True)
class Extraction:
    """Chosen graphs of one configuration, cheapest first; not ``exact`` if greedy choices stand in at a limit."""

    split: frozenset[str]
    choices: tuple[Choice, ...]
    exact: bool
    pops: int


@dataclass
class _Problem:
    """An e-graph under the bans of a configuration."""

    graph: EGraph
    split: frozenset[str]
    local: bool
    allowed: list[list[int]]
    cost: list[list[float]]
    cheapest: list[float] = field(default_factory=list[float])
    needed: list[int] = field(default_factory=list[int])

    def node(self, c: int, i: int) -> ENode:
        return self.graph.classes[c][i]


def extract(
    graph: EGraph,
    cost: Sequence[Sequence[float]],
    split: frozenset[str],
    splittable: frozenset[str],
    limits: Limits,
    *,
    local: bool = True,
) -> Extraction:
    """The best graphs in which exactly the axes ``split`` are split. ``cost[c][i]`` is the price of e-node i of class
    c. ``local``: all reductions over an axis are split, so that chunks need nothing of one another.
    """
    allowed = _allowed(graph, split, splittable, local=local)
    problem = _Problem(graph, split, local, allowed, [list(row) for row in cost])
    if not _prune(problem):
        return Extraction(split, (), True, 0)
    problem.needed = _needed(problem)
    problem.cheapest = [min((problem.cost[c][i] for i in a), default=0.0) for c, a in enumerate(problem.allowed)]
    found, pops, finished = _best_first(problem, limits)
    if not finished:
        found = _near_greedy(problem, found, limits)
    return Extraction(split, tuple(found), finished, pops)


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


def _accepted(p: _Problem, choice: Choice) -> bool:
    """Whether a graph belongs to the configuration: what bans on single e-nodes can't tell."""
    return (is_local if p.local else _splits_all)(p.graph, choice, p.split)


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


def _prune(p: _Problem) -> bool:
    """Drop e-nodes over classes that the bans make underivable; False if a root is one."""
    derivable: set[int] = set()
    changed = True
    while changed:
        changed = False
        for c, allowed in enumerate(p.allowed):
            if c not in derivable and any(derivable.issuperset(p.node(c, i).operands) for i in allowed):
                derivable.add(c)
                changed = True
    p.allowed = [
        [i for i in allowed if derivable.issuperset(p.node(c, i).operands)] if c in derivable else []
        for c, allowed in enumerate(p.allowed)
    ]
    return derivable.issuperset(p.graph.roots)


def _needed(p: _Problem) -> list[int]:
    """Bit sets: the classes in every derivation of a class. Greatest fixpoint of {c} and what all its e-nodes need."""
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


# ---- best-first


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


def _best_first(p: _Problem, limits: Limits) -> tuple[list[Choice], int, bool]:
    """(graphs, pops, whether it was no limit that ended it)."""
    began = time.perf_counter()
    order = itertools.count()
    roots = tuple(dict.fromkeys(p.graph.roots))
    contains = 0
    for r in roots:
        contains |= p.needed[r]
    start = _State(None, None, roots, contains, _sum(p, contains))
    heap = [(start.bound, next(order), start)]
    found: list[Choice] = []
    forms: set[Form] = set()
    pops = 0
    while heap and len(found) < limits.wanted:
        if pops >= limits.pops or (pops % 64 == 0 and time.perf_counter() - began > limits.seconds):
            return found, pops, False
        state = heapq.heappop(heap)[2]
        pops += 1
        if not state.open:
            choice = state.choice()
            shape = form(p.graph, choice)
            if shape not in forms and _accepted(p, choice):
                forms.add(shape)
                found.append(choice)
            continue
        for successor in _successors(p, state):
            heapq.heappush(heap, (successor.bound, next(order), successor))
    return found, pops, True


def _successors(p: _Problem, state: _State) -> Iterator[_State]:
    """Ways to choose an e-node for the open class with the fewest; choices that would close a circle are left out."""
    c = min(state.open, key=lambda k: (len(p.allowed[k]), -k))
    rest = tuple(k for k in state.open if k != c)
    choice = state.choice()
    for i in p.allowed[c]:
        operands = p.node(c, i).operands
        if _reaches(p, choice, operands, c):
            continue
        contains = state.contains
        for k in operands:
            contains |= p.needed[k]
        bound = state.bound + p.cost[c][i] - p.cheapest[c] + _sum(p, contains & ~state.contains)
        new = tuple(k for k in dict.fromkeys(operands) if k not in choice and k not in rest)
        yield _State(state, (c, i), rest + new, contains, bound)


def _sum(p: _Problem, classes: int) -> float:
    total = 0.0
    while classes:
        lowest = classes & -classes
        total += p.cheapest[lowest.bit_length() - 1]
        classes ^= lowest
    return total


def _reaches(p: _Problem, choice: Choice, start: Sequence[int], target: int) -> bool:
    stack, seen = list(start), set[int]()
    while stack:
        c = stack.pop()
        if c == target:
            return True
        if c not in seen:
            seen.add(c)
            if c in choice:
                stack += p.node(c, choice[c]).operands
    return False


# ---- greedy


def _near_greedy(p: _Problem, found: Sequence[Choice], limits: Limits) -> list[Choice]:
    """The cheapest of what was found, the greedy graph, and what that becomes when one of its e-nodes is banned."""
    deadline = time.perf_counter() + limits.seconds
    first = _greedy(p)
    candidates = [*found, *([first] if first is not None else [])]
    for c in in_order(p.graph, first, p.graph.roots)[::-1] if first is not None else ():
        if time.perf_counter() > deadline:
            break
        if first is not None and len(p.allowed[c]) > 1:
            others = [i for i in p.allowed[c] if i != first[c]]
            near = _greedy(replace(p, allowed=[others if k == c else a for k, a in enumerate(p.allowed)]))
            candidates += [near] if near is not None else []
    forms: dict[Form, Choice] = {}
    for choice in sorted(candidates, key=lambda choice: _cost(p, choice)):
        if _accepted(p, choice):
            forms.setdefault(form(p.graph, choice), choice)
    return list(forms.values())[: limits.wanted]


def _cost(p: _Problem, choice: Choice) -> float:
    return sum(p.cost[c][choice[c]] for c in in_order(p.graph, choice, p.graph.roots))


def _greedy(p: _Problem) -> Choice | None:
    """Each class takes the e-node whose chosen graph is cheapest, shared parts counted once; not always the best,
    always quick.
    """
    best: dict[int, tuple[float, int, frozenset[int]]] = {}
    price: dict[int, float] = {}
    changed = True
    while changed:
        changed = False
        for c, allowed in enumerate(p.allowed):
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
    return choice if all(r in best for r in p.graph.roots) and _acyclic(p, choice) else None


def _acyclic(p: _Problem, choice: Choice) -> bool:
    return not any(_reaches(p, choice, p.node(c, i).operands, c) for c, i in choice.items())


# ---- form


Form = frozenset[tuple[str, int]]


def form(graph: EGraph, choice: Choice) -> Form:
    """What tells two chosen graphs apart: the multiset of their reductions with the operations down to the next
    reductions.

    Order of factors, association and names do not count.
    """
    near: dict[int, frozenset[str]] = {}
    depends: dict[int, frozenset[tuple[str, AxisRef]]] = {}
    count: Counter[str] = Counter()
    for c in in_order(graph, choice, graph.roots):
        n = graph.classes[c][choice[c]]
        below = frozenset[str]().union(*(near[k] for k in n.operands))
        needs = frozenset[tuple[str, AxisRef]]().union(*(depends[k] for k in n.operands))
        if n.op == "Red":
            count[f"{n}"[: f"{n}".rindex(", ")] + f" of {sorted(below)} with {sorted(needs)}"] += 1
            near[c], depends[c] = frozenset(), frozenset({(str(n.plain[0]), n.axis)})
        else:
            near[c], depends[c] = below | ({n.op} if n.operands else set[str]()), needs
    for r in graph.roots:
        count[f"output of {sorted(near[r])} with {sorted(depends[r])}"] += 1
    return frozenset(count.items())


def configurations(splittable: Sequence[str], most: int) -> tuple[list[frozenset[str]], bool]:
    """Which axes to split: none, each, of up to three each pair; at most ``most``; and whether some are left out."""
    together = 2 if len(splittable) <= _PAIRED else 1
    every = [frozenset(c) for n in range(together + 1) for c in itertools.combinations(splittable, n)]
    return every[:most], len(every) > most or len(splittable) > together
