"""Prelude texts: what emitted kernels need of the GPU, and the same names for the emulator; more of both for boxes."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from cleave.tile.plan import Feed

KERNEL_MARK = "// ---- kernel\n"
"""Ends the prelude in every emitted text."""


@cache
def device_prelude(feed: Feed = "cp.async", instructions: str = "") -> str:
    """CUDA C++, ending in ``KERNEL_MARK``. ``instructions``: of the warpgroups, see ``codegen.warpgroup``."""
    boxes = _text("bulk.cuh") if feed == "tma" else ""
    groups = _text("warpgroup.cuh") + instructions if instructions else ""
    return _text("device.cuh") + boxes + groups + _common(feed)


def has_mbarriers(text: str) -> bool:
    """Whether a kernel's own text needs what comes with boxes."""
    return "mbarrier_" in text


@cache
def emulator_prelude(feed: Feed = "cp.async") -> str:
    """Plain C++ with the same names, ending in ``KERNEL_MARK``."""
    return _text("emulator.h") + (_text("bulk.h") if feed == "tma" else "") + _common(feed)


def _common(feed: Feed) -> str:
    text = _text("common.cuh")
    return text.removesuffix(KERNEL_MARK) + _text("slabs.cuh") + KERNEL_MARK if feed == "tma" else text


@cache
def machine_source() -> str:
    """C++ of the machine that ``emulator_prelude`` declares; compiled once and linked to every emulated kernel."""
    return _text("machine.cpp")


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
