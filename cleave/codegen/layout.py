"""Layouts: where a value of a tile program lives while a kernel runs.

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

In the skeleton ``row`` L threads share a row (L: ``Binding.lanes``), and V elements are a vector (16 bytes of the
narrowest array). Every value is a Fragment or a RowVector, as if it had rows; there are no tiles in shared memory.

    Fragment      float name[columns / (L V)][V]: register [n][e] of thread p is column (n L + p) V + e, or
                  (n V + e) L + p where rows are not made of whole vectors
    RowVector     float name[1], equal in the L threads

What the blocks of a cluster send one another is a ``ClusterPart`` in each of them.
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

    def beside(self, own: str, rows: str, chunks: str) -> str | None:
        """C++ text: distance of the chunk that lies so many rows and chunks from a thread's own, with no bit below 8 in
        both numbers; ``own`` is the distance of that one. None: rows are too narrow."""
        width, height = (self.chunks, 1) if self.slabs is None else self.slabs
        if width % 8:
            return None
        return f"beside<{width}, {128 if width == self.chunks else 16 * width * height}>({own}, {rows}, {chunks})"

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
    """What the blocks of a cluster have sent of a temporary to the one that merges it, FP32 in its shared memory.

    ``address``: C++ name of its byte address; it holds, for each block, ``turns`` slices of ``rows`` rows of ``width``
    columns, ``stride`` floats from row to row. ``sliced``: slices hold different columns; else each is the whole.
    ``outer``: which index says whose part is meant.
    """

    address: str
    turns: int
    rows: int
    width: int
    stride: int
    sliced: bool
    outer: int

    @property
    def bytes(self) -> int:
        """Of one block's slices."""
        return 4 * self.turns * self.rows * self.stride

    def place(self, block: str, turn: str, row: str, column: str) -> str:
        """C++ text of the byte address of an element."""
        which = f"({block})" if self.turns == 1 else f"(({block}) * {self.turns} + {turn})"
        return f"{self.address} + (({which} * {self.rows} + ({row})) * {self.stride} + ({column})) * 4"


Layout = Fragment | RowVector | Scaled | Rounded | SharedTile | SharedVector | Uniform | Inline

ALLOWED = (
    "a kernel holds rows x one axis or rows alone in registers, one axis without rows as a vector, "
    "and loaded 16-bit tiles (rows or an axis x a contiguous axis) in shared memory"
)
