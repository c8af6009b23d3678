"""Do two outputs of one graph have the same values? A search for an instance at which they have not.

sizes     1, 2 and 3 with small whole numbers, so that what is found can be read; each dim 0; small different ones with
          every pattern of data; then the verifier's medium ones, and one dim beyond each constant that index
          expressions and predicates mention (a window of 1024)
values    NaN and infinities inside a graph break the assumption "finite": if that is granted, such an instance says
          nothing; the -inf of masks is no such value. "nonzero" leaves out dims and inputs that hold a 0, and
          "nonnegative" draws inputs without a sign
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cleave.config import Config
from cleave.errors import CleaveError
from cleave.ir.graph import Graph, Term, free, term_indices, walk
from cleave.ir.index import Index, Position
from cleave.ir.instance import (
    Instance,
    dims_near,
    draw_inputs,
    fixed_dims,
    free_symbols,
    greatest_extents,
    meets,
)
from cleave.ir.interp import Space, interpret, make_space, operands, value
from cleave.ir.op import FLOATS
from cleave.ir.polynomial import parts
from cleave.verify.instantiate import Array, Data, draw_data, footprint
from cleave.verify.metric import MAGNITUDE, Tolerance, compare, with_magnitudes
from cleave.verify.reference import References

_STRICT = Tolerance(frobenius=np.inf, relative=1e-7, ulps=2.0, dtype="float64")
_TINY = 24
_SIZES = (2, 3, 5, 4, 7, 6)
_EDGES = 8
_MOST_ELEMENTS = 2_000_000
_SHOWN = 24
"""Elements of an input that are written out."""


@dataclass(frozen=True)
class Counterexample:
    """An instance at which two outputs differ: where, and both values."""

    dims: Mapping[str, int]
    inputs: Mapping[str, Array] = field(repr=False)
    output: str
    position: tuple[int, ...]
    left: float
    right: float

    def lines(self, names: tuple[str, str]) -> list[str]:
        """Sizes, inputs that are small enough to read, and the element that differs."""
        out = ["at " + ", ".join(f"{k} = {v}" for k, v in sorted(self.dims.items()))] if self.dims else []
        for name, array in self.inputs.items():
            shape = " x ".join(map(str, array.shape))
            out.append(f"{name} = {_written(array)}" if array.size <= _SHOWN else f"{name}: {shape} drawn numbers")
        where = f"[{', '.join(map(str, self.position))}]" if self.position else ""
        out.append(f"{self.output}{where} = {self.left:.10g} in {names[0]}, {self.right:.10g} in {names[1]}")
        return out

    def as_dict(self) -> dict[str, Any]:
        return {
            "dims": dict(self.dims),
            "inputs": {n: a.tolist() if a.size <= _SHOWN else {"shape": list(a.shape)} for n, a in self.inputs.items()},
            "output": self.output,
            "position": list(self.position),
            "values": [self.left, self.right],
        }


def _written(array: Array) -> str:
    if array.dtype.kind == "f":
        return str([f"{x:.6g}" for x in array.ravel()]).replace("'", "") if array.ndim == 1 else _nested(array)
    return str(array.tolist())


def _nested(array: Array) -> str:
    return f"{float(array):.6g}" if array.ndim == 0 else f"[{', '.join(_nested(row) for row in array)}]"


@dataclass(frozen=True)
class Trials:
    """How many instances two outputs agreed on, and the one at which they did not.

    ``beyond`` is one at which they differ, but where a value inside is not finite, which was assumed.
    """

    instances: int
    counterexample: Counterexample | None = None
    beyond: Counterexample | None = None


@dataclass
class _Pairs:
    """Outputs of one graph that are compared, and what may be assumed of its values."""

    graph: Graph
    pairs: Sequence[tuple[str, str]]
    config: Config
    instances: int = 0
    beyond: Counterexample | None = None

    def differ(self, instances: Iterable[tuple[Instance, dict[str, Array]]]) -> Counterexample | None:
        """The first instance that says something and tells two outputs apart."""
        for at, values in instances:
            if not self._allowed(at):
                continue
            found = next((c for pair in self.pairs if (c := self._difference(at, values, *pair)) is not None), None)
            if found is None:
                self.instances += 1
            elif "finite" not in self.config.assume or _is_finite(self.graph, at):
                return found
            else:
                self.beyond = self.beyond or found
        return None

    def _allowed(self, at: Instance) -> bool:
        floats = [at.inputs[i.name] for i in self.graph.inputs if i.dtype in FLOATS]
        if "nonzero" in self.config.assume and (0 in at.dims.values() or any((a == 0).any() for a in floats)):
            return False
        return "nonnegative" not in self.config.assume or not any((a < 0).any() for a in floats)

    def _difference(self, at: Instance, values: Mapping[str, Array], left: str, right: str) -> Counterexample | None:
        a, b = values[left], values[right]
        magnitude = np.fmax(values[MAGNITUDE.format(left)], values[MAGNITUDE.format(right)])
        found = compare(b, a, magnitude, _STRICT)
        if found.passed:
            return None
        position = tuple(int(i) for i in np.unravel_index(found.where, a.shape))
        return Counterexample(at.dims, at.inputs, left, position, float(a[position]), float(b[position]))


def find_counterexample(
    g: Graph, pairs: Sequence[tuple[str, str]], config: Config | None = None, *, thorough: bool = False
) -> Trials:
    """Compare outputs of a graph, pair by pair, on drawn instances; ``thorough`` adds medium sizes and large edges."""
    config = config or Config()
    state = _Pairs(g, pairs, config)
    drawn = _thorough(g, config) if thorough else _quick(g, config)
    found = state.differ(drawn)
    return Trials(state.instances, found, state.beyond)


# ---- instances


def _quick(g: Graph, config: Config) -> Iterator[tuple[Instance, dict[str, Array]]]:
    smallest = sorted(_tiny(g, config), key=lambda at: sum(a.size for a in at.inputs.values()))
    yield from _evaluated(g, smallest)
    yield from _evaluated(g, _small(g, config))


def _thorough(g: Graph, config: Config) -> Iterator[tuple[Instance, dict[str, Array]]]:
    yield from ((r.instance, r.values) for r in References(g, config.seed).medium())
    yield from _evaluated(g, _edges(g, config))


def _evaluated(g: Graph, instances: Iterable[Instance]) -> Iterator[tuple[Instance, dict[str, Array]]]:
    measured = with_magnitudes(g)
    for at in instances:
        try:
            yield at, interpret(measured, at.inputs, at.dims)
        except (CleaveError, MemoryError):
            continue  # integers that point outside a table: no instance of this graph


def _tiny(g: Graph, config: Config) -> Iterator[Instance]:
    rng = np.random.default_rng([config.seed, 1])

    def whole(shape: tuple[int, ...]) -> Array:
        drawn: Array = rng.integers(-3, 4, shape).astype(np.float64)
        drawn = np.where(drawn == 0, 1.0, drawn) if "nonzero" in config.assume else drawn
        drawn = np.abs(drawn) if "nonnegative" in config.assume else drawn
        return drawn if "finite" in config.assume else np.where(rng.random(shape) < 0.2, -np.inf, drawn)

    free = free_symbols(g)
    wishes = [{s.name: int(n) for s, n in zip(free, rng.integers(1, 3, len(free)), strict=True)} for _ in range(_TINY)]
    wishes += [{s.name: int(n) for s, n in zip(free, rng.integers(1, 4, len(free)), strict=True)} for _ in range(_TINY)]
    wishes += [{**wishes[number % _TINY], s.name: 0} for number, s in enumerate(free)]
    for number, wish in enumerate(wishes):
        dims = _fitted(g, wish, rng)
        if dims is not None:
            yield Instance(dims, draw_inputs(g, dims, rng, real=whole, greatest=1 + number % 3))


def _small(g: Graph, config: Config) -> Iterator[Instance]:
    """Different sizes that divide nothing, with every pattern of data."""
    rng = np.random.default_rng([config.seed, 3])
    free = free_symbols(g)
    for number, data in enumerate((*Data, *Data)):
        sizes = rng.permutation(_SIZES if number % 2 else _SIZES[:4])
        dims = _fitted(g, {s.name: int(sizes[k % len(sizes)]) for k, s in enumerate(free)}, rng)
        if dims is not None:
            yield Instance(dims, draw_data(g, dims, data, rng), data)


def _fitted(g: Graph, wish: Mapping[str, int], rng: np.random.Generator) -> dict[str, int] | None:
    """Values of all dims near the wished ones that the constraints and the memory allow."""
    found = dims_near(g, wish, rng)
    dims = {**fixed_dims(g), **found} if found is not None else None
    if dims is None or footprint(g.terms, greatest_extents(g.axes, dims, {})) > _MOST_ELEMENTS:
        return None
    return dims


def _edges(g: Graph, config: Config) -> Iterator[Instance]:
    """Instances in which one dim is a little more than a constant that the graph mentions."""
    rng = np.random.default_rng([config.seed, 2])
    constants = sorted(_constants(g))[-_EDGES:]
    for size in constants:
        for long in free_symbols(g):
            wish = {s.name: size + 3 if s is long else 1 + number % 3 for number, s in enumerate(free_symbols(g))}
            dims = {**fixed_dims(g), **wish}
            if meets(g, dims) and footprint(g.terms, greatest_extents(g.axes, dims, {})) <= _MOST_ELEMENTS:
                yield Instance(dims, draw_inputs(g, dims, rng, greatest=size + 3))


def _constants(g: Graph) -> set[int]:
    """Numbers in index expressions and predicates that no size of the other instances reaches."""
    found: set[int] = set()
    stack: list[Index] = [i for t in walk(*g.terms) for i in term_indices(t)]
    while stack:
        i = stack.pop()
        found |= {abs(c) for _, c in i.terms if abs(c) > 3}
        stack += [p for atom in i.atoms() if not isinstance(atom, Position) for p in parts(atom)]
    return found


# ---- admissible values


def _is_finite(g: Graph, at: Instance) -> bool:
    """Whether every value inside the graph is a number or -inf."""
    try:
        space = make_space(g.axes, at.inputs, {**fixed_dims(g), **at.dims})
        memo: dict[Term, Array] = {}
        return all(_has_value(t, space, memo) for t in walk(*g.terms, below=operands))
    except RuntimeError:  # more axes than an array can have
        return True


def _has_value(t: Term, space: Space, memo: dict[Term, Array]) -> bool:
    found, there = np.broadcast_arrays(value(t, space, memo), space.valid_for(free(t)))
    return not bool((np.isnan(found[there]) | (found[there] == np.inf)).any())
