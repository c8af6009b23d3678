"""A GPU made of host memory: the border to CuPy replaced, kernels that do on the host what they would do there.

install(monkeypatch, {"scaling": (("Q", "Q", "f", "i"), work)})    # entry -> kinds of its parameters, and what it does
"""

import contextlib
import ctypes
import sys

import numpy as np

from cleave.runtime import arrays, cuda, match

C_TYPES = {"Q": ctypes.c_uint64, "f": ctypes.c_float, "i": ctypes.c_int32, "q": ctypes.c_int64}
CAPTURING = 99
"""The stream that records a graph."""


class DeviceArray:
    """A NumPy array that pretends to lie on a GPU, and says so in the interface that everybody has."""

    def __init__(self, array, *, writable=True, typestr=None):
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": typestr or array.dtype.str,
            "data": (array.ctypes.data, not writable),
            "strides": array.strides,
            "version": 3,
        }


class Memory:
    def __init__(self, ptr, device_id):
        self.ptr, self.device_id = ptr, device_id


class Quick:
    """The attributes of a CuPy array that are read, and the interface. ``READERS`` knows it where ``install`` ran."""

    def __init__(self, array, device=0):
        self.array, self.shape, self.strides, self.dtype = array, array.shape, array.strides, array.dtype
        self.data = Memory(array.ctypes.data, device)
        self.device = type("Device", (), {"id": device})()
        self._c_contiguous = bool(array.flags.c_contiguous)

    @property
    def __cuda_array_interface__(self):
        FakeGpu.interfaces += 1
        return DeviceArray(self.array).__cuda_array_interface__


class Tensor:
    """The attributes of a torch tensor that are read."""

    def __init__(self, array, *, device="cuda", dtype=None, index=1):
        self.array = array
        self.shape, self.dtype = array.shape, sys.intern(f"torch.{dtype or array.dtype}")
        self.device = type("device", (), {"type": device, "index": index, "__str__": lambda _: device})()
        self.index, self.negated = index, False
        # Quick, as the real ones are: the cost of calls is measured with them.
        self.address = array.ctypes.data
        self.steps = tuple(s // array.itemsize for s in array.strides)

    def data_ptr(self):
        return self.address

    def stride(self):
        return self.steps

    def get_device(self):
        return self.index

    def is_neg(self):
        return self.negated


class FakeGpu:
    """What happened on it. One for a test."""

    interfaces = 0
    """How often ``__cuda_array_interface__`` of a ``Quick`` was asked for."""

    def __init__(self, kernels):
        self.kernels = kernels
        self.device, self.stream = 0, 7
        self.allocated = []
        self.launched = []
        self.launched_early = []
        """(entry, device that the kernel was loaded on, stream)"""
        self.encoded = []
        self.loaded = []
        self.early = []
        """(entry, device)"""
        FakeGpu.interfaces = 0

    @contextlib.contextmanager
    def on_device(self, index):
        before, self.device = self.device, index
        yield
        self.device = before

    def allocate(self, size, *, zeroed, stream):
        owner = np.full(max(size, 1), 0 if zeroed else 255, np.uint8)
        self.allocated.append((size, zeroed, stream))
        return cuda.DeviceMemory(owner.ctypes.data, size, owner)

    def encode_tensor_map(self, at, pointer, **facts):
        """The map of this GPU is the address of its array."""
        assert at % 64 == 0
        self.encoded.append((pointer, facts))
        ctypes.c_uint64.from_address(at).value = pointer

    def load_kernel(self, cubin, entry, *, threads, shared_bytes, cluster=1, early=False):
        self.loaded.append((entry, self.device))
        self.early.append(early)
        return FakeKernel(self, entry, self.device, early)


class FakeKernel:
    def __init__(self, gpu, entry, device, early):
        self.gpu, self.entry, self.device, self.early = gpu, entry, device, early
        kinds, self.work = gpu.kernels[entry]
        self.types = [C_TYPES[kind] for kind in kinds]

    def in_order(self):
        return FakeKernel(self.gpu, self.entry, self.device, early=False)

    def bound(self, grid, parameters, stream):
        def launch():
            if self.device != self.gpu.device:
                raise RuntimeError("CUDA_ERROR_INVALID_HANDLE: the kernel was loaded on another device")
            addresses = (ctypes.c_void_p * len(self.types)).from_address(parameters)
            values = [t.from_address(a).value for t, a in zip(self.types, addresses, strict=True)]
            self.gpu.launched.append((self.entry, self.device, stream))
            self.gpu.launched_early.append(self.early)
            self.work(grid, *values)

        return launch


def to_device(array, stream):
    owner = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return cuda.DeviceMemory(owner.ctypes.data, owner.nbytes, owner)


def to_host(memory, shape, dtype, stream):
    return memory.owner[: memory.size].copy().view(dtype).reshape(shape)


def install(monkeypatch, kernels, *, quick=True):
    """Replace the border module's functions for a test; ``quick``: type ``Quick`` is known from the start."""
    gpu = FakeGpu(kernels)
    kind = Quick if quick else DeviceArray
    fakes = {
        "why_not": lambda: "",
        "require": lambda _: None,
        "on_device": gpu.on_device,
        "device_count": lambda: 2,
        "current_device": lambda: gpu.device,
        "current_stream": lambda: gpu.stream,
        "on_stream": lambda _: contextlib.nullcontext(),
        "is_capturing": lambda stream: stream == CAPTURING,
        "allocate": gpu.allocate,
        "to_device": to_device,
        "to_host": to_host,
        "empty": lambda shape, dtype: kind(np.full(shape, np.nan, dtype)),
        "load_kernel": gpu.load_kernel,
        "read_scalar": lambda a: float(a.array),
        "encode_tensor_map": gpu.encode_tensor_map,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(cuda, name, fake)
    monkeypatch.setattr(match, "_guards", lambda: None)  # torch's own know torch's own tensors only
    if quick:
        monkeypatch.setitem(arrays.READERS, Quick, arrays.cupy_facts)
        monkeypatch.setitem(arrays.READERS, Tensor, arrays.torch_facts)
    return gpu


def memory_at(pointer, shape, strides, kind=ctypes.c_float):
    """Memory as an array; strides in elements."""
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    raw = np.ctypeslib.as_array((kind * span).from_address(int(pointer)))
    return np.lib.stride_tricks.as_strided(raw, shape, tuple(ctypes.sizeof(kind) * s for s in strides))
