"""Stand-ins for a measurement, run by a child: what each does is the name of its candidate.

Few imports, since a child is started for every one of them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cleave.ir.graph import Graph
from cleave.tile.plan import Schedule

DIMS = {"m": 5, "n": 33}


class CUDARuntimeError(RuntimeError):
    """Named as CuPy's."""


class Unreadable:
    def __reduce__(self) -> Any:
        return (int, ("no number",))


def planted(s: Schedule, origin: Graph, dims: Mapping[str, int], seed: int) -> Any:
    from cleave.pipeline.trial import OnDevice
    from cleave.verify import Check, Outcome, Step

    answer = DEEDS.get(s.candidate, lambda: None)()
    return answer or OnDevice(Check(Step.KERNEL_HALF, Outcome.PASSED), {"q50": 1e-6})


def _hang() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def _raise(error: Exception) -> Any:
    raise error


def _print() -> None:
    print("Outcome.OK", flush=True)
    os.write(1, b"noise")
    sys.stdout.write("\0")


def _flood() -> None:
    for _ in range(64):
        os.write(1, bytes(1 << 16))


def _leave_one_behind() -> None:
    """A process that holds whatever this one has open."""
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSEGV)


DEEDS: dict[str, Callable[[], Any]] = {
    "hang": _hang,
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "illegal address": lambda: _raise(CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access")),
    "failed launch": lambda: _raise(CUDARuntimeError("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure")),
    "out of memory": lambda: _raise(CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")),
    "exception": lambda: _raise(ValueError("a fault of cleave itself\nin two lines")),
    "dead": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "leaves": lambda: os._exit(0),
    "exits": lambda: sys.exit("it is over"),
    "leaves one behind": _leave_one_behind,
    "returns twice": lambda: os.fork() and None,
    "floods": _flood,
    "prints": _print,
    "unreadable": Unreadable,
    "nonsense": lambda: "fast",
}


# ---- the real measurement on a GPU made of host memory -------------------------------------------------------------


def measured_on_a_fake_gpu(s: Schedule, origin: Graph, dims: Mapping[str, int], seed: int) -> Any:
    """The border replaced, kernels that double their input or fail."""
    import pytest

    from cleave.pipeline import trial
    from tests.null import fake_gpu
    from tests.null.host_device import HOST

    kernels = _Kernels(s.candidate)
    with pytest.MonkeyPatch.context() as patch:
        fake_gpu.install(patch, kernels, quick=False)
        return trial.measure(s, origin, dims, seed, HOST)


class _Kernels(dict[str, Any]):
    """Whatever the entry: a pointer to read, one to write, and the extents."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __missing__(self, entry: str) -> Any:
        return "QQii", self.work

    def work(self, grid: tuple[int, int, int], x: int, y: int, m: int, n: int) -> None:
        match self.name:
            case "illegal address":
                raise CUDARuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")
            case "bad configuration":
                raise CUDARuntimeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
            case "writes nothing":
                return
            case name:
                factor = 2.5 if name == "wrong" else 2.0
        words = ctypes.c_uint16 * (DIMS["m"] * DIMS["n"])
        read = np.ctypeslib.as_array(words.from_address(x)).view(np.float16)
        np.ctypeslib.as_array(words.from_address(y)).view(np.float16)[...] = read * np.float16(factor)
