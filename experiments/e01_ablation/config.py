"""What e01 measures: points, which are workloads at one size, and the goals that issue and paper set for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cleave.ir.graph import Graph
from cleave.nn.operators import OPERATORS
from cleave.nn.workloads import EXTENSION, NINE, Workload
from experiments.e01_ablation.configurations import FULL, Configuration

HERE = Path(__file__).parent
CANDIDATES = HERE / "candidates"
RECORDS = HERE.parent / "records" / "e01_ablation"

TARGET = "sm_90a"

IN_ORDER = "cleave, in order"
"""The schedule that was fastest when it was tried, each call launched when the one before it is over."""

SETS: Mapping[str, tuple[Workload, ...]] = {"nine": NINE, "extension": EXTENSION, "all": NINE + EXTENSION}

GOALS: Mapping[str, float] = {
    "matmul prefill": 0.97,
    "matmul_matmul prefill": 1.4,
    "matmul_matmul decode": 1.4,
    "swiglu prefill m1024": 1.02,
    "swiglu prefill m4096": 1.02,
    "rmsnorm_matmul prefill m1024": 1.02,
    "rmsnorm_matmul prefill m4096": 1.02,
    "mla prefill": 1.0,
    "mla decode": 1.8,
    "causal prefill": 1.08,
    "softmax_matmul prefill": 3.0,
    "soft cap prefill": 2.5,
    "window 1024 prefill": 2.0,
    "qk_norm_attention decode": 1.8,
    "softmax prefill": 1.5,
    "lora decode": 1.3,
    "rmsnorm_linear decode": 1.2,
}
"""Least ratios of the best baseline's time to ours, by the name of a point or of all points of a workload."""

MEAN_GOAL = 1.6
"""Of the geometric mean over the nine subgraphs: the paper's figure."""
SUBGRAPH_GOAL = 1.0
"""Of each subgraph's own mean."""


@dataclass(frozen=True)
class Point:
    """A workload at one of its sizes, and the configuration that makes its schedules."""

    workload: Workload
    number: int
    configuration: Configuration = FULL

    @cached_property
    def graph(self) -> Graph:
        return self.workload.graph()

    @cached_property
    def dims(self) -> dict[str, int]:
        """Values of the dims that the graph leaves open."""
        return self.workload.dims(self.number)

    @property
    def name(self) -> str:
        """``mha d128 prefill s256``: the sizes that differ from point to point, or those that calls differ in."""
        sizes = self.workload.sizes
        size = sizes[self.number]
        shown = [n for n in size if any(other[n] != size[n] for other in sizes)]
        shown = shown or [n for n in size if n in OPERATORS[self.workload.operator].varying]
        return " ".join([str(self.workload), *(f"{n}{size[n]}" for n in shown)])

    @property
    def subgraph(self) -> str:
        """``mha`` for mha at all head sizes: workloads whose points are averaged together."""
        return self.workload.name.split()[0] if self.workload in NINE else self.workload.name

    @property
    def goal(self) -> float | None:
        return GOALS.get(self.name, GOALS.get(str(self.workload)))

    @property
    def row(self) -> dict[str, object]:
        """What a record says of the point."""
        return {
            "point": self.name,
            "operator": self.workload.operator,
            "subgraph": self.subgraph,
            "phase": self.workload.phase,
            "nine": self.workload in NINE,
            **self.dims,
        }


def points(workloads: tuple[Workload, ...]) -> tuple[Point, ...]:
    return tuple(Point(w, number) for w in workloads for number in range(len(w.sizes)))


ABLATED = {"prefill": (0, 2, 4), "decode": (0, -1)}
"""Sizes of a workload at which configurations are compared, by phase: 256, 1024 and 4096 rows; 16 and 128."""


def is_ablated(p: Point) -> bool:
    return p.workload in NINE and p.number in {n % len(p.workload.sizes) for n in ABLATED[p.workload.phase]}


def file_of(workload: Workload, configuration: Configuration = FULL) -> Path:
    """Where the candidates of a workload are."""
    words = str(workload).replace("(", " ").replace(")", " ").replace(",", " ").split()
    folder = CANDIDATES / configuration.name.replace(" ", "_") if configuration.is_searched else CANDIDATES
    return folder / f"{'_'.join(words)}.json"
