"""The kernel half of the final test: a compiled operator against float64 on whole rows, under the metric.

    check_executable(operator, graph)                      one operator
    expected = expected_rows(graph, inputs, dims)          several of one graph, on the same inputs
    check_outputs(expected, outputs)

Always with the first and last rows, those at the borders of tiles, and others at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.errors import CleaveError
from cleave.ir.axis import Axis
from cleave.ir.bind import bind_dims
from cleave.ir.graph import Graph, Output, axes_in
from cleave.ir.index import axes_of, evaluate
from cleave.ir.instance import footprint, greatest_extents
from cleave.ir.op import FLOATS, round_to
from cleave.ir.tables import draw_tables
from cleave.verify.final import LIMIT
from cleave.verify.instantiate import Data, draw_data
from cleave.verify.metric import Least, compare, graph_tolerance, least, magnitude
from cleave.verify.sample import Stored, Values, choices, edge_positions, shown, stored, values_at
from cleave.verify.verdict import Check, Outcome, Step

Array = NDArray[Any]
Operator = Callable[[Mapping[str, Array], Mapping[str, Array]], object]
"""Writes the outputs of one call into arrays that it is given (by name, filled with NaN), from inputs (by name)."""

_TILES = (16, 64, 128)
_WHOLE = 400_000
"""Outputs up to this many elements are compared whole, where that takes a quarter of ``limit``."""


def check_executable(
    operator: Operator,
    g: Graph,
    inputs: Mapping[str, Array] | None = None,
    dims: Mapping[str, int] | None = None,
    *,
    seed: int = 0,
    limit: int = LIMIT,
) -> Check:
    """Call a compiled operator and compare whole rows of its outputs with the graph in float64, under the metric.

    ``inputs``: arrays of the graph's inputs, drawn if None (both signs, rounded to their dtypes). ``dims``: what no
    input shape fixes. Output arrays are filled with NaN before the call. Errors of the operator pass through.
    """
    rng = np.random.default_rng(seed)
    if inputs is None:
        inputs = draw_rounded(g, bind_dims(g, {}, dims), rng)
    bound = bind_dims(g, {n: np.shape(a) for n, a in inputs.items()}, dims)
    outputs = poisoned(g, bound)
    operator(inputs, outputs)
    return check_outputs(expected_rows(g, inputs, bound, rng=rng, limit=limit), outputs)


@dataclass(frozen=True)
class Expected:
    """Rows of each output in float64 with their magnitudes, at some inputs."""

    graph: Graph
    dims: Mapping[str, int]
    rows: tuple[tuple[str, tuple[Values, ...]], ...]


def expected_rows(
    g: Graph, inputs: Mapping[str, Array], dims: Mapping[str, int], *, rng: np.random.Generator, limit: int = LIMIT
) -> Expected:
    """Outputs whole if they are small, else whole rows at the edges and at random places.

    Errors: a single row needs too much memory.
    """
    return Expected(g, dims, tuple((o.name, tuple(_rows(g, o, inputs, dims, rng, limit))) for o in g.outputs))


def check_outputs(expected: Expected, outputs: Mapping[str, Array]) -> Check:
    """Compare arrays that a call wrote with what was expected of it."""
    compared = 0
    worst = 0.0
    for name, rows in expected.rows:
        for values in rows:
            got = outputs[name][tuple(values.where.T)]
            found = compare(got, values.values[0], values.values[1], graph_tolerance(expected.graph, name))
            compared, worst = compared + 1, max(worst, found.worst)
            if not found.passed:
                what = f"output {name} at {values.spot(found.where)}, {shown(expected.dims)}"
                return Check(Step.KERNEL_HALF, found.outcome, compared, worst, f"{what}: {found}")
    return Check(Step.KERNEL_HALF, Outcome.PASSED, compared, worst)


def poisoned(g: Graph, dims: Mapping[str, int]) -> dict[str, Array]:
    """Arrays for the outputs, filled with NaN: what is not written shows."""
    return {o.name: np.full([int(evaluate(e, dims)) for e in o.shape], np.nan, numpy_dtype(o.dtype)) for o in g.outputs}


def _rows(
    g: Graph,
    o: Output,
    inputs: Mapping[str, Array],
    dims: Mapping[str, int],
    rng: np.random.Generator,
    limit: int,
) -> list[Values]:
    s = _with_magnitude(o, least(g, o.name))
    extents = greatest_extents(s.axes, dims, inputs)
    everything = greatest_extents(axes_in(s.terms, s.indices), dims, inputs)
    whole = int(np.prod([extents[a] for a in s.axes])) <= _WHOLE and footprint(s.terms, everything) <= limit // 4
    row = _row_axis(s)
    wanted = {
        a: np.arange(extents[a]) if whole or a is row else edge_positions(extents[a], rng, _TILES) for a in s.axes
    }
    out = [values_at(s, inputs, dims, at) for at in choices(s, inputs, dims, wanted, limit)]
    if not out:
        raise CleaveError("a single row needs more memory than the final test may use", location=f"output {o.name}")
    return out


@lru_cache(maxsize=256)
def _with_magnitude(o: Output, bound: Least) -> Stored:
    """Remembered: an operator is checked at many shapes."""
    return stored(o, magnitude(o.term, bound))


def _row_axis(s: Stored) -> Axis | None:
    """The axis along the last index of the store."""
    last = sorted(axes_of(s.indices[-1]), key=lambda a: a.name) if s.indices else []
    return last[-1] if last else None


def draw_rounded(
    g: Graph, dims: Mapping[str, int], rng: np.random.Generator, data: Data = Data.PLAIN
) -> dict[str, Array]:
    """Inputs as an operator gets them: floats rounded to their storage type (bfloat16 as float32), flags, tables of
    batches of requests."""
    drawn = {**draw_data(g, dims, data, rng), **draw_tables(g, dims, rng)}
    out: dict[str, Array] = {}
    for i in g.inputs:
        array = np.asarray(drawn[i.name])
        rounded = round_to(array, i.dtype) if i.dtype in FLOATS else array
        out[i.name] = np.asarray(rounded).astype(numpy_dtype(i.dtype))
    return out


def numpy_dtype(dtype: str) -> Any:
    """NumPy has no bfloat16: such values travel as float32."""
    return np.dtype("float32" if dtype == "bfloat16" else dtype)
