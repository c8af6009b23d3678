"""Stage 1, without a GPU: search the graphs, write their candidates; and the schedules that a measurement asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleave import nn
from cleave.candidate import Candidate, load_candidates, save_candidates
from cleave.errors import CleaveError
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Merge, Schedule
from experiments.e03_decode.config import CANDIDATES, TARGET, Operator


def search() -> int:
    """Search the graphs and write their candidates."""
    from cleave.search import search as run_search

    CANDIDATES.mkdir(exist_ok=True)
    graphs = {"attention": nn.attention(), "attention_lse": nn.attention(lse=True), "matmul": nn.matmul()}
    for name, graph in graphs.items():
        found = run_search(graph)
        save_candidates(found.candidates, CANDIDATES / f"{name}.json")
        print(f"{name}: {found.report.stop}, {len(found.candidates)} candidates, {found.report.seconds.total:.2f} s")
    return 0


def candidate_of(graph: str, *splits: str) -> Candidate:
    """The best candidate of a graph with exactly these splits."""
    for c in load_candidates(CANDIDATES / f"{graph}.json"):
        if {s.base for s in c.splits} == set(splits):
            return c
    raise CleaveError(f"no candidate that splits {', '.join(splits) or 'nothing'}", location=graph)


def operator_schedule(op: Operator) -> tuple[Candidate, Schedule]:
    """The grid's schedules are all of the skeleton under test."""
    c = candidate_of("attention_lse", *(["t"] if op.splits > 1 else []))
    forced: dict[str, int] = {"t": op.splits} if op.splits > 1 else {}
    merge: Merge | None = op.merge if op.splits > 1 else None
    # without a split a batch fills the device: the schedule that is best then is one kernel
    dims = op.bind(b=1 if op.splits > 1 else 64)
    return c, schedule(c, Target(TARGET), dims, split=forced, merge=merge, skeleton="warp-ring")[0]


def contenders(graph: str, axis: str, dims: Mapping[str, int], count: int) -> list[Schedule]:
    """Schedules to choose from by measuring: the model's order, but first the best of each split count and merge."""
    c = candidate_of(graph, axis)
    found = [*schedule(c, Target(TARGET), dims), *schedule(c, Target(TARGET), dims, skeleton="warp-ring")]
    counts = {n for s in found for n in split_counts(s, dims)}
    for n in sorted({*counts, *(m * 2 for m in counts), *(m // 2 for m in counts if m > 1)} - {1}):
        found += schedule(c, Target(TARGET), dims, split={axis: n}, merge="last-arriving", skeleton="warp-ring")[:1]
    return different(found, dims)[:count]


def split_counts(s: Schedule, dims: Mapping[str, int]) -> list[int]:
    """Values of the symbols that the schedule brings along: counts of splits."""
    return [n for name, n in s.bind.items() if name not in dims]


def different(found: Sequence[Schedule], dims: Mapping[str, int]) -> list[Schedule]:
    """Best first: one for each skeleton, count of teams, split and merge, then those with other stages."""
    ranked = sorted(found, key=lambda s: s.modelled.microseconds if s.modelled else 0.0)
    first: dict[object, Schedule] = {}
    more: dict[object, Schedule] = {}
    for s in ranked:
        b = s.kernels[0].binding
        key = (s.kernels[0].skeleton, s.merge, *split_counts(s, dims), b.teams)
        first.setdefault(key, s)
        more.setdefault((key, b.stages), s)
    return [*first.values(), *(s for s in more.values() if not any(s is f for f in first.values()))]


def described(s: Schedule, dims: Mapping[str, int]) -> str:
    """A schedule in a few words."""
    k = s.kernels[0]
    tiles = " ".join(f"{a.name}{n}" for a, n in sorted(k.binding.tiles.items(), key=lambda p: p[0].name) if n > 1)
    way = "" if s.merge == "none" else f" {s.merge} x {'.'.join(map(str, split_counts(s, dims)))}"
    return f"{k.skeleton} {k.binding.teams}/{k.binding.warps}w {k.binding.stages}st {tiles}{way}"
