"""NVIDIA's compute-sanitizer on every kind of kernel: no access out of bounds, no race in shared memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cupy")

PLACES = (shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer")
SECONDS = 400.0


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_the_sanitizer_finds_nothing(tool: str) -> None:
    program = next((p for p in PLACES if p and Path(p).exists()), None)
    if program is None:
        pytest.skip("there is no compute-sanitizer")
    command = [program, "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "tests.gpu.kernel_kinds"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if "Device not supported" in done.stdout:
        pytest.skip("compute-sanitizer refuses this device")
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    assert "ERROR SUMMARY: 0 errors" in done.stdout or "RACECHECK SUMMARY: 0 hazards" in done.stdout, done.stdout[
        -2000:
    ]
