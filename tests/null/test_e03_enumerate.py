"""Plain enumeration (e03): it finds small equivalences, all that there are, and keeps to its bounds."""

from __future__ import annotations

import time

import numpy as np
import pytest

from cleave.candidate import Candidate
from cleave.errors import CleaveError
from cleave.frontend.trace import trace
from cleave.ir.generic import generic_graph, literals
from cleave.ir.graph import Graph, Term, free
from cleave.verify import verify
from experiments.e03_search.abstract import Abstract, abstract, fits, leaf, monomials
from experiments.e03_search.config import CASES, paper_attention
from experiments.e03_search.enumerate import Bounds, End, Enumeration, enumerated
from experiments.e03_search.fingerprint import fingerprints
from experiments.e03_search.forms import Source, expected_forms, mul, splits_of, total
from experiments.e03_search.identity import identity
from experiments.e03_search.vocabulary import Vocabulary, node_count


def generic(name: str) -> Graph:
    g = CASES[name].build(None)[0]
    return generic_graph(g, literals(g))


def vocabulary(g: Graph, split: str | None = None) -> Vocabulary:
    return Vocabulary(g, None if split is None else Source(g).pieces(split))


def graphs_of(g: Graph, found: Enumeration, split: str | None = None) -> dict[str, Graph]:
    """By identity."""
    pieces = () if split is None else (Source(g).pieces(split),)
    return {identity(made): made for t in found.equal for made in Source(g).form(t, *pieces)}


# ---- what it finds


@pytest.mark.parametrize(
    ("name", "title", "split", "nodes"),
    [
        ("matmul_matmul prefill", "q (k' v)", None, 2),
        ("matmul_matmul prefill", "split t", "t", 3),
        ("matmul prefill", "split k", "k", 2),
        ("matmul_rowsum decode", "x rowsum(w)", None, 2),
        ("lora prefill", "merged weight", None, 3),
        ("swiglu prefill", "split k", "k", 6),
        ("softmax_matmul prefill", "division behind", None, 5),
        ("attention as in the paper", "division behind", None, 5),
        ("attention as in the paper", "split t", "t", 7),
    ],
)
def test_an_expected_form_is_found_with_its_operators_and_not_with_fewer(
    name: str, title: str, split: str | None, nodes: int
) -> None:
    g = generic(name)
    forms = expected_forms(CASES[name].operator, g)[title]
    assert {node_count(form.terms[0]) for form in forms} == {nodes}
    found = enumerated(vocabulary(g, split), Bounds(nodes, 60.0))
    assert (found.complete, found.end) == (nodes, End.COMPLETE)
    assert set(map(identity, forms)) <= graphs_of(g, found, split).keys()
    fewer = enumerated(vocabulary(g, split), Bounds(nodes - 1, 60.0))
    assert graphs_of(g, fewer, split).keys().isdisjoint(map(identity, forms))


def test_a_scale_moves_past_a_product() -> None:
    g = trace(lambda x, r, w: (x * r[:, None]) @ w, name="scaled", x="m k", r="m", w="k n")
    s = Source(g)
    x, r, w, k = s.load("x"), s.load("r"), s.load("w"), s.axis("k")
    (behind,) = s.form(mul(r, total(k, mul(x, w))))
    assert identity(behind) in graphs_of(g, enumerated(Vocabulary(g), Bounds(2, 60.0)))


def test_what_it_finds_is_verified() -> None:
    """Every graph is right in float64 too, at sizes that it was not found at."""
    g = paper_attention()
    origin = generic_graph(g, literals(g))
    made = graphs_of(origin, enumerated(vocabulary(origin, "t"), Bounds(7, 60.0)), "t")
    assert len(made) >= 3
    for form in made.values():
        assert verify(_candidate(form, origin)).passed


def _candidate(form: Graph, origin: Graph) -> Candidate:
    return Candidate("enumerated", form, origin, splits=splits_of(form), assumptions=("finite",))


@pytest.mark.parametrize("split", [None, "t"])
def test_nothing_is_missed_that_building_every_term_finds(split: str | None) -> None:
    """Against the plainest way: close the leaves under every operator, without pruning, and compare all values."""
    g = generic("matmul_matmul prefill")
    v, most = vocabulary(g, split), 2 if split is None else 3
    found = graphs_of(g, enumerated(v, Bounds(most, 60.0)), split)
    values = fingerprints(v, np.random.default_rng(1))
    pieces = () if v.split is None else (v.split,)
    axes = free(v.term)
    equal = {identity(*Source(g).form(t, *pieces)) for t in _every_term(v, most) if free(t) == axes and values.equal(t)}
    assert set(found) == equal


def _every_term(v: Vocabulary, most: int) -> set[Term]:
    known = set(v.leaves)
    for _ in range(most):
        made = set(known)
        for op in v.operators:
            pairs = [(a,) for a in known] if op.shape == "one" else [(a, b) for a in known for b in known]
            for args in pairs:
                if op.axis is None or all(op.axis in free(a) for a in args):
                    made.add(op.make(*args))
        known = {t for t in made if node_count(t) <= most and _in_scope(t)}
    return known


def _in_scope(t: Term) -> bool:
    """A chunk's positions come with its number."""
    return all(a.kind != "inner" or any(o.kind == "outer" for o in free(t)) for a in free(t))


# ---- bounds


def test_it_ends_when_its_time_is_over() -> None:
    began = time.perf_counter()
    found = enumerated(vocabulary(generic("mha d64 prefill")), Bounds(7, 0.2))
    assert (found.end, found.complete < 7) == (End.SECONDS, True)
    assert 0.2 <= found.seconds < time.perf_counter() - began + 0.1
    assert found.graphs > 0


def test_a_graph_is_found_again_by_itself() -> None:
    for name in ("softmax prefill", "swiglu decode", "lora decode"):
        g = generic(name)
        found = enumerated(Vocabulary(g), Bounds(node_count(g.terms[0]), 60.0))
        assert identity(Source(g).form(g.terms[0])[0]) in graphs_of(g, found)


def test_integer_inputs_are_refused() -> None:
    g = trace(lambda x, n: x + n, name="mixed", x="m", n="int32[m]")
    with pytest.raises(CleaveError, match="integer"):
        enumerated(Vocabulary(g), Bounds(2, 1.0))


# ---- reading and pruning


def test_operators_are_those_of_the_graph() -> None:
    v = Vocabulary(generic("softmax_matmul prefill"))
    assert {(op.name, str(op.axis)) for op in v.operators} == {
        ("max", "k"),
        ("exp_diff", "None"),
        ("sum", "k"),
        ("product", "k"),
        ("quotient recip0", "None"),
    }
    assert {(op.name, str(op.axis)) for op in vocabulary(v.graph, "k").operators if op.axis} == {
        (name, piece) for name in ("max", "sum", "product") for piece in ("k_o", "k_i")
    }


def of(name: str, *args: Abstract) -> Abstract:
    made = abstract(name, args)
    assert made is not None
    return made


def test_what_is_no_part_of_the_goal_is_pruned() -> None:
    q, k, v = (leaf(n) for n in range(3))
    scores = of("product", q, k)
    goals = monomials(of("product", of("exp", scores), v))
    assert all(fits(a, goals) for a in (q, k, v, scores, of("exp", scores)))
    assert not any(fits(a, goals) for a in (of("mul", q, v), of("sq", q), of("exp", q), of("max", v)))


def test_rescaled_chunks_have_the_abstract_of_the_whole() -> None:
    """e^(s − m') e^(m' − m) = e^(s − m), and the maximum of maxima is the maximum."""
    s = leaf(0)
    chunk = of("max", s)
    best = of("max", chunk)
    assert best == chunk
    assert of("mul", of("exp_diff", chunk, best), of("exp_diff", s, chunk)) == of("exp_diff", s, of("max", s))
