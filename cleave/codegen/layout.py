"""Layouts: where a value of a tile program lives while a kernel of either ring skeleton runs.

A warp has 16 R rows (R: ``Binding.row_tiles``). *Rows* are the tiled grid axes of ``Binding.rows`` (a product is
flattened, slowest first); lane l of a warp owns rows l/4, l/4 + 8, .. of them and, of every eight columns, 2(l%4) and
the next: R times the C fragment of mma.m16n8k16.

    Fragment      rows x one axis, float name[columns / 8][4 R]
    RowVector     rows, float name[2 R], equal in the four lanes of a quad
    Scaled        c * a fragment with a constant c > 0: the product is left to whoever reads it
    Rounded       a value that is rounded to a storage type where it is read
    SharedTile    loaded or stored tile of 16-bit elements, swizzled 16-byte chunks
    SharedVector  one axis without rows, FP32 in shared memory
    Uniform       no axis: one register, equal in all threads
    Inline        evaluated where it is used

A temporary that the blocks of a cluster share is a ``ClusterPart`` in each of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleave.ir.axis import Axis
from cleave.ir.graph import Term


@dataclass(frozen=True)
class Fragment:
    name: str
    column: Axis


@dataclass(frozen=True)
class RowVector:
    name: str


@dataclass(frozen=True)
class Scaled:
    base: Fragment
    factor: float


@dataclass(frozen=True)
class Rounded:
    operand: Term
    dtype: str
    column: Axis | None


@dataclass(frozen=True)
class SharedTile:
    """``row``: the axis along rows of the tile, None: rows of the block; ``column`` is contiguous, None: the rows.

    ``slabs`` None: rows of all chunks, swizzled whole; (chunks, rows): narrower pieces one after the other.
    """

    address: str
    row: Axis | None
    column: Axis | None
    chunks: int
    dtype: str
    slabs: tuple[int, int] | None = None

    def chunk(self, row: str, chunk: str) -> str:
        """C++ text: distance of a 16-byte chunk from the address."""
        if self.slabs is None or self.slabs[0] == self.chunks:
            return f"swizzle<{self.chunks}>({row}, {chunk})"
        return "slabs<{}, {}>({}, {})".format(*self.slabs, row, chunk)

    def element(self, type_: str, row: str, column: str) -> str:
        """C++ text: the value of one element."""
        if self.slabs is None or self.slabs[0] == self.chunks:
            return f"tile_read<{type_}, {self.chunks}>({self.address}, {row}, {column})"
        return "slab_read<{}, {}, {}>({}, {}, {})".format(type_, *self.slabs, self.address, row, column)


@dataclass(frozen=True)
class SharedVector:
    address: str
    axis: Axis


@dataclass(frozen=True)
class Uniform:
    name: str


@dataclass(frozen=True)
class Inline:
    term: Term


@dataclass(frozen=True)
class ClusterPart:
    """A block's own part of a temporary, FP32 in shared memory.

    ``address``: C++ name of its byte address; ``stride``: floats from row to row; ``start``: C++ text of the position
    of its first column; ``outer``: which index says whose part is meant; ``own``: C++ name of this block's rank.
    """

    address: str
    stride: int
    start: str
    outer: int
    own: str

    def place(self, row: str, column: str, base: str = "") -> str:
        """C++ text of the byte address of an element, in the block's own part or from another base."""
        return f"{base or self.address} + (({row}) * {self.stride} + ({column})) * 4"

    def local(self, position: str) -> str:
        """C++ text of a column's number in the part from its position."""
        return position if self.start == "0" else f"{position} - {self.start}"


Layout = Fragment | RowVector | Scaled | Rounded | SharedTile | SharedVector | Uniform | Inline

ALLOWED = (
    "a kernel holds rows x one axis or rows alone in registers, one axis without rows as a vector, "
    "and loaded 16-bit tiles (rows or an axis x a contiguous axis) in shared memory"
)
