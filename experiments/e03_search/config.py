"""What e03 runs: parts, workloads with their goals, limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cleave.config import Ablation
from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.nn.workloads import EXTENSION, LAYERS, NINE, Workload

HERE = Path(__file__).parent
README = HERE / "README.md"
RECORDS = HERE.parent / "records" / "e03_search"
FILE = "rows.jsonl"

PARTS = ("search", "reducibility", "enumeration", "verification")

FIRST = 4
"""An expected form counts as found among the first so many candidates."""
GOALS = {"layers": 30.0}
GOAL = 5.0
"""Seconds that a search may take on two cores; whole layers have more."""
PATIENCE = 6.0
"""A search is ended after its goal times this."""
VERIFICATION_SECONDS = 120.0
MOST_CANDIDATES = 100
"""Candidates are counted up to so many, with the reducibility constraint and without; of a whole layer as many as a
search gives.
"""
REDUCIBILITY_SECONDS = 180.0

NODES = 7
"""Graphs of up to so many operators are enumerated, as in the paper and in Mirage."""
ENUMERATION_SECONDS = 60.0
"""For each enumeration; there is one more for each axis that an expected form splits."""
MOST_CHECKED, CHECK_SECONDS = 10, 20.0
"""Graphs found by an enumeration that are verified, and seconds for that."""

Sizes = Mapping[str, int]


def paper_attention() -> Graph:
    """Attention as the Cleave paper has it: no maximum is subtracted and nothing scales the scores."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        p = ops.exp(ops.einsum("h s d, h t d -> h s t", q, k))
        return ops.einsum("h s t, h t e -> h s e", p * ops.reciprocal0(ops.sum(p, "t", keepdims=True)), v)

    return trace(attention, name="paper_attention", q="h s d=64", k="h t d", v="h t e=64", dtype="float16")


@dataclass(frozen=True)
class Case:
    """A workload: ``build(number)`` gives its graph and the dims at one of its sizes, the middle one for None.

    Workloads of one ``kind`` have the same graph but for literal sizes and what depends on them. ``operator`` names
    the expected forms: it is the operator's name, unless something else is expected of this workload.
    """

    name: str
    group: str
    operator: str
    build: Callable[[int | None], tuple[Graph, dict[str, int]]]
    weights: tuple[str, ...] = field(default=())
    kind: str = ""
    ablation: Ablation = field(default_factory=Ablation)

    @property
    def goal(self) -> float:
        return GOALS.get(self.group, GOAL)


def _of(group: str, w: Workload) -> Case:
    return Case(str(w), group, w.operator, w.build, w.weights, f"{w.operator} {dict(w.options)}")


def _in_order(w: Workload) -> Case:
    """A product of products in the order in which it is written: reassociation off."""
    name, off = f"{w} in order", Ablation(reassociation=False)
    return Case(name, "plain", f"{w.operator}_in_order", w.build, w.weights, f"{w.operator} in order", off)


def _plain(build: Callable[[], Graph], sizes: Sizes, _number: int | None) -> tuple[Graph, dict[str, int]]:
    return build(), dict(sizes)


_ATTENTION = {"h": 32, "s": 1024, "t": 4096}
_PAPER = Case("attention as in the paper", "plain", "paper_attention", partial(_plain, paper_attention, _ATTENTION))

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        *(_of("nine", w) for w in NINE),
        *(_of("extension", w) for w in EXTENSION),
        *(_of("layers", w) for w in LAYERS),
        *(_in_order(w) for w in NINE if w.operator in ("matmul_matmul", "matmul_rowsum")),
        _PAPER,
    )
}
"""By name. ``plain`` are those that this folder adds: the two of the nine that are reassociable with that off, and the
paper's attention for the comparison with enumeration.
"""

ENUMERATED = frozenset(
    {case.kind: case.name for case in reversed(CASES.values()) if case.ablation == Ablation()}.values()
)
"""One workload of each kind, the first; an enumeration has no ablation."""
