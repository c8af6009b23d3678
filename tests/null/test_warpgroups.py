"""Matmuls by warpgroups: tiles of boxes that the tensor cores read by descriptors."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from cleave import nn
from cleave.codegen.compile import Failed, compile_many
from cleave.codegen.generate import generate
from cleave.codegen.prelude import KERNEL_MARK
from cleave.errors import ScheduleError
from cleave.ir.text import parse_graph
from cleave.schedule import schedule
from cleave.search import search
from cleave.target import Target
from cleave.tile.plan import Merge
from tests.null import codegen_cases as cases
from tests.null import scheduled_candidates, team_cases
from tests.null.codegen_cases import Case
from tests.null.test_codegen import check
from tests.null.test_codegen_boxes import boxed
from tests.null.test_codegen_mutants import is_caught

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


def attention(mask: str = "causal", *, head: int = 64, t: int = 32, rows: int = 64, teams: int = 1) -> Case:
    g = parse_graph(cases.attention_text(mask, head=head))
    whole = {a.name: head for a in g.axes if a.extent.constant == head}
    roles, tiles = "b unit, kv unit, n2 unit, s grid, t loop", {"s": rows, "t": t, **whole}
    plan = cases.kernel(g, roles, tiles, "s", warps=teams * rows // 16, stages=2, teams=teams)
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
    "attention, two warpgroups": lambda: attention("window", head=32, rows=128),
    "attention, two teams": lambda: attention(teams=2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_emulated_kernel_equals_the_graph(name: str, rng: np.random.Generator) -> None:
    case = CASES[name]()
    operator = generate(case.schedule)
    own = operator.kernels[0].text.split(KERNEL_MARK)[1]
    assert "warpgroup_multiply" in own and "multiply_add" not in own
    assert operator.kernels[0].architectures == ("sm_90a",)
    for sizes in case.sizes:
        check(operator, case.schedule.graph, case, sizes, rng)
