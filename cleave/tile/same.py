"""Values that loops compute again: what a Let is at the first tile of its loop an earlier loop may have computed.

for n: x_1 = x[m, n];  m1 = max(m1~, max[n](x_1))
for n: x_2 = x[m, n];  e1 = exp_diff(x_2, m1) ..         x_2 is x_1 at the same positions
"""

from __future__ import annotations

from collections.abc import Iterator

from cleave.ir.graph import Load, Ref, Term, children, free, rebuild
from cleave.tile.plan import Binding
from cleave.tile.program import Contract, Let, Loop, Program, TileTerm, names_read

MOST_HELD, FEW_HELD = 64, 32
"""Elements that a thread holds of what it has loaded ahead; and up to which that is worth it for what all rows share,
which comes from a cache."""


def column_loops(program: Program) -> tuple[Loop, ...]:
    """Loops over tiles that are in no other loop."""
    return tuple(s for s in program.body if isinstance(s, Loop) and s.axis not in program.unit)


def same_values(program: Program) -> dict[str, str]:
    """For the Lets of these loops, the first one that is the same at the first tile: itself, or of a loop before.

    Not those that read what their own loop carries: that has another value in every trip.
    """
    found: dict[str, str] = {}
    owners: dict[object, str] = {}
    for s in column_loops(program):
        for let in _still(s):
            key = (s.axis, s.lower, let.axes, _named(let.term, found))
            found[let.name] = owners.setdefault(key, let.name)
    return found


def loaded_ahead(program: Program, binding: Binding) -> tuple[Let, ...]:
    """Loads of later loops that the first trip of the first loop asks for, at the same positions.

    As long as a thread's share of everything that is loaded is small enough to be held.
    """
    loops, same = column_loops(program), same_values(program)
    every = [(s, i) for s in loops for i in s.body if isinstance(i, Let) and isinstance(i.term, Load)]
    own = [(s, i) for s, i in every if same.get(i.name) == i.name and s.axis in i.axes]
    held = sum(binding.tile(s.axis) for s, _ in own) // binding.lanes
    if held > MOST_HELD:
        return ()
    first = loops[0] if loops else None
    return tuple(
        i
        for s, i in own
        if first is not None
        and s is not first
        and (s.axis, s.lower) == (first.axis, first.lower)
        and (held <= FEW_HELD or free(i.term) & program.unit or any(a in binding.rows for a in i.axes))
    )


def _still(s: Loop) -> Iterator[Let]:
    running = {c.name for c in s.accumulators}
    for let in (i for i in s.body if isinstance(i, Let)):
        if any(name.removesuffix("~") in running for name in names_read(let.term)):
            running.add(let.name)
        else:
            yield let


def _named(term: TileTerm, found: dict[str, str]) -> TileTerm:
    """The term over the first values that are the same."""
    if isinstance(term, Contract):
        return term
    if isinstance(term, Ref):
        return Ref(found.get(term.name, term.name), term.axes)
    inner: list[Term] = [x for c in children(term) if not isinstance(x := _named(c, found), Contract)]
    return rebuild(term, inner) if inner else term
