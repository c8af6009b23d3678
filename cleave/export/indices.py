"""Dims, index expressions, predicates and reads of an exported program, each emitted once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeAlias

from cleave.errors import GraphError
from cleave.export.access import Run, bound, is_ragged, plain_runs, settled
from cleave.export.builder import Builder, Size, Value
from cleave.export.sizes import DimPlan
from cleave.ir.axis import Axis
from cleave.ir.graph import Graph
from cleave.ir.index import (
    And,
    Atom,
    BoolRead,
    Compare,
    Floor,
    Index,
    Max,
    Min,
    Mod,
    Not,
    Or,
    Position,
    Pred,
    Read,
    Symbol,
    axes_of,
    index,
    nonnegative,
    parts,
    show,
)


@dataclass(frozen=True)
class Array:
    """A value whose dimensions are these axes, in the order of the program's axes."""

    value: Value
    axes: tuple[Axis, ...]


Whole: TypeAlias = "Array | Size"
_FOLD: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
}
_ATOMS: dict[type[Atom], str] = {Floor: "//", Mod: "%", Min: "min", Max: "max"}


@dataclass
class Indices:
    """``buffers`` are the inputs, ``sizes`` the dims that are known."""

    graph: Graph
    plan: DimPlan
    builder: Builder
    buffers: dict[str, Value] = field(default_factory=dict[str, Value])
    sizes: dict[str, Size] = field(default_factory=dict[str, Size])
    order: dict[Axis, int] = field(default_factory=dict[Axis, int])
    wholes: dict[Index, Whole] = field(default_factory=dict[Index, Whole])
    lengths: dict[Axis, Size] = field(default_factory=dict[Axis, Size])
    masks: dict[Pred, Array] = field(default_factory=dict[Pred, Array])
    positions: dict[Axis, Array] = field(default_factory=dict[Axis, Array])
    checked: dict[tuple[Index, Index], Array] = field(default_factory=dict[tuple[Index, Index], Array])

    def __post_init__(self) -> None:
        self.order = {a: n for n, a in enumerate(self.graph.axes)}

    # ---- order of axes

    def sorted(self, axes: Iterable[Axis]) -> tuple[Axis, ...]:
        return tuple(sorted(set(axes), key=self.order.__getitem__))

    def aligned(self, *arrays: Array, full: bool = False) -> tuple[list[Value], tuple[Axis, ...]]:
        """Values that broadcast over the axes of all; ``full``: of one rank, leading axes included."""
        axes = self.sorted(a for x in arrays for a in x.axes)
        return [self.over(x, axes, full=full) for x in arrays], axes

    def over(self, x: Array, axes: tuple[Axis, ...], *, full: bool = False) -> Value:
        """The value with dimensions of size 1 for axes that it lacks."""
        first = 0 if full or not x.axes else axes.index(x.axes[0])
        missing = [n - first for n in range(first, len(axes)) if axes[n] not in x.axes]
        if not x.axes and not full:
            return x.value
        return self.builder.unsqueeze(x.value, missing) if missing else x.value

    def expanded(self, x: Array, axes: tuple[Axis, ...]) -> Value:
        """The value over all of some axes, those that it lacks included."""
        value = self.over(x, axes, full=True)
        return value if x.axes == axes else self.builder.expand(value, [self.length(a) for a in axes])

    # ---- sizes

    def size(self, i: Index, name: str = "") -> Size:
        """The value of a dim."""
        found = self.whole(i, name)
        if isinstance(found, Array):
            raise GraphError(f"{show(i)} is no dim", location=self.graph.name)
        return found

    def settled(self, i: Index) -> Index:
        return settled(i, self.plan.values)

    def length(self, a: Axis) -> Size:
        """The extent of an axis; of a ragged one the greatest, or a bound that only its shape decides."""
        if a not in self.lengths:
            limit = bound(a.extent)
            if limit is None:
                array = self.whole(a.extent)
                assert isinstance(array, Array)
                self.lengths[a] = self.builder.greatest(array.value, f"{a.name}_size")
            else:
                known = self.size(limit)
                self.lengths[a] = known if nonnegative(limit) else self._combined("max", known, 0, "")
        return self.lengths[a]

    # ---- integer expressions

    def whole(self, i: Index, name: str = "") -> Whole:
        """An integer expression: a size where it depends on no axis and reads nothing, else an array."""
        if i not in self.wholes:
            self.wholes[i] = self._sum(i, name)
        return self.wholes[i]

    def array(self, i: Index) -> Array:
        found = self.whole(i)
        return found if isinstance(found, Array) else Array(self.builder.number(found), ())

    def _sum(self, i: Index, name: str) -> Whole:
        total: Whole | None = None
        terms = sorted(i.terms, key=lambda term: term[1] < 0)
        for number, (monomial, c) in enumerate(terms):
            factors = [self._atom(atom) for atom, power in monomial for _ in range(power)]
            scale = abs(c) if total is not None else c
            if scale != 1 or not factors:
                factors = [scale, *factors]
            label = name if number == len(terms) - 1 else ""
            product = reduce(lambda a, b: self._combined("*", a, b, label), factors)
            total = product if total is None else self._combined("-" if c < 0 else "+", total, product, label)
        return 0 if total is None else total

    def _atom(self, atom: Atom) -> Whole:
        match atom:
            case Symbol(name):
                return self.plan.values[name] if name in self.plan.values else self.sizes[name]
            case Position(axis):
                if axis not in self.positions:
                    self.positions[axis] = Array(self.builder.arange(self.length(axis), axis.name), (axis,))
                return self.positions[axis]
            case Read(name, indices):
                return self.load(name, indices)
            case _:
                left, right = map(self.whole, parts(atom))
                return self._combined(_ATOMS[type(atom)], left, right, "")

    def _combined(self, op: str, a: Whole, b: Whole, name: str) -> Whole:
        if isinstance(a, Array) or isinstance(b, Array):
            x = a if isinstance(a, Array) else None
            y = b if isinstance(b, Array) else None
            values, axes = self.aligned(*(v for v in (x, y) if v is not None))
            needs_arrays = op in ("min", "max")
            left = values[0] if x else self.builder.number(a) if needs_arrays else a
            right = values[-1] if y else self.builder.number(b) if needs_arrays else b
            return Array(self.builder.integers(op, left, right), axes)
        if isinstance(a, int) and isinstance(b, int) and (b or op not in ("//", "%")):
            return _FOLD[op](a, b)
        return self.builder.whole(op, a, b, name)

    # ---- predicates

    def mask(self, p: Pred) -> Array:
        if p not in self.masks:
            self.masks[p] = self._mask(p)
        return self.masks[p]

    def _mask(self, pred: Pred) -> Array:
        match pred:
            case Compare(op, a, b):
                left, right = self.array(a), self.array(b)
                values, axes = self.aligned(left, right)
                return Array(self.builder.compare(op, *values), axes)
            case BoolRead(name, indices):
                return self.load(name, indices)
            case And(p, q) | Or(p, q):
                values, axes = self.aligned(self.mask(p), self.mask(q))
                return Array(self.builder.logic("and" if isinstance(pred, And) else "or", *values), axes)
            case Not(q):
                inner = self.mask(q)
                return Array(self.builder.logic("not", inner.value), inner.axes)

    def valid(self, axes: Iterable[Axis]) -> Array | None:
        """Where positions on ragged axes exist; None where all do."""
        found: Array | None = None
        for a in self.sorted(axes):
            if is_ragged(a):
                exists = self.mask(Compare("<", index(a), a.extent))
                if found is None:
                    found = exists
                else:
                    values, along = self.aligned(found, exists)
                    found = Array(self.builder.logic("and", *values), along)
        return found

    # ---- reads

    def load(self, name: str, indices: Sequence[Index]) -> Array:
        """Elements of an input: runs are views of it, for the rest it is gathered."""
        source = self.graph.input(name)
        runs = plain_runs(indices, self.plan.values)
        gathered = [k for k, run in enumerate(runs) if run is None]
        value, axes = self._views(name, runs)
        if not gathered:
            return Array(*self._in_order(value, axes))
        inside = [self.inside(indices[k], source.shape[k], f"input {name}, axis {k}") for k in gathered]
        positions, along = self.aligned(*inside, full=True)
        # The dimensions that are gathered stand first, under their numbers.
        order = [n for n, a in enumerate(axes) if a is None] + [n for n, a in enumerate(axes) if a is not None]
        kept = [a for a in axes if a is not None]
        found = self.builder.gather(self._permuted(value, order), positions)
        return Array(*self._in_order(found, [*along, *kept]))

    def inside(self, i: Index, extent: Index, what: str) -> Array:
        """Positions along a dimension: checked where they exist, 0 elsewhere."""
        key = (i, extent)
        if key not in self.checked:
            valid = self.valid(axes_of(i))
            arrays = [self.array(i)] if valid is None else [self.array(i), valid]
            values, axes = self.aligned(*arrays)
            exists = None if valid is None else values[1]
            found = self.builder.inside(values[0], self.size(extent), exists, f"{what}: an index is outside")
            self.checked[key] = Array(found, axes)
        return self.checked[key]

    def _views(self, name: str, runs: Sequence[Run | None]) -> tuple[Value, list[Axis | None]]:
        """The buffer with its runs cut out and taken apart, and the axes of its dimensions; None: to be gathered."""
        value, shape = self.buffers[name], self.graph.input(name).shape
        for k, run in reversed(list(enumerate(runs))):
            if run is None:
                continue
            if not run.axes:
                value = self.builder.select(value, k, self.size(run.start))
            elif run.start is not index(0) or self.settled(run.length) is not self.settled(shape[k]):
                value = self.builder.narrow(value, k, self.size(run.start), self._product(run.axes))
        axes: list[Axis | None] = []
        sizes: list[Size] = []
        for k, run in enumerate(runs):
            axes += [None] if run is None else run.axes
            sizes += [self.size(shape[k])] if run is None else [self.length(a) for a in run.axes]
        if any(run is not None and len(run.axes) > 1 for run in runs):
            value = self.builder.reshape(value, sizes)
        return value, axes

    def _product(self, axes: Sequence[Axis]) -> Size:
        return reduce(lambda n, a: self._combined("*", n, self.length(a), ""), axes[1:], self.length(axes[0]))

    def _in_order(self, value: Value, axes: Sequence[Axis | None]) -> tuple[Value, tuple[Axis, ...]]:
        known = [a for a in axes if a is not None]
        final = self.sorted(known)
        return self._permuted(value, [known.index(a) for a in final]), final

    def _permuted(self, value: Value, order: Sequence[int]) -> Value:
        return value if list(order) == list(range(len(order))) else self.builder.permute(value, order)
