"""Trouble with searches: growth without end, and results that change from run to run."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import reduce
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import Config, ops
from cleave.config import SearchLimits
from cleave.ir.interp import interpret
from cleave.ir.text import parse_graph
from cleave.search import Stop, search
from tests.cases.reference import f64, rn, softmax
from tests.cases.stages import run_case

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.mark.parametrize("kind", ["sum of tensors", "chain of matmuls"])
def test_e03_many_equal_forms_end_at_a_limit_that_is_named(kind: str, rng: np.random.Generator) -> None:
    def total(**t: Any) -> Any:
        return reduce(lambda a, b: a + b, t.values())

    def chain(**t: Any) -> Any:
        return reduce(lambda a, b: a @ b, t.values())

    if kind == "sum of tensors":
        g = cleave.trace(total, name="total", **dict.fromkeys((f"t{i}" for i in range(12)), "3 3"))
        x = {f"t{i}": rn(rng, 3, 3) for i in range(12)}
        expected = sum(f64(v) for v in x.values())
    else:
        g = cleave.trace(chain, name="chain", **{f"t{i}": f"n{i} n{i + 1}" for i in range(9)})
        x = {f"t{i}": rn(rng, 2 + i, 3 + i) for i in range(9)}
        expected = reduce(lambda a, b: a @ b, map(f64, x.values()))
    limits = SearchLimits(nodes=2_000, seconds=10.0)
    found = search(g, config=Config(limits=limits))
    assert found.report.stop in (Stop.SATURATED, Stop.NODES, Stop.SECONDS, Stop.ROUNDS)
    assert str(found.report.stop) in found.report.text()
    if found.report.stop is not Stop.SATURATED:
        assert found.report.rounds[-1].nodes <= 10 * limits.nodes
    assert any(not c.steps for c in found.candidates)
    for c in found.candidates:
        if not c.splits:
            np.testing.assert_allclose(interpret(c.graph, x)["out"], expected, rtol=1e-9)


def gated(x: Any, w1: Any, w3: Any, w2: Any) -> Any:
    return (ops.silu(x @ w1) * (x @ w3)) @ w2


def test_e07_the_gated_block_as_written_is_always_a_candidate_and_compiles(rng: np.random.Generator) -> None:
    g = cleave.trace(gated, x="m k", w1="k n", w3="k n", w2="n e")
    x = {"x": rn(rng, 3, 8, s=0.5), "w1": rn(rng, 8, 6, s=0.3), "w3": rn(rng, 8, 6, s=0.3), "w2": rn(rng, 6, 8, s=0.3)}
    a = f64(x["x"]) @ f64(x["w1"])
    expected = (a / (1 + np.exp(-a)) * (f64(x["x"]) @ f64(x["w3"]))) @ f64(x["w2"])
    ran = run_case(g, [(x, {"out": expected})])
    assert any(c.graph == g and not c.steps for c in ran.found.candidates)
    assert ran.schedules


@pytest.mark.parametrize(
    "limits",
    [SearchLimits(rounds=1), SearchLimits(nodes=1), SearchLimits(seconds=1e-6), SearchLimits(candidates=1)],
    ids=["rounds", "nodes", "seconds", "candidates"],
)
def test_e07_the_block_as_written_is_a_candidate_at_any_limit(limits: SearchLimits) -> None:
    g = cleave.trace(gated, x="m k", w1="k n", w3="k n", w2="n e")
    found = search(g, config=Config(limits=limits))
    assert any(c.graph == g and not c.steps for c in found.candidates)


PROGRAM = """
import cleave
from cleave import ops
def program(q, k, v):
    return ops.einsum("st,te->se", ops.softmax(ops.einsum("sd,td->st", q, k)), v)
found = cleave.search(cleave.trace(program, q="s d=8", k="t d", v="t e=8"))
for c in found.candidates:
    print(c.name, c.text(), c.cost, *c.steps, sep="\\n")
"""


def test_e06_the_same_candidates_in_the_same_order(rng: np.random.Generator) -> None:
    outputs = {_fresh(PROGRAM, {"PYTHONHASHSEED": seed}) for seed in ("1", "2", "77")}
    assert len(outputs) == 1
    assert "split t" in outputs.pop()

    def program(q: Any, k: Any, v: Any) -> Any:
        return ops.einsum("st,te->se", ops.softmax(ops.einsum("sd,td->st", q, k)), v)

    x = {"q": rn(rng, 4, 8), "k": rn(rng, 5, 8), "v": rn(rng, 5, 8)}
    got = interpret(cleave.trace(program, q="s d=8", k="t d", v="t e=8"), x)["out"]
    np.testing.assert_allclose(got, softmax(f64(x["q"]) @ f64(x["k"]).T) @ f64(x["v"]), rtol=1e-9)


def _fresh(program: str, variables: dict[str, str]) -> str:
    """What a program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_chain_of_as_many_operations_as_are_allowed(rng: np.random.Generator) -> None:
    """Steps that fill one line after another of the text, through every stage."""

    def chain(x: Any) -> Any:
        for number in range(200):
            x = ops.tanh(x) if number % 2 else x * 1.5
        return x

    g = cleave.trace(chain, x="m n", dtype="float32")
    x = rn(rng, 3, 5).astype(np.float32)
    expected = reduce(lambda y, number: np.tanh(y) if number % 2 else y * 1.5, range(200), f64(x))
    run_case(g, [({"x": x}, {"out": expected})])
    with pytest.raises(cleave.CleaveError, match="201 operations in one another: allowed are 200"):
        search(parse_graph(g.text().replace("= x[m, n]", "= exp(x[m, n])").replace("(x[m, n]", "(exp(x[m, n])")))
