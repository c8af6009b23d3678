"""First trips of outermost loops, where threads share a row: each stands alone, and what it computes is kept.

    first trip of loop 1     x read, maximum                  the others of loop 1     in a loop
    first trip of loop 2     x where it lies, sum             the others of loop 2     x read again, ..

Whatever the length of a call, a tile of the axis is read once; a row that it covers has no other trips. What later
loops load is asked for before the first one computes anything, as far as registers go.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from cleave.codegen.emission import Emission
from cleave.tile.program import Let, Loop, Stmt, statements
from cleave.tile.same import column_loops, loaded_ahead, same_values

MOST_BESIDE = 32
"""Elements that a thread takes in a trip after the first, beside what it keeps."""


def further(em: Emission, s: Loop) -> int:
    """Elements of the axis in a trip after the first."""
    width = em.lanes * em.vector
    return min(em.size(s.axis), MOST_BESIDE // em.vector * width)


def trips(
    em: Emission,
    s: Loop,
    place: str,
    low: str,
    statement: Callable[[Stmt], None],
    trip: Callable[[], None],
    others: Callable[[], None],
) -> None:
    """``trip`` writes one at ``place``; ``others`` those that begin a tile after ``low``."""
    em.writer.line(f"const int {place} = {low};")
    same = same_values(em.program)
    own = [i.name for i in statements(s.body) if isinstance(i, Let)]
    em.layouts |= {name: em.layouts[same[name]] for name in own if same.get(name, name) != name}
    multiple = em.start_multiples[s.axis]
    if not _has_elements(em, s):
        em.start_multiples[s.axis] = 1  # nothing says that the tile begins before the end
    if s is next(iter(column_loops(em.program))):
        for let in loaded_ahead(em.program, em.binding):
            statement(let)
    trip()
    if _covers(em, s):
        return
    after = dict(em.layouts)
    for name in own:
        em.layouts.pop(name, None)
    size = em.narrow[s.axis] = further(em, s)
    em.open_tile(s.axis, place, f"({place} + {size - 1})", gcd(size, multiple))
    others()
    del em.narrow[s.axis]
    em.layouts = after


def _has_elements(em: Emission, s: Loop) -> bool:
    """Whether the loop has a trip at all, known when compiling: the first one is written in any case."""
    return (em.extent(s.axis).constant or 0) > 0 and em.fix(s.lower).constant == 0


def _covers(em: Emission, s: Loop) -> bool:
    """Whether the first tile holds the whole axis, known when compiling."""
    extent = em.extent(s.axis).constant
    return extent is not None and extent <= em.size(s.axis) and em.fix(s.lower).constant == 0
