"""Kernels of every kind for batches of requests, each called at batches of every kind and compared with its graph in
float64: ``python -m tests.gpu.batch_kinds [NAME ..]``, names of kinds or how they begin.

What ``test_sanitizer`` runs under compute-sanitizer. Candidates are those of ``experiments/e02_dynamic``, searched
elsewhere: a machine with a GPU needs no egglog. Whoever runs a kernel is given: tests without a GPU emulate it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cleave.candidate import Candidate, load_candidates
from cleave.ir.bind import bind_dims
from cleave.ir.graph import Graph
from cleave.ir.op import round_to
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Merge, Mma, Schedule
from cleave.verify import check_executable
from cleave.verify.verdict import Outcome
from tests.null.paged_references import Arrays, Requests, batch

CANDIDATES = Path(__file__).parents[2] / "experiments" / "e02_dynamic" / "candidates"
TARGET = Target("sm_90a")
SHAPE = {"b": 5, "total_q": 160, "total_kv": 900, "num_pages": 900, "num_kv_indices": 900}
"""At which schedules are chosen; calls have other sizes."""
CHUNKS = 4
SCALE = 0.09

Way = tuple[str, Mma, Merge]
"""A skeleton, the instructions of its matmuls, and how a split is merged."""

RINGS = ("cta-ring", "warp-ring")
MERGES: tuple[Merge, ...] = ("none", "second-launch", "last-arriving", "cluster")
DECODE: tuple[Way, ...] = tuple((ring, "mma.sync", merge) for merge in MERGES for ring in RINGS)
PAGES: tuple[Way, ...] = DECODE[::3]
"""Both skeletons, unsplit and with a merge of each launch."""
LATENT = tuple(way for way in DECODE if way != ("warp-ring", "mma.sync", "cluster"))
"""Teams store columns of a wide sum tile by tile, which no cluster takes."""
PREFILL: tuple[Way, ...] = tuple((ring, mma, "none") for ring in RINGS for mma in ("mma.sync", "wgmma"))
PACKED: tuple[Way, ...] = (*PREFILL, ("specialised", "wgmma", "none"))

OPERATORS: Mapping[str, Sequence[Way]] = {
    "gqa_paged_decode_h32_kv4_d128_ps1": DECODE,
    "gqa_paged_decode_h32_kv4_d128_ps16": PAGES,
    "gqa_paged_decode_h32_kv4_d128_ps64": PAGES,
    "gqa_paged_decode_h32_kv8_d128_ps1": DECODE,
    "gqa_paged_prefill_causal_h32_kv4_d128_ps1": PREFILL,
    "gqa_paged_prefill_causal_h32_kv8_d128_ps1": PREFILL,
    "gqa_ragged_prefill_causal_h32_kv4_d128": PACKED,
    "gqa_ragged_prefill_causal_h32_kv8_d128": PACKED,
    "mla_paged_decode_h16_ckv512_kpe64_ps1": LATENT,
    "mla_paged_prefill_causal_h16_ckv512_kpe64_ps1": PREFILL,
    "mla_ragged_prefill_causal_h16_qk192_vo128": PACKED,
}

BATCHES: Mapping[str, Requests] = {
    "uneven": Requests(keys=(211, 0, 1, 67, 129, 0), queries=(3, 2, 5, 0, 71, 0), unused=4),
    "one request": Requests(keys=(37,), queries=(1,)),
    "no keys": Requests(keys=(0, 0, 0), queries=(2, 0, 1), unused=4),
    "no queries": Requests(keys=(19, 0, 3), queries=(0, 0, 0)),
    "neither": Requests(keys=(0, 0), queries=(0, 0)),
    "no requests": Requests(keys=(), queries=()),
}
"""No keys, no queries, fewer keys than queries, neither, nobody; lengths that divide nothing, and chunks without keys.
Garbage behind page tables, NaN in all slots that no request uses."""


@dataclass(frozen=True)
class Kind:
    operator: str
    way: Way

    @property
    def name(self) -> str:
        return f"{self.operator}, {', '.join(self.way)}"


KINDS: tuple[Kind, ...] = tuple(Kind(operator, way) for operator, ways in OPERATORS.items() for way in ways)


@cache
def candidates(operator: str) -> tuple[Candidate, ...]:
    return load_candidates(CANDIDATES / f"{operator}.json")


def plan(kind: Kind) -> Schedule:
    """The best one of its kind."""
    skeleton, mma, merge = kind.way
    split = merge != "none"
    c = next(c for c in candidates(kind.operator) if bool(c.splits) == split)
    shape = {s.name: SHAPE[s.name] for s in c.origin.symbols if s.value is None}
    forced: dict[str, Any] = {"merge": merge, "split": {c.splits[0].base: CHUNKS}} if split else {}
    return schedule(c, TARGET, shape, skeleton=skeleton, mma=mma, keep=1, **forced)[0]


def drawn(g: Graph, requests: Requests, rng: np.random.Generator) -> Arrays:
    """Inputs that their storage types hold."""
    sizes = {"group": 1, **{s.name: s.value for s in g.symbols if s.value is not None}}
    own = Requests(requests.keys, requests.queries, requests.unused, sizes)
    x = {**batch(g.name, own, rng, sizes.get("page", 1), scalar=True), "sm_scale": np.asarray(SCALE)}
    return {i.name: round_to(x[i.name], i.dtype) if x[i.name].dtype.kind == "f" else x[i.name] for i in g.inputs}


Operator = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
Made = Callable[[Schedule, Graph], Callable[[Mapping[str, int]], Operator]]
"""A plan and the graph that it came from -> dims of a call -> what writes outputs."""


def mistakes(kind: Kind, made: Made, batches: Iterable[str] = BATCHES) -> Iterator[str]:
    """What a kernel of a kind gets wrong, at each batch. It is compiled once, and outputs hold NaN before a call."""
    chosen, g = plan(kind), candidates(kind.operator)[0].origin
    run = made(chosen, g)
    rng = np.random.default_rng(0)
    for name in batches:
        x = drawn(g, BATCHES[name], rng)
        dims = bind_dims(g, {n: a.shape for n, a in x.items()}, None)
        result = check_executable(run(dims), g, x, dims)
        if result.outcome is not Outcome.PASSED:
            yield f"{name}: {result}"


def on_device(chosen: Schedule, g: Graph) -> Callable[[Mapping[str, int]], Operator]:
    from cleave.pipeline import emit
    from tests.gpu.called import as_operator

    run = emit(chosen)
    return lambda dims: as_operator(run, g, dims)


def names(operator: str) -> list[str]:
    return [k.name for k in KINDS if k.operator == operator]


def main(wanted: Sequence[str]) -> int:
    """Prints a line for each kernel, all if none is named; 1 if one is wrong."""
    from tests.gpu.called import exact_allocations

    exact_allocations()
    found = {k.name: list(mistakes(k, on_device)) for k in KINDS if k.name.startswith(tuple(wanted or ("",)))}
    print("\n".join(f"{name}: {'; '.join(wrong) or 'right'}" for name, wrong in found.items()))
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
