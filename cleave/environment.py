"""What a result depends on besides the program: versions, driver, GPU, commit. Nothing heavy is imported to find out.

No path of the machine, no user and no host name is in it: it is written beside every record.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PACKAGES = (
    "cleave",
    "numpy",
    "egglog",
    "hypothesis",
    "nvidia-cuda-nvrtc",
    "cupy",
    "torch",
    "triton",
    "nvidia-cudnn",
    "flashinfer-python",
    "flashinfer-bench",
    "apache-tvm-ffi",
    "jax",
)
"""Distributions whose version is recorded, under names without the suffix for the CUDA version."""

COMMIT_VARIABLE = "CLEAVE_COMMIT"
"""Names the commit where the checkout travelled without its ``.git``; a trailing ``+`` marks changes."""

_CUDA_SUFFIX = re.compile(r"(-cu\d+|-cuda\d+x)$")
_DRIVER_VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")
_CHECKOUT = Path(__file__).resolve().parents[1]


def environment(gpu: Mapping[str, Any] | None = None, *, apart_from: Iterable[str] = ()) -> dict[str, Any]:
    """Versions of Python, packages and driver, the commit, and the GPU as the runtime describes it, if asked.

    ``apart_from``: as in ``commit``. ``gpu`` is ``runtime.device.properties()`` as a dict: finding the GPU means
    loading CuPy, so the caller decides.
    """
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": package_versions(),
        "driver": driver_version(),
        "commit": commit(apart_from=apart_from),
        "gpu": dict(gpu) if gpu is not None else None,
    }


def package_versions() -> dict[str, str]:
    """Versions of those of ``PACKAGES`` that are installed, from their metadata."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        if "Name" not in distribution.metadata:  # a broken installation
            continue
        plain = _CUDA_SUFFIX.sub("", distribution.metadata["Name"].lower().replace("_", "-"))
        if plain in PACKAGES:
            found.setdefault(plain, distribution.version)
    return {name: found[name] for name in PACKAGES if name in found}


def driver_version() -> str | None:
    """Version of the NVIDIA kernel driver, None without one."""
    try:
        return Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        pass
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _DRIVER_VERSION.search(text)
    return found[1] if found else None


def commit(*, apart_from: Iterable[str] = ()) -> dict[str, Any] | None:
    """``{"id": ..., "dirty": ...}`` of the checkout that this package runs from; None for an installed copy.

    Dirty: a tracked file differs from the commit. ``apart_from``: paths in which it may, such as the records that a run
    itself writes.
    """
    if named := os.environ.get(COMMIT_VARIABLE):
        return {"id": named.rstrip("+"), "dirty": named.endswith("+")}
    if not (_CHECKOUT / ".git").exists():
        return None
    rest = [".", *(f":(exclude){path}" for path in apart_from)]
    identity, status = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no", "--", *rest)
    return None if identity is None or status is None else {"id": identity, "dirty": bool(status)}


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(_CHECKOUT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
