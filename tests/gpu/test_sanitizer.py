"""NVIDIA's compute-sanitizer on every kind of kernel: no access out of bounds, no race in shared memory.

Arrays are allocations of their own (``exact_allocations``), with space between them: in CuPy's pool what lies behind an
array belongs to nobody that memcheck knows.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import batch_kinds, kernel_kinds

pytest.importorskip("cupy")

PLACES = (shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer")
SECONDS = 400.0

MISREAD = ("boxes of a cluster, attention, split, last arriving", "boxes, half copied, two teams")
"""Racecheck 2025.3 reports stores and loads that a barrier of the block separates, also in the machine code, such as a
flag that one thread writes between two of them; it counts other hazards in every run, of the second sometimes none."""


MISREAD_OF_BATCHES = ", warp-ring, "
"""Of prefill over batches: stores of a team's sums and the loads that join them, all 62 pairs that were reported. A
barrier of the block lies between each in the machine code; decode, with the same join, is clean."""

BETWEEN = ("--padding", "512")
"""Bytes behind every allocation that memcheck knows to be nobody's: addresses are multiples of as many."""


def clean(tool: str, *names: str, kinds: str = "kernel_kinds") -> None:
    program = next((p for p in PLACES if p and Path(p).exists()), None)
    if program is None:
        pytest.skip("there is no compute-sanitizer")
    options = ["--tool", tool, "--error-exitcode", "9", *(BETWEEN if tool == "memcheck" else ())]
    command = [program, *options, sys.executable, "-m", f"tests.gpu.{kinds}", *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if "Device not supported" in done.stdout:
        pytest.skip("compute-sanitizer refuses this device")
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    assert "ERROR SUMMARY: 0 errors" in done.stdout or "RACECHECK SUMMARY: 0 hazards" in done.stdout, done.stdout[
        -2000:
    ]


def test_no_access_is_out_of_bounds() -> None:
    clean("memcheck")


@pytest.mark.parametrize("operator", batch_kinds.OPERATORS)
def test_no_access_of_a_batch_is_out_of_bounds(operator: str) -> None:
    """Ragged and empty batches, paged and packed; each call is right as well."""
    clean("memcheck", operator, kinds="batch_kinds")


@pytest.mark.parametrize("operator", batch_kinds.OPERATORS)
def test_no_race_in_shared_memory_over_batches(operator: str) -> None:
    misread = [n for n in batch_kinds.names(operator) if "prefill" in operator and MISREAD_OF_BATCHES in n]
    clean("racecheck", *(n for n in batch_kinds.names(operator) if n not in misread), kinds="batch_kinds")


def test_no_race_in_shared_memory() -> None:
    clean("racecheck", *(name for name in kernel_kinds.names() if name not in MISREAD))


@pytest.mark.xfail(strict=False, reason="racecheck reports accesses with a barrier of the block between them")
def test_no_race_where_racecheck_misses_a_barrier() -> None:
    clean("racecheck", *MISREAD)
