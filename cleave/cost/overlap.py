"""Whether matmuls of a loop's trip run beside the rest of it."""

from __future__ import annotations

from collections.abc import Iterable

from cleave.ir.axis import Axis
from cleave.ir.graph import Load, Reduce, Ref
from cleave.tile.plan import Binding
from cleave.tile.program import Contract, Let, Loop, Program, Update, statements


def overlaps(program: Program, binding: Binding) -> bool:
    """What several warpgroups do, and loaders for them; not where the only matmul waits for rows that are computed from
    tiles, and the next trip for it, nor where all warpgroups meet for a sum without rows.

    Attention that adds up the squares of its keys takes 1660 us for 8192 queries: modelled 1688 us, and 911 us as if
    matmuls went on meanwhile.
    """
    every = list(statements(program.body))
    loads = {s.name for s in every if isinstance(s, Let) and isinstance(s.term, Load)}

    def is_computed(r: Ref) -> bool:
        return _has_rows(r.axes, binding) and r.name not in loads

    trips = [[i for i in s.body if isinstance(i, Let | Update)] for s in every if isinstance(s, Loop)]
    products = [[i.term for i in trip if isinstance(i.term, Contract)] for trip in trips]
    alone = any(len(p) == 1 and any(map(is_computed, (p[0].left, p[0].right))) for p in products)
    meets = any(_is_shared_sum(i, program, binding) for trip in trips for i in trip)
    return binding.loaders > 0 and not alone and not meets and all(len(p) <= 2 for p in products)


def _is_shared_sum(s: Let | Update, program: Program, binding: Binding) -> bool:
    """Whether the block adds up a vector without rows, in shared memory, with barriers before and after."""
    axes = s.axes if isinstance(s, Let) else s.accumulator.axes
    is_vector = any(a not in program.unit and binding.tile(a) > 1 for a in axes)
    return isinstance(s.term, Reduce) and is_vector and not _has_rows(axes, binding)


def _has_rows(axes: Iterable[Axis], binding: Binding) -> bool:
    return any(a in binding.rows for a in axes)
