"""Prelude texts: what emitted kernels need of the GPU, and the same names for the emulator; more of both for boxes."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from cleave.tile.plan import Feed

KERNEL_MARK = "// ---- kernel\n"
"""Ends the prelude in every emitted text."""


@cache
def device_prelude(feed: Feed = "cp.async", instructions: str = "", *, rows: bool = False, tables: bool = False) -> str:
    """CUDA C++, ending in ``KERNEL_MARK``.

    ``instructions``: of the warpgroups, see ``codegen.warpgroup``; ``rows``: where threads share them; ``tables``:
    where rows are looked up.
    """
    boxes = _text("bulk.cuh") if feed == "tma" else ""
    groups = _text("warpgroup.cuh") + instructions if instructions else ""
    more = (_text("rows.cuh") if rows else "") + (_text("tables.cuh") if tables else "")
    return _text("device.cuh") + _text("order.cuh") + boxes + groups + more + _common(feed, rows=rows)


def has_mbarriers(text: str) -> bool:
    """Whether a kernel's own text needs what comes with boxes: some are asked for, or tensor cores read such tiles."""
    return "mbarrier_" in text or "warpgroup_" in text


def has_shared_rows(text: str) -> bool:
    """Whether a kernel's own text needs what comes with threads that share rows."""
    return "lanes_" in text or "_vector" in text


def has_lookups(text: str) -> bool:
    """Whether a kernel's own text looks up rows ahead of their copies, or what a block has to do."""
    return "copy_word(" in text or "votes(" in text


@cache
def emulator_prelude(feed: Feed = "cp.async", *, rows: bool = False, tables: bool = False) -> str:
    """Plain C++ with the same names, ending in ``KERNEL_MARK``."""
    own = (_text("bulk.h") if feed == "tma" else "") + (_text("rows.h") if rows else "")
    own += _text("tables.h") if tables else ""
    return _text("emulator.h") + own + _common(feed, rows=rows)


def _common(feed: Feed, *, rows: bool) -> str:
    more = (_text("slabs.cuh") if feed == "tma" else "") + (_text("vectors.cuh") if rows else "")
    return _text("common.cuh").removesuffix(KERNEL_MARK) + more + KERNEL_MARK


@cache
def machine_source() -> str:
    """C++ of the machine that ``emulator_prelude`` declares; compiled once and linked to every emulated kernel."""
    return _text("machine.cpp")


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
