"""From a graph to calls of a builder: every term once, a sum of products as one einsum.

A value has one dimension for each of its axes, in the order of the graph's axes. Positions that do not exist (beyond a
ragged extent, in the tail of a split) hold anything: a reduction puts the identity there, a store leaves them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from string import ascii_letters

from cleave.candidate import Candidate
from cleave.errors import GraphError
from cleave.export.access import Run, is_ragged, plain_runs
from cleave.export.builder import Builder, Size, Value
from cleave.export.indices import Array, Indices
from cleave.export.sizes import plan_dims
from cleave.ir.axis import Axis
from cleave.ir.dim import facts
from cleave.ir.graph import (
    Cast,
    Const,
    Graph,
    IndexValue,
    Load,
    Map,
    Output,
    Reduce,
    Ref,
    Term,
    TopK,
    Where,
    children,
    product_factors,
    walk,
)
from cleave.ir.index import Compare, Index, Pred, Symbol, axes_of, inputs_of, show
from cleave.ir.op import MONOIDS


def lower(source: Graph | Candidate, builder: Builder, bind: Mapping[str, int]) -> None:
    """Emit the arguments, checks, values and outputs of a graph.

    Errors: what the builder has no form for, by name (GraphError).
    """
    candidate = source if isinstance(source, Candidate) else None
    g = source if isinstance(source, Graph) else source.graph
    plan = plan_dims(g, bind, candidate)
    indices = Indices(g, plan, builder)
    for i in g.inputs:
        indices.buffers[i.name] = builder.input(i, _shape_text(indices, i.shape))
    for s in plan.free:
        indices.sizes[s.name] = builder.dim(s.name)
    _learn(indices)
    _check(indices)
    program = _Program(g, indices, builder)
    for o in g.outputs:
        program.store(o)


def _shape_text(indices: Indices, shape: Sequence[Index]) -> list[str | int]:
    settled = [indices.settled(extent) for extent in shape]
    return [show(extent) if extent.constant is None else extent.constant for extent in settled]


def _learn(indices: Indices) -> None:
    """The dims that shapes give, and the chunk lengths that follow from counts."""
    b = indices.builder
    for found in indices.plan.learnt:
        name = found.symbol.name
        plain = found.rest.constant == 0 and found.factor.constant == 1
        size = b.size(indices.buffers[found.input], found.dimension, name if plain else "")
        if found.rest.constant != 0:
            size = b.whole("-", size, indices.size(found.rest), "")
        if found.factor.constant != 1:
            size = b.whole("//", size, indices.size(found.factor), name)
        indices.sizes[name] = size
    for name, chunk in indices.plan.chunks.items():
        indices.sizes[name] = indices.size(chunk, name)


def _check(indices: Indices) -> None:
    """Every extent, declared range and constraint that a call could break."""
    g, b, learnt = indices.graph, indices.builder, indices.plan.learnt
    taken = {(m.input, m.dimension) for m in learnt if m.rest.constant == 0 and m.factor.constant == 1}
    for i in g.inputs:
        for k, extent in enumerate(i.shape):
            if (i.name, k) not in taken:
                size = b.size(indices.buffers[i.name], k, "")
                b.require(
                    "==", size, indices.size(extent), f"input {i.name}, axis {k}: the extent must be {show(extent)}"
                )
    for s in g.symbols:
        if s.name in indices.sizes and s.name not in indices.plan.chunks:
            _check_facts(indices, s)
    for pred in g.constraints:
        _check_constraint(indices, pred)


def _check_facts(indices: Indices, s: Symbol) -> None:
    b, size, message = indices.builder, indices.sizes[s.name], f"dim {s.name}: allowed is {facts(s).strip()}"
    if s.minimum:
        b.require("<=", s.minimum, size, message)
    if s.maximum is not None:
        b.require("<=", size, s.maximum, message)
    if s.multiple != 1:
        b.require("==", b.whole("%", size, s.multiple, ""), 0, message)


def _check_constraint(indices: Indices, pred: Pred) -> None:
    """Constraints that are comparisons; < as <= of the next integer."""
    match pred:
        case Compare(op, left, right):
            limit = indices.size(right - 1 if op == "<" else right)
            indices.builder.require("==" if op == "==" else "<=", indices.size(left), limit, f"constraint {pred}")
        case _:
            raise GraphError(f"constraint {pred}: only comparisons can be exported", location=indices.graph.name)


@dataclass
class _Program:
    graph: Graph
    indices: Indices
    builder: Builder
    made: dict[Term, Array] = field(default_factory=dict[Term, Array])
    uses: Counter[Term] = field(default_factory=Counter[Term])
    names: dict[Term, str] = field(default_factory=dict[Term, str])

    def __post_init__(self) -> None:
        from cleave.ir.text import shared_names

        self.names = shared_names(self.graph)
        self.uses.update(self.graph.terms)
        for t in walk(*self.graph.terms):
            self.uses.update(children(t))

    def value(self, root: Term) -> Array:
        known = self.made
        for t in walk(root, below=lambda u: () if u in known else self._operands(u)):
            if t not in known:
                known[t] = self._node(t)
        return known[root]

    def _operands(self, t: Term) -> tuple[Term, ...]:
        return product_factors(self._contracted(t)[1]) if isinstance(t, Reduce) and t.op == "sum" else children(t)

    def _contracted(self, t: Reduce) -> tuple[list[Axis], Term]:
        """Axes of sums one inside the other that nothing else uses, and what is summed."""
        axes, body = [t.axis], t.body
        while (
            isinstance(body, Reduce)
            and body.op == "sum"
            and self.uses[body] == 1
            and not (is_ragged(t.axis) or is_ragged(body.axis))
            and body.axis not in axes
        ):
            axes.append(body.axis)
            body = body.body
        return axes, body

    def _node(self, t: Term) -> Array:
        name = self.names.get(t, "")
        match t:
            case Load(source, indices):
                read = self.indices.load(source, indices)
                return Array(self.builder.to_real(read.value), read.axes)
            case Const(number):
                return Array(self.builder.constant(number), ())
            case IndexValue(i):
                whole = self.indices.array(i)
                return Array(self.builder.to_real(whole.value), whole.axes)
            case Map(op, args):
                values, axes = self.indices.aligned(*(self.made[a] for a in args))
                return Array(self.builder.map(op, values, name), axes)
            case Where(pred, a, b):
                values, axes = self.indices.aligned(self.indices.mask(pred), self.made[a], self.made[b])
                return Array(self.builder.where(values[0], values[1], values[2], name), axes)
            case Cast(dtype, a):
                return Array(self.builder.round_to(self.made[a].value, dtype), self.made[a].axes)
            case Reduce():
                return self._reduced(t, name)
            case TopK(_, axis, _, _):
                raise GraphError(f"the top-k over axis {axis} can't be exported", location=self.graph.name)
            case Ref(ref, _):
                raise GraphError(f"reference {ref} to a value outside the graph", location=self.graph.name)

    # ---- reductions

    def _reduced(self, t: Reduce, name: str) -> Array:
        if t.op == "sum":
            axes, body = self._contracted(t)
            factors = [self.made[f] for f in product_factors(body)]
            if self._is_einsum(factors, axes):
                return self._einsum(factors, axes, name)
            values, along = self.indices.aligned(*factors)
            whole = Array(reduce(lambda a, b: self.builder.map("mul", [a, b], ""), values), along)
            for a in reversed(axes):
                whole = self._along(t.op, a, whole, name)
            return whole
        return self._along(t.op, t.axis, self.made[t.body], name)

    def _is_einsum(self, factors: Sequence[Array], axes: Sequence[Axis]) -> bool:
        """Two arrays or more; along a ragged axis only if each is masked there: no infinity may meet a mask's 0."""
        arrays = [f for f in factors if f.axes]
        if len(arrays) < 2 or not all(any(a in f.axes for f in arrays) for a in axes):
            return False
        return not is_ragged(axes[0]) or all(axes[0] in f.axes for f in arrays)

    def _einsum(self, factors: Sequence[Array], axes: Sequence[Axis], name: str) -> Array:
        arrays = [self._masked(f, axes[0], 0.0) for f in factors if f.axes]
        scalars = [f.value for f in factors if not f.axes]
        kept = tuple(a for a in self.indices.sorted(a for f in arrays for a in f.axes) if a not in axes)
        letters = _letters(self.indices.sorted([*kept, *axes]))
        equation = ",".join("".join(letters[a] for a in f.axes) for f in arrays)
        equation += "->" + "".join(letters[a] for a in kept)
        value = self.builder.einsum(equation, [f.value for f in arrays], name)
        return Array(reduce(lambda a, b: self.builder.map("mul", [a, b], ""), scalars, value), kept)

    def _masked(self, x: Array, axis: Axis, identity: float) -> Array:
        """The identity at positions of the axis that do not exist."""
        valid = self.indices.valid([axis])
        if valid is None:
            return x
        neutral = Array(self.builder.constant(identity), ())
        values, axes = self.indices.aligned(valid, x, neutral)
        return Array(self.builder.where(values[0], values[1], values[2], ""), axes)

    def _along(self, op: str, axis: Axis, x: Array, name: str) -> Array:
        """The reduction of one array over one axis; of none but the identity over an axis without positions."""
        identity = MONOIDS[op].identity
        full = self.indices.sorted([*x.axes, axis])
        x = self._masked(Array(self.indices.expanded(x, full), full), axis, identity)
        dimension = x.axes.index(axis)
        value = x.value
        if op != "sum" and not self._has_positions(axis):
            value = self.builder.pad(value, dimension, len(x.axes), identity)
        value = self.builder.reduce(op, value, dimension, name)
        return Array(value, tuple(a for a in x.axes if a is not axis))

    def _has_positions(self, axis: Axis) -> bool:
        """Whether the extent is at least 1 whatever is bound."""
        extent = self.indices.settled(axis.extent)
        atom = extent.atom
        return (extent.constant or 0) >= 1 or (isinstance(atom, Symbol) and atom.minimum >= 1)

    # ---- results

    def store(self, o: Output) -> None:
        x = self.value(o.term)
        runs = self._store_runs(o)
        shape = [self.indices.size(extent) for extent in o.shape]
        axes = tuple(a for run in runs for a in run.axes) if runs is not None else None
        value = self._scattered(o, x, shape) if axes is None or runs is None else self._laid_out(x, axes, runs, shape)
        self.builder.store(value, o, _shape_text(self.indices, o.shape))

    def _store_runs(self, o: Output) -> list[Run] | None:
        """The runs of a store that fills its buffer, None if it has others or leaves places out."""
        runs: list[Run] = []
        for run, extent in zip(plain_runs(o.indices, self.indices.plan.values), o.shape, strict=True):
            settled = self.indices.settled
            if run is None or run.start.constant != 0 or settled(run.length) is not settled(extent):
                return None
            runs.append(run)
        return runs

    def _laid_out(self, x: Array, axes: tuple[Axis, ...], runs: Sequence[Run], shape: Sequence[Size]) -> Value:
        order = self.indices.sorted(axes)
        value = self.indices.expanded(x, order)
        if order != axes:
            value = self.builder.permute(value, [order.index(a) for a in axes])
        return value if all(len(run.axes) == 1 for run in runs) else self.builder.reshape(value, shape)

    def _scattered(self, o: Output, x: Array, shape: Sequence[Size]) -> Value:
        """Elements stored where index expressions say; NaN where nothing is stored."""
        stored = self.indices.sorted(a for i in o.indices for a in axes_of(i))
        valid = self.indices.valid(stored)
        where: list[Value] = []
        for k, i in enumerate(o.indices):
            message = f"output {o.name}, axis {k}"
            position = self.indices.inside(i, o.shape[k], message) if inputs_of(i) else self.indices.array(i)
            where.append(self.indices.expanded(position, stored))
        mask = None if valid is None else self.indices.expanded(valid, stored)
        return self.builder.scatter(shape, where, self.indices.expanded(x, stored), mask)


def _letters(axes: Sequence[Axis]) -> dict[Axis, str]:
    """A letter for each axis, the first of its name where that is free."""
    out: dict[Axis, str] = {}
    for a in axes:
        wanted = (a.name[0], *ascii_letters)
        free = (c for c in wanted if c in ascii_letters and c not in out.values())
        letter = next(free, None)
        if letter is None:
            raise GraphError(f"a sum over products of {len(axes)} axes: einsum has {len(ascii_letters)} letters")
        out[a] = letter
    return out
