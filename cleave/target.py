"""Target GPUs: what the scheduler and the cost model need to know, as data.

Rates of the H200 are measured ceilings (one device, driver 580, 2026), those of the A100 the data sheet's.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from cleave.errors import CleaveError


@dataclass(frozen=True, slots=True)
class Facts:
    """One architecture. Rates are of the whole device unless they say otherwise.

    shared_per_block   most bytes of shared memory that one block may have, the system's share taken off
    read_bandwidth     bytes a second that a kernel can read from memory
    matmul_rate        FP16 multiply-adds with FP32 accumulation, in operations (2 a multiply-add) a second
    mma_rate           the same through mma.sync, which later chips run below their best
    exp_rate           exponentials (special functions) a clock and multiprocessor
    fma_rate           FP32 multiply-adds a clock and multiprocessor
    launch_seconds     a kernel launch inside a CUDA graph
    cluster_blocks     most blocks of a cluster; 1 where there are none
    features           instructions; "early launch": a kernel can be launched before the one that it waits for has ended
    """

    chip: str
    multiprocessors: int
    clock: float
    registers: int
    registers_per_thread: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    shared_per_multiprocessor: int
    shared_per_block: int
    l2_bytes: int
    memory_bytes: int
    read_bandwidth: float
    matmul_rate: float
    mma_rate: float
    exp_rate: int
    fma_rate: int
    launch_seconds: float
    cluster_blocks: int
    features: frozenset[str]

    def blocks_by_shared(self, shared_bytes: int) -> int:
        """Blocks of so much shared memory that a multiprocessor holds at once."""
        return self.shared_per_multiprocessor // (shared_bytes + SHARED_OF_THE_SYSTEM)


SHARED_OF_THE_SYSTEM = 1024
"""Bytes of a multiprocessor's shared memory that every block takes besides its own."""

_KB = 1024
_GB = 1024**3

TARGETS: dict[str, Facts] = {
    "sm_80": Facts(
        chip="A100",
        multiprocessors=108,
        clock=1.41e9,
        registers=65536,
        registers_per_thread=255,
        threads_per_multiprocessor=2048,
        blocks_per_multiprocessor=32,
        shared_per_multiprocessor=164 * _KB,
        shared_per_block=163 * _KB,
        l2_bytes=40 * 1024 * _KB,
        memory_bytes=40 * _GB,
        read_bandwidth=1.555e12,
        matmul_rate=312e12,
        mma_rate=312e12,
        exp_rate=16,
        fma_rate=64,
        launch_seconds=1.5e-6,
        cluster_blocks=1,
        features=frozenset({"mma.sync", "ldmatrix", "cp.async"}),
    ),
    "sm_90a": Facts(
        chip="H200",
        multiprocessors=132,
        clock=1.98e9,
        registers=65536,
        registers_per_thread=255,
        threads_per_multiprocessor=2048,
        blocks_per_multiprocessor=32,
        shared_per_multiprocessor=228 * _KB,
        shared_per_block=227 * _KB,
        l2_bytes=60 * 1024 * _KB,
        memory_bytes=141 * 10**9,
        read_bandwidth=4.6e12,
        matmul_rate=757e12,
        mma_rate=359e12,
        exp_rate=16,
        fma_rate=128,
        launch_seconds=1.0e-6,
        cluster_blocks=8,
        features=frozenset(
            {"mma.sync", "ldmatrix", "cp.async", "tma", "wgmma", "cluster", "setmaxnreg", "early launch"}
        ),
    ),
}
"""Facts of every architecture that can be compiled for."""


@dataclass(frozen=True)
class Target:
    """A GPU to compile for, by its architecture: ``Target("sm_90a")``.

    Errors: an architecture that is not in ``TARGETS``.
    """

    arch: str

    def __post_init__(self) -> None:
        if self.arch not in TARGETS:
            raise CleaveError(f"unknown architecture {self.arch!r}; allowed: {', '.join(TARGETS)}", location="target")

    @property
    def facts(self) -> Facts:
        return TARGETS[self.arch]

    def as_dict(self) -> dict[str, Any]:
        """The facts as plain data, for records."""
        values = {f.name: getattr(self.facts, f.name) for f in fields(Facts)}
        return {"arch": self.arch, **values, "features": sorted(self.facts.features)}


def arch_of(compute_capability: str) -> str:
    """The best architecture of ``TARGETS`` that a device can run: "80" -> "sm_80", "90" -> "sm_90a".

    Code for sm_80 runs on every later 8.x; sm_90a on 9.0 only. Errors: a device that none of them runs on.
    """
    if compute_capability == "90":
        return "sm_90a"
    if compute_capability.startswith("8") and len(compute_capability) == 2:
        return "sm_80"
    raise CleaveError(
        f"compute capability {compute_capability}; compiled code is for {', '.join(TARGETS)}", location="target"
    )
