"""The GPU: whether there is one, and what it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cleave.runtime import cuda
from cleave.target import Target, arch_of


@dataclass(frozen=True, slots=True)
class Properties:
    """A device as CUDA describes it. Memory in bytes, versions as CUDA writes them (13000 is 13.0)."""

    name: str
    compute_capability: str
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    shared_per_block: int
    driver_cuda: int
    runtime_cuda: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def available() -> bool:
    """Whether kernels can be launched here; loads CuPy if it is installed."""
    return not cuda.why_not()


def why_not_available() -> str:
    """The reason in one line, "" if there is a GPU."""
    return cuda.why_not()


def properties(index: int = 0) -> Properties:
    """Facts of a device.

    Errors: no GPU.
    """
    cuda.require("device")
    facts = cuda.device_facts(index)
    name = facts["name"]
    return Properties(
        name=name.decode() if isinstance(name, bytes) else str(name),
        compute_capability=f"{facts['major']}{facts['minor']}",
        multiprocessors=int(facts["multiProcessorCount"]),
        memory_bytes=int(facts["totalGlobalMem"]),
        l2_bytes=int(facts["l2CacheSize"]),
        shared_per_block=int(facts["sharedMemPerBlockOptin"]),
        driver_cuda=int(facts["driverVersion"]),
        runtime_cuda=int(facts["runtimeVersion"]),
    )


def target(index: int = 0) -> Target:
    """The best target for a device.

    Errors: no GPU, a GPU that nothing can be compiled for.
    """
    return Target(arch_of(properties(index).compute_capability))
