"""Running emitted CUDA text on the CPU: g++ compiles the very text against another prelude (``prelude/emulator.h``).

It stands in for the GPU in tests: it checks values, and refuses reads out of bounds, misaligned vector accesses, shared
memory used without the barrier, wait or fence that it needs, barriers that not every thread reaches, waits for boxes
that nobody asked for, blocks that arrive before their work is done, blocks that read of another what no barrier of
their cluster ordered, and 32-bit integers that overflow. Registers start as nonsense. Times mean nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import random
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.codegen.emission import C_TYPES
from cleave.codegen.prelude import (
    KERNEL_MARK,
    emulator_prelude,
    has_lookups,
    has_mbarriers,
    has_shared_rows,
    machine_source,
)
from cleave.errors import CleaveError
from cleave.ir.index import Index, evaluate, symbols_of
from cleave.ir.op import DTYPES, round_to
from cleave.kernel import (
    Buffer,
    KernelSource,
    OperatorSource,
    Parameter,
    Pointer,
    Scalar,
    TensorMap,
    Value,
    Workspace,
)
from cleave.tile.box import RANKS, UNIT_BYTES, WIDEST

Array = NDArray[Any]
_LAUNCH = """
int run_blocks(
    void (*)(int), int blocks, int cluster, int threads, int bytes, const u64* ranges, int count, u64 seed, char* told);
extern "C" int launch(
    const u64* given, int blocks, int cluster, int threads, int bytes, const u64* ranges, int count, u64 seed,
    char* message) {
  arguments = given;
  return run_blocks(thread_entry, blocks, cluster, threads, bytes, ranges, count, seed, message);
}
"""
_OPTIONS = ("-O1", "-std=c++17", "-fPIC", "-w")
_CHECKED = ("-c", "-fsanitize=signed-integer-overflow,integer-divide-by-zero")
_NONSENSE = "-ftrivial-auto-var-init=pattern"
_INT32 = range(-(2**31), 2**31)
_GUARD = 256
_STORAGE: dict[str, Any] = {
    "float16": np.float16,
    "bfloat16": np.uint16,
    "float32": np.float32,
    "int32": np.int32,
    "int64": np.int64,
    "bool": np.uint8,
}


def emulate(
    operator: OperatorSource,
    inputs: Mapping[str, Any],
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    *,
    alignment: int = 1,
) -> dict[str, Array]:
    """Outputs of an operator in float64, its kernels run in order on the CPU.

    ``inputs`` are rounded to their storage types; outputs and workspaces start as NaN. ``dims`` binds symbols that no
    input shape gives. ``seed`` decides the order of blocks and warps and when copies land. ``alignment``: of the
    addresses of inputs and outputs, in bytes, where the operator requires less. Errors (``CleaveError``): no g++, text
    that does not compile, and everything that the emulator refuses.
    """
    rng = random.Random(seed)
    values = _dims(operator, inputs, dims or {})
    buffers = [replace(b, alignment=max(b.alignment, alignment)) for b in (*operator.inputs, *operator.outputs)]
    held = {b.name: _Held(b, values, inputs.get(b.name)) for b in buffers}
    held |= {w.name: _Held(w, values, None) for w in operator.workspaces}
    outputs = {b.name for b in operator.outputs} | {w.name for w in operator.workspaces}
    for kernel in operator.kernels:
        _launch(kernel, held, outputs, inputs, values, rng.getrandbits(63))
    for w in operator.workspaces:
        if w.zeroed and held[w.name].array.any():
            raise CleaveError("counters are not zero after the call", location=f"workspace {w.name}")
    return {b.name: held[b.name].values() for b in operator.outputs}


class _Held:
    """An array at an address that is aligned as far as the operator requires and no further, between guards."""

    def __init__(self, buffer: Buffer | Workspace, dims: Mapping[str, int], given: Any) -> None:
        self.dtype = buffer.dtype
        shape = tuple(int(evaluate(n, dims)) for n in buffer.shape)
        storage = np.dtype(_STORAGE[buffer.dtype])
        size = math.prod(shape) * int(storage.itemsize)
        raw = np.full(size + 2 * _GUARD + 256, 0xFF, dtype=np.uint8)
        alignment = max(buffer.alignment if isinstance(buffer, Buffer) else 256, storage.itemsize)
        start = -raw.ctypes.data % 256 + _GUARD - _GUARD % 256
        start += alignment if isinstance(buffer, Buffer) and alignment < 256 else 0
        self.raw, self.array = raw, raw[start : start + size].view(storage).reshape(shape)
        self.pointer, self.bytes = raw.ctypes.data + start, size
        if given is not None:
            self.array[...] = _stored(np.asarray(given), buffer.dtype)
        elif isinstance(buffer, Workspace) and buffer.zeroed:
            self.array[...] = 0

    def values(self) -> Array:
        if self.dtype == "bfloat16":
            return (self.array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return self.array.astype(np.float64)


def _stored(values: Array, dtype: str) -> Array:
    if dtype == "bfloat16":
        rounded = np.ascontiguousarray(round_to(values.astype(np.float64), dtype), dtype=np.float32)
        return (rounded.view(np.uint32) >> 16).astype(np.uint16).reshape(values.shape)
    with np.errstate(over="ignore"):
        return values.astype(_STORAGE[dtype])


def _dims(operator: OperatorSource, inputs: Mapping[str, Any], given: Mapping[str, int]) -> dict[str, int]:
    values = {**operator.fixed, **given}
    learnt = True
    while learnt:
        learnt = False
        for b in operator.inputs:
            for extent, size in zip(b.shape, np.shape(inputs[b.name]), strict=True):
                found = _solved(extent, int(size), values)
                if found is not None:
                    values[found[0]], learnt = found[1], True
    for symbol, expression in operator.derived:
        values[symbol.name] = int(evaluate(expression, values))
    return values


def _solved(extent: Index, size: int, values: Mapping[str, int]) -> tuple[str, int] | None:
    unknown = [s for s in symbols_of(extent) if s.name not in values and s.value is None]
    linear = extent.linear_in(unknown[0]) if len(unknown) == 1 else None
    if linear is None:
        return None
    factor, rest = int(evaluate(linear[0], values)), size - int(evaluate(linear[1], values))
    return (unknown[0].name, rest // factor) if factor and rest % factor == 0 else None


def _launch(
    kernel: KernelSource,
    held: Mapping[str, _Held],
    writable: set[str],
    inputs: Mapping[str, Any],
    dims: Mapping[str, int],
    seed: int,
) -> None:
    blocks = math.prod(int(evaluate(n, dims)) for n in kernel.grid)
    maps = {p.name: _packed_map(p.source, held, dims) for p in kernel.parameters if isinstance(p.source, TensorMap)}
    arguments = (ctypes.c_uint64 * max(len(kernel.parameters), 1))(
        *(
            ctypes.addressof(maps[p.name]) if p.name in maps else _argument(p, held, inputs, dims)
            for p in kernel.parameters
        )
    )
    ranges = [x for name, h in held.items() for x in (h.pointer, h.pointer + h.bytes, _kind(kernel, name, writable))]
    message = ctypes.create_string_buffer(256)
    failed = _library(kernel).launch(
        arguments,
        ctypes.c_int(blocks),
        ctypes.c_int(max(kernel.cluster, kernel.together)),
        ctypes.c_int(kernel.threads),
        ctypes.c_int(kernel.shared_bytes),
        (ctypes.c_uint64 * len(ranges))(*ranges),
        ctypes.c_int(len(held)),
        ctypes.c_uint64(seed),
        message,
    )
    if failed:
        raise CleaveError(message.value.decode(errors="replace"), location=f"emulated {kernel.entry}")


def _kind(kernel: KernelSource, name: str, writable: set[str]) -> int:
    """``Kind`` of the machine: an input, an output, or what blocks of a launch that merges write for one another."""
    merges = any(p.writable and p.dtype == "int32" for p in kernel.parameters)
    shared = any(p.writable and p.source == Pointer(name) for p in kernel.parameters)
    return 2 if merges and shared else int(name in writable)


def _argument(p: Parameter, held: Mapping[str, _Held], inputs: Mapping[str, Any], dims: Mapping[str, int]) -> int:
    match p.source:
        case Pointer(buffer):
            return held[buffer].pointer
        case Value(expression):
            value = int(evaluate(expression, dims))
            if p.kind == "int32" and value not in _INT32:
                raise CleaveError(f"parameter {p.name} = {value} does not fit int32", location="emulator")
            return value & 0xFFFFFFFFFFFFFFFF
        case Scalar(name):
            return int(np.float32(np.asarray(inputs[name])).view(np.uint32))
        case _:
            raise CleaveError(f"parameter {p.name}: strides are not emulated", location="emulator")


def _packed_map(source: TensorMap, held: Mapping[str, _Held], dims: Mapping[str, int]) -> ctypes.Array[Any]:
    """A tensor map as the machine reads it; what the driver would refuse to encode is refused."""
    pointer = held[source.buffer].pointer
    extents, strides = ([int(evaluate(i, dims)) for i in part] for part in (source.dims, source.strides))
    rank, item = len(extents), DTYPES[source.dtype]
    fits = rank in RANKS and source.box[0] * item == source.swizzle and all(0 < n <= WIDEST for n in source.box)
    if not fits or pointer % UNIT_BYTES or any(n % UNIT_BYTES for n in strides):
        raise CleaveError(f"no tensor map for {source.buffer}: {source.box} of {extents}", location="emulator")
    words = [pointer, rank | source.swizzle << 8 | item << 24]
    words += [*extents, *[0] * (5 - rank), *strides, *[0] * (5 - rank)]
    raw = struct.pack("=11Q", *words) + struct.pack("=5H", *source.box, *[0] * (5 - rank))
    return ctypes.create_string_buffer(raw, 128)


# ---- compiling


@cache
def _compiler() -> str:
    found = shutil.which(os.environ.get("CXX", "g++"))
    if found is None:
        raise CleaveError("g++ is not on the path: the emulator compiles emitted text with it", location="emulator")
    return found


@cache
def _library(kernel: KernelSource) -> ctypes.CDLL:
    machine = _made(machine_source(), ".o", ("-c",), "machine")
    own = _made(_program(kernel), ".o", (*_CHECKED, *_initialised()), kernel.entry)
    return ctypes.CDLL(str(_made("", ".so", ("-shared", str(own), str(machine)), kernel.entry)))


@cache
def _initialised() -> tuple[str, ...]:
    """g++ 12 and later fill variables that nothing initialises, so that a kernel that reads one shows."""
    probe = subprocess.run([_compiler(), _NONSENSE, "-E", "-x", "c++", os.devnull], capture_output=True)
    return () if probe.returncode else (_NONSENSE,)


def _made(text: str, suffix: str, options: tuple[str, ...], entry: str) -> Path:
    """What g++ makes of a text, kept under its hash; written elsewhere first, so that nobody ever loads half a file."""
    compiler = _compiler()
    digest = hashlib.sha256("\0".join((compiler, *_OPTIONS, *options, text)).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"cleave-emulator-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{digest}{suffix}"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        source, made = Path(scratch) / "text.cpp", Path(scratch) / f"made{suffix}"
        source.write_text(text, encoding="utf-8")
        command = [compiler, *_OPTIONS, str(source), *options, "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
            raise CleaveError(f"g++ refuses the emitted text: {first}", location=f"emulated {entry}")
        made.replace(path)
    return path


def _program(kernel: KernelSource) -> str:
    """The emulator's prelude, the kernel as emitted, and a function that runs its blocks."""
    own = kernel.text.split(KERNEL_MARK, 1)[1]
    values = ", ".join(_value(p, n) for n, p in enumerate(kernel.parameters))
    call = f"static void thread_entry(int) {{ {kernel.entry}({values}); finish_thread(); }}\n"
    feed = "tma" if has_mbarriers(own) else "cp.async"
    return (
        emulator_prelude(feed, rows=has_shared_rows(own), tables=has_lookups(own))
        + own
        + "static const u64* arguments;\nvoid finish_thread();\n"
        + call
        + _LAUNCH
    )


def _value(p: Parameter, n: int) -> str:
    return f"*(TensorMap*)arguments[{n}]" if p.kind == "tensor_map" else f"*({_c_type(p)}*)&arguments[{n}]"


def _c_type(p: Parameter) -> str:
    if p.kind != "pointer":
        return C_TYPES[p.kind]
    return f"{'' if p.writable else 'const '}{C_TYPES[p.dtype]}*"
