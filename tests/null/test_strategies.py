"""The strategies of cleave.testing: what they draw is valid, varied and has a value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cleave.ir.dim import is_dim
from cleave.ir.graph import Graph, Reduce, Where, reductions, walk
from cleave.ir.index import Index, evaluate, inputs_of
from cleave.ir.interp import interpret
from cleave.testing import arrays, dims, graphs, sizes_of


@given(dims(), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_dims_are_never_negative(extent: Index, m: int, n: int, p: int) -> None:
    assert is_dim(extent)
    assert evaluate(extent, {"m": m, "n": n, "p": p}) >= 0


@given(graphs().flatmap(lambda g: st.tuples(st.just(g), sizes_of(g))), st.integers(0, 2**16))
def test_every_graph_has_finite_values(drawn: tuple[Graph, dict[str, int]], seed: int) -> None:
    g, sizes = drawn
    assert len(set(sizes.values())) == len(sizes)
    for name, value in interpret(g, arrays(g, sizes, np.random.default_rng(seed)), sizes).items():
        assert np.isfinite(value).all(), name


def test_graphs_cover_the_language() -> None:
    wanted = {
        "softmax with a mask": lambda g: _has(g, Where) and {r.op for r in reductions(*g.terms)} >= {"sum", "max"},
        "a ragged sum": lambda g: any(inputs_of(r.axis.extent) for r in reductions(*g.terms)),
        "two outputs": lambda g: len(g.outputs) == 2,
        "reductions within reductions": lambda g: any(
            isinstance(inner, Reduce) for outer in reductions(*g.terms) for inner in walk(outer.body)
        ),
    }
    for title, condition in wanted.items():
        assert _is_drawn(condition), title


def _is_drawn(condition: Callable[[Graph], bool]) -> bool:
    found: list[Graph] = []

    @settings(max_examples=100, database=None, derandomize=True, phases=[Phase.generate])
    @given(graphs())
    def collect(g: Graph) -> None:
        found.extend([g] * condition(g))

    collect()
    return bool(found)


def _has(g: Graph, kind: type) -> bool:
    return any(isinstance(t, kind) for t in walk(*g.terms))
