"""Literal extents: folds and steps are tried on the generic form, at small sizes."""

from __future__ import annotations

import time

import pytest

from cleave import ops
from cleave.config import Config
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.search import Found, search
from cleave.search.small import MOST_ELEMENTS, narrow_form, small_form

QUICK = Config(isolate=False)


def attention(head: str, keys: str, value: str) -> Graph:
    def graph(q, k, v):
        p = ops.softmax(ops.einsum("h s d, h t d -> h s t", q, k) * 0.125, axis="t")
        return ops.einsum("h s t, h t e -> h s e", p, v)

    return trace(graph, q=f"h s {head}", k=f"h {keys} {head}", v=f"h {keys} {value}", name="attention")


def folds(found: Found) -> list[tuple[str, list[tuple[str, int, bool]]]]:
    """Of each candidate: the kind of axis, the number of members, whether it absorbs."""
    return [(c.name, [(f.axis.kind, len(f.members), f.absorbing) for f in c.folds]) for c in found.candidates]


@pytest.mark.parametrize(("columns", "inner"), [("n=14336", "k=4096"), ("n=14336", "k")])
def test_large_weights_cost_a_search_nothing(columns: str, inner: str) -> None:
    g = trace(lambda x, a, b: ops.silu(x @ a) * (x @ b), x=f"m {inner}", a=f"{inner} {columns}", b=f"{inner} {columns}")
    began = time.process_time()
    found = search(g, config=QUICK)
    assert time.process_time() - began < 4.0  # 0.1 s; a minute with an instance of 4096 x 14336
    split = found.pick(split="k")
    assert split.steps and not any("false" in note or "no small" in note for note in split.notes)


def test_folds_are_those_of_free_extents() -> None:
    free = [of for _, of in folds(search(attention("d=64", "t", "e=64"), config=QUICK))]
    assert any(len(of) == 2 for of in free)
    for literal in (("d=64", "t=4096", "e=64"), ("64", "4096", "128")):
        assert [of for _, of in folds(search(attention(*literal), config=QUICK))] == free


def test_a_literal_without_a_name_is_split_in_the_generic_form() -> None:
    g = trace(lambda x: ops.sum(ops.square(x), axis=-1), x="m 6000", name="rows")
    assert small_form(g).freed.names == ("n6000",)
    split = search(g, config=QUICK).pick(split="n6000")
    assert split.steps and not split.notes


def test_without_a_generic_form_the_graph_itself_is_tried_where_memory_allows() -> None:
    def half(start: int, width: int) -> Graph:
        return trace(lambda x: ops.sum(ops.exp(x[:, start:]), axis=-1), x=f"m {width}", name="half")

    assert small_form(half(32, 64)).instances and not small_form(half(32, 64)).freed
    assert not small_form(half(1 << 22, 1 << 23)).instances
    found = search(half(1 << 22, 1 << 23), config=QUICK)
    assert any("no small instance" in note for note in found.report.notes)


@pytest.mark.parametrize("last", ["t", "t=4096"])
def test_over_too_many_axes_even_narrow_instances_are_none(last: str) -> None:
    letters = "a b c d e f g h i j k l m n o p q r s"
    g = trace(lambda x: ops.sum(ops.exp(x), "t"), x=f"{letters} {last}")
    began = time.process_time()
    assert not small_form(g).instances and not narrow_form(g).instances
    assert time.process_time() - began < 2.0  # arrays of 60 million elements took 8 s
    few = trace(lambda x: ops.sum(ops.exp(x), "t"), x=f"a b c d {last}")
    assert all(x.size <= MOST_ELEMENTS for at in small_form(few).instances for x in at.inputs.values())
    assert small_form(few).instances and narrow_form(few).instances
