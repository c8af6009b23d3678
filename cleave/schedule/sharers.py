"""Which blocks may fetch boxes for one another: neighbours along a grid axis that a large tile does not depend on."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod

from cleave.ir.axis import Axis
from cleave.ir.graph import Load
from cleave.ir.index import axes_of
from cleave.schedule.placement import Sizes
from cleave.tile.plan import Binding, Multicast
from cleave.tile.program import Let, Loop, Program, statements


def multicast(program: Program, binding: Binding, sizes: Sizes, blocks: int) -> Multicast | None:
    """So many neighbours along the axis that saves most bytes of a trip; None: no axis can be divided so.

    The number of its tiles is a multiple of ``blocks``, which calls have to keep; no loop's bounds depend on it, and no
    extent of the grid, on which it depends in its turn.
    """
    bounds = [i for s in statements(program.body) if isinstance(s, Loop) for i in (s.lower, s.upper)]
    read = {a for i in (*bounds, *(a.extent for a in program.grid)) for a in axes_of(i)}
    read |= {a for a in program.grid if axes_of(a.extent)}
    saved = {
        a: sum(prod(binding.tiles.get(x, 1) for x in axes if x not in program.unit) for axes in _apart_from(program, a))
        for a in program.grid
        if a not in read and _divides(program, binding, sizes, a, blocks)
    }
    best = max(saved, key=lambda a: saved[a], default=None)
    return Multicast(best, blocks) if best is not None and saved[best] else None


def _divides(program: Program, binding: Binding, sizes: Sizes, a: Axis, blocks: int) -> bool:
    tiles = ceil((sizes.extent(a) or 0) / (1 if a in program.unit else binding.tile(a)))
    return tiles > 0 and tiles % blocks == 0


def _apart_from(program: Program, a: Axis) -> Iterator[tuple[Axis, ...]]:
    """Axes of the tiles of outermost loops that are loaded without regard to an axis."""
    for s in (s for s in program.body if isinstance(s, Loop)):
        for i in s.body:
            if not isinstance(i, Let) or not isinstance(i.term, Load):
                continue
            tiled = tuple(x for x in i.axes if x not in program.unit)
            if len(tiled) == 2 and a not in frozenset(i.axes).union(*map(axes_of, i.term.indices)):
                yield tiled
