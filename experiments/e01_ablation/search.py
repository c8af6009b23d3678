"""Stage 1, without a GPU: search the graph of every workload and write its candidates."""

from __future__ import annotations

from collections.abc import Sequence

from cleave.nn.workloads import Workload
from experiments.candidates import search_and_save
from experiments.e01_ablation.config import file_of


def search(workloads: Sequence[Workload]) -> int:
    """One file a workload; candidates are ranked at the middle one of its sizes, nothing computed ahead of a call."""
    for w in workloads:
        search_and_save(w.graph(), file_of(w), w.dims(len(w.sizes) // 2))
    return 0
