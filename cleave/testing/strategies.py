"""Hypothesis strategies over the graph IR: dims, terms, graphs, and sizes and arrays to run them with.

Every graph reads some of these inputs, over axes i < m, j < n, k < p and the ragged t < lengths[i]:

    x[m, p]   y[n, p]   w[p, n]   g[n]   c[]   keep[m, n] (bool)   lengths[m] (int32, at most p)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from cleave.ir.axis import Axis
from cleave.ir.dim import Dim, dim
from cleave.ir.graph import (
    Graph,
    IndexValue,
    Input,
    Load,
    Output,
    Reduce,
    Term,
    TopK,
    Where,
    apply,
    const,
    fold,
    free,
    graph,
    load,
    term_indices,
    walk,
)
from cleave.ir.index import BoolRead, Compare, Pred, ceildiv, index, inputs_of, pred_inputs, read
from cleave.ir.instance import draw_inputs

M, N, P = (dim(name, minimum=1) for name in "mnp")
ROW, COLUMN, INNER = Axis("i", M), Axis("j", N), Axis("k", P)
RAGGED = Axis("t", read("lengths", ROW))

INPUTS = (
    Input("x", "float32", (M, P)),
    Input("y", "float32", (N, P)),
    Input("w", "float32", (P, N)),
    Input("g", "float32", (N,)),
    Input("c", "float32", ()),
    Input("keep", "bool", (M, N)),
    Input("lengths", "int32", (M,)),
)

LEAVES: tuple[Term, ...] = (
    load("x", ROW, INNER),
    load("y", COLUMN, INNER),
    load("w", INNER, COLUMN),
    load("g", COLUMN),
    load("c"),
    const(0.5),
    IndexValue(index(ROW) - COLUMN),
)
PREDICATES: tuple[Pred, ...] = (
    Compare("<=", index(COLUMN), index(ROW)),
    Compare("<", index(COLUMN), index(ROW) + 2),
    BoolRead("keep", (index(ROW), index(COLUMN))),
    Compare("<", index(INNER), read("lengths", ROW)),
)
NEGATIVE_INFINITY = const(-np.inf)

_LEAF = st.sampled_from(LEAVES)
_PREDICATE = st.sampled_from(PREDICATES)
_AXIS = st.sampled_from((COLUMN, INNER))
_UNARY = st.sampled_from(("tanh", "sq", "abs", "neg", "round", "sigmoid", "silu"))
_BINARY = st.sampled_from(("mul", "mul", "add", "sub", "maximum", "minimum"))
_MONOID = st.sampled_from(("sum", "sum", "max", "min"))
_SHAPE = st.sampled_from(("unary", "binary", "reduce", "contract", "mask", "softmax", "ragged"))
_DIM_SHAPE = st.sampled_from(("+", "*", "ceildiv"))


@st.composite
def dims(draw: st.DrawFn, names: str = "mnp") -> Dim:
    """Dims: symbols, small numbers, and sums, products and ceil divisions of them; never negative."""
    out: Dim = draw(st.one_of(st.sampled_from([dim(name) for name in names]), st.integers(0, 4).map(index)))
    for _ in range(draw(st.integers(0, 3))):
        other = dim(draw(st.sampled_from(names)))
        match draw(_DIM_SHAPE):
            case "+":
                out = out + other
            case "*":
                out = out * other
            case _:
                out = ceildiv(out, draw(st.integers(1, 4)))
    return out


@st.composite
def terms(draw: st.DrawFn, size: int = 5) -> Term:
    """Terms over i, j, k with finite values: maps, matmuls, masks, softmax, reductions, ragged sums."""
    return _term(draw, draw(st.integers(1, size)))


def _term(draw: st.DrawFn, size: int) -> Term:
    if size <= 1:
        return draw(_LEAF)
    first = _term(draw, size - 1)
    match draw(_SHAPE):
        case "unary":
            return apply(draw(_UNARY), first)
        case "binary":
            return apply(draw(_BINARY), first, _term(draw, size // 2))
        case "reduce":
            return fold(draw(_MONOID), draw(_AXIS), first)
        case "contract":
            return fold("sum", draw(_AXIS), apply("mul", first, _term(draw, size // 2)))
        case "mask":
            return Where(draw(_PREDICATE), first, const(0.0))
        case "softmax":
            return softmax(draw(_AXIS), first, draw(_PREDICATE) if draw(st.booleans()) else None)
        case _:
            return fold("sum", RAGGED, apply("mul", load("x", ROW, RAGGED), first))


def softmax(axis: Axis, score: Term, mask: Pred | None = None) -> Term:
    """exp_diff(s, max s) * recip0(sum of the same), with s = where(mask, score, -inf): 0 on rows that see nothing."""
    s = score if mask is None else Where(mask, score, NEGATIVE_INFINITY)
    weight = apply("exp_diff", s, fold("max", axis, s))
    return apply("mul", weight, apply("recip0", fold("sum", axis, weight)))


@st.composite
def graphs(draw: st.DrawFn, size: int = 5, max_outputs: int = 2) -> Graph:
    """Checked graphs with one or more outputs, stored along their free axes."""
    made = [draw(terms(size)) for _ in range(draw(st.integers(1, max_outputs)))]
    outputs: list[Output] = []
    for number, term in enumerate(made):
        kept = [a for a in (ROW, COLUMN, INNER) if a in free(term)]
        shape, indices = tuple(a.extent for a in kept), tuple(a.position for a in kept)
        outputs.append(Output(f"out{number}", "float32", shape, indices, term))
    used = _inputs_of(made)
    return graph("random", [i for i in INPUTS if i.name in used], outputs)


def _inputs_of(made: list[Term]) -> frozenset[str]:
    used: set[str] = set()
    for term in walk(*made):
        indices = term_indices(term)
        match term:
            case Load(name, _):
                used.add(name)
            case Where(pred, _, _):
                used |= pred_inputs(pred)
            case Reduce(_, axis, _) | TopK(_, axis, _, _):
                indices = (*indices, axis.extent)
            case _:
                pass
        used = used.union(*(inputs_of(i) for i in indices))
    return frozenset(used)


def sizes_of(g: Graph, smallest: int = 2, greatest: int = 7) -> st.SearchStrategy[dict[str, int]]:
    """Values for the dims of a graph, all different, so that swapped axes show."""
    names = [s.name for s in g.symbols]
    values = st.permutations(range(smallest, greatest + 1))
    return values.map(lambda chosen: dict(zip(names, chosen, strict=False)))


def arrays(g: Graph, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Random inputs: floats around 0, integers between 0 and the smallest size, so that lengths stay inside."""
    return draw_inputs(g, sizes, rng, greatest=min(sizes.values(), default=1))
