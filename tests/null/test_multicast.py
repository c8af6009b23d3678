"""Boxes that the blocks of a cluster fetch together: each asks for its part, which lands in all of them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cleave.codegen.generate import generate
from cleave.codegen.prelude import KERNEL_MARK
from cleave.errors import CodegenError, ScheduleError
from cleave.ir.index import symbols_of
from cleave.ir.text import parse_graph
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Merge, Multicast, Schedule
from cleave.tile.saved import load_schedules
from tests.null import codegen_cases as cases
from tests.null import scheduled_candidates, team_cases
from tests.null.codegen_cases import Case
from tests.null.compiled import check_compiles
from tests.null.test_codegen import check
from tests.null.test_codegen_boxes import boxed
from tests.null.test_codegen_mutants import is_caught
from tests.null.test_codegen_scheduled import agrees


def together(case: Case, axis: str, blocks: int) -> Case:
    """The case fed by boxes, which so many blocks along an axis fetch for one another in its first kernel."""
    case = boxed(case)
    first, *others = case.schedule.kernels
    found = next(a for a in first.program.grid if a.name == axis)
    binding = dataclasses.replace(first.binding, multicast=Multicast(found, blocks))
    kernels = (dataclasses.replace(first, binding=binding), *others)
    return dataclasses.replace(case, schedule=dataclasses.replace(case.schedule, kernels=kernels))


def matmul(blocks: int, *, teams: int = 1, stages: int = 3, k: int = 32, rows: int = 32) -> Case:
    """Rows of the first operand are the same in all columns; the sum has no whole number of tiles."""
    text = cases.MATMUL.replace("dims m, n, k", "dims m, n = 128, k = 456")
    warps = teams * rows // 16
    plan = cases.kernel(
        text, "m grid, n grid, k loop", {"m": rows, "n": 32, "k": k}, "m", warps=warps, stages=stages, teams=teams
    )
    return together(Case(cases.schedule(text, plan), ({"m": 45}, {"m": 1}, {"m": 64})), "n", blocks)


def attention(mask: str = "causal", *, head: int = 64, teams: int = 1, stages: int = 3) -> Case:
    """Two heads of a group, each in a block of its own, read the same keys and values."""
    g = parse_graph(cases.attention_text(mask, head=head))
    whole = {a.name: head for a in g.axes if a.extent.constant == head}
    roles, tiles = "b unit, kv unit, n2 unit, s grid, t loop", {"s": 16, "t": 32, **whole}
    plan = cases.kernel(g, roles, tiles, "s", warps=teams, stages=stages, teams=teams)
    sizes = (*({"b": 2, "kv": 2, "s": 3, "t": t} for t in (0, 1, 75)), {"b": 1, "kv": 1, "s": 21, "t": 901})
    return together(Case(cases.schedule(g, plan), sizes), "n2", 2)


def split(merge: Merge, *, teams: int = 4) -> Case:
    case = cases.attention_split(merge)
    case = case if teams == 1 else team_cases.divided(case, teams)
    return together(case, "n2", 2)


CASES = {
    "matmul, two blocks": lambda: matmul(2),
    "matmul, four blocks": lambda: matmul(4),
    "matmul, slabs are the parts": lambda: matmul(4, k=256, rows=16),
    "matmul, rows of slabs are the parts": lambda: matmul(2, k=128),
    "matmul, two stages": lambda: matmul(2, stages=2),
    "matmul, teams": lambda: matmul(2, teams=4),
    "matmul, four blocks, teams of two warps": lambda: matmul(4, teams=2),
    "attention": attention,
    "attention, head 128": lambda: attention("full", head=128, stages=2),
    "attention, window": lambda: attention("window", head=32),
    "attention, teams": lambda: attention(teams=4),
    "attention, teams, head 128": lambda: attention("full", head=128, teams=2, stages=2),
    "attention, split, last arriving": lambda: split("last-arriving"),
    "attention, split, two launches": lambda: split("second-launch", teams=1),
}


@pytest.mark.parametrize("name", CASES)
def test_the_emulated_kernel_equals_the_graph(name: str, rng: np.random.Generator) -> None:
    case = CASES[name]()
    operator = generate(case.schedule)
    first = operator.kernels[0]
    assert first.cluster == case.schedule.kernels[0].binding.multicast.blocks and first.architectures == ("sm_90a",)
    assert "copy_box_to_all(" in first.text.split(KERNEL_MARK)[1]
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


def test_everything_compiles_without_spills() -> None:
    check_compiles((make().operator for make in CASES.values()), newest=True)


MUTANTS = {
    "part of another block": (r"\+ sharer \*", "+ 0 *"),
    "one block is left out": (r"full\w* \+ p \* 8, 3,", "full + p * 8, 1,"),
    "nobody tells": (r"mbarrier_arrive_at\([^;]*;", ";"),
    "only itself is told": (r"(mbarrier_arrive_at\(cluster_address\([^;]*), p\)\)", r"\1, sharer))"),
    "nobody waits": (r"mbarrier_wait_for_all\([^;]*;", ";"),
    "waits for the other phase": (r"\^ \((\w+) == 0\)\)", r"^ (\1 != 0))"),
    "asks for the slot that is being read": (r"(_ring \+) before", r"\1 slot"),
    "the cluster does not meet before": (r"cluster_barrier\(\);", "block_barrier();"),
    "too few arrivals": (r"(mbarrier_open\(\w*empty \+ p \* 8), 2\)", r"\1, 1)"),
}


@pytest.mark.parametrize("feed", ["matmul, two blocks", "attention, teams"])
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, feed: str, rng: np.random.Generator) -> None:
    pattern, by = MUTANTS[name]
    assert re.search(pattern, generate(CASES[feed]().schedule).kernels[0].text)
    assert is_caught(CASES[feed](), pattern, by, rng)


def test_a_schedule_says_so_and_comes_back(tmp_path: Path) -> None:
    schedule = CASES["matmul, four blocks"]().schedule
    assert "boxes by tma, fetched together by 4 blocks along n" in schedule.text()
    schedule.save(tmp_path / "schedule.json")
    assert load_schedules(tmp_path / "schedule.json") == (schedule,)


# ---- asked of the scheduler


def drawn(case: scheduled_candidates.Case, plan: Schedule, rng: np.random.Generator) -> dict[str, int]:
    """Sizes at which every cluster is full."""
    sizes = case.suiting(plan, case.draw(rng, least=1))
    first = plan.kernels[0]
    axis = first.binding.multicast.axis
    size = 1 if axis in first.program.unit else first.binding.tile(axis)
    names = {s.name for s in symbols_of(axis.extent)} & set(sizes) - set(plan.bind)
    return case.suiting(plan, sizes | {n: 2 * size - int(rng.integers(size)) for n in names})


SCHEDULED = {
    "flash decoding of any group": "last-arriving",
    "attention of any group": None,
    "matmul": None,
    "matmul split": "second-launch",
    "swiglu": None,
}


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_multicast_that_is_asked_for_is_right(name: str, rng: np.random.Generator) -> None:
    case, merge = scheduled_candidates.CASES[name](), SCHEDULED[name]
    plans = schedule(case.candidate, Target("sm_90a"), case.shape, multicast=2, merge=merge)
    for plan in (plans[0], plans[-1]):
        assert plan.kernels[0].binding.multicast is not None and plan.kernels[0].feed == "tma"
        sizes = drawn(case, plan, rng)
        assert agrees(case, plan, sizes, rng), f"{sizes}\n{plan}"


def test_calls_keep_clusters_full() -> None:
    case = scheduled_candidates.CASES["matmul"]()
    plan = schedule(case.candidate, Target("sm_90a"), case.shape, multicast=2)[0]
    shared = plan.kernels[0].binding.multicast
    assert shared.condition(plan.kernels[0].binding.tile(shared.axis)) in plan.constraints


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"multicast": 3}, "no grid axis has a number of tiles that is a multiple of 3"),
        ({"multicast": 0}, "multicast to 0 blocks: sm_90a allows 1 to 8"),
        ({"multicast": 9}, "multicast to 9 blocks: sm_90a allows 1 to 8"),
        ({"multicast": 2.0}, "multicast 2.0: an integer is expected"),
        ({"multicast": 2, "feed": "cp.async"}, "multicast with feed 'cp.async': allowed is 'tma'"),
        ({"multicast": 2, "arch": "sm_80"}, "multicast to 2 blocks: sm_80 allows 1 to 1"),
        ({"multicast": 2, "merge": "cluster"}, "multicast with merge 'cluster'"),
    ],
)
def test_a_multicast_that_can_not_be_is_refused(arguments: dict[str, Any], why: str) -> None:
    case = scheduled_candidates.CASES["matmul split" if "merge" in arguments else "matmul"]()
    target = Target(arguments.pop("arch", "sm_90a"))
    shape = {**case.shape, "m": 64, "n": 64}
    with pytest.raises(ScheduleError, match=re.escape(why)):
        schedule(case.candidate, target, shape, **arguments)


MULTIPLE = "needed are a number of tiles that is a multiple, or a constraint that it is"


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (lambda: together(cases.matmul(), "n", 2), "a number of tiles that is a multiple, or a constraint that it is"),
        (
            lambda: together(cases.attention("causal"), "s", 2),
            "a number of tiles that is a multiple, or a constraint that it is",
        ),
        (lambda: matmul(8), "a number of tiles that is a multiple, or a constraint that it is, not 4"),
    ],
)
def test_what_can_not_be_fetched_together_is_refused(case, why: str) -> None:
    with pytest.raises(CodegenError, match=re.escape(why)):
        generate(case().schedule)
