"""Tile programs: what one block does. A value is a tile over named axes; a loop carries accumulators; bounds are
run-time expressions.

    Program ::= name, inputs, outputs, grid axes, unit axes, whole axes, body
    Stmt    ::= Let name [Axis ..] TileTerm
              | Loop axis [lower, upper) [Accumulator ..] [Stmt ..]
              | Update accumulator TileTerm
              | Store output [Index ..] name  (once: grid axes on which only the first tile stores)
    TileTerm::= a graph term of depth one over ``Ref`` leaves | Contract axis Ref Ref [Ref]  (a matmul of two tiles)

``Ref("m~")`` is the accumulator m before this iteration. Reads beyond an axis give 0; reductions do not mask: the
program has to. Tile sizes are no part of the program; they are bindings (``plan.py``): one program, many bindings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cleave.ir.axis import Axis
from cleave.ir.graph import Input, Ref, Term, children
from cleave.ir.index import Index, Pred, axes_of
from cleave.ir.intern import Interned, Node


@dataclass(frozen=True, eq=False, repr=False)
class Contract(Node, metaclass=Interned):
    """Sum over an axis of the product of two tiles: a matmul. Both are stored values, FP16 or BF16 when they reach
    tensor cores. ``onto``: a value to which it is added, and that nothing else reads."""

    axis: Axis
    left: Ref
    right: Ref
    onto: Ref | None = None

    @property
    def operands(self) -> tuple[Ref, ...]:
        """Everything that it reads."""
        return (self.left, self.right) if self.onto is None else (self.left, self.right, self.onto)

    def __repr__(self) -> str:
        onto = "" if self.onto is None else f" onto {self.onto.name}"
        return f"mma({self.axis}, {self.left.name}, {self.right.name}){onto}"


TileTerm = Term | Contract


def names_read(term: TileTerm) -> list[str]:
    """Values that a term reads, each as often as it does."""
    if isinstance(term, Contract):
        return [r.name for r in term.operands]
    if isinstance(term, Ref):
        return [term.name]
    return [name for c in children(term) for name in names_read(c)]


@dataclass(frozen=True)
class Accumulator:
    """A loop-carried value. ``carry`` restates the old value (``Ref("name~")``) relative to the new state; None:
    unchanged.

    The update is ``new = monoid(carry, contribution)``. ``needs`` are accumulators of the same loop that ``carry``
    reads.
    """

    name: str
    op: str
    axes: tuple[Axis, ...]
    carry: Term | None = None
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Let:
    name: str
    axes: tuple[Axis, ...]
    term: TileTerm


@dataclass(frozen=True)
class Update:
    accumulator: Accumulator
    term: TileTerm


@dataclass(frozen=True)
class Store:
    """``output[indices] = value`` where every axis of ``axes`` has a position."""

    output: str
    indices: tuple[Index, ...]
    value: Ref
    axes: tuple[Axis, ...]
    once: tuple[Axis, ...] = ()


@dataclass(frozen=True)
class Loop:
    """``lower``, ``upper``: run-time bounds, which may differ from row to row of the block: least lower, greatest
    upper count."""

    axis: Axis
    lower: Index
    upper: Index
    accumulators: tuple[Accumulator, ...]
    body: tuple[Stmt, ...]


Stmt = Let | Update | Store | Loop


@dataclass(frozen=True)
class Buffer:
    """An output or temporary of a program."""

    name: str
    dtype: str
    shape: tuple[Index, ...]


@dataclass(frozen=True)
class Program:
    """One kernel.

    grid      axes that blocks divide, slowest first
    unit      axes advanced by single elements (batch, outer, steps)
    whole     axes held in one tile that covers the extent; every other axis belongs to a loop
    narrowed  names of Lets whose term is a Cast that the graph does not have: a computed operand of a matmul is rounded
              to its storage type
    same      pairs (later, earlier) of Lets of one scope that load the same memory under other axis names: one tile if
              the tiles of their axes are equal

    Leaves of tile terms are ``Ref``, ``Const`` and ``IndexValue``; a ``Load`` is a Let of its own.
    """

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[Buffer, ...]
    grid: tuple[Axis, ...]
    unit: frozenset[Axis]
    whole: tuple[Axis, ...]
    body: tuple[Stmt, ...]
    constraints: tuple[Pred, ...] = ()
    narrowed: frozenset[str] = frozenset()
    same: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        from cleave.tile.text import show_program

        return show_program(self)

    def __str__(self) -> str:
        return self.text()


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, loops before their bodies."""
    for s in body:
        yield s
        if isinstance(s, Loop):
            yield from statements(s.body)


def tile_terms(program: Program) -> Iterator[TileTerm]:
    """Terms of all Lets and Updates."""
    for s in statements(program.body):
        if isinstance(s, Let | Update):
            yield s.term


def loops(program: Program) -> tuple[Loop, ...]:
    return tuple(s for s in statements(program.body) if isinstance(s, Loop))


def outer_axes(program: Program) -> list[Axis]:
    """Axes of chunks on the grid: blocks of such a program make partials."""
    return [a for a in program.grid if a.kind == "outer"]


def is_uneven(program: Program) -> bool:
    """Whether loops run longer in some tiles of the grid than in others."""
    return any(axes_of(bound) & {*program.grid} for s in loops(program) for bound in (s.lower, s.upper))


def program_axes(program: Program) -> tuple[Axis, ...]:
    """Grid, whole, then loop axes, in order of appearance."""
    return tuple(dict.fromkeys((*program.grid, *program.whole, *(s.axis for s in loops(program)))))
