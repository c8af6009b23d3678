"""Copies by threads while warpgroups multiply: a trip issues them once its first matmul has begun.

    each trip     its copies have landed; barrier; first matmul begins; copies of a later trip go out; it is over; ...

Threads take about a thousand cycles to issue the copies of 64 rows of 576: tensor cores are at work meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from cleave.codegen.emission import Emission
from cleave.tile.program import Contract, Let, Loop, Update


def is_overlapped(em: Emission, s: Loop) -> bool:
    """Whether trips have a matmul of warpgroups, and no loops in which it would begin several times."""
    products = [i for i in s.body if isinstance(i, Let | Update) and isinstance(i.term, Contract)]
    return em.binding.mma == "wgmma" and bool(products) and not any(isinstance(i, Loop) for i in s.body)


@contextmanager
def meanwhile(em: Emission, write: Callable[[], None]) -> Generator[None]:
    """``write`` writes the copies of a later trip."""
    em.meanwhile = write
    yield
    begun(em)


def begun(em: Emission) -> None:
    """A matmul has begun that the next line would wait for."""
    write, em.meanwhile = em.meanwhile, None
    if write is not None:
        write()
