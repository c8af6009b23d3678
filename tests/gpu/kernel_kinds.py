"""One shape of every kind of kernel, called once and compared with its graph: ``python -m tests.gpu.kernel_kinds``.

What ``test_sanitizer`` runs under compute-sanitizer; kernels are compiled as they always are. Arrays are NumPy's, since
torch would launch kernels of its own.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from cleave.codegen.generate import generate
from cleave.pipeline import emit
from cleave.runtime import device
from cleave.schedule import schedule
from cleave.tile.plan import Merge
from cleave.tune.executable import executable_from
from cleave.verify import check_executable
from cleave.verify.verdict import Outcome
from tests.gpu.called import as_operator, exact_allocations
from tests.null import codegen_cases as cases
from tests.null import row_cases, scheduled_candidates, team_cases
from tests.null import test_codegen_boxes as box_cases
from tests.null import test_multicast as multicast_cases
from tests.null import test_specialised as specialised_cases
from tests.null import test_warpgroups as warpgroup_cases

Make = Callable[[], cases.Case]


def _of(
    found: Mapping[str, Make], *names: str, made: Callable[[cases.Case], cases.Case] = lambda c: c
) -> dict[str, Make]:
    return {name: lambda name=name: made(found[name]()) for name in names}


EVERYWHERE = {
    "cta-ring": _of(
        cases.CASES,
        *(
            "matmul",
            "matmul, split, two launches",
            "matmul, split, last arriving",
            "attention, causal",
            "attention, window",
        ),
        *("attention, several passes", "attention, grouped rows", "attention, chain through shared memory"),
        *("attention, split, last arriving", "rmsnorm and linear, through shared memory", "gated", "paged"),
    ),
    "warp-ring": _of(
        team_cases.CASES,
        *("decode, group 1", "decode, group 8", "decode, split, two launches", "decode, split, last arriving"),
        *("decode, more chunks than keys", "few rows", "few rows, more teams than groups of columns"),
    ),
    "row": _of(
        row_cases.CASES,
        *(
            "softmax, a warp a row",
            "softmax, eight warps a row",
            "softmax, known odd length",
            "layernorm, half a warp a row",
        ),
        *("norm, residual and norm", "ragged, four warps a row", "pointwise", "columns"),
    ),
}
HOPPER = {
    "boxes": _of(
        {**box_cases.FETCHED, **box_cases.MIXED},
        *("attention, head 96", "matmul in slabs, two teams of two warps", "matmul, split", "ragged, four teams"),
        *("loop in loop", "half copied, two teams"),
        made=box_cases.boxed,
    ),
    "boxes of a cluster": _of(
        multicast_cases.CASES,
        *("matmul, four blocks", "attention, window", "attention, teams, head 128", "attention, split, last arriving"),
    ),
    "warpgroups": _of(
        warpgroup_cases.CASES, *("matmul, two warpgroups", "matmul, k contiguous, wide", "attention, head 128")
    ),
    "boxes of a cluster, loaders": _of(specialised_cases.FETCHED, "columns and keys in two parts, two blocks"),
    "specialised": _of(
        specialised_cases.CASES,
        *("matmul, three warpgroups", "attention, two warpgroups", "causal attention", "a ragged axis"),
        *("columns and keys in two parts, rows copied", "rows copied by warpgroups, keys cleared by all"),
        made=specialised_cases.specialised,
    ),
}


SPLIT = ("flash decoding", "matmul split")


def wrong(make: Make, rng: np.random.Generator) -> str | None:
    """What the largest size of a case gives, if that is not its graph's value."""
    case = make()
    graph, sizes = case.schedule.graph, max(case.sizes, key=lambda s: math.prod(s.values()))
    run = executable_from(generate(case.schedule), device.target().arch)
    arrays = cases.inputs(case, sizes, rng)
    result = check_executable(as_operator(run, graph, sizes), graph, arrays, sizes)
    return None if result.outcome is Outcome.PASSED else f"{sizes}: {result}"


def divided(merge: Merge, count: int, name: str) -> Callable[[np.random.Generator], str | None]:
    """A merge that blocks divide among themselves, over shared memory of a cluster or through memory."""

    def wrong(rng: np.random.Generator) -> str | None:
        case = scheduled_candidates.CASES[name]()
        forced = {"merge": merge, "split": {case.candidate.splits[0].base: count}}
        plan = schedule(case.candidate, device.target(), case.shape, **forced)[0]
        origin, sizes = case.candidate.origin, case.suiting(plan, case.draw(rng))
        result = check_executable(as_operator(emit(plan), origin, sizes), origin, dims=sizes)
        return None if result.outcome is Outcome.PASSED else f"{sizes}: {result}"

    return wrong


def checks() -> dict[str, Callable[[np.random.Generator], str | None]]:
    """What each kernel that the device can run gets wrong, by name."""
    hopper = device.target().arch == "sm_90a"
    found = {f"spread, {name}": divided("spread", 11, name) for name in SPLIT}
    found |= {f"cluster, {name}": divided("cluster", 3, name) for name in SPLIT if hopper}
    kinds = {**EVERYWHERE, **HOPPER} if hopper else EVERYWHERE
    return found | {f"{k}, {n}": partial(wrong, make) for k, made in kinds.items() for n, make in made.items()}


def names() -> list[str]:
    return list(checks())


def main(wanted: Sequence[str]) -> int:
    """Prints a line for each kernel, all if none is named; 1 if one is wrong."""
    exact_allocations()
    rng = np.random.default_rng(0)
    found = {name: check(rng) for name, check in checks().items() if not wanted or name in wanted}
    print("\n".join(f"{name}: {mistake or 'right'}" for name, mistake in found.items()))
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
