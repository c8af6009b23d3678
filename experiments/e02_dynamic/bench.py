"""Where contenders of one operator run: its pools, its executables and FlashInfer's wrappers, made once a process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import Any

from cleave.runtime.timing import Timing, time_contenders
from cleave.verify import Comparison, graph_tolerance
from experiments.e02_dynamic.baselines import FlashInfer, with_dead_rows
from experiments.e02_dynamic.batch import Batch, Pools, drawn, pools_of
from experiments.e02_dynamic.plans import Rule
from experiments.e02_dynamic.reference import Sized, reference
from experiments.e02_dynamic.workloads import Point, points
from experiments.metric import compare

CACHES = 2
"""What is overwritten before every call, in sizes of the largest cache."""
PLANNED_TIMES = 5
SEED = 20

Times = Mapping[str, Timing]


def _on_gpu(rule: Rule) -> Any:
    from cleave.tune.executable import executable_of_variants
    from cleave.tune.variants import variants_of

    sources = [m.source for m in rule.made if m.source is not None]
    return executable_of_variants(variants_of(sources, rule.when), rule.made[0].schedule.target.arch)


def _emptied() -> Callable[[], object]:
    """A kernel that fills the caches with what nobody reads."""
    import torch

    size = CACHES * torch.cuda.get_device_properties(0).L2_cache_size
    memory = torch.empty(size // 4, device="cuda")
    return lambda: memory.fill_(1.0)


def _captured(call: Callable[[], object]) -> Callable[[], object]:
    """A CUDA graph of a call, which replays it; after a call that loads and allocates what there is to."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        call()
    return graph.replay


@dataclass(frozen=True)
class Laboratory:
    """A GPU, unless a test says otherwise."""

    device: str = "cuda"
    executable: Callable[[Rule], Any] = _on_gpu
    time: Callable[..., Times] = time_contenders
    emptied: Callable[[], Callable[[], object]] = _emptied
    flashinfer: Callable[[str], FlashInfer] = FlashInfer
    captured: Callable[[Callable[[], object]], Callable[[], object]] = _captured

    def synchronize(self) -> None:
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()


@dataclass
class Bench:
    """``compiled``: kernels that executables were compiled for in their first calls, in this process."""

    operator: str
    lab: Laboratory
    pools: Pools
    baselines: FlashInfer
    empty_caches: Callable[[], object]
    executables: dict[tuple[object, ...], Any] = field(default_factory=dict[tuple[object, ...], Any])
    compiled: dict[int, int] = field(default_factory=dict[int, int])

    def executable(self, rule: Rule) -> Any:
        key = rule.source
        if key not in self.executables:
            self.executables[key] = self.lab.executable(rule)
        return self.executables[key]

    def compiles(self, run: Any) -> int:
        """How many kernels were compiled since the first call that this was asked after."""
        return run.compiles - self.compiled.setdefault(id(run), run.compiles)


_BENCHES: dict[tuple[object, ...], Bench] = {}
"""The newest: pools of one operator take a good part of the memory."""


def bench_of(operator: str, lab: Laboratory, own: Sequence[Point] = ()) -> Bench:
    """``own``: the points of an operator that was not captured."""
    key = operator, id(lab), *(p.name for p in own)
    if key not in _BENCHES:
        _BENCHES.clear()
        pools = pools_of(own or [p for p in every_point() if p.operator == operator], lab.device)
        _BENCHES[key] = Bench(operator, lab, pools, lab.flashinfer(lab.device), lab.emptied())
    return _BENCHES[key]


@cache
def every_point() -> tuple[Point, ...]:
    return points()


@dataclass(frozen=True)
class Prepared:
    """A batch and what its outputs are to be."""

    batch: Batch
    wanted: Mapping[str, Sized]

    def compared(self, found: Mapping[str, Any]) -> Comparison:
        """The worst of all outputs."""
        g = self.batch.graph
        every = [compare(found[n], *self.wanted[n], graph_tolerance(g, n)) for n in self.wanted]
        return max(every, key=lambda c: (not c.passed, c.worst))

    def called(self, call: Callable[[], object], lab: Laboratory, *, ours: bool) -> Comparison:
        """A call into outputs that hold NaN, compared."""
        self.batch.poison()
        call()
        lab.synchronize()
        found = self.batch.outputs
        return self.compared(found if ours else with_dead_rows(found, self.wanted["lse"][0]))


def prepared(bench: Bench, p: Point) -> Prepared:
    batch = drawn(p, bench.pools, bench.lab.device, seed=SEED + sum(p.keys) % 1000)
    return Prepared(batch, reference(batch))


def microseconds_of(call: Callable[[], object], lab: Laboratory, *, count: int = PLANNED_TIMES) -> float:
    """Of the host, until the GPU has done what it was asked: the median."""
    return median(_each(call, lab, count))


def _each(call: Callable[[], object], lab: Laboratory, count: int) -> Sequence[float]:
    found: list[float] = []
    for _ in range(count):
        lab.synchronize()
        began = time.perf_counter()
        call()
        lab.synchronize()
        found.append(1e6 * (time.perf_counter() - began))
    return found
