"""Extraction: best-first against every choice on small random e-graphs, bans, and what happens at a limit."""

import itertools

import numpy as np
import pytest

from cleave.search.egraph import EGraph, ENode
from cleave.search.extract import Limits, configurations, extract, is_local
from cleave.search.problem import in_order
from cleave.search.term import AxisRef

NONE: frozenset[str] = frozenset()


def random_egraph(rng: np.random.Generator, size: int) -> tuple[EGraph, list[list[float]]]:
    """Classes of up to three e-nodes over any others, circles included; class 0 is a leaf."""
    classes: list[tuple[ENode, ...]] = [(ENode("Leaf", (0,), ()),)]
    for c in range(1, size):
        members = []
        for number in range(rng.integers(1, 4)):
            operands = tuple(int(k) for k in rng.integers(0, size, rng.integers(1, 3)))
            members.append(ENode(f"F{c}_{number}", (), operands))
        classes.append(tuple(members))
    costs = [[float(x) for x in rng.integers(1, 9, len(members))] for members in classes]
    roots = tuple(dict.fromkeys(int(r) for r in rng.integers(0, size, 2)))
    return EGraph(tuple(classes), (frozenset(),) * size, roots), costs


def is_acyclic(g: EGraph, choice: dict[int, int]) -> bool:
    done: set[int] = set()

    def visit(c: int, around: frozenset[int]) -> bool:
        if c in around:
            return False
        if c not in done:
            if not all(visit(k, around | {c}) for k in g.classes[c][choice[c]].operands):
                return False
            done.add(c)
        return True

    return all(visit(r, frozenset()) for r in g.roots)


def cheapest_by_trying_all(g: EGraph, costs: list[list[float]]) -> float | None:
    best: float | None = None
    for picked in itertools.product(*(range(len(members)) for members in g.classes)):
        choice = dict(enumerate(picked))
        if is_acyclic(g, choice):
            total = sum(costs[c][choice[c]] for c in in_order(g, choice, g.roots))
            best = total if best is None else min(best, total)
    return best


@pytest.mark.parametrize("block", range(6))
def test_best_first_finds_the_cheapest_graph(block: int, rng: np.random.Generator) -> None:
    solved = 0
    for _ in range(40):
        g, costs = random_egraph(rng, int(rng.integers(2, 8)))
        wanted = cheapest_by_trying_all(g, costs)
        result = extract(g, costs, NONE, NONE, Limits())
        assert result.exact
        if wanted is None:
            assert not result.choices
            continue
        first = dict(result.choices[0])
        assert is_acyclic(g, first)
        assert sum(costs[c][first[c]] for c in in_order(g, first, g.roots)) == pytest.approx(wanted)
        solved += 1
    assert solved > 5


@pytest.mark.parametrize("block", range(3))
def test_at_a_limit_a_greedy_graph_stands_in(block: int, rng: np.random.Generator) -> None:
    for _ in range(40):
        g, costs = random_egraph(rng, int(rng.integers(3, 10)))
        full = extract(g, costs, NONE, NONE, Limits(wanted=1))
        cut = extract(g, costs, NONE, NONE, Limits(pops=0, wanted=1))
        assert bool(cut.choices) == bool(full.choices)
        if cut.choices:
            assert not cut.exact and is_acyclic(g, dict(cut.choices[0]))


def softmax_sum(*, local: bool) -> EGraph:
    """sum_i (x * max t) over chunks: the maximum is that of the chunk if ``local``, else over all of t."""
    whole, outer, inner = (AxisRef("t", part) for part in ("whole", "outer", "inner"))
    maximum = [ENode("Red", ("MaxOf", outer), (1,)), ENode("Red", ("MaxOf", whole), (0,))]
    chunk = (ENode("Red", ("MaxOf", inner), (0,)),)
    factor = 1 if local else 2
    classes = (
        (ENode("Leaf", (0,), ()),),
        chunk,
        tuple(maximum),
        (ENode("Mul", (), tuple(sorted((0, factor)))),),
        (ENode("Red", ("Sum", inner), (3,)),),
        (ENode("Red", ("Sum", outer), (4,)), ENode("Red", ("Sum", whole), (3,))),
    )
    return EGraph(classes, (frozenset(),) * len(classes), (5,))


def test_a_split_must_be_chunk_local() -> None:
    costs = lambda g: [[1.0] * len(members) for members in g.classes]  # noqa: E731
    split, names = frozenset({"t"}), frozenset({"t"})
    assert len(extract(softmax_sum(local=True), costs(softmax_sum(local=True)), split, names, Limits()).choices) == 1
    assert not extract(softmax_sum(local=False), costs(softmax_sum(local=False)), split, names, Limits()).choices
    assert not is_local(softmax_sum(local=False), {0: 0, 2: 0, 1: 0, 3: 0, 4: 0, 5: 0}, split)


def test_configurations_pair_a_few_axes() -> None:
    assert configurations(["a", "b"], 16) == ([NONE, frozenset("a"), frozenset("b"), frozenset("ab")], False)
    many, cut = configurations(["a", "b", "c", "d"], 16)
    assert len(many) == 5 and cut
