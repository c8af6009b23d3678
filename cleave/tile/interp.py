"""The NumPy meaning of tile programs: each block in turn, each loop tile by tile. The specification that emitted
kernels meet.

Values are arrays with one dimension per axis of the program (size 1 where a value does not depend on it). Reads
beyond an axis give 0; a position that exists and lies outside its input is an error. Whatever the program forgets to
mask, shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cleave.errors import ScheduleError
from cleave.ir.axis import Axis
from cleave.ir.bind import bind_dims, dims_of_callers
from cleave.ir.graph import Cast, Const, Graph, IndexValue, Load, Map, Reduce, Ref, TopK, Where, free
from cleave.ir.index import Pred, evaluate, evaluate_pred, show_pred
from cleave.ir.interp import Space, contract, load_value, pred_value, store
from cleave.ir.op import FLOATS, MAPS, MONOIDS, round_to
from cleave.tile.check import check_merge, merged_pairs
from cleave.tile.plan import Schedule
from cleave.tile.program import Contract, Let, Loop, Program, Stmt, Store, TileTerm, Update, program_axes

Array = NDArray[Any]
Values = dict[str, Array]
Rounding = Literal["none", "storage"]
"""``none``: float64 throughout, only casts that the graph wrote; ``storage``: operands of matmuls and stored values
are rounded."""


def run_program(
    program: Program,
    tiles: Mapping[Axis, int],
    buffers: Mapping[str, Array],
    dims: Mapping[str, int],
    rounding: Rounding = "none",
) -> None:
    """Run every block of a program; ``buffers`` holds its inputs and its outputs, which are written in place.

    ``tiles`` are elements a tile (unit axes need none). Errors: a whole axis longer than its tile, a read or store
    out of range.
    """
    block = _Block(program, tiles, buffers, rounding)
    with np.errstate(all="ignore"):
        for space in block.grid(program.grid, block.empty(dims)):
            inner = space
            for a in program.whole:
                inner = block.at(inner, a, 0)
                block.check_whole(inner, a)
            block.run(program.body, inner, {})


def run_schedule(
    schedule: Schedule, inputs: Mapping[str, Any], dims: Mapping[str, int] | None = None, rounding: Rounding = "none"
) -> dict[str, Array]:
    """Outputs of a schedule: its kernels in order over temporaries that start as NaN; both ways to merge a split are
    this order."""
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    values = schedule_dims(schedule, {name: a.shape for name, a in arrays.items()}, dims)
    for pred in schedule.constraints:
        _check_constraint(schedule, pred, values)
    buffers = dict(arrays)
    for buffer in (*schedule.temporaries, *schedule.graph.outputs):
        buffers[buffer.name] = np.full([int(evaluate(n, values)) for n in buffer.shape], np.nan)
    for first, second in merged_pairs(schedule):
        check_merge(first, second, schedule.bind)
    for kernel in schedule.kernels:
        run_program(kernel.program, kernel.binding.tiles, buffers, values, rounding)
    return {o.name: buffers[o.name] for o in schedule.graph.outputs}


def schedule_dims(
    schedule: Schedule, shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Values of all symbols of a schedule: from the shapes, the caller, what is compiled in, and the chunk lengths
    of splits."""
    known = {s.name for s in schedule.graph.symbols}
    derived = {c.symbol.name for c in schedule.chunks}
    given = {k: v for k, v in {**(dims or {}), **schedule.bind}.items() if k in known and k not in derived}
    for name, value in schedule.bind.items():
        if (dims or {}).get(name, value) != value:
            raise ScheduleError(f"dim {name} = {(dims or {})[name]}: compiled for {value}", location=schedule.candidate)
    # chunk lengths come last; no kernel has one where a split is one chunk
    made_up = set(schedule.graph.symbols) - set(dims_of_callers(schedule.graph))
    placeholders = {s.name: s.minimum for s in made_up if s.name not in given}
    values = bind_dims(_without_constraints(schedule), shapes, {**given, **placeholders})
    for chunk in schedule.chunks:
        values[chunk.symbol.name] = int(evaluate(chunk.length, values))
    return values


def _without_constraints(schedule: Schedule) -> Graph:
    """The graph's constraints speak of chunk lengths, which come last."""
    return replace(schedule.graph, constraints=())


def _check_constraint(schedule: Schedule, pred: Pred, values: Mapping[str, int]) -> None:
    if not bool(evaluate_pred(pred, values)):
        raise ScheduleError(f"{show_pred(pred)} does not hold for {dict(values)}", location=schedule.candidate)


class _Block:
    """One program under one choice of tiles."""

    def __init__(
        self, program: Program, tiles: Mapping[Axis, int], buffers: Mapping[str, Array], rounding: Rounding
    ) -> None:
        self.program, self.tiles, self.buffers, self.rounding = program, tiles, buffers, rounding
        self.order = program_axes(program)
        self.dtypes = {b.name: b.dtype for b in (*program.inputs, *program.outputs)}

    def empty(self, dims: Mapping[str, int]) -> Space:
        return Space(self.order, self.buffers, dict(dims))

    def tile(self, a: Axis) -> int:
        return 1 if a in self.program.unit else self.tiles[a]

    def at(self, space: Space, a: Axis, start: int) -> Space:
        """The space with a tile of an axis placed at ``start``."""
        out = space.copy()
        out.place(a, np.arange(start, start + self.tile(a)))
        return out

    def check_whole(self, space: Space, a: Axis) -> None:
        extent = int(np.max(evaluate(a.extent, space.environment, self.buffers)))
        if extent > self.tile(a):
            raise ScheduleError(f"extent {extent}: held whole in a tile of {self.tile(a)}", location=f"axis {a}")

    def grid(self, todo: tuple[Axis, ...], space: Space) -> Iterator[Space]:
        if not todo:
            yield space
            return
        extent = int(np.max(evaluate(todo[0].extent, space.environment, self.buffers), initial=0))
        for start in range(0, extent, self.tile(todo[0])):
            yield from self.grid(todo[1:], self.at(space, todo[0], start))

    def run(self, body: tuple[Stmt, ...], space: Space, values: Values) -> None:
        for s in body:
            match s:
                case Let(name, _, term):
                    values[name] = self.let(name, term, space, values)
                case Update(accumulator, term):
                    carried = values[accumulator.name + "~"]
                    if accumulator.carry is not None:
                        carried = self.value(accumulator.carry, space, values)
                    values[accumulator.name] = MONOIDS[accumulator.op].combine(carried, self.value(term, space, values))
                case Store():
                    self.store(s, space, values)
                case Loop():
                    self.loop(s, space, values)

    def let(self, name: str, term: TileTerm, space: Space, values: Values) -> Array:
        if name in self.program.narrowed and self.rounding == "none" and isinstance(term, Cast):
            return self.value(term.operand, space, values)
        return self.value(term, space, values)

    def store(self, s: Store, space: Space, values: Values) -> None:
        if all(int(np.min(space.environment[a])) == 0 for a in s.once):
            result = values[s.value.name]
            if self.rounding == "storage" and self.dtypes[s.output] in FLOATS:
                result = round_to(result, self.dtypes[s.output])
            store(self.buffers[s.output], s.output, s.indices, result, space)

    def loop(self, s: Loop, space: Space, values: Values) -> None:
        for c in s.accumulators:
            values[c.name] = np.full([1] * len(self.order), MONOIDS[c.op].identity)
        lower = int(np.min(evaluate(s.lower, space.environment, self.buffers)))
        upper = int(np.max(evaluate(s.upper, space.environment, self.buffers)))
        for start in range(lower, upper, self.tile(s.axis)):
            for c in s.accumulators:
                values[c.name + "~"] = values[c.name]
            self.run(s.body, self.at(space, s.axis, start), values)

    def value(self, term: TileTerm, space: Space, values: Values) -> Array:
        match term:
            case Ref(name, _):
                return values[name]
            case Load(name, indices):
                return load_value(name, indices, space.valid_for(free(term)), space.inputs, space.environment)
            case Const(number):
                return np.full([1] * len(self.order), number)
            case IndexValue(i):
                found = np.asarray(evaluate(i, space.environment, space.inputs), dtype=np.float64)
                return found.reshape([1] * len(self.order)) if found.ndim == 0 else found
            case Map(op, args):
                return MAPS[op].meaning(*(self.value(a, space, values) for a in args))
            case Where(pred, a, b):
                return np.where(pred_value(pred, space), self.value(a, space, values), self.value(b, space, values))
            case Cast(dtype, a):
                return round_to(self.value(a, space, values), dtype)
            case Reduce() | Contract():
                return self.fold(term, space, values)
            case TopK(_, axis, _, _):
                raise ScheduleError(f"top-k over axis {axis}: a tile program has none")

    def fold(self, term: Reduce | Contract, space: Space, values: Values) -> Array:
        number = self.order.index(term.axis)
        if isinstance(term, Contract):
            found = self.contract(number, term.axis, values[term.left.name], values[term.right.name])
            return found if term.onto is None else values[term.onto.name] + found
        body = self.spread(self.value(term.body, space, values), number, term.axis)
        return MONOIDS[term.op].reduce(body, axis=number, keepdims=True)

    def spread(self, value: Array, number: int, a: Axis) -> Array:
        """A value that does not depend on an axis, repeated along its tile."""
        if value.shape[number] == self.tile(a):
            return value
        return np.repeat(value, self.tile(a), axis=number)

    def contract(self, number: int, a: Axis, left: Array, right: Array) -> Array:
        left = self.spread(left, number, a)
        return contract((left, right), number)
