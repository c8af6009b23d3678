"""Stage 1, without a GPU: search the graph of every workload and write its candidates."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.nn.workloads import NINE, Workload
from experiments.candidates import search_and_save
from experiments.e01_ablation.config import file_of
from experiments.e01_ablation.configurations import FULL, SEARCHED


def search(workloads: Sequence[Workload]) -> int:
    """One file a workload, and of the nine subgraphs one for each configuration that searches with other rules;
    candidates are ranked at the middle one of its sizes, nothing computed ahead of a call."""
    for w in workloads:
        for c in (FULL, *(SEARCHED if w in NINE else ())):
            search_and_save(w.graph(), file_of(w, c), w.dims(len(w.sizes) // 2), config=c.config)
    return 0
