"""Programs for egglog: what the e-graph holds before any rule has run."""

from __future__ import annotations

import numpy as np

import cleave
from cleave import Config, Rulebook, ops
from cleave.ir.graph import Graph, Output, Term, apply, const, graph, load
from cleave.ir.text import parse_graph
from cleave.rewrite.parser import Session
from cleave.search import Stop, search
from cleave.search.egraph import read_snapshot
from cleave.search.encode import encode
from cleave.search.term import walk

LANGUAGE = Rulebook.installed().only()


def test_every_term_is_a_class_of_its_own(rng: np.random.Generator) -> None:
    """Whatever is used how often: names of terms never meet those that egglog makes of them."""
    for length in (*range(8, 18), *rng.integers(18, 150, 20)):
        encoding = encode(program(int(length), rng), (), LANGUAGE.signature)
        with Session(LANGUAGE.text() + encoding.program) as session:  # a new one: egglog counts the names that it makes
            found = read_snapshot(session.serialized().encode(), LANGUAGE.signature, encoding.roots)
        assert sorted(map(len, found.classes)) == [1] * len([*walk(*encoding.roots)])


def program(length: int, rng: np.random.Generator) -> Graph:
    """Sums and products, of the term before and of one that most of them use."""
    g = parse_graph("graph g\ndims m\ninput x: float32[m]\naxis m: m\noutput out: float32[m] @ [m] = x[m]")
    made: list[Term] = [load("x", *g.axes), const(0.5)]
    made.append(apply("mul", *made))
    while len(made) < length:
        other = made[int(rng.choice([1, 1, 1, rng.integers(len(made))]))]
        made.append(apply(("add", "mul")[len(made) % 2], made[-1], other))
    (out,) = g.outputs
    return graph("g", g.inputs, [Output("out", out.dtype, out.shape, out.indices, made[-1])])


def test_a_number_that_is_used_eleven_times() -> None:
    def chain(x):
        for number in range(11):
            x = x + 0.5 if number % 2 else x * 0.5
        return ops.tanh(x)

    assert search(cleave.trace(chain, x="m"), config=Config(isolate=False)).report.stop is Stop.SATURATED
