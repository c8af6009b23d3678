"""First trips of outermost loops, where threads share a row: each stands alone, and what it computes is kept.

    first trip of loop 1     x read, maximum                  the others of loop 1     in a loop
    first trip of loop 2     x where it lies, sum             the others of loop 2     x read again, ..

Whatever the length of a call, a tile of the axis is read once; a row that it covers has no other trips. Those take less
at once, beside what is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from cleave.codegen.emission import Emission
from cleave.tile.program import Let, Loop, statements
from cleave.tile.same import same_values


def trips(em: Emission, s: Loop, place: str, low: str, trip: Callable[[], None], others: Callable[[], None]) -> None:
    """``trip`` writes one at ``place``; ``others`` those of one group of columns that begin a tile after ``low``."""
    em.writer.line(f"const int {place} = {low};")
    same = same_values(em.program)
    own = [i.name for i in statements(s.body) if isinstance(i, Let)]
    em.layouts |= {name: em.layouts[same[name]] for name in own if same.get(name, name) != name}
    trip()
    if _covers(em, s):
        return
    after = dict(em.layouts)
    for name in own:
        em.layouts.pop(name, None)
    em.narrow.add(s.axis)
    size = em.size(s.axis)
    em.open_tile(s.axis, place, f"({place} + {size - 1})", gcd(size, em.start_multiples[s.axis]))
    others()
    em.narrow.remove(s.axis)
    em.layouts = after


def _covers(em: Emission, s: Loop) -> bool:
    """Whether the first tile holds the whole axis, known when compiling."""
    extent = em.extent(s.axis).constant
    return extent is not None and extent <= em.size(s.axis) and em.fix(s.lower).constant == 0
