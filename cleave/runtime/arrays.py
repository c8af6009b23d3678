"""Arrays of other libraries as plain facts: address, shape, strides, dtype, device. Pure Python; nothing is imported.

NumPy arrays (and CPU data of other libraries) are on the host and will be copied. torch tensors are read through their
own attributes, since their ``__cuda_array_interface__`` refuses tensors that require a gradient; everything else
through ``__cuda_array_interface__``, then DLPack.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from typing import Any, cast

import numpy as np

from cleave.errors import ArgumentError, LaunchError

_DTYPES = {
    "<f2": "float16",
    "<f4": "float32",
    "<f8": "float64",
    "<i4": "int32",
    "<i8": "int64",
    "|b1": "bool",
    "<V2": "bfloat16",
    "|V2": "bfloat16",
}
_DLPACK_HOST = frozenset({1, 3})  # plain and pinned memory
_DLPACK_CUDA = 2
_STRIDED = "torch.strided"


class Library(Enum):
    """Whose array it is: results come back as arrays of the same library."""

    NUMPY = "NumPy"
    CUPY = "CuPy"
    TORCH = "torch"


@dataclass(frozen=True, slots=True)
class ArrayView:
    """What a kernel needs to know of an array: strides in elements; ``pointer`` on the device, 0 on the host."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    library: Library
    device: int | None = None
    writable: bool = True
    owner: Any = field(default=None, compare=False, repr=False)

    @property
    def on_host(self) -> bool:
        return self.library is Library.NUMPY


@cache
def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype; bfloat16 is ``ml_dtypes``'.

    Errors: bfloat16 without ``ml_dtypes``.
    """
    if dtype != "bfloat16":
        return np.dtype(dtype)
    if importlib.util.find_spec("ml_dtypes") is None:
        raise LaunchError(
            "NumPy has no bfloat16 without ml_dtypes: pass torch tensors, or install it", location="bfloat16"
        )
    return np.dtype(importlib.import_module("ml_dtypes").bfloat16)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array in C order without gaps."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def view(location: str, array: Any, from_dlpack: Callable[[Any], Any] | None = None) -> ArrayView:
    """Facts of an array. ``from_dlpack`` turns a device array that speaks only DLPack into one that is read directly.

    Errors: what is no array, a dtype that no kernel has, a masked array, a torch tensor on the CPU.
    """
    if isinstance(array, ArrayView):
        return array
    if isinstance(array, np.ndarray):
        return _of_numpy(location, cast("np.ndarray[Any, Any]", array))
    if hasattr(array, "data_ptr") and hasattr(array, "stride"):
        return _of_torch(location, array)
    if hasattr(array, "__cuda_array_interface__"):
        return _of_interface(location, array)
    if hasattr(array, "__dlpack_device__"):
        return _of_dlpack(location, array, from_dlpack)
    if isinstance(array, (bool, int, float, np.generic)):
        return _of_numpy(location, np.asarray(array))
    raise ArgumentError(
        f"{type(array).__name__} is no array: NumPy, CuPy, torch, or anything with __cuda_array_interface__ or "
        "__dlpack__ is accepted",
        location=location,
    )


def _of_numpy(location: str, array: np.ndarray[Any, Any]) -> ArrayView:
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError("masked arrays are not supported", location=location)
    dtype = array.dtype
    name = "bfloat16" if dtype.name == "bfloat16" else _DTYPES.get(dtype.newbyteorder("=").str, "")
    if not name or dtype.name == "void16":
        raise ArgumentError(f"dtype {dtype}; kernels have {_known_dtypes()}", location=location)
    # The copy to the device makes it contiguous, whatever its strides are here.
    shape = tuple(int(n) for n in array.shape)
    return ArrayView(0, shape, contiguous_strides(shape), name, Library.NUMPY, None, array.flags.writeable, array)


def _of_torch(location: str, tensor: Any) -> ArrayView:
    device = tensor.device
    if device.type != "cuda":
        raise ArgumentError(f"the tensor is on {device}; move it to the GPU (.cuda())", location=location)
    if str(getattr(tensor, "layout", _STRIDED)) != _STRIDED or _is_negated(tensor):
        raise ArgumentError("the tensor is sparse or a negated view; pass a dense copy", location=location)
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _DTYPES.values():
        raise ArgumentError(f"dtype {name}; kernels have {_known_dtypes()}", location=location)
    _remember(tensor, _TORCH_MODULES, torch_facts)
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return ArrayView(int(tensor.data_ptr()), shape, strides, name, Library.TORCH, int(device.index or 0), True, tensor)


def _of_interface(location: str, array: Any) -> ArrayView:
    facts = cast("dict[str, Any]", array.__cuda_array_interface__)
    if facts.get("mask") is not None:
        raise ArgumentError("masked arrays are not supported", location=location)
    name = _DTYPES.get(str(facts["typestr"]), "")
    if not name:
        raise ArgumentError(f"dtype {facts['typestr']}; kernels have {_known_dtypes()}", location=location)
    shape = tuple(int(n) for n in facts["shape"])
    _remember(array, _CUPY_MODULES, cupy_facts)
    pointer, read_only = facts["data"]
    strides = _elements(location, facts.get("strides"), shape, str(facts["typestr"]))
    device = getattr(array, "device", None)
    index = getattr(device, "id", None)
    return ArrayView(
        int(pointer or 0),
        shape,
        strides,
        name,
        Library.CUPY,
        None if index is None else int(index),
        not read_only,
        array,
    )


def _elements(location: str, strides: Any, shape: tuple[int, ...], typestr: str) -> tuple[int, ...]:
    """Strides in bytes -> strides in elements."""
    if strides is None:
        return contiguous_strides(shape)
    item = int(typestr[2:])
    for axis, stride in enumerate(strides):
        if stride % item:
            raise ArgumentError(
                f"axis {axis}: stride of {stride} bytes is no multiple of the element's {item}", location=location
            )
    return tuple(int(s) // item for s in strides)


def _of_dlpack(location: str, array: Any, from_dlpack: Callable[[Any], Any] | None) -> ArrayView:
    kind, index = array.__dlpack_device__()
    if int(kind) in _DLPACK_HOST:
        return _of_numpy(location, np.from_dlpack(array))
    if int(kind) != _DLPACK_CUDA or from_dlpack is None:
        raise ArgumentError(f"DLPack device type {int(kind)} ({index}): a CUDA device is expected", location=location)
    return _of_interface(location, from_dlpack(array))


def _is_negated(tensor: Any) -> bool:
    """Whether memory holds the values with the other sign, as for the imaginary part of a conjugate."""
    return bool(tensor.is_neg()) if hasattr(tensor, "is_neg") else False


def _known_dtypes() -> str:
    return ", ".join(sorted(set(_DTYPES.values())))


# ---- arrays of a type that was seen before -------------------------------------------------------------------------

_TORCH_MODULES = frozenset({"torch", "torch.nn.parameter"})
_CUPY_MODULES = frozenset({"cupy"})
Reader = Callable[[Any], tuple[float, object]]


def _remember(array: object, modules: frozenset[str], reader: Reader) -> None:
    """Types of the library itself; a subclass may mean anything."""
    kind = cast("type", type(array))
    if kind.__module__ in modules:
        READERS.setdefault(kind, reader)


def cupy_facts(array: Any) -> tuple[int, object]:
    memory = array.data
    return memory.ptr, (array.shape, array.strides, array.dtype, memory.device_id)


def torch_facts(tensor: Any) -> tuple[int, object]:
    return tensor.data_ptr(), (tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device(), tensor.is_neg())


def as_number(value: float) -> tuple[float, object]:
    return value, type(value)


def as_dim(value: int) -> tuple[int, object]:
    return value, value


READERS: dict[type, Reader] = {int: as_dim, float: as_number, np.float32: as_number}
"""Type -> (address of an array or value of a number, whatever else of it decides a call). Types of arrays come when
they are met. An integer is a dim, or becomes one of few numbers: it decides."""


def _cupy_address(array: Any) -> int:
    return array.data.ptr


def _torch_address(tensor: Any) -> int:
    return tensor.data_ptr()


ADDRESSES: dict[Library, Callable[[Any], int]] = {Library.CUPY: _cupy_address, Library.TORCH: _torch_address}


# ---- of torch itself, which is loaded ------------------------------------------------------------------------------


def torch_stream(device: int) -> int:
    """Handle of torch's current stream on a device."""
    return _stream_of_torch()(device)


def asking_torch(device: int) -> Callable[[], int]:
    """``torch_stream`` of one device, quick."""
    return partial(_stream_of_torch(), device)


@cache
def _stream_of_torch() -> Callable[[int], int]:
    torch: Any = sys.modules["torch"]
    quick = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # what torch's own compiled code asks
    return quick or (lambda device: torch.cuda.current_stream(device).cuda_stream)


def torch_maker(shape: tuple[int, ...], dtype: str, device: int) -> Callable[[], Any]:
    """Makes tensors without values on a device, which must be the current one."""
    torch: Any = sys.modules["torch"]
    quick = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "_empty_strided_cuda", None)
    if quick is not None:  # what torch's own compiled code calls: torch.empty takes five times as long
        return partial(quick, shape, contiguous_strides(shape), getattr(torch, dtype))
    return partial(torch.empty, shape, dtype=getattr(torch, dtype), device=torch.device("cuda", device))
