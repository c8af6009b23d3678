"""Integer inputs that stand for those of a call: requests that are alike, so that work is counted as on average."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cleave.errors import ScheduleError
from cleave.ir.axis import Axis
from cleave.ir.graph import Input
from cleave.ir.index import axes_of, evaluate, inputs_of, symbols_of
from cleave.tile.packed import packed_axis, program_lengths
from cleave.tile.plan import Binding
from cleave.tile.program import Loop, Program, statements

MOST_ENTRIES = 2**24
"""Entries of a table that is made up here, one a request."""

LONGEST = 3.0
"""The longest request of a large batch, in averages: of decode, captured from a server, 2.5 to 3.8."""


def longest(program: Program, binding: Binding, extents: Mapping[Axis, int]) -> float:
    """How many times as long as an average block the longest one takes, where blocks go through a request each.

    Blocks that lie one behind the other, whatever request they are of, are about as long.
    """
    if packed_axis(program, binding) is not None:
        return 1.0
    walked = [s.axis.extent for s in statements(program.body) if isinstance(s, Loop) and inputs_of(s.axis.extent)]
    owners = {a for extent in walked for a in axes_of(extent) if a in program.grid}
    requests = max((extents.get(a, 1) for a in owners), default=1)
    return 1 + (LONGEST - 1) * (1 - 1 / max(requests, 1))


def representative_tables(program: Program, dims: Mapping[str, int]) -> dict[str, Any]:
    """Pointers rise evenly to their end, rests are full. Of anything else one number stands for all: a length that is
    read cannot exceed the greatest dim."""
    longest = max(dims.values(), default=1)
    found = program_lengths(program)
    out: dict[str, Any] = {}
    for i in program.inputs:
        if i.dtype not in ("int32", "int64", "bool"):
            continue
        if i.name in found.pointers or i.name in found.unbounded:
            limit = found.pointers.get(i.name)
            out[i.name] = _rising(i, longest if limit is None else int(evaluate(limit, dims)), dims)
        else:
            out[i.name] = np.full([1] * len(i.shape), found.rests.get(i.name, longest))
    return out


def _rising(table: Input, last: int, dims: Mapping[str, int]) -> Any:
    shape = [int(evaluate(n, dims)) for n in table.shape]
    if shape[-1] > MOST_ENTRIES:
        used = ", ".join(
            f"{s.name} = {dims[s.name]}" for s in sorted(symbols_of(table.shape[-1]), key=lambda s: s.name)
        )
        raise ScheduleError(
            f"{shape[-1]} entries ({used}): work is counted for at most {MOST_ENTRIES}", location=f"table {table.name}"
        )
    steps = np.arange(shape[-1]) * last // max(shape[-1] - 1, 1)
    return np.broadcast_to(steps, [*([1] * (len(shape) - 1)), shape[-1]])
