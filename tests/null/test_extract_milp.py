"""Extraction against mixed-integer programming (HiGHS): the same optimum, with shared terms and circles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from cleave.search.egraph import EGraph, ENode
from cleave.search.extract import Limits, extract
from cleave.search.problem import in_order, is_acyclic
from tests.null import operators
from tests.null.searched import searched

NO_AXES: frozenset[Any] = frozenset()
NONE: frozenset[str] = frozenset()


def random_egraph(rng: np.random.Generator, size: int) -> tuple[EGraph, list[list[float]]]:
    """Classes of up to three e-nodes, mostly over lower classes, which share, sometimes over any, which closes circles;
    class 0 is a leaf.
    """
    classes: list[tuple[ENode, ...]] = [(ENode("Leaf", (0,), ()),)]
    for c in range(1, size):
        members = []
        for number in range(rng.integers(1, 4)):
            among = size if rng.random() < 0.25 else c
            operands = tuple(int(k) for k in rng.integers(0, among, rng.integers(1, 3)))
            members.append(ENode(f"F{c}_{number}", (), operands))
        classes.append(tuple(members))
    costs = [[float(x) for x in rng.integers(1, 9, len(members))] for members in classes]
    return EGraph(tuple(classes), (NO_AXES,) * size, (size - 1, size // 2)), costs


def optimum(g: EGraph, costs: list[list[float]]) -> float | None:
    """The least total price of a graph without circles: one binary an e-node, and a height for each class.

    An e-node that is chosen chooses one of each operand's class, and stands higher than it.
    """
    nodes = [(c, i) for c, members in enumerate(g.classes) for i in range(len(members))]
    number = {node: n for n, node in enumerate(nodes)}
    count, classes = len(nodes), len(g.classes)
    rows: list[tuple[dict[int, float], float, float]] = []
    for c, members in enumerate(g.classes):
        rows.append(({number[c, i]: 1.0 for i in range(len(members))}, float(c in g.roots), 1.0))
    for (c, i), n in number.items():
        for k in dict.fromkeys(g.classes[c][i].operands):
            chosen = {number[k, j]: 1.0 for j in range(len(g.classes[k]))}
            if k == c:
                rows.append(({n: 1.0}, 0.0, 0.0))
                continue
            rows.append(({**chosen, n: chosen.get(n, 0.0) - 1.0}, 0.0, np.inf))
            rows.append(({count + c: 1.0, count + k: -1.0, n: -float(classes)}, 1.0 - classes, np.inf))
    matrix = lil_array((len(rows), count + classes))
    for r, (entries, _, _) in enumerate(rows):
        for column, value in entries.items():
            matrix[r, column] = value
    price = np.concatenate([[costs[c][i] for c, i in nodes], np.zeros(classes)])
    found = milp(
        price,
        constraints=LinearConstraint(matrix.tocsr(), [low for _, low, _ in rows], [high for _, _, high in rows]),
        bounds=Bounds(0.0, np.concatenate([np.ones(count), np.full(classes, float(classes))])),
        integrality=np.concatenate([np.ones(count), np.zeros(classes)]),
    )
    return float(found.fun) if found.success else None


def total(g: EGraph, costs: list[list[float]], choice: dict[int, int]) -> float:
    assert is_acyclic(g, choice)
    return sum(costs[c][choice[c]] for c in in_order(g, choice, g.roots))


@pytest.mark.parametrize("block", range(5))
def test_the_first_graph_costs_what_integer_programming_finds(block: int, rng: np.random.Generator) -> None:
    solved = 0
    for _ in range(12):
        g, costs = random_egraph(rng, int(rng.integers(8, 26)))
        wanted = optimum(g, costs)
        found = extract(g, costs, NONE, NONE, Limits(pops=200_000, wanted=1))
        assert bool(found.choices) == (wanted is not None)
        if wanted is not None and found.exact:
            assert total(g, costs, dict(found.choices[0])) == pytest.approx(wanted)
            solved += 1
    assert solved >= 6


def test_shared_terms_count_once() -> None:
    """f(a, a) with a dear, against g(b, c) with both a little cheaper than a: sharing decides."""
    leaf = (ENode("Leaf", (0,), ()),)
    classes = (
        leaf,
        (ENode("A", (), (0,)),),
        (ENode("B", (), (0,)),),
        (ENode("C", (), (0,)),),
        (ENode("F", (), (1, 1)), ENode("G", (), (2, 3))),
    )
    g = EGraph(classes, (frozenset(),) * 5, (4,))
    costs = [[0.0], [5.0], [4.0], [4.0], [1.0, 1.0]]
    found = extract(g, costs, NONE, NONE, Limits(wanted=1))
    assert found.exact and found.choices[0][4] == 0
    assert total(g, costs, dict(found.choices[0])) == optimum(g, costs) == 6.0


@pytest.mark.parametrize("name", ["attention", "rms norm", "swiglu", "qk norm"])
def test_the_e_graphs_of_operators(name: str, rng: np.random.Generator) -> None:
    """Saturated e-graphs of up to 125 e-nodes, prices drawn at random."""
    make = {
        "attention": operators.attention,
        "rms norm": operators.rms_norm_matmul,
        "swiglu": operators.swiglu,
        "qk norm": operators.qk_norm_attention,
    }[name]
    g = searched(make().graph).egraph
    for _ in range(3):
        costs = [[float(x) for x in rng.integers(1, 30, len(members))] for members in g.classes]
        found = extract(g, costs, NONE, NONE, Limits(pops=200_000, wanted=1))
        assert found.exact
        assert total(g, costs, dict(found.choices[0])) == pytest.approx(optimum(g, costs))
