"""Blocks without loops: as many at once as registers and shared memory allow, and no more registers are saved."""

from __future__ import annotations

import re
from pathlib import Path

from cleave import nn
from cleave.candidate import load_candidates
from cleave.codegen.compile import compile_cubin
from cleave.codegen.generate import generate
from cleave.kernel import KernelSource
from cleave.schedule import schedule
from cleave.target import SHARED_OF_THE_SYSTEM, Target
from tests.null.searched import searched

LATENT = Path(__file__).parents[2] / "experiments" / "e01_ablation" / "candidates" / "mla_decode.json"


def crowds(k: KernelSource) -> int:
    found = re.search(r"__launch_bounds__\(\d+, (\d+)\)", k.text)
    assert found is not None
    return int(found[1])


def test_registers_are_saved_for_blocks_that_shared_memory_has_room_for_and_none_spills() -> None:
    c = next(c for c in load_candidates(LATENT) if not c.splits)
    target = Target("sm_80")
    kernels = [k for p in schedule(c, target, {"b": 1, "t": 1024}, keep=24) for k in generate(p).kernels]
    many = [k for k in kernels if crowds(k) > 1]
    assert many
    for k in many:
        assert crowds(k) * (k.shared_bytes + SHARED_OF_THE_SYSTEM) <= target.facts.shared_per_multiprocessor
        assert compile_cubin(k, "sm_80").resources.local_bytes == 0


def test_small_blocks_have_64_registers_a_thread() -> None:
    c = next(c for c in searched(nn.matmul(n=1024, k=16)).candidates if not c.splits)
    kernels = [k for p in schedule(c, Target("sm_90a"), {"m": 256}) for k in generate(p).kernels]
    assert any(crowds(k) * k.threads * 64 == 65536 for k in kernels)
    assert all(compile_cubin(k, "sm_90a").resources.local_bytes == 0 for k in kernels)
