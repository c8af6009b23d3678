"""A chunk that is all of its request: the block does with its values what a merge would do with their partials.

    part[..] = x; x' = part[..]; out = f(x')   ->   x' = x; out = f(x')          nothing is stored between, or counted

It is written where the partials would be stored, and ends the block. A merge that reduces over what a block holds whole
takes it in pieces, which lie in other registers: it has no short way.
"""

from __future__ import annotations

from cleave.codegen import accumulator, ring
from cleave.codegen.emission import Emission
from cleave.codegen.expression import At, index_text
from cleave.ir.axis import Axis
from cleave.ir.graph import Load, Reduce
from cleave.ir.index import axes_of
from cleave.tile.check import finer_tiles
from cleave.tile.program import Contract, Let, Loop, Store, loops, statements, tile_terms


def has_short_way(first: Emission, second: Emission, outer: Axis) -> bool:
    """Whether a request may have a single chunk, and the merge takes values as they lie."""
    stores = [s for s in statements(first.program.body) if isinstance(s, Store)]
    follows = finer_tiles(first.program, first.binding, second.program, second.binding)
    return (
        bool(axes_of(first.extent(outer)))
        and all(s in first.program.body for s in stores)
        and [s.axis for s in loops(second.program)] == [outer]
        and all(a is b for a, (b, _) in follows.items())
        and {a for s in stores for a in s.axes} - {outer} <= follows.keys()
        and not any(isinstance(t, Contract | Reduce) for t in tile_terms(second.program))
    )


def short_way(first: Emission, second: Emission, outer: Axis) -> None:
    """``second``: an emission of the merge with the tiles of the first program, of which nothing is written yet."""
    count = index_text(first, first.extent(outer), At())
    first.writer.line("// the only chunk of its request: nobody else has partials of it")
    with first.writer.block(f"if ({count} == 1)"):
        second.named, second.spread, second.team = first.named, first.spread, first.team
        second.units = {a: first.units[a] for a in second.program.grid if a in first.units} | {outer: "0"}
        for a in (a for a in second.program.grid if a not in second.units):
            last = first.corners[f"%last:{first.axis_name(a)}"]
            second.open_tile(a, first.starts[a], last, first.start_multiples[a])
        _given(first, second)
        for s in second.program.body:
            if isinstance(s, Loop):
                for c in s.accumulators:
                    accumulator.declare(second, c)
                ring.trip(second, s)
                ring.forget(second, s)
            else:
                ring.statement(second, s)
        first.writer.line("return;")


def _given(first: Emission, second: Emission) -> None:
    """What the merge would load is there."""
    stored = {s.output: s.value.name for s in first.program.body if isinstance(s, Store)}
    for let in (s for s in statements(second.program.body) if isinstance(s, Let)):
        if isinstance(let.term, Load) and let.term.input in stored:
            second.layouts[let.name] = first.layouts[stored[let.term.input]]
