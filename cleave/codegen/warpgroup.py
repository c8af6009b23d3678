"""wgmma: the four warps of a warpgroup multiply their 64 rows with a tile of boxes, which the tensor cores read.

A (64 x 16)   registers, the A fragments of mma.m16n8k16 in each warp; or a tile of boxes with k contiguous
B (16 x n)    a tile of boxes, k or n contiguous
D (64 x n)    registers, the C fragments of each warp: what precedes and follows is as with mma.m16n8k16

A tile of boxes lies in slabs of W bytes a row (``bulk.py``). A descriptor says where a step of sixteen k begins in it:

    k contiguous   eight rows take STRIDE = 8 W bytes;                     sixteen k further: 32 bytes, or the next slab
    n contiguous   eight k take STRIDE = 8 W bytes, a slab LEADING bytes;  sixteen k further: sixteen rows
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cleave.codegen import refill
from cleave.codegen.emission import C_TYPES, Emission
from cleave.codegen.layout import SharedTile
from cleave.errors import CodegenError
from cleave.ir.axis import Axis
from cleave.tile.skeleton import MOST_COLUMNS, WARPGROUP

STEP = 16
"""Elements of the contracted axis in one instruction."""


@dataclass(frozen=True)
class Operand:
    """A tile of boxes as an operand: C++ text of its address, and whether the contracted axis is contiguous."""

    tile: SharedTile
    slabs: tuple[int, int]
    address: str
    along: bool

    def descriptor(self, em: Emission, name: str) -> str:
        """C++ text: where step kk begins, and the distances in the tile; that of step 0 is written here."""
        chunks, rows = self.slabs
        slab = rows * chunks * 16
        if self.along:
            steps = chunks // 2  # of a slab
            place = f"kk * {slab}" if steps == 1 else f"kk / {steps} * {slab} + kk % {steps} * 32"
        else:
            place = f"kk * {STEP * chunks * 16}"
        leading, first = 16 if self.along else slab, em.names.fresh(name)
        found = f"matrix_descriptor<{chunks * 16}>({self.address}, {leading}, {8 * chunks * 16})"
        em.writer.line(f"const u64 {first} = apart({found});")
        return f"further({first}, {place})"


def right(em: Emission, tile: SharedTile, k: Axis, n: Axis) -> Operand:
    """The columns of n that a warpgroup has."""
    if tile.slabs is None:
        raise CodegenError(f"wgmma reads {tile.address}, which is no tile of boxes", location=em.location)
    (chunks, rows), along, address = tile.slabs, tile.column is k, tile.address
    if em.is_divided(n):
        width = em.binding.columns(n)
        apart = width * chunks * 16 if along else width // (8 * chunks) * rows * chunks * 16
        address = f"{address} + {em.part} * {apart}"
    return Operand(tile, tile.slabs, address, along)


def left(em: Emission, tile: SharedTile, k: Axis) -> Operand | None:
    """The rows of the block, if the tensor cores can read them from a tile; else they go through registers."""
    if tile.slabs is None or tile.row is not None or tile.column is not k:
        return None
    chunks, _ = tile.slabs
    group = f"{em.row_warp} / {WARPGROUP}" if em.binding.row_warps > WARPGROUP else "0"
    return Operand(tile, tile.slabs, f"{tile.address} + {group} * {64 * chunks * 16}", along=True)


@dataclass(frozen=True)
class Sum:
    """Where a matmul begins and ends. ``fresh``: nothing is in the target yet; ``onto``: in it is a matmul that nobody
    has waited for; ``goes_on``: nobody waits for this one, the next matmul goes on."""

    fresh: bool = False
    onto: bool = False
    goes_on: bool = False


def multiply(em: Emission, target: str, a: Operand | str, b: Operand, width: int, steps: int, s: Sum) -> None:
    """target += A x B, over so many steps. ``a``: a tile, or the C++ name of the fragments of all steps.

    Where matmuls lag (``Emission.lags``), who wants the target waits for it.
    """
    if width > MOST_COLUMNS:
        raise CodegenError(f"wgmma of {width} columns: allowed are {MOST_COLUMNS}", location=em.location)
    kind = f"{C_TYPES[b.tile.dtype]}, {width}, {'false' if b.along else 'true'}"
    keep = "kk > 0" if s.fresh else "true"
    call = "warpgroup_multiply" if isinstance(a, str) else "warpgroup_multiply_tiles"
    first, second = f"{a}[kk]" if isinstance(a, str) else a.descriptor(em, "left"), b.descriptor(em, "right")
    if not em.lags and not s.onto:
        em.writer.line(f"registers_settle({target});")
    em.writer.line("warpgroup_begin();")
    with em.writer.unrolled("kk", steps):
        em.writer.line(f"{call}<{kind}>({target}, {first}, {second}, {keep});")
    em.writer.line("warpgroup_commit();")
    if not em.lags and not s.goes_on:
        refill.begun(em)
        em.writer.line("warpgroup_wait<0>();")
        em.writer.line(f"registers_settle({target});")


# ---- definitions

_CALL = re.compile(r"\b(warpgroup_multiply(?:_tiles)?)<(f16|bf16), (\d+), (true|false)>")


def definitions(text: str) -> str:
    """CUDA C++ of the instructions that a kernel calls: a list of registers can't depend on a template's number."""
    calls = sorted(set(_CALL.findall(text)))
    return "".join(_definition(name, dtype, int(width), transposed) for name, dtype, width, transposed in calls)


def _definition(name: str, dtype: str, width: int, transposed: str) -> str:
    count = width // 2
    registers = ", ".join(f"%{n}" for n in range(count))
    results = ", ".join(f'"+f"(d[{n // 4}][{n % 4}])' for n in range(count))
    if name.endswith("tiles"):
        parameter, a, inputs, more = "u64 a", f"%{count}", '"l"(a)', "0, "
        after = count + 1
    else:
        parameter, a = "const u32 (&a)[4]", "{" + ", ".join(f"%{count + n}" for n in range(4)) + "}"
        inputs, more = ", ".join(f'"r"(a[{n}])' for n in range(4)), ""
        after = count + 4
    immediate = f"p, 1, 1, {more}{int(transposed == 'true')}"
    return (
        f"template <> __device__ __forceinline__ void {name}<{dtype}, {width}, {transposed}>"
        f"(float (&d)[{width // 8}][4], {parameter}, u64 b, bool keep) {{\n"
        f'  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{after + 1}, 0; '
        f"wgmma.mma_async.sync.aligned.m64n{width}k16.f32.{dtype}.{dtype} "
        f'{{{registers}}}, {a}, %{after}, {immediate}; }}"\n'
        f'    : {results} : {inputs}, "l"(b), "r"((int)keep) : "memory"); }}\n'
    )
