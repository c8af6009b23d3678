"""The order of candidates: dominated ones and their reasons, passes and live values, a user's own cost."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import Config, nn, ops
from cleave.candidate import Candidate, load_candidates
from cleave.config import SearchLimits
from cleave.cost.graph import Estimate, estimate, graph_cost
from cleave.errors import SearchError
from cleave.ir.dim import Dim, dims
from cleave.ir.index import evaluate, symbols_of
from cleave.ir.text import parse_graph
from cleave.search import search
from cleave.search.rank import never_more, ranked, without_dominated
from tests.null import operators
from tests.null.searched import searched

HERE = Config(isolate=False)


def softmax_product(x: Any, w: Any) -> Any:
    return ops.softmax(x, axis="k") @ w


# ---- cost


def test_passes_over_each_axis_and_live_values() -> None:
    cost = graph_cost(cleave.trace(softmax_product, x="m k", w="k n"))
    assert dict(cost.over) == {"k": 3} and cost.passes == 3
    assert cost.live == 3  # exp(x - max), its sum, the reciprocal of that
    assert str(cost).endswith("3 passes (k 3), 3 live")


def test_live_values_of_a_chain_and_of_a_fan() -> None:
    def chain(x: Any) -> Any:
        return ops.exp(ops.exp(ops.exp(x)))

    def fan(x: Any) -> Any:
        return (ops.exp(x) + ops.tanh(x)) * (ops.exp(2.0 * x) + ops.tanh(2.0 * x))

    assert graph_cost(cleave.trace(chain, x="m")).live == 2
    assert graph_cost(cleave.trace(fan, x="m")).live > 3


def test_what_depends_on_weights_alone_costs_no_work_and_is_read_as_one() -> None:
    g = parse_graph(
        "graph g\ndims m, k, n\ninput x: float16[m, k]\ninput gain: float16[k]\ninput w: float16[k, n]\n"
        "axis m: m\naxis k: k\naxis n: n\n"
        "output out: float16[m, n] @ [m, n] = sum(k, x[m, k] * (gain[k] * w[k, n]))"
    )
    online, offline = graph_cost(g), graph_cost(g, weights=["gain", "w"])
    assert str(online).startswith("work 2*k*m*n + k*n, transcendental 0, traffic k + k*m + k*n + m*n")
    assert str(offline).startswith("work 2*k*m*n, transcendental 0, traffic k*m + k*n + m*n")


def test_nested_sums_cost_the_same_in_either_order() -> None:
    text = (
        "graph g\ndims m, k, n\ninput x: float16[m, k, n]\naxis m: m\naxis k: k\naxis n: n\n"
        "output out: float16[m] @ [m] = "
    )
    one, other = (parse_graph(text + f"sum({a}, sum({b}, x[m, k, n]))") for a, b in ("kn", "nk"))
    assert graph_cost(one).work is graph_cost(other).work


def test_a_cost_is_saved_whole(tmp_path: Path) -> None:
    found = searched(operators.attention().graph)
    found.save(tmp_path / "found.json")
    assert [c.cost for c in load_candidates(tmp_path / "found.json")] == [c.cost for c in found.candidates]


# ---- dominated


def test_never_more_is_certain_at_every_size(rng: np.random.Generator) -> None:
    m, n = dims("m n")
    (k,) = dims("k=64")
    assert never_more(m * n, m * n + n) and never_more(n, m * n) and never_more(m * n, m * n)
    assert not never_more(m * n + n, m * n) and not never_more(m, n) and not never_more(m * 65, m * k)
    assert never_more(m * 64, m * k) and never_more(2 * m * n, m * n * k)

    def drawn() -> Dim:
        return sum((int(c) * t for c, t in zip(rng.integers(0, 4, 4), (m, n, m * n, k), strict=True)), m)

    for _ in range(200):
        a, b = drawn(), drawn()
        if never_more(a, b):
            for _ in range(20):
                at = {s.name: s.value or int(rng.integers(1, 50)) for s in symbols_of(a) | symbols_of(b)}
                assert evaluate(a, at) <= evaluate(b, at)


def test_a_dominated_candidate_is_dropped_with_its_reason() -> None:
    """A split attention that divides before it adds its chunks passes over them twice and multiplies more."""
    found = searched(operators.attention().graph)
    assert [line.split(":")[:2] for line in found.report.dropped] == [["split t 2", " dominated by split t"]]
    assert "1 more passes over t_o" in found.report.dropped[0]
    assert f"dropped: {found.report.dropped[0]}" in found.text()


@pytest.mark.parametrize("name", ["attention", "rms", "qk norm"])
def test_what_was_kept_is_dominated_by_nothing_and_holds_the_graph_as_written(name: str) -> None:
    make = {"attention": operators.attention, "rms": operators.rms_norm_matmul, "qk norm": operators.qk_norm_attention}[
        name
    ]
    candidates = list(searched(make().graph).candidates)
    kept, dropped = without_dominated(candidates)
    assert kept == candidates and not dropped
    assert any(c.graph is c.origin for c in candidates)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_few_candidates_are_the_first_of_many_and_the_graph_as_written(count: int) -> None:
    g = nn.attention()
    names = [c.name for c in searched(g).candidates]
    assert len(names) > 4 and names[0] == "unsplit" and names[-1] == "as written"
    few = search(g, config=replace(HERE, limits=SearchLimits(candidates=count)))
    assert [c.name for c in few.candidates] == [*names[: count - 1], "as written"]


# ---- a user's own cost


def fewest_operations(candidate: Candidate, estimate: Estimate) -> float:
    return estimate.work


def most_reductions(candidate: Candidate, estimate: Estimate) -> float:
    return -float(sum(a.kind == "inner" for a in candidate.graph.axes))


def test_a_users_cost_changes_the_order() -> None:
    g = operators.attention().graph
    usual = searched(g)
    for cost in (fewest_operations, most_reductions):
        found = search(g, config=HERE, cost=cost)
        values = [cost(c, estimated(c)) for c in found.candidates]
        assert values == sorted(values) and not found.report.dropped
        assert any(c.graph is c.origin for c in found.candidates)
    assert usual.candidates[0].name == "unsplit"
    assert ranked(usual.candidates[::-1], cost=lambda c, e: 0)[0].name == "unsplit"
    assert search(g, config=HERE, cost=most_reductions).candidates[0].splits


def estimated(c: Candidate) -> Estimate:
    assert c.cost is not None
    return estimate(c.graph, c.cost, c.splits)


def test_a_users_cost_is_any_real_number() -> None:
    """Beyond floats, negative, infinite: only the order counts."""
    candidates = searched(operators.attention().graph).candidates
    numbers = [-math.inf, -(10**400), -2, np.float32(-1.5), Fraction(1, 3), 10**399, 10**400, math.inf]
    assert len(candidates) <= len(numbers)
    costs = dict(zip([c.name for c in reversed(candidates)], numbers[-len(candidates) :], strict=True))
    assert ranked(candidates, cost=lambda c, e: costs[c.name]) == list(reversed(candidates))


def test_errors_of_a_users_cost_name_it_and_the_candidate() -> None:
    g = operators.rms_norm_matmul().graph

    def divides(candidate: Candidate, estimate: Estimate) -> float:
        return 1 / (estimate.passes - estimate.passes)

    def words(candidate: Candidate, estimate: Estimate) -> Any:
        return "cheap"

    def nothing(candidate: Candidate, estimate: Estimate) -> float:
        return float("nan")

    def array(candidate: Candidate, estimate: Estimate) -> Any:
        return np.ones((3, 3))

    for cost, said in (
        (array, r"the cost function array returned array\(\[\[1.*\]\): a number is expected"),
        (divides, "the cost function divides failed: ZeroDivisionError"),
        (words, "the cost function words returned 'cheap': a number is expected"),
        (nothing, "the cost function nothing returned nan: a number is expected"),
    ):
        with pytest.raises(SearchError, match=said) as error:
            search(g, config=HERE, cost=cost)
        assert str(error.value).startswith("candidate ") and "\n" not in str(error.value)


def test_a_false_step_is_last_whatever_the_cost() -> None:
    candidates = [*searched(operators.rms_norm_matmul().graph).candidates]
    assert ranked(candidates, cost=lambda c, e: 0.0) == ranked(candidates)
