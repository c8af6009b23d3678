"""The best known forms of every workload are among the first four candidates; splits and softmax are as they should be.

The forms are graphs written by hand (``experiments.e03_search.forms``), compared by identity.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import cleave
from cleave import Config, ops
from cleave.config import Ablation
from cleave.ir.graph import Map, Reduce, Term, reductions, walk
from cleave.ir.index import show_pred
from cleave.nn.workloads import NINE
from cleave.search import Found, Stop, reducibility_table, search
from experiments.e03_search.config import CASES, FIRST
from experiments.e03_search.forms import EXPECTED, UNSAFE, Forms, Source, expected_forms
from experiments.e03_search.identity import ranks

QUICK = Config(isolate=False)
FORMS = [name for name, case in CASES.items() if case.operator in EXPECTED and "d128" not in name]
"""Layers have no forms; heads of 64 and of 128 have the same ones."""


@cache
def found(name: str, config: Config = QUICK) -> Found:
    graph, dims = CASES[name].build(None)
    if config.ablation == Ablation():
        config = replace(config, ablation=CASES[name].ablation)
    return search(graph, config=config, sizes=dims, weights=CASES[name].weights)


def places(name: str, config: Config = QUICK, forms: Forms | None = None) -> dict[str, int | None]:
    graph, _ = CASES[name].build(None)
    expected = expected_forms(CASES[name].operator, graph) if forms is None else forms
    assert expected
    return ranks(expected, [c.graph for c in found(name, config).candidates])


def late(at: dict[str, int | None]) -> dict[str, int | None]:
    return {title: place for title, place in at.items() if place is None or place > FIRST}


def test_all_of_the_nine_have_forms() -> None:
    assert {str(w) for w in NINE if "d128" not in w.name} <= set(FORMS)


@pytest.mark.parametrize("name", FORMS)
def test_expected_forms_are_among_the_first_four(name: str) -> None:
    assert found(name).report.stop is Stop.SATURATED
    assert not late(places(name))


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.operator in UNSAFE])
def test_forms_that_may_cancel_come_with_unsafe_rules_only(name: str) -> None:
    forms = UNSAFE[CASES[name].operator](Source(CASES[name].build(None)[0]))
    assert set(places(name, forms=forms).values()) == {None}
    assert not late(places(name, Config(unsafe=True, isolate=False), forms))


def test_with_reassociation_off_the_order_of_products_stays() -> None:
    at = places("matmul_matmul decode", Config(ablation=Ablation(reassociation=False), isolate=False))
    assert at["q (k' v)"] is None
    assert at["split t"] is not None and at["split t"] <= FIRST


# ---- reducibility

BY_HAND = {
    "matmul": {"k": "split"},
    "matmul_matmul": {"d": "split", "t": "split"},
    "matmul_rowsum": {"k": "split", "n": "split"},
    "swiglu": {"k": "split"},
    "rmsnorm_matmul": {"k": "split"},
    "mha": {"d": "split", "t": "split"},
    "gqa": {"d": "split", "t": "split"},
    "mqa": {"d": "split", "t": "split"},
    "mla": {"d": "split", "t": "split"},
    "mla_decode": {"p": "split", "r": "reduced, and an axis of the output", "t": "split"},
}
"""What a person writes next to the axes of each operator; those that are not here index the output."""


@pytest.mark.parametrize("workload", NINE, ids=str)
def test_derived_reducibility_is_what_one_writes_by_hand(workload: Any) -> None:
    rows = reducibility_table(workload.build()[0]).rows
    derived = {
        row.axis.name: "split" if row.splittable else "reduced, and an axis of the output"
        for row in rows
        if row.reducible
    }
    assert derived == BY_HAND[workload.operator]
    assert all("output" in row.why for row in rows if not row.splittable)


# ---- splits


@pytest.mark.parametrize("name", FORMS)
def test_split_counts_are_symbols_bound_neither_to_a_divisor_nor_to_a_size(name: str) -> None:
    """The only thing known of a count S and a chunk length C is S * C >= extent."""
    for c in found(name).candidates:
        for split in c.splits:
            symbols = {s.name: s for s in c.graph.symbols}
            for each in (split.count, split.chunk):
                s = symbols[each]
                assert (s.value, s.minimum, s.maximum, s.multiple) == (None, 1, None, 1)
            assert split.outer.extent.atom == symbols[split.count]
            stated = [p for p in c.graph.constraints if split.count in show_pred(p) or split.chunk in show_pred(p)]
            assert len(stated) == 1 and show_pred(stated[0]).endswith(f"<= dim.{split.chunk}*dim.{split.count}")
            assert {split.count, split.chunk}.isdisjoint(s.name for s in c.origin.symbols)


# ---- softmax


@pytest.mark.parametrize("name", [n for n in FORMS if CASES[n].operator not in ("linear_attention", "paper_attention")])
def test_softmax_forms_are_safe(name: str) -> None:
    """No exponential but of a difference to the maximum of what it exponentiates, or of maxima of chunks."""
    for c in found(name).candidates:
        for t in walk(*c.graph.terms):
            assert not (isinstance(t, Map) and t.op == "exp")
            if isinstance(t, Map) and t.op == "exp_diff":
                a, m = t.args
                assert isinstance(m, Reduce) and m.op == "max" and is_maximum_of(m, a), c.name


def is_maximum_of(m: Term, a: Term) -> bool:
    """Whether m is the maximum of a, over one axis or the pieces of one."""
    return any(r.body is a for r in (m, *reductions(m)) if isinstance(r, Reduce) and r.op == "max")


def test_softmax_without_a_maximum_becomes_the_safe_form() -> None:
    def unsafe(a: Any) -> Any:
        e = ops.exp(a)
        return e / ops.sum(e, "n", keepdims=True)

    g = cleave.trace(unsafe, a="m n", dtype="float16")
    safe = cleave.trace(lambda a: ops.softmax(a, "n"), a="m n", dtype="float16")
    assert cleave.equal(g, safe, config=QUICK)
    assert "shift-exp" in {s.rule for s in cleave.equal(g, safe, config=QUICK).steps}
