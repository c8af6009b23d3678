"""Prelude texts: what emitted kernels need of the GPU, and the same names for the emulator."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

KERNEL_MARK = "// ---- kernel\n"
"""Ends the prelude in every emitted text."""


@cache
def device_prelude() -> str:
    """CUDA C++, ending in ``KERNEL_MARK``."""
    return _text("device.cuh") + _text("common.cuh")


@cache
def emulator_prelude() -> str:
    """Plain C++ with the same names, ending in ``KERNEL_MARK``."""
    return _text("emulator.h") + _text("common.cuh")


@cache
def machine_source() -> str:
    """C++ of the machine that ``emulator_prelude`` declares; compiled once and linked to every emulated kernel."""
    return _text("machine.cpp")


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
