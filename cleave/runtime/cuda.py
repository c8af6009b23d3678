"""CuPy, met here and nowhere else: typed functions over what the runtime uses of it. Imported on first use."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import prod
from typing import Any, cast

import numpy as np

from cleave.errors import LaunchError
from cleave.kernel import MOST_SPREAD
from cleave.runtime.arrays import numpy_dtype


@cache
def why_not() -> str:
    """Why no kernel can be launched here, "" if one can."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed (pip install cleave[gpu])"
    try:
        count = int(_cupy().cuda.runtime.getDeviceCount())
    except Exception as error:  # CuPy raises several kinds, ImportError of a missing driver among them
        return f"CuPy finds no GPU: {str(error).splitlines()[0]}"
    return "" if count else "there is no GPU"


def require(location: str) -> None:
    """Errors: no GPU, with the reason."""
    if reason := why_not():
        raise LaunchError(reason, location=location)


@cache
def _cupy() -> Any:
    import cupy

    return cupy


# ---- devices -------------------------------------------------------------------------------------------------------


@cache
def device_count() -> int:
    return int(_cupy().cuda.runtime.getDeviceCount())


def current_device() -> int:
    return _cupy().cuda.runtime.getDevice()


def on_device(index: int) -> contextlib.AbstractContextManager[Any]:
    """Make a device current inside a with block."""
    return cast("contextlib.AbstractContextManager[Any]", _cupy().cuda.Device(index))


def device_facts(index: int) -> dict[str, Any]:
    """CUDA's properties of a device by their CUDA names, and the versions of driver and runtime."""
    runtime = _cupy().cuda.runtime
    facts = dict(cast("dict[str, Any]", runtime.getDeviceProperties(index)))
    return {
        **facts,
        "driverVersion": int(runtime.driverGetVersion()),
        "runtimeVersion": int(runtime.runtimeGetVersion()),
    }


# ---- streams, events, graphs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Foreign:
    """A stream handle in the form of the CUDA stream protocol."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


def current_stream() -> int:
    """Handle of CuPy's current stream on the current device."""
    return _asked_for_stream()().ptr


@cache
def _asked_for_stream() -> Callable[[], Any]:
    return _cupy().cuda.get_current_stream


@contextlib.contextmanager
def on_stream(handle: int) -> Generator[None]:
    """Make the stream with this handle CuPy's current one inside a with block."""
    if handle == current_stream():
        yield
        return
    with _stream(handle):
        yield


def _stream(handle: int) -> Any:
    streams = _cupy().cuda
    # The legacy default stream has no object of its own to refer to.
    return streams.Stream.null if handle == 0 else streams.Stream.from_external(_Foreign(handle))


def new_stream() -> Any:
    """A stream that does not wait for the default stream; its handle is ``.ptr``, and it lives as long as it."""
    return _cupy().cuda.Stream(non_blocking=True)


def is_capturing(handle: int) -> bool:
    return bool(handle not in (0, 1, 2) and _stream(handle).is_capturing())


def multiprocessors() -> int:
    """Those of the current device."""
    device = _cupy().cuda.Device()
    return int(device.attributes["MultiProcessorCount"])


def synchronize() -> None:
    """Wait for all work of the current device; errors of kernels appear here."""
    _cupy().cuda.runtime.deviceSynchronize()


def synchronize_stream(handle: int) -> None:
    _cupy().cuda.runtime.streamSynchronize(handle)


def capture(work: Callable[[], object], handle: int) -> Callable[[], None]:
    """Record the launches of ``work`` on a stream as a CUDA graph; the result replays it on the same stream.

    Errors: nothing was launched on that stream.
    """
    stream = _stream(handle)
    stream.begin_capture()
    try:
        work()
    finally:
        graph = stream.end_capture()
    if not _nodes(graph.graph):
        raise LaunchError("nothing was launched on the stream that is recorded", location="capture")
    return lambda: graph.launch(stream)


def _nodes(graph: int) -> int:
    count = ctypes.c_size_t()
    status = _libcuda("cuGraphGetNodes")(ctypes.c_void_p(graph), None, ctypes.byref(count))
    if status:
        raise LaunchError(f"cuGraphGetNodes: CUDA error {status}", location="capture")
    return count.value


class Stopwatch:
    """Two CUDA events around work on a stream."""

    def __init__(self) -> None:
        self._start, self._end = _cupy().cuda.Event(), _cupy().cuda.Event()

    def start(self, handle: int) -> None:
        self._start.record(_stream(handle))

    def stop(self, handle: int) -> None:
        self._end.record(_stream(handle))

    def seconds(self) -> float:
        """Waits for the end."""
        self._end.synchronize()
        return float(_cupy().cuda.get_elapsed_time(self._start, self._end)) * 1e-3


# ---- memory --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes on the device, released with the object."""

    pointer: int
    size: int
    owner: Any = field(repr=False)
    """A CuPy array of bytes."""


def allocate(size: int, *, zeroed: bool, stream: int) -> DeviceMemory:
    """Memory from CuPy's pool, bound to a stream; zeroed on that stream if asked."""
    with on_stream(stream):
        owner = _cupy().empty(max(size, 1), np.uint8)
        if zeroed:
            owner.data.memset_async(0, owner.nbytes, _stream(stream))
    return DeviceMemory(int(owner.data.ptr), size, owner)


def empty(shape: tuple[int, ...], dtype: str) -> Any:
    """A CuPy array without values."""
    return _cupy().empty(shape, dtype=numpy_dtype(dtype))


def to_device(array: np.ndarray[Any, Any], stream: int) -> DeviceMemory:
    """Copy a host array, in C order and the machine's order of bytes."""
    flat = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(-1).view(np.uint8)
    memory = allocate(flat.nbytes, zeroed=False, stream=stream)
    if flat.nbytes:
        with on_stream(stream):
            memory.owner.set(flat)
    return memory


def to_host(memory: DeviceMemory, shape: tuple[int, ...], dtype: str, stream: int) -> np.ndarray[Any, Any]:
    """Wait for the stream, then copy to a new host array."""
    with on_stream(stream):
        raw = cast("np.ndarray[Any, Any]", memory.owner.get())
    return raw[: memory.size].view(numpy_dtype(dtype)).reshape(shape)


def read_scalar(array: Any) -> float:
    """The value of a device array with one element; waits for the device."""
    return float(_cupy().asarray(array).reshape(()).item())


def from_dlpack(array: Any) -> Any:
    """A CuPy array over the memory of any device array that speaks DLPack."""
    return _cupy().from_dlpack(array)


# ---- tensor maps ---------------------------------------------------------------------------------------------------

_MAP_TYPES = {"float16": 6, "float32": 7, "bfloat16": 9}
_MAP_SWIZZLES = {32: 1, 64: 2, 128: 3}
_NO_CONTEXT_CODES = (3, 201)
"""``CUDA_ERROR_NOT_INITIALIZED``, ``CUDA_ERROR_INVALID_CONTEXT``"""
_L2_PROMOTION = 2
"""Bytes that a miss brings into the second-level cache: 128."""


def encode_tensor_map(
    at: int,
    pointer: int,
    *,
    dtype: str,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
    location: str,
) -> None:
    """Write the 128 bytes of a tensor map to host memory that 64 divides; axes innermost first, strides in bytes.

    CuPy has no function for it: the driver's is called. Errors: LaunchError with the numbers that the driver refuses.
    """
    rank = len(dims)
    encode = partial(
        _libcuda("cuTensorMapEncodeTiled"),
        ctypes.c_void_p(at),
        _MAP_TYPES[dtype],
        rank,
        ctypes.c_void_p(pointer),
        (ctypes.c_uint64 * rank)(*dims),
        (ctypes.c_uint64 * rank)(*strides),
        (ctypes.c_uint32 * rank)(*box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        0,  # not interleaved
        _MAP_SWIZZLES[swizzle],
        _L2_PROMOTION,
        0,  # what lies outside is zero
    )
    status = encode()
    if status in _NO_CONTEXT_CODES:  # a thread that begins with this
        _cupy().cuda.runtime.free(0)
        status = encode()
    if status:
        shown = f"boxes {tuple(box)} of {tuple(dims)} with strides {tuple(strides)} at {pointer:#x}"
        raise LaunchError(f"no tensor map: {shown} (CUDA error {status})", location=location)


@cache
def _libcuda(function: str) -> Callable[..., int]:
    """A function of the driver that CuPy does not offer."""
    try:
        found = getattr(ctypes.CDLL("libcuda.so.1"), function)
    except (OSError, AttributeError) as error:
        raise LaunchError(f"the driver has no {function}: {error}", location="libcuda") from error
    found.restype = ctypes.c_int
    return found


# ---- kernels -------------------------------------------------------------------------------------------------------

_ATTRIBUTES = {"shared_size_bytes": 1, "local_size_bytes": 3, "num_regs": 4}
_MAX_DYNAMIC_SHARED = 8
_NO_CONTEXT = ("INVALID_CONTEXT", "NOT_INITIALIZED")


_EARLY = 6
"""``CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION``"""


class _LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute`` of a number."""

    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_int * 15))


class _LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``"""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of a loaded module, which stays loaded as long as this.

    ``early``: it is launched before the kernel before it on the stream has ended, and waits for that itself. Then a
    grid of at most ``spread`` blocks asks for ``alone_bytes`` of shared memory, so that no two of its blocks lie beside
    one another: places become free one by one, and the first that are free would get two.
    """

    entry: str
    threads: int
    shared_bytes: int
    _function: Any = field(repr=False)
    early: bool = False
    spread: int = 0
    alone_bytes: int = 0

    def bound(self, grid: tuple[int, int, int], parameters: int, stream: int) -> Callable[[], object]:
        """A launch without arguments. ``parameters``: address of the addresses of the values, read at each launch."""
        block, shared = (self.threads, 1, 1), self.shared_bytes
        if self.early:
            shared = max(shared, self.alone_bytes) if prod(grid) <= self.spread else shared
            attribute = ctypes.pointer(_LaunchAttribute(_EARLY, 0, 1))
            config = ctypes.byref(_LaunchConfig(grid, block, shared, stream, attribute, 1))
            return partial(_launch_early, config, ctypes.c_void_p(self._function.ptr), ctypes.c_void_p(parameters))
        return partial(_driver().launchKernel, self._function.ptr, *grid, *block, shared, stream, parameters, 0)

    def in_order(self) -> Kernel:
        """The same, launched when all before it on the stream is over."""
        return replace(self, early=False)

    def attributes(self) -> dict[str, int]:
        """What the driver says of the kernel: registers, local and static shared memory."""
        return {name: int(_driver().funcGetAttribute(n, self._function.ptr)) for name, n in _ATTRIBUTES.items()}


def _launch_early(config: object, function: ctypes.c_void_p, parameters: ctypes.c_void_p) -> None:
    """CuPy's launches have no attributes: the driver's function is called. ``config``: a reference to a
    ``_LaunchConfig``. Errors: the driver's, by its name."""
    status = _libcuda("cuLaunchKernelEx")(config, function, parameters, None)
    if status:
        name = ctypes.c_char_p()
        _libcuda("cuGetErrorName")(status, ctypes.byref(name))
        raise LaunchError((name.value or b"").decode() or f"CUDA error {status}")


def load_kernel(
    cubin: bytes, entry: str, *, threads: int, shared_bytes: int, cluster: int = 1, early: bool = False
) -> Kernel:
    """Load a cubin on the current device and allow the dynamic shared memory that the launch will ask for.

    Errors: a cubin for another architecture, more shared memory than the device has.
    """
    try:
        module = _cupy().cuda.function.Module()
        module.load(cubin)
        function = module.get_function(entry)
        spread = multiprocessors() if early and cluster <= MOST_SPREAD else 0
        alone = int(_cupy().cuda.Device().attributes["MaxSharedMemoryPerMultiprocessor"]) // 2 if spread else 0
        _driver().funcSetAttribute(function.ptr, _MAX_DYNAMIC_SHARED, max(shared_bytes, alone))
    except Exception as error:
        raise LaunchError(f"can't be loaded: {str(error).splitlines()[0]}", location=entry) from error
    return Kernel(entry, threads, shared_bytes, function, early, spread, alone)


def launch_again(launch: Callable[[], object], error: Exception, entry: str) -> None:
    """After a launch that failed: once more if all that it lacked was this thread's context.

    The driver binds the device's context to a thread at the first call of the CUDA runtime that needs it, and a thread
    may begin with a launch. Errors: everything else.
    """
    if not any(name in str(error) for name in _NO_CONTEXT):
        raise LaunchError(f"can't be launched: {str(error).splitlines()[0]}", location=entry) from error
    _cupy().cuda.runtime.free(0)
    launch()


def _driver() -> Any:
    return _cupy().cuda.driver
