"""Tensor maps in argument lists: 128 bytes by value, encoded by the driver for an address, kept for later calls."""

from __future__ import annotations

import ctypes

from cleave.runtime import cuda
from cleave.runtime.plan import MapOf

SIZE = 128
_ALIGNMENT = 64
_KEPT = 256
"""Addresses whose maps are remembered, the newest."""


class TensorMapArgument:
    """The map of one array at ``address``, which stays; what it holds follows the address and sizes of the array."""

    def __init__(self, value: MapOf) -> None:
        self._memory = (ctypes.c_ubyte * (SIZE + _ALIGNMENT))()
        self.address = -(-ctypes.addressof(self._memory) // _ALIGNMENT) * _ALIGNMENT
        self._value = value
        self._dims: tuple[int, ...] = value.dims
        self._strides: tuple[int, ...] = value.strides
        self._pointer: int | None = None
        self._known: dict[int, bytes] = {}

    def describe(self, dims: tuple[int, ...], strides: tuple[int, ...]) -> None:
        """An array of these sizes from here on."""
        if dims != self._dims or strides != self._strides:
            self._dims, self._strides, self._pointer = dims, strides, None
            self._known.clear()

    def point_to(self, pointer: int) -> None:
        """Describe the array at an address of the device; nothing if it stands there. Errors: LaunchError.

        An array without elements has no map, and no kernel asks for a box of it.
        """
        if pointer == self._pointer or 0 in self._dims:
            return
        self._pointer = None
        known = self._known.get(pointer)
        if known is None:
            self._encode(pointer)
            if len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            self._known[pointer] = ctypes.string_at(self.address, SIZE)
        else:
            ctypes.memmove(self.address, known, SIZE)
        self._pointer = pointer

    def _encode(self, pointer: int) -> None:
        value = self._value
        cuda.encode_tensor_map(
            self.address,
            pointer,
            dtype=value.dtype,
            dims=self._dims,
            strides=self._strides,
            box=value.box,
            swizzle=value.swizzle,
            location=value.buffer,
        )
