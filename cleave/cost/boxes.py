"""Which tiles a program fetches in boxes under a binding, and what run-time dims have to be multiples of for it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import gcd
from typing import TypeAlias

from cleave.ir.axis import Axis
from cleave.ir.dim import is_dim
from cleave.ir.graph import Load, free
from cleave.ir.index import Atom, Index, Symbol, index, substitute, symbols_of
from cleave.ir.op import DTYPES
from cleave.tile.box import Rows, box_of, divisor, is_beside
from cleave.tile.plan import Binding
from cleave.tile.program import Let, Loop, Program, program_axes

VECTOR = 8
"""Elements that run-time lengths of rows are multiples of where their addresses are to suit the copy engine."""


def compiled_in(program: Program) -> frozenset[Symbol]:
    """Dims that have one value in every call, as a block holds their axes whole."""
    return frozenset(s for a in program.whole if is_dim(a.extent) for s in symbols_of(a.extent))


@lru_cache(maxsize=1 << 14)
def _with_values(expression: Index, known: frozenset[tuple[Symbol, int]]) -> Index:
    """Remembered: the bindings of a program ask for the same few expressions thousands of times."""
    atoms: dict[Atom, Index] = {s: index(n) for s, n in known}
    return substitute(expression, atoms)


@dataclass(frozen=True)
class _Tiles:
    """What the emitter will know of the tiles that a load sees; ``loop``: the one that it is in."""

    program: Program
    binding: Binding
    values: Mapping[str, int]
    multiples: Mapping[str, int]
    loop: Loop | None

    def fix(self, expression: Index) -> Index:
        known = ((s, self.values[s.name]) for s in symbols_of(expression) if s.name in self.values)
        return _with_values(expression, frozenset(known))

    def size(self, a: Axis) -> int:
        return 1 if a in self.program.unit else self.binding.tile(a)

    def start_multiple(self, a: Axis) -> int:
        if self.loop is not None and a is self.loop.axis:
            return gcd(self.size(a), divisor(self.fix(self.loop.lower), self.symbol_multiple))
        return self.size(a)

    def symbol_multiple(self, s: Symbol) -> int:
        return self.multiples.get(s.name, s.multiple)


Answers: TypeAlias = dict[Hashable, Mapping[Symbol, int] | None]


@dataclass
class Boxes:
    """``dims``: a value of every symbol; ``compiled``: those of them that have it in every call, besides fixed ones.

    ``multiples``: what run-time dims have to be multiples of for what was asked about so far; ``answers``: those that
    were given under other bindings of the program.
    """

    program: Program
    binding: Binding
    dims: Mapping[str, int]
    compiled: frozenset[Symbol]
    answers: Answers
    multiples: dict[Symbol, int] = field(default_factory=dict[Symbol, int])

    def holds(self, s: Let, loop: Loop | None) -> bool:
        """Whether a load is a tile whose rows start where the copy engine can: whatever the dims of a call, or where
        they are such multiples as the representative ones are."""
        axes = s.axes if loop is None else (*s.axes, loop.axis)
        tiles = tuple([1 if a in self.program.unit else self.binding.tile(a) for a in (*axes, *self.inner)])
        key = s.name, None if loop is None else loop.axis, self.binding.rows, tiles, self.said
        if key not in self.answers:
            self.answers[key] = self._asked(s, loop)
        wanted = self.answers[key]
        self.multiples |= wanted or {}
        return wanted is not None

    def _asked(self, s: Let, loop: Loop | None) -> Mapping[Symbol, int] | None:
        """What dims have to be multiples of for it; None: it is no such tile."""
        tile = self._rows(s)
        if tile is None:
            return None
        if box_of(self._tiles(self.known, loop), tile, loop) is not None:
            return {}
        wanted = {n: m for n, m in self._usual(tile.array[0][-1]).items() if m != self.symbol_multiple(n)}
        known = {**self.known, **{n.name: m for n, m in wanted.items()}}
        return wanted if wanted and box_of(self._tiles(known, loop), tile, loop) is not None else None

    def _tiles(self, multiples: Mapping[str, int], loop: Loop | None) -> _Tiles:
        return _Tiles(self.program, self.binding, self.values, multiples, loop)

    @cached_property
    def shapes(self) -> dict[str, tuple[str, tuple[Index, ...]]]:
        return {b.name: (b.dtype, b.shape) for b in (*self.program.inputs, *self.program.outputs)}

    @cached_property
    def values(self) -> dict[str, int]:
        """Of dims that have one in every call."""
        every = symbols_of_all(n for _, shape in self.shapes.values() for n in shape)
        every |= symbols_of_all(a.extent for a in program_axes(self.program))
        fixed = {s.name: s.value for s in every if s.value is not None}
        return {**fixed, **{s.name: self.dims[s.name] for s in self.compiled}}

    @cached_property
    def said(self) -> frozenset[tuple[str, int, int | None]]:
        """Of dims all that an answer depends on."""
        return frozenset((n, gcd(v, VECTOR), self.values.get(n)) for n, v in self.dims.items())

    @cached_property
    def inner(self) -> tuple[Axis, ...]:
        return tuple(a for a in program_axes(self.program) if a.kind == "inner")

    @cached_property
    def known(self) -> dict[str, int]:
        """Lengths of chunks are multiples of their tiles; no array has them as its extent."""
        of_arrays = symbols_of_all(n for _, shape in self.shapes.values() for n in shape)
        return {s.name: self.binding.tile(a) for a in self.inner for s in symbols_of_all([a.extent]) - of_arrays}

    def symbol_multiple(self, s: Symbol) -> int:
        return max(self.known.get(s.name, s.multiple), 1)

    def _usual(self, length: Index) -> dict[Symbol, int]:
        """What divides the run-time dims of a row's length, as it does the representative ones."""
        free_ones = [s for s in symbols_of(length) if s.name not in self.values]
        known = {s: self.symbol_multiple(s) for s in free_ones}
        return {s: m if m % VECTOR == 0 else gcd(self.dims[s.name], VECTOR) for s, m in known.items()}

    def _rows(self, s: Let) -> Rows | None:
        """The rows that a load is copied by, as ``codegen.feed`` makes them."""
        if not isinstance(s.term, Load):
            return None
        rows = self.binding.rows
        axes = [a for a in free(s.term) if a not in self.program.unit]
        dtype, shape = self.shapes[s.term.input]
        if len(axes) != 2:
            return None
        for row, along in (axes, axes[::-1]):
            alone = all(a not in rows or rows == (a,) for a in (row, along))
            if alone and is_beside(s.term.indices[-1], along) and not self.binding.tile(along) % VECTOR:
                size = DTYPES[dtype]
                array = shape, s.term.indices
                count, length = self.binding.tile(row), self.binding.tile(along) * size
                return Rows(array, frozenset(axes), row, along, count, length, size)
        return None


def symbols_of_all(expressions: Iterable[Index]) -> set[Symbol]:
    return {s for i in expressions for s in symbols_of(i)}
