"""The final test on the user's own shapes, its graph half: candidate graph against input graph in float64 at sampled
output points; no GPU needed. The kernel half is in ``cleave.verify.kernel_half``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.candidate import Candidate
from cleave.errors import CleaveError
from cleave.ir.axis import Axis
from cleave.ir.bind import bind_dims
from cleave.ir.dim import is_dim
from cleave.ir.graph import Graph, Output, axes_in
from cleave.ir.index import evaluate
from cleave.ir.instance import below, footprint, greatest_extents, shape_of
from cleave.ir.op import FLOATS
from cleave.ir.tables import draw_tables
from cleave.verify.borders import border_positions, conditions
from cleave.verify.instantiate import Chunks, Data, Sizes, draw_data, floats, split_values
from cleave.verify.metric import (
    ALGEBRA,
    Comparison,
    algebra_magnitude,
    compare,
)
from cleave.verify.reference import References
from cleave.verify.sample import (
    Drawn,
    Stored,
    Values,
    choices,
    edge_positions,
    fits,
    halved,
    materialised,
    shown,
    stored,
    sweeps,
    values_at,
)
from cleave.verify.verdict import Check, Outcome, Step

Array = NDArray[Any]
LIMIT = 12_000_000
"""Elements of the largest array of one evaluation: about 100 MB each."""

_MOST = 8 * LIMIT
"""Of a candidate, which may be larger than the input graph."""
_LESS = 8
"""How many times smaller arrays are where dims had to be halved: then all of them are large."""
_TRIES = 60
_SCALES = ((1.0, 0.0), (8.0, 0.1))
"""(scale, share of zeros) of the inputs of each run of the graph half."""
_CHUNKS = (Chunks.SOME, Chunks.EVEN)
"""How each run cuts the axes of splits that the caller did not bind."""


def check_at_shape(
    c: Candidate,
    bind: Mapping[str, int],
    rng: np.random.Generator,
    limit: int = LIMIT,
    references: References | None = None,
    step: Step = Step.GRAPH_HALF,
) -> Check:
    """Compare at the user's sizes: at the ends and at random positions of every output axis, and all over each.

    In the final test, dims are halved, the largest first, where one output point is too much; the detail says so.
    """
    known = {s.name for s in c.origin.symbols}
    references = References(c.origin) if references is None else references
    try:
        dims = bind_dims(c.origin, {}, {n: v for n, v in bind.items() if n in known})
    except CleaveError as error:
        return Check(step, Outcome.SKIPPED, detail=str(error))
    if fits(c.origin, dims, limit):
        return _checked(c, bind, _Shape(dims, references, limit, step), rng)
    less = halved(c.origin, dims, limit // _LESS) if step is Step.GRAPH_HALF else None
    if less is None:
        return Check(step, Outcome.SKIPPED, detail="a single output point needs too much memory")
    found = _checked(c, {}, _Shape(less, references, limit // _LESS, step), rng)
    changed = ", ".join(f"{n}={v}" for n, v in less.items() if dims[n] != v)
    said = f"at {changed}, since a single output point needs too much memory"
    return replace(found, detail="; ".join(filter(None, (said, found.detail))))


@dataclass(frozen=True)
class _Shape:
    """Where the graph half runs, and for which step."""

    dims: Mapping[str, int]
    references: References
    limit: int
    step: Step


def _checked(c: Candidate, bind: Mapping[str, int], at: _Shape, rng: np.random.Generator) -> Check:
    count, worst = 0, 0.0
    for (scale, zeros), chunks in zip(_SCALES, _CHUNKS, strict=True):
        try:
            found = _run(c, at.dims, bind, _Data(at.references, scale, zeros, at.limit, chunks), rng)
        except MemoryError as error:
            return Check(at.step, Outcome.SKIPPED, detail=str(error) or "out of memory at these sizes")
        if isinstance(found, str):
            return Check(at.step, Outcome.NOT_EVALUABLE, detail=found)
        count += len(found)
        worst = max([worst, *(comparison.worst for _, comparison in found)])
        for what, comparison in found:
            if not comparison.passed:
                return Check(at.step, comparison.outcome, count, worst, f"{what}: {comparison}")
    return Check(at.step, Outcome.PASSED, count, worst)


def _run(
    c: Candidate,
    dims: Mapping[str, int],
    bind: Mapping[str, int],
    data: _Data,
    rng: np.random.Generator,
) -> list[tuple[str, Comparison]] | str:
    """One comparison a run and output; text where one of the graphs has no value."""
    try:
        inputs, points = data.points(dims)
    except CleaveError as error:
        return f"the input graph has no value: {error}"
    try:
        splits = _bound_splits(c, dims, bind, inputs, data.chunks, rng)
        return _compared_points(c, points, inputs, {**dims, **splits}, data.limit)
    except CleaveError as error:
        return f"the candidate has no value: {error}"


@dataclass(frozen=True)
class _Data:
    """What a run of the graph half is made on."""

    references: References
    scale: float
    zeros: float
    limit: int
    chunks: Chunks

    def points(self, dims: Mapping[str, int]) -> tuple[dict[str, Any], list[_Points]]:
        """Inputs and reference values, the same for all candidates of the graph."""
        g, data = self.references.origin, (self.scale, self.zeros)
        return self.references.once(
            ("shape", tuple(sorted(dims.items())), data, self.limit),
            lambda rng: _reference(g, dims, data, rng, self.limit),
        )


@dataclass(frozen=True)
class _Points:
    """One output of the input graph, and its values at each choice of positions."""

    output: Output
    stored: Stored
    runs: list[tuple[dict[Axis, Array], Values]]


def _reference(
    g: Graph, dims: Mapping[str, int], data: tuple[float, float], rng: np.random.Generator, limit: int
) -> tuple[dict[str, Any], list[_Points]]:
    """Inputs and reference values; integer inputs are drawn again until every read lies inside its input."""
    for attempt in range(_TRIES):
        inputs = _drawn_inputs(g, dims, data, rng)
        try:
            return inputs, [_reference_points(o, inputs, dims, rng, limit) for o in g.outputs]
        except CleaveError:
            if attempt == _TRIES - 1 or not _has_integers(g):
                raise
    raise AssertionError("the last try returns or raises")


def _reference_points(
    o: Output, inputs: Mapping[str, Any], dims: Mapping[str, int], rng: np.random.Generator, limit: int
) -> _Points:
    s = stored(o, algebra_magnitude(o.term))
    extents = greatest_extents(s.axes, dims, inputs)
    wanted = {a: edge_positions(extents[a], rng) for a in s.axes}
    chosen = [*choices(s, inputs, dims, wanted, limit)]
    chosen += sweeps(s, inputs, dims, rng) if chosen else []
    return _Points(o, s, [(at, values_at(s, inputs, dims, at)) for at in chosen])


def _compared_points(
    c: Candidate, points: list[_Points], inputs: Mapping[str, Any], dims: Mapping[str, int], limit: int
) -> list[tuple[str, Comparison]]:
    out: list[tuple[str, Comparison]] = []
    for p in points:
        other = stored(next(o for o in c.graph.outputs if o.name == p.output.name))
        runs = [*p.runs, *_at_borders(p.stored, other, inputs, dims, limit)] if c.graph != c.origin else p.runs
        for at, reference in runs:
            # The same positions by name: equal store indices give equal axes in both graphs.
            same = {b: at[a] for a, b in zip(p.stored.axes, other.axes, strict=True)}
            if c.graph == c.origin:
                actual = reference
            else:
                _check_memory(other, inputs, dims, same)
                actual = values_at(other, inputs, dims, same)
            if not np.array_equal(actual.where, reference.where):
                raise CleaveError(
                    "other positions are stored than in the input graph", location=f"output {p.output.name}"
                )
            comparison = compare(actual.values[0], reference.values[0], reference.values[1], ALGEBRA)
            out.append((f"output {p.output.name} at {reference.spot(comparison.where)}, {shown(dims)}", comparison))
    return out


def _at_borders(
    s: Stored, other: Stored, inputs: Mapping[str, Any], dims: Mapping[str, int], limit: int
) -> list[tuple[dict[Axis, Array], Values]]:
    """The input graph where conditions change that only the candidate has; nothing where it has none."""
    positions = border_positions(other, conditions(other) - conditions(s), inputs, dims)
    if not positions:
        return []
    wanted = {a: positions[b] for a, b in zip(s.axes, other.axes, strict=True)}
    return [(at, values_at(s, inputs, dims, at)) for at in choices(s, inputs, dims, wanted, limit)]


def _check_memory(s: Stored, inputs: Mapping[str, Any], dims: Mapping[str, int], at: Mapping[Axis, Array]) -> None:
    """A candidate may need more than the input graph: chunks far longer than what they hold, or far more of them."""
    axes = axes_in(s.terms, s.indices)
    largest = max((int(evaluate(a.extent, dims)) for a in axes if is_dim(a.extent) and a not in at), default=0)
    if largest <= _MOST:  # otherwise laying out what depends on them is too much already
        extents = greatest_extents(axes, dims, inputs)
        largest = footprint(s.terms, {**extents, **{a: len(p) for a, p in at.items()}})
    if largest > _MOST:
        raise MemoryError(f"the candidate has arrays of {largest} elements at a few output points, allowed are {_MOST}")


def _drawn_inputs(
    g: Graph, dims: Mapping[str, int], data: tuple[float, float], rng: np.random.Generator
) -> dict[str, Any]:
    """Inputs that cost no memory; integer inputs are real arrays, since their values have to fit one another, tables
    as callers give them: what a candidate reads beyond a request is then in its inputs, too."""
    out: dict[str, Any] = {}
    for i in g.inputs:
        shape = shape_of(i, dims)
        seed = below(2**62, rng)
        if i.dtype in FLOATS:
            out[i.name] = materialised(Drawn(shape, seed, *data)) if shape else floats(shape, Data.PLAIN, rng)
        elif i.dtype == "bool":
            out[i.name] = materialised(Drawn(shape, seed, dtype=np.dtype(np.bool_)))
    rest = Graph(g.name, tuple(i for i in g.inputs if i.name not in out), g.outputs, g.constraints)
    return {**out, **draw_data(rest, dims, Data.PLAIN, rng), **draw_tables(g, dims, rng)}


def _has_integers(g: Graph) -> bool:
    return any(i.dtype in ("int32", "int64") for i in g.inputs)


def _bound_splits(
    c: Candidate,
    dims: Mapping[str, int],
    bind: Mapping[str, int],
    inputs: Mapping[str, Any],
    chunks: Chunks,
    rng: np.random.Generator,
) -> dict[str, int]:
    """Counts and chunks as the caller bound them, otherwise as ``chunks`` says."""
    names = {n for s in c.splits for n in (s.count, s.chunk)}
    return split_values(c, Sizes(dims, chunks), inputs, rng, {n: v for n, v in bind.items() if n in names})
