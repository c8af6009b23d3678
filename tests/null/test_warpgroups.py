"""Matmuls by warpgroups: tiles of boxes that the tensor cores read by descriptors."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cleave import nn
from cleave.candidate import Candidate
from cleave.codegen.generate import generate
from cleave.codegen.prelude import KERNEL_MARK
from cleave.errors import CodegenError, ScheduleError
from cleave.ir.graph import Graph
from cleave.ir.text import parse_graph
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.tile.saved import load_schedules
from tests.null import codegen_cases as cases
from tests.null import scheduled_candidates
from tests.null.codegen_cases import Case
from tests.null.compiled import check_compiles
from tests.null.test_codegen import check
from tests.null.test_codegen_boxes import boxed
from tests.null.test_codegen_mutants import is_caught
from tests.null.test_codegen_scheduled import agrees

H200 = Target("sm_90a")


def grouped(case: Case) -> Case:
    """The case with tiles in boxes and matmuls by warpgroups."""
    case = boxed(case)
    kernels = tuple(
        dataclasses.replace(k, binding=dataclasses.replace(k.binding, mma="wgmma")) for k in case.schedule.kernels
    )
    return dataclasses.replace(case, schedule=dataclasses.replace(case.schedule, kernels=kernels))


def matmul(n: int, *, k: int = 64, rows: int = 64, teams: int = 1, dtype: str = "float16", stages: int = 2) -> Case:
    text = cases.MATMUL.replace("dims m, n, k", "dims m, n = 256, k = 456").replace("float16", dtype)
    plan = cases.kernel(
        text,
        "m grid, n grid, k loop",
        {"m": rows, "n": n, "k": k},
        "m",
        warps=teams * rows // 16,
        stages=stages,
        teams=teams,
    )
    return grouped(Case(cases.schedule(text, plan), ({"m": 67}, {"m": 1})))


def transposed(n: int, *, k: int = 64) -> Case:
    """The second operand is contiguous along the sum."""
    text = cases.MATMUL.replace("b: float16[k, n]", "b: float16[n, k]").replace("b[k, n]", "b[n, k]")
    text = text.replace("dims m, n, k", "dims m, n = 256, k = 456")
    plan = cases.kernel(text, "m grid, n grid, k loop", {"m": 64, "n": n, "k": k}, "m", warps=4, stages=3)
    return grouped(Case(cases.schedule(text, plan), ({"m": 67}, {"m": 64})))


def attention(
    mask: str = "causal", *, head: int = 64, t: int = 32, rows: int = 64, teams: int = 1, stages: int = 2
) -> Case:
    g = parse_graph(cases.attention_text(mask, head=head))
    whole = {a.name: head for a in g.axes if a.extent.constant == head}
    roles, tiles = "b unit, kv unit, n2 unit, s grid, t loop", {"s": rows, "t": t, **whole}
    plan = cases.kernel(g, roles, tiles, "s", warps=teams * rows // 16, stages=stages, teams=teams)
    sizes = (*({"b": 1, "kv": 2, "s": 3, "t": t} for t in (0, 75)), {"b": 1, "kv": 1, "s": 71, "t": 201})
    return grouped(Case(cases.schedule(g, plan), sizes))


CASES = {
    "matmul": lambda: matmul(64),
    "matmul, one slab of 64 bytes": lambda: matmul(32),
    "matmul, one slab of 32 bytes": lambda: matmul(16, k=32),
    "matmul, several slabs": lambda: matmul(256, k=128),
    "matmul, two warpgroups": lambda: matmul(64, rows=128),
    "matmul, two teams": lambda: matmul(32, k=32, teams=2, stages=3),
    "matmul, bfloat16": lambda: matmul(64, dtype="bfloat16"),
    "matmul, k contiguous": lambda: transposed(32),
    "matmul, k contiguous, wide": lambda: transposed(128, k=128),
    "matmul, k contiguous, one step a slab": lambda: transposed(64, k=16),
    "attention": attention,
    "attention, head 128": lambda: attention("full", head=128, t=64),
    "attention, as many keys as the head is wide": lambda: attention("full", t=64),
    "attention, two warpgroups": lambda: attention("window", head=32, rows=128),
    "attention, two teams": lambda: attention(teams=2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_emulated_kernel_equals_the_graph(name: str, rng: np.random.Generator) -> None:
    case = CASES[name]()
    operator = case.operator
    own = operator.kernels[0].text.split(KERNEL_MARK)[1]
    assert "warpgroup_multiply" in own and "multiply_add" not in own
    assert operator.kernels[0].architectures == ("sm_90a",)
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)


def test_no_fragment_outlives_a_trip() -> None:
    """ptxas gives the registers that a wgmma of every trip reads to other values of the loop."""
    plain = attention("full", t=64).schedule
    for plan in (attention("full", t=64).schedule, attention("full", head=128, t=64).schedule):
        assert "_held" not in generate(plan).kernels[0].text
    first = dataclasses.replace(plain.kernels[0].binding, mma="mma.sync")
    kept = dataclasses.replace(plain, kernels=(dataclasses.replace(plain.kernels[0], binding=first),))
    assert "_held" in generate(kept).kernels[0].text


def test_everything_compiles_without_spills() -> None:
    check_compiles((make().operator for make in CASES.values()), newest=True)


MUTANTS = {
    "the first step only": ("matmul", r"kk % 4 \* 32", "0"),
    "the first slab only": ("matmul, several slabs", r"kk / 4 \* \d+", "0"),
    "slabs lie elsewhere": ("matmul, several slabs", r"(matrix_descriptor<128>\(\w+), 16384", r"\1, 8192"),
    "rows lie elsewhere": ("matmul", r"(16), 1024\)", r"\1, 512)"),
    "another swizzle": ("matmul", r"matrix_descriptor<128>", "matrix_descriptor<64>"),
    "not transposed": ("matmul", r"<f16, 64, true>", "<f16, 64, false>"),
    "rows of the first warpgroup": ("matmul, two warpgroups", r"warp / 4 \*", "0 *"),
    "what was there is kept": ("attention", r"kk > 0", "true"),
    "nothing is kept": ("matmul", r", true\);(?=\n *\}\n *warpgroup_commit)", ", kk > 0);"),
    "nobody waits for the boxes": ("matmul", r"mbarrier_wait\([^;]*;", ";"),
    "boxes land in a slot that warps read": ("matmul", r"(warpgroup_wait<1>\(\);[^}]*)block_barrier\(\);", r"\1"),
    "boxes land in a slot that matmuls read": ("matmul", r"warpgroup_wait<1>\(\);", ""),
    "boxes land in the slot of this trip": ("matmul", r"_ring \+ before", "_ring + slot"),
    "boxes land in a slot that one matmul reads": ("attention", r"warpgroup_wait<0>\(\);", ""),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, rng: np.random.Generator) -> None:
    case, pattern, by = MUTANTS[name]
    assert re.search(pattern, CASES[case]().operator.kernels[0].text.split(KERNEL_MARK)[1])
    assert is_caught(CASES[case](), pattern, by, rng)


def test_a_schedule_says_so_and_comes_back(tmp_path: Path) -> None:
    plan = matmul(64).schedule
    assert "2 stages; wgmma; boxes by tma" in plan.text()
    plan.save(tmp_path / "schedule.json")
    assert load_schedules(tmp_path / "schedule.json") == (plan,)


# ---- asked of the scheduler


def is_grouped(plan: Schedule) -> bool:
    return any(k.binding.mma == "wgmma" and k.feed == "tma" for k in plan.kernels)


def of_weights(g: Graph) -> scheduled_candidates.Case:
    """A graph whose weights are known, any number of rows."""
    return scheduled_candidates.Case(Candidate(g.name, g, g), {"m": 100}, {"m": 150})


SCHEDULED = {
    "attention": scheduled_candidates.CASES["attention of any group"],
    "flash decoding": scheduled_candidates.CASES["flash decoding of any group"],
    "matmul": lambda: of_weights(nn.matmul(n=192, k=456)),
    "swiglu": lambda: of_weights(nn.swiglu(n=80, k=392)),
    "norm in front of a matmul": lambda: of_weights(nn.rmsnorm_matmul(n=64, k=456)),
}


@pytest.mark.parametrize("skeleton", ["cta-ring", "warp-ring", "specialised"])
@pytest.mark.parametrize("name", SCHEDULED)
def test_warpgroups_that_are_asked_for_are_right(name: str, skeleton: str, rng: np.random.Generator) -> None:
    case = SCHEDULED[name]()
    plan = schedule(case.candidate, H200, case.shape, mma="wgmma", skeleton=skeleton)[0]
    assert is_grouped(plan)
    sizes = case.suiting(plan, case.draw(rng))
    assert agrees(case, plan, sizes, rng), f"{sizes}\n{plan}"


def test_large_matmuls_and_prefill_are_for_warpgroups_and_few_rows_are_not() -> None:
    case = scheduled_candidates.CASES["attention of any group"]()
    few = schedule(case.candidate, H200, {**case.shape, "s": 1})[0]
    many = schedule(case.candidate, H200, {**case.shape, "s": 4096, "t": 4096})[0]
    assert is_grouped(many) and not is_grouped(few)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"mma": "wgmma", "arch": "sm_80"}, "mma 'wgmma' on sm_80: allowed are mma.sync"),
        ({"mma": "tcgen05"}, "mma 'tcgen05' on sm_90a: allowed are mma.sync, wgmma"),
        ({"mma": "wgmma", "feed": "cp.async"}, "wgmma with feed 'cp.async': allowed is 'tma'"),
        ({"mma": "wgmma", "tile": {"i": 32}}, "wgmma by teams of 2 warps of 16 rows: allowed are multiples of 4 warps"),
        ({"mma": "wgmma"}, "wgmma reads its second operand from boxes: w_1 does not come in boxes"),
    ],
)
def test_instructions_that_can_not_be_are_refused(arguments: dict[str, Any], why: str) -> None:
    case = scheduled_candidates.CASES["matmul"]()
    target = Target(arguments.pop("arch", "sm_90a"))
    with pytest.raises(ScheduleError, match=re.escape(why)):
        schedule(case.candidate, target, case.shape, **arguments)


def test_text_is_the_golden_file(golden: Callable[[str, str], None]) -> None:
    golden("matmul_warpgroups.cu", generate(matmul(64).schedule).kernels[0].text)


def test_a_tile_that_is_no_box_is_refused() -> None:
    case = cases.matmul_bfloat16()
    plan = case.schedule.kernels[0]
    binding = dataclasses.replace(plan.binding, mma="wgmma")
    changed = dataclasses.replace(case.schedule, kernels=(dataclasses.replace(plan, binding=binding),))
    with pytest.raises(CodegenError, match="wgmma reads b_1_tile, which is no tile of boxes"):
        generate(changed)
