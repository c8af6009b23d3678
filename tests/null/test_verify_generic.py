"""Graphs with large literal extents: their generic form stands for them at small sizes, never alone."""

from __future__ import annotations

import time

import numpy as np
import pytest

from cleave.candidate import Candidate, as_written
from cleave.config import Config
from cleave.frontend import ops
from cleave.frontend.trace import trace
from cleave.ir.axis import axis
from cleave.ir.dim import dim, dims
from cleave.ir.generic import literals
from cleave.ir.graph import Graph, Input, Term, Where, apply, const, fold, graph, load
from cleave.ir.index import compare, index
from cleave.search import search
from cleave.verify import Outcome, References, Step, verify
from cleave.verify.check import small_form
from cleave.verify.generic import generic_candidate
from tests.null.scheduled_candidates import flash_decoding, output
from tests.null.terms import mul

M = dims("m")[0]


def row_sum(columns: int, term) -> Graph:
    i, j = axis("i", M), axis("j", columns)
    x = Input("x", "float16", (M, index(columns)))
    return graph("row", [x], [output("y", fold("sum", j, term(i, j)), (M,), i)])


def test_matmul_with_literal_weights_is_verified_at_once() -> None:
    g = trace(lambda a, b: a @ b, a="m k=4096", b="k n=4096", dtype="float16", name="matmul")
    found = search(g, config=Config(isolate=False), sizes={"m": 64}).candidates
    began = time.process_time()
    known = References(g)
    for bind in ({"m": 64, "k": 4096, "n": 4096}, None):
        verdicts = [verify(c, bind=bind, references=known) for c in found]
        assert all(v.passed for v in verdicts), verdicts
    assert time.process_time() - began < 4.0
    assert "with k, n freed; at the literal sizes at " in verdicts[0].checks[1].detail


@pytest.mark.parametrize("kind", ["names", "numbers"])
def test_folds_and_splits_are_those_of_the_generic_form(kind: str) -> None:
    c = flash_decoding(head=24, value=40).candidate if kind == "numbers" else flash_decoding(ratio="r=32").candidate
    freed = literals(c.origin)
    assert freed.names == (("n24", "n40") if kind == "numbers" else ("r",))
    made = generic_candidate(c, freed)
    assert {s.name for s in made.graph.symbols} >= set(freed.names)
    assert [f.axis.name for f in made.folds] == [f.axis.name for f in c.folds]
    assert verify(made).passed and verify(c).passed


def test_small_literals_stay() -> None:
    assert not literals(flash_decoding().candidate.origin)


@pytest.mark.parametrize("bind", [None, {"m": 3}])
@pytest.mark.parametrize("at", [0, 777, 1499])
def test_what_is_wrong_at_the_literal_size_only_is_caught(bind: dict[str, int] | None, at: int) -> None:
    right = row_sum(1500, lambda i, j: load("x", i, j))

    def planted(i, j) -> Term:
        missing = compare("==", j, at) if at else compare("<", 1000, j)
        return Where(missing, const(0.0), load("x", i, j))

    assert verify(Candidate("planted", row_sum(1500, planted), right), bind=bind).outcome is Outcome.WRONG_VALUE


def test_what_holds_at_the_literal_size_only_passes_and_says_so() -> None:
    """1500 * mean over 1500 columns is their sum, by the number alone."""
    right = row_sum(1500, lambda i, j: load("x", i, j))
    i, j = axis("i", M), axis("j", 1500)
    mean = mul(fold("sum", j, load("x", i, j)), const(1 / 1500), apply("recip", const(1 / 1500)))
    scaled = graph("row", right.inputs, [output("y", mean, (M,), i)])
    assert verify(Candidate("scaled", scaled, right)).passed
    counted = row_sum(1500, lambda i, j: load("x", i, j))
    ones = fold("sum", j, const(1 / 1500))
    mean = mul(fold("sum", j, load("x", i, j)), ones)
    c = Candidate("counted", graph("row", right.inputs, [output("y", mean, (M,), i)]), counted)
    for bind in (None, {"m": 3}):
        verdict = verify(c, bind=bind)
        assert verdict.passed
        assert "at the literal sizes only: otherwise y at" in verdict.checks[1].detail


def test_offsets_that_are_literals_have_no_generic_form() -> None:
    """The second half of a row of 64, read at 32 + j: no other extent fits."""
    g = trace(lambda x: ops.softmax(x[:, 32:], axis=-1), x="m 64", name="half")
    verdict = verify(as_written(g))
    assert verdict.passed and "at the literal sizes only" in verdict.checks[1].detail


def test_sizes_too_large_to_try_are_said() -> None:
    i, j, k = axis("i", M), axis("j", 1 << 14), axis("k", dim("k=16384"))
    x = Input("x", "float16", (M, index(1 << 14), dim("k=16384")))
    once = fold("max", k, fold("sum", j, apply("sq", load("x", i, j, k))))
    c = as_written(graph("wide", [x], [output("y", once, (M,), i)]))
    form = small_form(c, References(c.origin), np.random.default_rng(0), bound=False)
    assert form.check.outcome is Outcome.PASSED
    assert "not tried: a single output point needs too much memory" in form.check.detail
    assert verify(c).checks[1].step is Step.SMALL
