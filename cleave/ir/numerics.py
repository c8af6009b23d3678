"""What rounding does to a graph: its error against float64, beside that of another form of the same program.

    error of an output = max |x - reference| / max |reference|

float32          every operation and every sum is rounded to float32
float16          inputs and outputs are float16, everything between is float32

Inputs are values of float16, so that what is measured is the graph's own doing. They are drawn around 0, far from it
(differences cancel) and wide (exponentials spread).

A graph is much worse than the one as written if its error in float32 is above 1e-5 and 10 times the other's, or its
error with float16 in and out is above 1e-3 and twice the other's: the rounding of an output alone costs 5e-4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.errors import CleaveError
from cleave.ir.axis import Axis
from cleave.ir.graph import Graph, Output, Term, bound_axis, walk
from cleave.ir.index import axes_of
from cleave.ir.instance import Instance, draw_inputs, greatest_extents, shape_of, small_dims
from cleave.ir.interp import Space, make_space, value
from cleave.ir.op import FLOATS, round_to

Array = NDArray[Any]
Binding = Callable[[Instance], Mapping[str, int]]
"""Values of the dims of a graph on an instance of the other: counts of chunks as well."""

_SIZES = (61, 13, 5, 3, 2, 3, 2, 3, 2)
_GREATEST = (40, 40, 8, 8, 3, 3, 1, 1)
"""Of integer inputs, attempt after attempt: lengths as long as fits."""
_DRAWS = ((0.0, 1.0), (16.0, 1.0), (0.0, 8.0))
"""(mean, deviation) of floating inputs."""
_MOST_ELEMENTS = 1 << 28
"""Of an input, 2 GiB: one over twenty axes has more, however small they are."""
_DRAWN = 65537
"""Different numbers in an input; a larger one repeats them."""
_POSITIONS = 8
_MUCH_WORSE = {"float32": (1e-5, 10.0), "float16": (1e-3, 2.0)}
"""(error that matters, times the error of the graph as written) from which on a graph is much worse."""


@dataclass(frozen=True)
class Rounding:
    """Relative error of the worst output over a few draws; that in float16 over those that float16 can hold."""

    float32: float
    float16: float


@dataclass(frozen=True)
class Numerics:
    """The errors of a graph, and those of the graph as it was written."""

    graph: Rounding
    origin: Rounding

    @property
    def warning(self) -> str:
        """In which type the graph is much worse than the graph as written; "" if in none."""
        pairs = {n: (getattr(self.graph, n), getattr(self.origin, n)) for n in _MUCH_WORSE}
        worse = [n for n, (own, written) in pairs.items() if _is_much_worse(own, written, *_MUCH_WORSE[n])]
        told = (f"{pairs[n][0]:.1e} in {n}, {pairs[n][1]:.1e} as written" for n in worse)
        return f"rounding does much more harm here: relative error {'; '.join(told)}" if worse else ""

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "warning": self.warning}

    def __str__(self) -> str:
        single = f"{self.graph.float32:.1e}, as written {self.origin.float32:.1e}"
        half = f"{self.graph.float16:.1e}, as written {self.origin.float16:.1e}"
        warning = f"\nwarning: {self.warning}" if self.warning else ""
        return f"relative error in float32: {single}\nwith float16 in and out: {half}{warning}"


def _is_much_worse(own: float, written: float, least: float, times: float) -> bool:
    return own > least and own > times * written


def numerics(g: Graph, origin: Graph, dims_of: Binding, seed: int = 0) -> Numerics | None:
    """Errors of two graphs that are equal over the reals; None where no small instance gives both a value."""
    rng = np.random.default_rng(seed)
    at = next((at for at in _instances(origin, rng) if _has_elements(g, origin, at)), None)
    if at is None:
        return None
    try:
        errors = [_errors(g, origin, _redrawn(origin, at, draw, rng), dims_of) for draw in _DRAWS]
    except (CleaveError, IndexError, RuntimeError, MemoryError):
        return None  # a graph that is wrong, not one that is inexact
    own, written = zip(*errors, strict=True)
    return Numerics(_worst_draw(own), _worst_draw(written))


def _worst_draw(errors: Sequence[tuple[float, float | None]]) -> Rounding:
    halves = [half for _, half in errors if half is not None]
    return Rounding(max(single for single, _ in errors), max(halves, default=np.inf))


# ---- instances


def _instances(origin: Graph, rng: np.random.Generator) -> Iterator[Instance]:
    for greatest in _GREATEST:
        dims = small_dims(origin, (*_SIZES, *[_SIZES[-1]] * len(origin.symbols)), rng)
        if dims is None or max((prod(shape_of(i, dims)) for i in origin.inputs), default=0) > _MOST_ELEMENTS:
            return
        real = _normal(*_DRAWS[0], rng)
        yield Instance(dims, draw_inputs(origin, dims, rng, real=real, greatest=greatest))


def _normal(mean: float, deviation: float, rng: np.random.Generator) -> Callable[[tuple[int, ...]], Array]:
    def real(shape: tuple[int, ...]) -> Array:
        size = min(int(np.prod(shape)), _DRAWN)
        return np.resize(round_to(rng.normal(mean, deviation, size), "float16"), shape)

    return real


def _redrawn(origin: Graph, at: Instance, draw: tuple[float, float], rng: np.random.Generator) -> Instance:
    """The instance with other floating inputs; integers are those that fit."""
    real = _normal(*draw, rng)
    fresh = {i.name: real(shape_of(i, at.dims)) for i in origin.inputs if i.dtype in FLOATS}
    return Instance(at.dims, {**at.inputs, **fresh})


def _has_elements(g: Graph, origin: Graph, at: Instance) -> bool:
    try:
        return any(x.size for x in _values(origin, at, at.dims, _positions(g, origin, at), "float64"))
    except (CleaveError, IndexError, RuntimeError):  # RuntimeError: more axes than an array can have
        return False


# ---- errors


def _errors(
    g: Graph, origin: Graph, at: Instance, dims_of: Binding
) -> tuple[tuple[float, float | None], tuple[float, float | None]]:
    """Errors in float32 and float16 of the graph, and of the origin."""
    positions = _positions(g, origin, at)
    reference = _values(origin, at, at.dims, positions, "float64")
    written = _values(origin, at, at.dims, positions, "float32")
    own = written if g == origin else _values(g, at, dims_of(at), positions, "float32")
    return _compared(own, reference), _compared(written, reference)


def _compared(values: Sequence[Array], reference: Sequence[Array]) -> tuple[float, float | None]:
    single = max(map(_relative, values, reference))
    if any((np.isfinite(r) & ~np.isfinite(round_to(r, "float16"))).any() for r in reference):
        return single, None
    return single, max(_relative(round_to(x, "float16"), r) for x, r in zip(values, reference, strict=True))


def _relative(x: Array, reference: Array) -> float:
    """Infinite where one is finite and the other is not; a reference that is 0 everywhere allows nothing else."""
    finite = np.isfinite(reference)
    if not (np.isfinite(x) == finite).all() or not np.array_equal(x[~finite], reference[~finite], equal_nan=True):
        return np.inf
    error = np.abs(x[finite] - reference[finite]).max(initial=0.0)
    size = np.abs(reference[finite]).max(initial=0.0)
    with np.errstate(divide="ignore"):
        return float(error / size) if error else 0.0


# ---- values at some positions


def _positions(g: Graph, origin: Graph, at: Instance) -> dict[Axis, Array]:
    """A few positions on axes that are stored and never reduced: literal extents may be large."""
    bound = {bound_axis(t) for t in walk(*g.terms, *origin.terms)}
    stored = {a for o in origin.outputs for a in _stored(o) if a not in bound}
    extents = greatest_extents(origin.axes, at.dims, at.inputs)
    return {a: np.unique(np.linspace(0, extents[a] - 1, _POSITIONS).astype(int)) for a in stored if extents[a]}


def _stored(o: Output) -> list[Axis]:
    return sorted(frozenset[Axis]().union(*(axes_of(i) for i in o.indices)), key=lambda a: a.name)


def _values(
    g: Graph, at: Instance, dims: Mapping[str, int], positions: Mapping[Axis, Array], precision: str
) -> list[Array]:
    """Elements of every output that exist, in an order that depends on the stored axes only."""
    space = make_space(g.axes, at.inputs, dims, positions, precision)
    memo: dict[Term, Array] = {}
    return [_elements(o, value(o.term, space, memo), space) for o in g.outputs]


def _elements(o: Output, result: Array, space: Space) -> Array:
    axes = _stored(o)
    shape = [1] * len(space.order)
    for a in axes:
        shape[space.number(a)] = space.environment[a].size
    first = [space.number(a) for a in axes]
    order = [*first, *(n for n in range(len(shape)) if n not in first)]
    whole, valid = (np.broadcast_to(x, shape).transpose(order) for x in (result, space.valid_for(axes)))
    return whole[valid].astype(np.float64)
