"""What one plain kernel would need at a point on an H200: for its bytes, read cold once, or for its matmuls.

A bound that no contender reaches, to say how much room is left. Of graphs that reassociation makes cheaper only the
bytes count.
"""

from __future__ import annotations

from math import prod

import numpy as np

from cleave.ir.graph import free
from cleave.ir.index import evaluate
from cleave.ir.op import DTYPES
from cleave.schedule.rows import structure
from experiments.e01_ablation.config import Point

TERA_OPERATIONS = 771.0
"""A second, in FP16: the largest matmul of cuBLAS in a burst."""
COLD_READS = ((0.0, 2.15), (2.0, 2.5), (8.4, 4.15), (16.8, 6.2), (33.5, 9.6), (67.0, 16.8), (134.0, 31.3))
COLD_READS += ((268.0, 60.4), (537.0, 119.0))
"""MB that one kernel reads cold, and the microseconds it takes."""
REASSOCIABLE = ("matmul_matmul", "matmul_rowsum")


def reach(p: Point) -> float:
    """Microseconds."""
    g, dims = p.workload.build(p.number)
    moved = sum(DTYPES[b.dtype] * prod(int(evaluate(e, dims)) for e in b.shape) for b in (*g.inputs, *g.outputs))
    read = read_microseconds(moved / 1e6)
    if p.workload.operator in REASSOCIABLE:
        return read
    sizes = [[int(evaluate(a.extent, dims)) for a in free(c.reduce.body)] for c in structure(g).contractions]
    return max(read, sum(2 * prod(extents) for extents in sizes) / TERA_OPERATIONS / 1e6)


def read_microseconds(megabytes: float) -> float:
    """Linear between measured sizes, and beyond the last two as between them."""
    sizes, times = zip(*COLD_READS, strict=True)
    if megabytes > sizes[-1]:
        return times[-1] + (megabytes - sizes[-1]) * (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
    return float(np.interp(megabytes, sizes, times))
