"""A kernel lets the next one on its stream begin, and waits for the one before it, before it uses memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cleave import nn
from cleave.candidate import Candidate, load_candidates
from cleave.codegen.compile import Failed, compile_many
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.codegen.order import BEGIN, WAIT
from cleave.codegen.prelude import KERNEL_MARK
from cleave.errors import CleaveError
from cleave.kernel import KernelSource, OperatorSource
from cleave.runtime import cuda
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Schedule
from tests.null.searched import searched

DECODE = Path(__file__).parents[2] / "experiments" / "e04_decode" / "candidates" / "attention.json"
DIMS = {"b": 1, "kv_heads": 2, "group": 4, "s": 16, "d": 128, "e": 128, "t": 1024}


def decode(splits: list[str]) -> Candidate:
    return next(c for c in load_candidates(DECODE) if [s.base for s in c.splits] == splits)


@cache
def matmul() -> Candidate:
    return next(c for c in searched(nn.matmul(n=128, k=512)).candidates if not c.splits)


def planned(c: Candidate, dims: dict[str, int], arch: str = "sm_90a", **forced: Any) -> Schedule:
    return schedule(c, Target(arch), dims, keep=1, **forced)[0]


def in_clusters(**forced: Any) -> Schedule:
    return planned(decode(["t"]), DIMS, merge="cluster", split={"t": 4}, **forced)


PLANS: dict[str, Callable[[], Schedule]] = {
    "rings": lambda: planned(matmul(), {"m": 100}, "sm_80"),
    "boxes": lambda: planned(matmul(), {"m": 100}, skeleton="warp-ring"),
    "tiles in turn": lambda: planned(matmul(), {"m": 1000}, skeleton="specialised"),
    "clusters": lambda: in_clusters(skeleton="cta-ring", feed="cp.async", tile={"t_i": 32}),
    "full clusters": lambda: in_clusters(skeleton="specialised", tile={"t_i": 64}),
    "a second launch": lambda: planned(decode(["t"]), DIMS, merge="second-launch", split={"t": 3}),
    "who comes last": lambda: planned(decode(["t"]), DIMS, merge="last-arriving", split={"t": 3}),
    "rows": lambda: planned(searched(nn.softmax()).candidates[0], {"m": 100, "n": 300}),
}


def own(k: KernelSource) -> str:
    """Its text from the first statement on."""
    return k.text.split(KERNEL_MARK)[1].split("{\n", 1)[1]


@pytest.mark.parametrize("name", PLANS)
def test_every_kernel_waits_once_where_all_threads_come_by_and_before_it_names_an_array(name: str) -> None:
    for k in generate(PLANS[name]()).kernels:
        text, arrays = own(k), [p.name for p in k.parameters if p.kind == "pointer"]
        assert k.waits and text.count(WAIT) == 1
        before = text[: text.index(WAIT)]
        assert not any(re.search(rf"\b{a}\b", before) for a in arrays)
        assert "copy_box" not in before and "for (" not in before and "return" not in before
        opened = [line for line in before.splitlines() if line.rstrip().endswith("{")]
        assert before.count("{") - before.count("}") == sum(line.strip() == "{" for line in opened), before


@pytest.mark.parametrize("name", PLANS)
def test_the_next_kernel_may_begin_before_anything_is_stored(name: str) -> None:
    """At the start, where a block of a cluster has a multiprocessor; else when all but the stores is done."""
    plan = PLANS[name]()
    for n, k in enumerate(generate(plan).kernels):
        text = own(k)
        at_start = text.lstrip().startswith(BEGIN) or re.match(
            r"\s*if \(threadIdx.x == 0\) {[^}]*}\s*" + re.escape(BEGIN), text
        )
        assert bool(at_start) == (name == "full clusters")
        outputs = {o.name for o in plan.kernels[n].program.outputs}
        stores = [m.start() for m in re.finditer(rf"// ({'|'.join(outputs)})\[.*\] = ", text)]
        assert stores and text.index(BEGIN) < stores[0]


@pytest.mark.parametrize("name", PLANS)
def test_the_texts_compile(name: str) -> None:
    for made in compile_many([(k, arch) for k in generate(PLANS[name]()).kernels for arch in k.architectures]):
        assert not isinstance(made, Failed), made


@pytest.mark.parametrize("name", ["rings", "boxes", "tiles in turn"])
def test_memory_that_is_used_before_the_wait_is_an_error(name: str, rng: np.random.Generator) -> None:
    plan = PLANS[name]()
    operator = generate(plan)
    inputs = {"a": rng.standard_normal((20, 512)), "b": rng.standard_normal((512, 128))}
    sizes = {"m": 20, **plan.bind}
    emulate(operator, inputs, sizes)
    with pytest.raises(CleaveError, match=r"uses memory before the kernel before is over|ends, and has not waited"):
        emulate(without(operator, WAIT), inputs, sizes)


def test_a_thread_that_leaves_without_a_wait_is_an_error(rng: np.random.Generator) -> None:
    """Whoever waits for this kernel relies on it that those before it are over as well."""
    operator = generate(PLANS["rings"]())
    inputs = {"a": rng.standard_normal((20, 512)), "b": rng.standard_normal((512, 128))}
    (k,) = operator.kernels
    leaves = replace(k, text=k.text.replace(WAIT, f"if (blockIdx.x == 0) return; {WAIT}"))
    with pytest.raises(CleaveError, match="ends, and has not waited for the kernel before"):
        emulate(replace(operator, kernels=(leaves,)), inputs, {"m": 20, **PLANS["rings"]().bind})


def without(operator: OperatorSource, line: str) -> OperatorSource:
    (k,) = operator.kernels
    head, text = k.text.split(KERNEL_MARK)
    return replace(operator, kernels=(replace(k, text=head + KERNEL_MARK + text.replace(line, "")),))


@pytest.mark.parametrize(("grid", "bytes_"), [((132, 1, 1), 114 * 1024), ((33, 4, 1), 114 * 1024), ((133, 1, 1), 1000)])
def test_a_grid_that_leaves_places_free_has_one_block_a_multiprocessor(grid: Any, bytes_: int) -> None:
    k = cuda.Kernel("k", 128, 1000, SimpleNamespace(ptr=0), early=True, spread=132, alone_bytes=114 * 1024)
    launch: Any = k.bound(grid, 0, 0)
    assert launch.args[0]._obj.shared_bytes == bytes_
    larger: Any = replace(k, shared_bytes=200_000).bound(grid, 0, 0)
    assert larger.args[0]._obj.shared_bytes == 200_000
