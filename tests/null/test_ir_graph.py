"""Graphs: hash-consing, canonical names, substitution, and what the checker refuses."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleave.errors import GraphError
from cleave.ir.axis import Axis, axis, split_axis
from cleave.ir.dim import dims
from cleave.ir.graph import (
    Cast,
    Const,
    Graph,
    IndexValue,
    Input,
    Output,
    Place,
    Reduce,
    Ref,
    Term,
    Where,
    apply,
    at,
    children,
    const,
    fold,
    free,
    graph,
    load,
    rebuild,
    reductions,
    replace,
    substitute_axes,
    tensor_key,
    walk,
)
from cleave.ir.hash import graph_hash
from cleave.ir.index import BoolRead, Index, Position, index, read, substitute, substitute_pred
from cleave.ir.text import parse_graph
from cleave.testing import graphs

N, M, S, T, D = dims("n m s t d")
I, J, K = Axis("i", N), Axis("j", N), Axis("k", M)  # noqa: E741 the usual names of axes
X = Input("x", "float32", (N, N))
A = Input("a", "float32", (N, M))


def stored(name: str, term: Term, *axes: Axis) -> Output:
    return Output(name, "float32", tuple(a.extent for a in axes), tuple(a.position for a in axes), term)


def attention(query: Axis, key: Axis, head: Axis, column: Axis, *, key_input: str = "k") -> Graph:
    scores = fold("sum", head, apply("mul", load("q", query, head), load(key_input, key, head)))
    weights = apply("exp_diff", scores, fold("max", key, scores))
    total = fold("sum", key, weights)
    out = fold("sum", key, apply("mul", apply("mul", weights, apply("recip0", total)), load("v", key, column)))
    inputs = [Input("q", "float16", (S, D)), Input("k", "float16", (T, D)), Input("v", "float16", (T, D))]
    used = [i for i in inputs if i.name in {"q", "v", key_input}]
    return graph("attention", used, [stored("out", out, query, column)])


# ---- one object for one meaning


def test_equal_terms_are_one_object() -> None:
    assert apply("mul", load("x", I, J), const(2)) is apply("mul", load("x", I, J), Const(2.0))
    assert const(0.0) is not const(-0.0)
    assert const(float("nan")) is const(float("nan"))
    assert load("x", I, J) is not load("x", J, I)
    assert Axis("i", N) is Axis("i", N, "plain")
    assert Axis(name="i", extent=N) is I


def test_terms_survive_pickling() -> None:
    term = attention(*[Axis(n, e) for n, e in zip("stde", (S, T, D, D), strict=True)]).outputs[0].term
    assert pickle.loads(pickle.dumps(term)) is term


def test_nodes_refuse_wrong_fields() -> None:
    with pytest.raises(TypeError, match="Axis has the fields name, extent, kind"):
        Axis("i")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Const has the fields value"):
        Const(1.0, unit="s")  # type: ignore[call-arg]


def test_attention_is_one_object_whatever_its_axes_are_called() -> None:
    first = attention(Axis("s", S), Axis("t", T), Axis("d", D), Axis("e", D))
    second = attention(Axis("t", S), Axis("s", T), Axis("e", D), Axis("d", D))
    third = attention(Axis("q9", S), Axis("zz", T), Axis("a", D), Axis("b", D))
    assert first.outputs[0].term is second.outputs[0].term is third.outputs[0].term
    assert graph_hash(first) == graph_hash(second) == graph_hash(third)


def test_softmax_reads_its_scores_once() -> None:
    """Maximum and sum range over one scores term: with unique bound names they would not."""
    g = attention(Axis("s", S), Axis("t", T), Axis("d", D), Axis("e", D))
    assert [r.op for r in reductions(*g.terms)] == ["sum", "max", "sum", "sum"]


def test_self_attention_keeps_two_positions_apart() -> None:
    """k = q: the scores need both a query and a key axis of the one extent, and the maximum must not capture."""
    query, key, head = Axis("s", S), Axis("s2", S), Axis("d", D)
    scores = fold("sum", head, apply("mul", load("q", query, head), load("q", key, head)))
    peak = fold("max", key, scores)
    g = graph("self", [Input("q", "float16", (S, D))], [stored("out", apply("sub", scores, peak), query, key)])
    (output,) = g.outputs
    assert len(free(output.term)) == 2
    assert len(free(reductions(output.term)[-1])) == 1
    names = {a.name for a in g.axes}
    assert names == {"s", "s1", "s2", "d"} or names == {"s", "s1", "d"}


def test_a_swap_of_two_names_captures_nothing() -> None:
    straight = graph("g", [X], [stored("y", apply("sub", load("x", I, J), load("x", J, I)), I, J)])
    swapped = graph("g", [X], [stored("y", apply("sub", load("x", J, I), load("x", I, J)), J, I)])
    other = graph("g", [X], [stored("y", apply("sub", load("x", J, I), load("x", I, J)), I, J)])
    assert straight == swapped
    assert straight != other


def test_outputs_share_what_they_have_in_common() -> None:
    b, c = Axis("b", N), Axis("c", N)
    row = fold("sum", K, load("a", I, K))
    again = fold("sum", Axis("z", M), load("a", b, Axis("z", M)))
    g = graph("g", [A], [stored("y", row, I), stored("z", apply("sq", again), b)])
    assert g.outputs[1].term.args[0] is g.outputs[0].term  # type: ignore[union-attr]
    with_c = graph("g", [A], [stored("y", row, I), stored("z", apply("sq", fold("sum", K, load("a", c, K))), c)])
    assert g == with_c


def renamed(g: Graph, names: Sequence[str]) -> Graph:
    """The graph with every axis under another name, free and bound."""
    made: dict[Axis, Axis] = {}
    for number, a in enumerate(g.axes):
        atoms = {Position(b): c.position for b, c in made.items()}
        made[a] = Axis(names[number % len(names)] + str(number // len(names)), substitute(a.extent, atoms), a.kind)  # type: ignore[arg-type]
    atoms = {Position(a): b.position for a, b in made.items()}
    memo: dict[Term, Term] = {}
    for t in walk(*g.terms):
        memo[t] = _renamed_node(t, [memo[c] for c in children(t)], made, atoms)
    outputs = [
        Output(o.name, o.dtype, o.shape, tuple(substitute(i, atoms) for i in o.indices), memo[o.term])  # type: ignore[arg-type]
        for o in g.outputs
    ]
    return graph(g.name, g.inputs, outputs, g.constraints)


def _renamed_node(t: Term, new: list[Term], made: dict[Axis, Axis], atoms: dict[Position, Index]) -> Term:
    match t:
        case Reduce(op, a, _):
            return Reduce(op, made[a], new[0])
        case Where(pred, _, _):
            return Where(substitute_pred(pred, atoms), new[0], new[1])  # type: ignore[arg-type]
        case _ if children(t):
            return rebuild(t, new)
        case _:
            return substitute_axes(t, {a: b.position for a, b in made.items()})


@given(graphs(size=6), st.permutations("abcdefghij"))
def test_names_of_axes_do_not_matter(g: Graph, names: list[str]) -> None:
    other = renamed(g, names)
    assert other == g
    assert other.text() == g.text()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_names_of_ragged_axes_and_their_owners_do_not_matter(order: tuple[int, int]) -> None:
    """An owner that is stored, and one that is bound; the ragged axis stored before or after its owner."""

    def made(owner: str, ragged: str) -> Graph:
        b = Axis(owner, N)
        t = Axis(ragged, read("lengths", b))
        inner = fold("sum", t, load("a", b, t))
        whole = fold("sum", b, fold("max", t, load("a", b, t)))
        y = apply("mul", load("a", b, t), apply("add", inner, whole))
        axes, extents = (b, t), (N, M)
        shape, indices = tuple(extents[i] for i in order), tuple(axes[i].position for i in order)
        return graph("g", [A, Input("lengths", "int32", (N,))], [Output("y", "float32", shape, indices, y)])

    first = made("b", "t")
    for names in (("t", "b"), ("zz", "aa"), ("n", "lengths_n"), ("lengths_n", "n")):
        assert made(*names) == first
    assert parse_graph(first.text()) == first
    assert {a.name for a in first.axes} == {"n", "lengths_n"}


@given(graphs(size=6))
def test_canonical_graphs_stay_as_they_are(g: Graph) -> None:
    again = graph(g.name, g.inputs, g.outputs, g.constraints)
    assert again == g
    assert all(a.term is b.term for a, b in zip(again.outputs, g.outputs, strict=True))


# ---- walking and substitution


def test_walk_is_children_first_and_visits_once() -> None:
    g = attention(Axis("s", S), Axis("t", T), Axis("d", D), Axis("e", D))
    order = walk(*g.terms)
    assert len(set(order)) == len(order)
    for number, t in enumerate(order):
        assert all(order.index(c) < number for c in children(t))


def test_substitution_reaches_loads_values_and_masks() -> None:
    term = Where(I.position <= J.position, load("x", I, J), IndexValue(I.position))
    at_two = substitute_axes(term, {I: index(2)})
    assert at_two is Where(index(2) <= J.position, load("x", 2, J), IndexValue(index(2)))


def test_substitution_follows_ragged_extents() -> None:
    ragged = Axis("r", read("lengths", I))
    total = fold("sum", ragged, load("x", I, ragged))
    assert free(total) == {I}
    moved = substitute_axes(total, {I: J.position})
    assert moved is fold("sum", Axis("r", read("lengths", J)), load("x", J, Axis("r", read("lengths", J))))


def test_replace_and_places() -> None:
    g = graph("g", [X], [stored("y", apply("exp", apply("neg", load("x", I, J))), I, J)])
    place = Place("y", (0, 0))
    assert at(g, place) is load("x", *[a for a in g.axes])
    changed = replace(g.outputs[0].term, {at(g, place): const(1)})
    assert changed is apply("exp", apply("neg", const(1)))


def test_two_readings_of_one_tensor_have_one_key() -> None:
    assert tensor_key(load("x", I, J)) is tensor_key(load("x", J, I))
    assert tensor_key(load("x", I, J)) is not tensor_key(load("x", I, I))
    assert tensor_key(fold("sum", K, load("a", I, K))) is tensor_key(fold("sum", K, load("a", J, K)))


def test_axes_of_a_split() -> None:
    split = split_axis(K, "S", "C")
    body = substitute_axes(load("a", I, K), {K: split.position})
    g = graph("g", [A], [stored("y", fold("sum", split.outer, fold("sum", split.inner, body)), I)])
    assert [a.name for a in g.axes] == ["k_o", "k_i", "n"]
    assert {s.name for s in g.symbols} == {"n", "m", "S", "C"}


def test_drawing_is_cut_off() -> None:
    g = attention(Axis("s", S), Axis("t", T), Axis("d", D), Axis("e", D))
    assert g.svg().startswith("<svg")
    assert "more of" not in g.svg()
    assert "… 8 more of 13 nodes" in g.svg(limit=5)
    assert "exp_diff" in g._repr_html_()


# ---- the checker


def one(term: Term, *axes: Axis, inputs: Sequence[Input] = (X,)) -> Graph:
    return graph("g", inputs, [stored("y", term, *axes)])


LENGTHS = Input("lengths", "int32", (N,))
KEEP = Input("keep", "bool", (N, N))

BAD = [
    (lambda: one(load("z", I, J), I, J), "no input 'z': the graph has x"),
    (lambda: one(load("x", I), I), "g: x has rank 2, read with 1 indices"),
    (lambda: one(load("keep", I, J), I, J, inputs=(KEEP,)), "g: keep is bool: bfloat16 or float16 or"),
    (lambda: one(load("x", read("x", I, I), J), I, J), "g: x is float32: int32 or int64 is needed here"),
    (
        lambda: one(Where(BoolRead("x", (I.position, J.position)), const(0), const(1)), I, J),
        "g: x is float32: bool is needed here",
    ),
    (
        lambda: one(load("x", I, J), I),
        "g, output y: depends on j, which no store index mentions: reduce over it or store along it",
    ),
    (lambda: graph("g", [X, X], [stored("y", load("x", I, J), I, J)]), "g: two buffers are called 'x'"),
    (lambda: graph("g", [X], [stored("x", load("x", I, J), I, J)]), "g: two buffers are called 'x'"),
    (lambda: graph("g", [Input("2x", "float32", ())], []), "g: a buffer is called '2x', which is no name"),
    (lambda: graph("g", [X], []), "g: no output"),
    (lambda: one(Cast("int32", load("x", I, J)), I, J), "g: cast to int32: allowed are bfloat16, float16,"),
    (lambda: one(Ref("m", (I,)), I), "g: reference m to a value outside the graph"),
    (
        lambda: graph("g", [Input("x", "float8", (N,))], [stored("y", const(1), I)]),
        "g, x: dtype 'float8': allowed are float16, bfloat16, float32, float64, int32, int64, bool",
    ),
    (
        lambda: graph("g", [X], [Output("y", "int32", (N,), (I.position,), const(1))]),
        "g, output y: dtype int32: allowed are bfloat16, float16, float32, float64",
    ),
    (
        lambda: graph("g", [X], [Output("y", "float32", (N,), (I.position // 2,), const(1))]),
        "g, output y: store index (n // 2) is not affine in n",
    ),
    (
        lambda: graph("g", [X], [Output("y", "float32", (N,), (I.position + J,), load("x", I, J))]),
        "g, output y: store index n1 + n may meet one element twice",
    ),
    (
        lambda: graph("g", [A], [Output("y", "float32", (N * M,), (I.position * N + K,), load("a", I, K))]),
        "g, output y: store index m + dim.n*n may meet one element twice",
    ),
    (
        lambda: graph("g", [X], [Output("y", "float32", (N, N), (I.position,), const(1))]),
        "g, output y: rank 2, stored with 1 indices",
    ),
    (
        lambda: graph("g", [Input("x", "float32", (*dims("n"), *dims("n=3")))], [stored("y", load("x", I, 0), I)]),
        "g: dim n is declared twice, with different facts",
    ),
    (lambda: graph("g", [X], [stored("y", const(1), I)], [I.position < N]), "g: constraint i < dim.n mentions an axis"),
    (lambda: apply("expm1", const(1)), "operation 'expm1': allowed are add, sub, mul,"),
    (lambda: apply("add", const(1)), "add takes 2 operands, 1 given"),
    (lambda: fold("prod", I, const(1)), "reduction 'prod': allowed are sum, max, min"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_refused(bad: object, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        bad()  # type: ignore[operator]
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_axis_of_a_name_or_number() -> None:
    assert axis("i", "n") is I
    assert axis("i", 3).extent.constant == 3
    assert np.isneginf(const(-np.inf).value)
