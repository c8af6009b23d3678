"""How a candidate follows from the input graph: rewrites with rule, place, before and after, checked one by one.

Every match that a rule made during saturation is an edge between two e-nodes of one class. ``Derivations.convert(a,
b)`` turns a term into another of its class: if both are the same e-node, operand by operand (congruence); otherwise
along edges, few and early ones first, where before each edge the term is first made to *be* the recorded match.
Commutations are not listed, an equation that is used twice, or folded back and reopened, is listed once, and each is
evaluated on a small instance.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cleave.rewrite.rule import Rule, Signature
from cleave.rewrite.sexp import Sexp, show
from cleave.search.deadline import NEVER, Deadline
from cleave.search.egraph import EGraph, ENode, enode
from cleave.search.term import COMMUTATIVE, MONOIDS, AxisRef, ETerm, Plain, walk

WORK = 20_000
"""About half a second."""
_DEEPEST = 60
_ROUTES = 6


class NoDerivation(Exception):
    """No chain of recorded matches was found; never leaves this package."""


class Rewrite(NamedTuple):
    """A rewrite at a path of operand numbers below some term."""

    path: tuple[int, ...]
    rule: str
    backward: bool
    before: ETerm
    after: ETerm


@dataclass(frozen=True)
class _Match:
    """A recorded match of a rule: from one side's e-node to the other's."""

    round: int
    rule: Rule
    backward: bool
    source: ENode
    target: ENode
    values: Mapping[str, Plain] = field(hash=False)

    @property
    def weight(self) -> int:
        return 1 + self.round + (3 if self.backward else 0)


@dataclass(frozen=True)
class _Pattern:
    """Of a pattern: its constructor, the arguments that are no terms with their sorts, its operands."""

    op: str
    plain: tuple[tuple[Sexp, str], ...]
    operands: tuple[Sexp, ...]


@dataclass(frozen=True)
class _Rules:
    by_name: Mapping[str, Rule]
    signature: Signature
    read: dict[int, _Pattern] = field(default_factory=dict[int, "_Pattern"])

    def pattern(self, p: tuple[Sexp, ...]) -> _Pattern:
        """A side of a rule or a part of one, read once: rules live as long as this does."""
        if id(p) not in self.read:
            op = show(p[0])
            pairs = list(zip(p[1:], self.signature[op][1], strict=True))
            plain = tuple((a, sort) for a, sort in pairs if sort != "E")
            self.read[id(p)] = _Pattern(op, plain, tuple(a for a, sort in pairs if sort == "E"))
        return self.read[id(p)]


class Derivations:
    """The recorded matches of one e-graph, ready to be searched.

    ``work`` bounds the conversions and routes that are tried for one derivation: no clock, so that the same e-graph
    always gives the same steps. The deadline of ``derive`` only ends what takes far longer than usual.
    """

    def __init__(
        self, graph: EGraph, rules: Sequence[Rule], signature: Signature, sources: Sequence[ETerm], work: int = WORK
    ) -> None:
        self.graph = graph
        self.rules = _Rules({r.name: r for r in rules}, signature)
        self.work = work
        self.left = 0
        self.deadline = NEVER
        self.found: dict[tuple[ETerm, ETerm], tuple[Rewrite, ...]] = {}
        self.classes: dict[ETerm, int] = {}
        self.standing = _representatives(graph, sources)
        self.edges: dict[ENode, list[_Match]] = {}
        for record in graph.records:
            for match in self._matches(record.rule, record.round, record.values):
                self.edges.setdefault(match.source, []).append(match)

    def derive(self, source: ETerm, target: ETerm, deadline: Deadline = NEVER) -> tuple[Rewrite, ...]:
        """Rewrites that turn a source term into a chosen term. Raises NoDerivation or OutOfTime."""
        self.left, self.deadline = self.work, deadline
        return self._convert(source, target, ())

    # ---- matches

    def _matches(self, name: str, number: int, values: Sequence[Plain]) -> Iterator[_Match]:
        rule = self.rules.by_name.get(name)
        if rule is None or name.startswith("comm"):
            return
        bound = dict(zip((v for v, _ in rule.variables), values, strict=True))
        for left, right in itertools.product(self._sides(rule.lhs, bound), self._sides(rule.rhs, bound)):
            if left != right:
                yield _Match(number, rule, False, left, right, bound)
                yield _Match(number, rule, True, right, left, bound)

    def _sides(self, pattern: Sexp, bound: Mapping[str, Plain]) -> Sequence[ENode]:
        """The e-node of a side, if the e-graph (still) has it; of a side that is a variable all of its class."""
        if isinstance(pattern, str):
            c = self._pattern_class(pattern, bound)
            return () if c is None else self.graph.classes[c]
        n = self._pattern_node(pattern, bound)
        return () if n is None else (n,)

    def _pattern_node(self, pattern: Sexp, bound: Mapping[str, Plain]) -> ENode | None:
        """The e-node of a pattern under the classes of its variables, if the e-graph (still) has it."""
        if isinstance(pattern, str):
            return None
        read = self.rules.pattern(pattern)
        known: list[int] = []
        for p in read.operands:
            c = self._pattern_class(p, bound)
            if c is None:
                return None
            known.append(c)
        n = enode(read.op, tuple([_plain(p, sort, bound) for p, sort in read.plain]), known)
        return n if n in self.graph.class_of else None

    def _pattern_class(self, pattern: Sexp, bound: Mapping[str, Plain]) -> int | None:
        if isinstance(pattern, str):
            c = bound[pattern]
            return c if isinstance(c, int) else None
        n = self._pattern_node(pattern, bound)
        return None if n is None else self.graph.class_of[n]

    # ---- terms

    def class_of(self, t: ETerm) -> int:
        for u in walk(t) if t not in self.classes else ():
            if u not in self.classes:
                n = enode(u.op, u.plain, [self.classes[k] for k in u.operands])
                if n not in self.graph.class_of:
                    raise NoDerivation(f"{u} is not in the e-graph")
                self.classes[u] = self.graph.class_of[n]
        return self.classes[t]

    def node_of(self, t: ETerm) -> ENode:
        return enode(t.op, t.plain, [self.class_of(k) for k in t.operands])

    # ---- converting

    def _convert(self, a: ETerm, b: ETerm, stack: tuple[tuple[ETerm, ETerm], ...]) -> tuple[Rewrite, ...]:
        if a is b:
            return ()
        if (a, b) in self.found:
            return self.found[a, b]
        self.left -= 1
        self.deadline.check()
        if (a, b) in stack or len(stack) > _DEEPEST or self.left < 0:
            raise NoDerivation
        inside = (*stack, (a, b))
        source, target = self.node_of(a), self.node_of(b)
        if source == target:
            steps = self._congruence(a, b, inside)
        else:
            steps = self._first(lambda route: self._follow(a, b, route, inside), self._routes(source, target))
        self.found[a, b] = steps
        return steps

    def _first(
        self, attempt: Callable[[tuple[_Match, ...]], tuple[Rewrite, ...]], routes: Iterator[tuple[_Match, ...]]
    ) -> tuple[Rewrite, ...]:
        for route in routes:
            try:
                return attempt(route)
            except NoDerivation:
                continue
        raise NoDerivation

    def _congruence(self, a: ETerm, b: ETerm, stack: tuple[tuple[ETerm, ETerm], ...]) -> tuple[Rewrite, ...]:
        current, steps = self._aligned(a, [self.class_of(k) for k in b.operands])
        for i, (x, y) in enumerate(zip(current.operands, b.operands, strict=True)):
            steps += _below(i, self._convert(x, y, stack))
        return tuple(steps)

    def _aligned(self, t: ETerm, classes: Sequence[int]) -> tuple[ETerm, list[Rewrite]]:
        """The operands of a commutative operator in the order of some classes."""
        if t.op not in COMMUTATIVE or [self.class_of(k) for k in t.operands] == list(classes):
            return t, []
        swapped = ETerm(t.op, t.plain, t.operands[::-1])
        return swapped, [Rewrite((), f"comm-{t.op.lower()}", False, t, swapped)]

    def _routes(self, source: ENode, target: ENode) -> Iterator[tuple[_Match, ...]]:
        """A few chains of matches from one e-node to another, light ones first."""
        order = itertools.count()
        heap: list[tuple[int, int, tuple[ENode, ...], tuple[_Match, ...]]] = [(0, next(order), (source,), ())]
        given = 0
        while heap and given < _ROUTES and self.left > 0:
            self.left -= 1
            self.deadline.check()
            weight, _, seen, route = heapq.heappop(heap)
            if seen[-1] == target:
                given += 1
                yield route
                continue
            for m in self.edges.get(seen[-1], ()):
                if m.target not in seen:
                    heapq.heappush(heap, (weight + m.weight, next(order), (*seen, m.target), (*route, m)))

    def _follow(
        self, a: ETerm, b: ETerm, route: Sequence[_Match], stack: tuple[tuple[ETerm, ETerm], ...]
    ) -> tuple[Rewrite, ...]:
        current, steps = a, list[Rewrite]()
        for m in route:
            source, target = (m.rule.rhs, m.rule.lhs) if m.backward else (m.rule.lhs, m.rule.rhs)
            terms: dict[str, ETerm] = {}
            current, fitted = self._fit(source, current, terms, m, stack)
            for name, sort in m.rule.variables:
                c = m.values[name]
                if sort == "E" and name not in terms and isinstance(c, int):
                    terms[name] = self.standing[c]  # a variable that only the other side has
            after = self._instance(target, terms, m)
            steps += [*fitted, Rewrite((), m.rule.name, m.backward, current, after)]
            current = after
        return (*steps, *self._convert(current, b, stack))

    def _fit(
        self, pattern: Sexp, t: ETerm, terms: dict[str, ETerm], m: _Match, stack: tuple[tuple[ETerm, ETerm], ...]
    ) -> tuple[ETerm, list[Rewrite]]:
        """Make a term an instance of a pattern for a recorded match, rewriting inside it where it must be."""
        if isinstance(pattern, str):
            wanted = terms.setdefault(pattern, t)
            return wanted, list(self._convert(t, wanted, stack))
        n = self._pattern_node(pattern, m.values)
        if n is None:
            raise NoDerivation
        steps: list[Rewrite] = []
        if self.node_of(t) != n:  # the match needs another member of the class
            other = ETerm(n.op, n.plain, tuple(self.standing[k] for k in n.operands))
            steps, t = list(self._convert(t, other, stack)), other
        operands = self.rules.pattern(pattern).operands
        classes = [self._pattern_class(p, m.values) for p in operands]
        t, swap = self._aligned(t, [c for c in classes if c is not None])
        steps += swap
        new: list[ETerm] = []
        for i, (p, u) in enumerate(zip(operands, t.operands, strict=True)):
            fitted, below = self._fit(p, u, terms, m, stack)
            steps += _below(i, below)
            new.append(fitted)
        return ETerm(t.op, n.plain, tuple(new)), steps

    def _instance(self, pattern: Sexp, terms: Mapping[str, ETerm], m: _Match) -> ETerm:
        if isinstance(pattern, str):
            return terms[pattern]
        read = self.rules.pattern(pattern)
        values = tuple(_plain(p, sort, m.values) for p, sort in read.plain)
        return ETerm(read.op, values, tuple(self._instance(p, terms, m) for p in read.operands))


def _below(i: int, steps: Sequence[Rewrite]) -> list[Rewrite]:
    return [s._replace(path=(i, *s.path)) for s in steps]


def _plain(pattern: Sexp, sort: str, bound: Mapping[str, Plain]) -> Plain:
    """An argument of a pattern that is no term."""
    if isinstance(pattern, str):
        if pattern in bound:
            return bound[pattern]
        return float(pattern) if sort == "f64" else int(pattern) if sort == "i64" else pattern.strip('"')
    head = show(pattern[0])
    if head in ("Outer", "Inner"):
        base = _plain(pattern[1], "Ax", bound)
        assert isinstance(base, AxisRef)
        return AxisRef(base.name, "outer" if head == "Outer" else "inner")
    return head


def _representatives(graph: EGraph, sources: Sequence[ETerm]) -> dict[int, ETerm]:
    """A term for each class: that of the source graph, else one over those found before."""
    out: dict[int, ETerm] = {}
    for t in walk(*sources):
        c = graph.find(t)
        if c is not None:
            out.setdefault(c, t)
    changed = True
    while changed:
        changed = False
        for c, members in enumerate(graph.classes):
            ready = next((n for n in members if all(k in out for k in n.operands)), None)
            if c not in out and ready is not None:
                out[c] = ETerm(ready.op, ready.plain, tuple(out[k] for k in ready.operands))
                changed = True
    return out


# ---- replaying


@dataclass
class _Tree:
    """A term that is edited in place: only nodes that a path leads through are taken apart.

    A derivation rewrites every occurrence of a shared term, thousands of them in a layer.
    """

    term: ETerm
    parts: list[_Tree] | None = None

    def below(self, i: int) -> _Tree:
        if self.parts is None:
            self.parts = [_Tree(k) for k in self.term.operands]
        return self.parts[i]

    def at(self, path: Sequence[int]) -> _Tree:
        node = self
        for i in path:
            node = node.below(i)
        return node

    def put(self, term: ETerm) -> None:
        self.term, self.parts = term, None

    def whole(self) -> ETerm:
        if self.parts is not None:
            self.put(ETerm(self.term.op, self.term.plain, tuple(p.whole() for p in self.parts)))
        return self.term

    def place(self, path: Sequence[int]) -> str:
        """A path in words: ``mul.0 / sum[t]``."""
        node, words = self, list[str]()
        for i in path:
            words.append(word(node.term) + (f".{i}" if len(node.term.operands) > 1 else ""))
            node = node.below(i)
        return " / ".join(words)


def replays(source: ETerm, target: ETerm, steps: Sequence[Rewrite], deadline: Deadline = NEVER) -> bool:
    """Whether each place holds what its rewrite says, and the end is the target. Raises OutOfTime."""
    tree = _Tree(source)
    for s in steps:
        deadline.check()
        node = tree.at(s.path)
        if node.whole() is not s.before:
            return False
        node.put(s.after)
    return tree.whole() is target


def equations(source: ETerm, steps: Sequence[Rewrite], deadline: Deadline = NEVER) -> list[tuple[str, Rewrite]]:
    """The different equations of a derivation with the place of first use, in words. Raises OutOfTime."""
    seen: set[tuple[str, frozenset[ETerm]]] = set()
    out: list[tuple[str, Rewrite]] = []
    tree = _Tree(source)
    for s in steps:
        deadline.check()
        key = (s.rule, frozenset((s.before, s.after)))
        if not s.rule.startswith("comm") and key not in seen:
            seen.add(key)
            out.append((tree.place(s.path), s))
        tree.at(s.path).put(s.after)
    return out


def word(t: ETerm) -> str:
    """A term's operator, and the axis that it binds: ``mul``, ``sum[t]``."""
    if t.op == "Red":
        op, axis = t.plain
        assert isinstance(axis, AxisRef)
        return f"{MONOIDS[str(op)]}[{axis.name}{'' if axis.part == 'whole' else '_' + axis.part[0]}]"
    if t.op == "TopK":
        part, axis, _ = t.plain
        assert isinstance(axis, AxisRef)
        return f"top_{part}[{axis.name}]"
    return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(t.op))
