"""When a kernel lets the next one on its stream begin, and when it waits for the one before it (sm_90).

    next_kernel_may_begin   once all blocks have said so, those of the next kernel take places that are free
    kernel_before_is_over   before memory is used for the first time: all before it is done, and may be read

What comes before the wait (the block's place in the grid, its mbarriers) is done while the kernel before ends. Blocks
say that the next ones may begin when all but their stores is done: earlier, the next ones would fill up multiprocessors
that are half empty, two on one and none on others (a matmul of 16 rows took 12.5 us instead of 10.4). For the same
reason a grid that leaves places free is launched one block a multiprocessor (``runtime.cuda.Kernel``). Clusters of
which each block has a multiprocessor say so at once: they end together, and others find places for a whole cluster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleave.target import Facts
from cleave.tile.program import Stmt, Store, statements
from cleave.tile.skeleton import takes_all_registers

if TYPE_CHECKING:
    from cleave.codegen.emission import Emission

BEGIN = "next_kernel_may_begin();"
WAIT = "kernel_before_is_over();"


@dataclass
class Order:
    """Which of the two lines a kernel's text has. ``cluster``: its blocks that run together."""

    facts: Facts
    cluster: int = 1
    begins: bool = False
    waits: bool = False


def wait(em: Emission) -> None:
    """Here, where every thread comes by, unless memory was used before, or some may have left: a kernel of which nobody
    waits is over before the one before it, and the next one would wait for it alone."""
    text = em.writer.text()
    used = "return;" in text or any(re.search(rf"\b{p}\b", text) for p in em.parameters.pointers)
    if not em.order.waits and not used:
        em.writer.line(WAIT)
        em.order.waits = True


def before(em: Emission, s: Stmt) -> None:
    """Before the first statement that stores anything."""
    o, stores = em.order, any(isinstance(i, Store) for i in statements((s,)))
    if stores and not o.begins and not _in_full_clusters(em):
        em.writer.line(BEGIN)
        o.begins = True


def start(em: Emission) -> str:
    """What a kernel begins with: tensor maps are fetched, and what is not said later."""
    lines = [f"if (threadIdx.x == 0) {fetches}"] if (fetches := _fetches(em)) else []
    lines += [*([] if em.order.begins else [BEGIN]), *([] if em.order.waits else [WAIT])]
    return "".join(f"  {line}\n" for line in lines)


def _fetches(em: Emission) -> str:
    """Maps are arguments: no kernel writes them."""
    calls = " ".join(f"fetch_map({name});" for name in em.parameters.maps)
    return f"{{ {calls} }}" if calls else ""


def _in_full_clusters(em: Emission) -> bool:
    """Whether blocks come in clusters, and a multiprocessor holds only one of them."""
    alone = takes_all_registers(em.binding) or em.order.facts.blocks_by_shared(em.shared.most) < 2
    return em.order.cluster > 1 and alone
