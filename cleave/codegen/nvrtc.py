"""The NVRTC library, met through ctypes: find it, load it, compile text to a cubin. No GPU is needed.

Looked for in this order: the wheels of NVIDIA (torch and CuPy may bring them), a library inside torch itself, a CUDA
toolkit (CUDA_HOME, CUDA_PATH, /usr/local/cuda), the system's library path.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cleave.errors import CodegenError

_SUCCESS = 0
_FIRST_WITH_OWN_CACHE = (12, 8)
_SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


@dataclass(frozen=True)
class Output:
    """What NVRTC returned: the cubin, or None and a log that says why."""

    cubin: bytes | None
    log: str


@cache
def version() -> tuple[int, int]:
    """(major, minor) of the NVRTC in use."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def compile_program(text: str, options: tuple[str, ...]) -> Output:
    """Compile CUDA text to machine code with exactly these options (``--gpu-architecture`` must name a real chip)."""
    library, program = _library(), ctypes.c_void_p()
    # NVRTC keeps a cache of its own, and what comes from there has an empty log.
    own_cache_off = ("--no-cache",) if version() >= _FIRST_WITH_OWN_CACHE else ()
    arguments = [o.encode() for o in (*options, *own_cache_off)]
    _check("nvrtcCreateProgram", ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    try:
        status = library.nvrtcCompileProgram(program, len(arguments), (ctypes.c_char_p * len(arguments))(*arguments))
        log = _bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        return Output(_bytes(program, "CUBIN") if status == _SUCCESS else None, log)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _check(function: str, *arguments: object) -> None:
    status = getattr(_library(), function)(*arguments)
    if status != _SUCCESS:
        raise CodegenError(f"{function} failed: {_library().nvrtcGetErrorString(status).decode()}", location="NVRTC")


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(f"nvrtcGet{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _check(f"nvrtcGet{what}", program, buffer)
    return buffer.raw


@cache
def _library() -> ctypes.CDLL:
    for path in _candidates():
        try:
            return _load(path)
        except OSError:
            continue
    raise CodegenError(
        "libnvrtc not found: install the wheel nvidia-cuda-nvrtc, or set CUDA_HOME to a CUDA toolkit", location="NVRTC"
    )


def _load(path: str) -> ctypes.CDLL:
    # libnvrtc opens its builtins by bare name; a wheel's folder is on no search path.
    for builtins in sorted(Path(path).parent.glob("libnvrtc-builtins.so*")):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(path)
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def _candidates() -> Iterator[str]:
    for folder in _folders():
        found = [p for p in folder.glob("libnvrtc*.so*") if "builtins" not in p.name and ".alt." not in p.name]
        yield from (str(p) for p in sorted(found, reverse=True))
    yield from _SONAMES
    if system := ctypes.util.find_library("nvrtc"):
        yield system


def _folders() -> Iterator[Path]:
    for root in _package_folders("nvidia"):
        yield from sorted(root.glob("cu[0-9]*/lib"), reverse=True)
        yield root / "cuda_nvrtc" / "lib"
    for root in _package_folders("torch"):
        yield root / "lib"
    toolkits = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    for toolkit in filter(None, toolkits):
        yield from (Path(toolkit) / "lib64", Path(toolkit) / "targets" / "x86_64-linux" / "lib")


def _package_folders(name: str) -> tuple[Path, ...]:
    """Folders of an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    return tuple(Path(p) for p in (spec.submodule_search_locations or ())) if spec else ()
