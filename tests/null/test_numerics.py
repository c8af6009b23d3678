"""Rounding errors of candidates beside those of the graph as written."""

from __future__ import annotations

import time

import numpy as np
import pytest

from cleave import nn
from cleave.candidate import Candidate, as_written
from cleave.config import Config
from cleave.ir.axis import axis
from cleave.ir.dim import dims
from cleave.ir.graph import Graph, IndexValue, Input, Term, apply, const, fold, graph, load
from cleave.ir.interp import interpret
from cleave.ir.numerics import Numerics, Rounding
from cleave.pipeline.show import numerics_notes
from cleave.search import search
from tests.null.operators import ATTENTION, OTHERS
from tests.null.scheduled_candidates import flash_decoding, output, rmsnorm_matmul
from tests.null.terms import mul

SMALLEST = 2.0**-24


def errors(c: Candidate) -> Numerics:
    found = c.numerics
    assert found is not None
    return found


def test_flash_decoding_is_as_exact_as_attention() -> None:
    for c in (flash_decoding().candidate, flash_decoding(causal=True).candidate):
        found = errors(c)
        assert SMALLEST / 4 < found.origin.float32 < 1e-3
        assert found.graph.float32 < 4 * found.origin.float32
        assert found.graph.float16 < 1.5 * found.origin.float16 < 2e-3


def variance(*, expanded: bool) -> Graph:
    """Mean of the squared differences from the mean, or mean of squares less square of the mean."""
    m, k = dims("m k")
    i, j = axis("i", m), axis("j", k)
    x = load("X", i, j)

    def mean(t: Term) -> Term:
        return mul(fold("sum", j, t), apply("recip", IndexValue(k)))

    apart = mean(apply("sq", apply("sub", x, mean(x))))
    joined = apply("sub", mean(apply("sq", x)), apply("sq", mean(x)))
    return graph("variance", [Input("X", "float32", (m, k))], [output("Y", joined if expanded else apart, (m,), i)])


def test_a_variance_in_one_pass_shows_its_cancellation() -> None:
    found = errors(Candidate("expanded", variance(expanded=True), variance(expanded=False)))
    assert found.graph.float32 > 30 * found.origin.float32
    assert "relative error in float32: " in str(found) and "as written" in str(found)
    assert found.warning.startswith("rounding does much more harm here: relative error ")
    assert "in float32, " in found.warning and f"warning: {found.warning}" in str(found)
    assert found.as_dict()["warning"] == found.warning


@pytest.mark.parametrize(
    ("own", "written", "warned"),
    [
        (Rounding(3e-6, 5e-4), Rounding(1e-8, 5e-4), ""),  # far below what storing an output costs
        (Rounding(2e-4, 5e-4), Rounding(3e-5, 5e-4), ""),
        (Rounding(2e-4, 5e-4), Rounding(1e-5, 5e-4), "2.0e-04 in float32, 1.0e-05 as written"),
        (Rounding(1e-7, 2e-3), Rounding(1e-7, 6e-4), "2.0e-03 in float16, 6.0e-04 as written"),
        (Rounding(np.inf, np.inf), Rounding(1e-7, 5e-4), "inf in float32, 1.0e-07 as written; inf in float16"),
        (Rounding(np.inf, np.inf), Rounding(np.inf, np.inf), ""),
    ],
)
def test_much_worse_is_a_matter_of_size_and_of_ratio(own: Rounding, written: Rounding, warned: str) -> None:
    found = Numerics(own, written)
    assert warned in found.warning and bool(found.warning) == bool(warned)


def test_notes_name_the_candidates_that_rounding_harms() -> None:
    worse = Candidate("expanded", variance(expanded=True), variance(expanded=False))
    notes = numerics_notes([as_written(variance(expanded=False)), worse])
    assert len(notes) == 1 and notes[0].startswith("candidate expanded: rounding does much more harm here")


def test_a_candidate_without_a_value_has_no_errors() -> None:
    """It reads beyond its input: a matter of verification, and no end of a program that only prints."""
    m, i = dims("m"), axis("i", dims("m")[0])
    inputs = [Input("X", "float32", tuple(m))]
    made = [graph("g", inputs, [output("Y", load("X", at), tuple(m), i)]) for at in (i.position + 1, i.position)]
    assert Candidate("beyond", *made).numerics is None


def test_the_written_graph_has_the_errors_of_the_written_graph() -> None:
    found = errors(as_written(rmsnorm_matmul().candidate.graph))
    assert found.graph == found.origin
    assert found == errors(as_written(rmsnorm_matmul().candidate.graph))


@pytest.mark.parametrize("name", [name for name, _ in (*ATTENTION, *OTHERS)])
def test_every_operator_has_finite_errors(name: str) -> None:
    """Ragged and paged ones too: instances are found on which something is stored."""
    found = errors(as_written(dict((*ATTENTION, *OTHERS))[name]().graph))
    assert 0 < found.graph.float32 < 1e-3 and 0 < found.graph.float16 < 2e-3


def test_overflow_is_infinite() -> None:
    (m,), i = dims("m"), axis("i", dims("m")[0])
    x = load("X", i)
    huge = apply("exp", mul(apply("add", apply("sq", x), const(1.0)), const(100.0)))
    same = mul(huge, apply("recip", huge))
    inputs = [Input("X", "float32", (m,))]
    one = graph("one", inputs, [output("Y", apply("exp", mul(x, const(0.0))), (m,), i)])
    found = errors(Candidate("overflow", graph("g", inputs, [output("Y", same, (m,), i)]), one))
    assert found == Numerics(Rounding(np.inf, np.inf), Rounding(0.0, 0.0))


def test_what_search_finds_is_measured_in_no_time() -> None:
    g, sizes = nn.instantiate("attention", {"h": 32, "kv_heads": 8, "d": 128}, causal=True, lse=True)
    split = search(g, config=Config(isolate=False), sizes={**sizes, "b": 1, "s": 1, "t": 4096}).pick(split="t")
    began = time.process_time()
    found = errors(split)
    assert time.process_time() - began < 1.0
    assert found.graph.float32 < 4 * found.origin.float32
    assert split.numerics is found


def test_sums_are_taken_in_the_precision_asked_for(rng: np.random.Generator) -> None:
    g = rmsnorm_matmul().candidate.graph
    inputs = {i.name: rng.normal(size=shape) for i, shape in zip(g.inputs, ((5, 300), (300, 7)), strict=True)}
    exact, single = (interpret(g, inputs, precision=p)["Y"] for p in ("float64", "float32"))
    assert 1e-9 < np.abs(exact - single).max() / np.abs(exact).max() < 1e-5
    assert np.array_equal(single, single.astype(np.float32))


@pytest.mark.parametrize(("count", "measured"), [(12, True), (20, False)])
def test_inputs_over_many_axes_are_measured_where_memory_takes_them(*, count: int, measured: bool) -> None:
    letters = "abcdefghijklmnopqrst"[:count]
    sizes = dims(" ".join(f"n_{letter}" for letter in letters))
    axes = [axis(letter, size) for letter, size in zip(letters, sizes, strict=True)]
    total: Term = load("X", *axes)
    for x in axes[:-1]:
        total = fold("sum", x, total)
    y = output("Y", total, sizes[-1:], axes[-1])
    assert (as_written(graph("many", [Input("X", "float32", tuple(sizes))], [y])).numerics is not None) == measured
