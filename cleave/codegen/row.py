"""Skeleton ``row``: programs without a matmul, whose rows are shared by so many threads each.

Columns lie in registers, those of a vector side by side in memory; a value along a row is joined by shuffles in a warp,
and through shared memory among the warps of a row. Loops follow ``ring.py``, without rings; their first trips
``first.py``.
"""

from __future__ import annotations

from cleave.codegen import ring, vector
from cleave.codegen.emission import Emission
from cleave.tile.program import loops


def body(em: Emission) -> None:
    """The whole program; twice, if only a call decides whether rows are made of whole vectors."""
    tests = vector.even_tests(em)
    if not tests:
        if tests is None:
            _take_little(em)
        ring.body(em)
        return
    top = em.shared.top
    with em.writer.block(f"if ({' && '.join(tests)})"):
        ring.body(em)
    em.layouts, em.shared.top, em.order.begins = {}, top, False
    _take_little(em)
    with em.writer.block("else"):
        ring.body(em)


def _take_little(em: Emission) -> None:
    """No vectors, nothing kept, one group of columns a trip: addresses and tests of every element take registers."""
    em.vectors = False
    em.narrow = {s.axis: em.lanes * em.vector for s in loops(em.program) if s.axis not in em.program.unit}
