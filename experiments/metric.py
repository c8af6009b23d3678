"""The metric of ``cleave.verify`` for whole outputs that lie on a GPU, and their reference in float64 there.

expected, magnitude = reference(graph, dims, inputs)["out"]
compare(found, expected, magnitude, graph_tolerance(graph, "out")).passed
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from cleave.export import to_torch
from cleave.ir.graph import Graph, Output
from cleave.ir.graph import graph as make_graph
from cleave.ir.index import Index, evaluate
from cleave.ir.instance import footprint, greatest_extents
from cleave.ir.op import MANTISSA_BITS
from cleave.verify import Comparison, Outcome, Tolerance, magnitude
from cleave.verify.metric import LEAST_EXPONENT, least

MOST_ELEMENTS = 2**28
"""Of the largest array of one evaluation: 2 GB."""
BATCHED = ("kv_heads", "h", "b", "m")
"""Dims, first choice first, along which an operator of ``cleave.nn`` can be evaluated piece by piece: nothing is summed
over them and no position on them is used."""

_NEGLIGIBLE = 1e-280
_SMALLER, _FEWEST_ELEMENTS = 16, 2**14


def reference(
    g: Graph, dims: Mapping[str, int], inputs: Mapping[str, Any], most: int = MOST_ELEMENTS
) -> dict[str, tuple[Any, Any]]:
    """Each output in float64 with its magnitude, from tensors; in pieces along one of ``BATCHED`` if it is large, in
    smaller ones if torch wants more memory for a product of many factors than there is.

    Errors: an operation that torch has no form for.
    """
    found = _evaluated(g, dims, inputs, most)
    out: dict[str, tuple[Any, Any]] = {}
    for n, o in enumerate(g.outputs):
        value, size = ([f[number] for f in found] for number in (n, n + len(g.outputs)))
        out[o.name] = _joined(o, value, g, dims), _joined(o, size, g, dims)
    return out


def _evaluated(g: Graph, dims: Mapping[str, int], inputs: Mapping[str, Any], most: int) -> list[Any]:
    import torch

    run = to_torch(_measured(g), precision="float64")
    while True:
        try:
            return [run(**piece) for piece in pieces(g, dims, inputs, most)]
        except torch.OutOfMemoryError:
            if _axis(g, dims) is None or most < _FEWEST_ELEMENTS:
                raise
        torch.cuda.empty_cache()
        most //= _SMALLER


def _measured(g: Graph) -> Graph:
    """Outputs, not rounded to their storage types, and behind them their magnitudes."""
    values = [Output(o.name, "float64", o.shape, o.indices, o.term) for o in g.outputs]
    sizes = [
        Output(f"{o.name}__magnitude", "float64", o.shape, o.indices, magnitude(o.term, least(g, o.name)))
        for o in g.outputs
    ]
    return make_graph(g.name, g.inputs, (*values, *sizes), g.constraints)


def _axis(g: Graph, dims: Mapping[str, int]) -> str | None:
    known = {s.name for s in g.symbols if s.value is None and dims[s.name] > 1}
    return next((n for n in BATCHED if n in known), None)


def pieces(g: Graph, dims: Mapping[str, int], inputs: Mapping[str, Any], most: int) -> Iterator[dict[str, Any]]:
    along, size = _axis(g, dims), footprint(_measured(g).terms, greatest_extents(g.axes, dims, {}))
    count = -(-size // most)
    if along is None or count <= 1:
        yield dict(inputs)
        return
    length = max(1, dims[along] // count)
    for start in range(0, dims[along], length):
        stop = min(start + length, dims[along])
        yield {i.name: _cut(inputs[i.name], i.shape, dims, along, start, stop) for i in g.inputs}


def _cut(x: Any, shape: tuple[Index, ...], dims: Mapping[str, int], along: str, start: int, stop: int) -> Any:
    for position, extent in enumerate(shape):
        one = _each(extent, dims, along)
        if one:
            x = x.narrow(position, one * start, one * (stop - start))
    return x


def _each(extent: Index, dims: Mapping[str, int], along: str) -> int:
    """How much of an extent belongs to one step along a dim; 0 if it does not depend on it."""
    whole, one = (int(evaluate(extent, {**dims, along: n})) for n in (dims[along], 1))
    return 0 if whole == one else one


def _joined(o: Output, found: list[Any], g: Graph, dims: Mapping[str, int]) -> Any:
    import torch

    along = _axis(g, dims)
    if len(found) == 1 or along is None:
        return found[0]
    return torch.cat(found, dim=next(n for n, extent in enumerate(o.shape) if _each(extent, dims, along)))


# ---- comparison


def compare(actual: Any, expected: Any, size: Any, tolerance: Tolerance) -> Comparison:
    """``cleave.verify.compare`` on tensors of one device; ``size`` is the magnitude."""
    import torch

    a, e = actual.double().flatten(), expected.flatten()
    stored = e.to(getattr(torch, tolerance.dtype)).double()
    finite = torch.isfinite(stored)
    bad = ~((torch.isfinite(a) & finite) | (torch.isnan(a) & torch.isnan(stored)) | (a == stored))
    if bool(bad.any()):
        first = int(bad.to(torch.uint8).argmax())
        return Comparison(Outcome.WRONG_NON_FINITE, inf, inf, first, float(e[first]), float(a[first]))
    if not bool(finite.any()):
        return Comparison(Outcome.PASSED, 0.0, 0.0)
    error = torch.where(finite, a - e, 0.0).abs()
    e = torch.where(finite, e, 0.0)
    terms = torch.where(torch.isfinite(size.flatten()), size.flatten(), e.abs())
    spacing = ulp(e, tolerance.dtype)
    ratio = error / (tolerance.relative * terms + tolerance.ulps * spacing + _NEGLIGIBLE)
    worst = int(ratio.argmax())
    small = e.abs() < 2.0 ** LEAST_EXPONENT[tolerance.dtype]
    frobenius = _relative_norm((error - torch.where(small, spacing / 2, 0.0)).clamp(min=0.0), e)
    passed = float(ratio[worst]) <= 1.0 and frobenius <= tolerance.frobenius
    outcome = Outcome.PASSED if passed else Outcome.WRONG_VALUE
    return Comparison(outcome, frobenius, float(ratio[worst]), worst, float(e[worst]), float(a[worst]))


def ulp(value: Any, dtype: str) -> Any:
    """Distance between neighbours of a storage type at a value (that of the least normal number below it)."""
    import torch

    exponent = torch.frexp(value.abs()).exponent
    least = LEAST_EXPONENT[dtype]
    return torch.pow(2.0, ((exponent - 1).clamp(min=least) - MANTISSA_BITS[dtype] + 1).double())


def _relative_norm(error: Any, e: Any) -> float:
    largest = float(e.abs().max())
    if largest == 0.0:
        return 0.0
    return float((error / largest).norm() / (e / largest).norm())
