"""The matmul of two tiles: which operand feeds which side of mma.m16n8k16 (wgmma: ``warpgroup.py``), and how it gets
there.

A (rows x k)   ldmatrix from a shared tile, or a fragment: its registers repacked in place, or through shared memory
B (k x n)      ldmatrix from a shared tile, transposed if n is contiguous; a computed tile goes through shared memory
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

from cleave.codegen import warpgroup
from cleave.codegen.elementwise import for_elements
from cleave.codegen.emission import C_TYPES, STORAGE_16, Emission
from cleave.codegen.expression import At, Printer, fragment_at
from cleave.codegen.layout import Fragment, Inline, Rounded, Scaled, SharedTile
from cleave.codegen.matrix import Form, address, left_shape, load_left, of_tile
from cleave.errors import CodegenError
from cleave.ir.axis import Axis
from cleave.ir.graph import Ref, Term
from cleave.tile.box import ALIGNMENT, slab_bytes
from cleave.tile.program import Contract, Let, TileTerm
from cleave.tile.skeleton import STEP, multiplies_columns

_SUM = warpgroup.Sum()
_PAIR_COLUMNS = 16
SUMS = 4
"""Groups of columns that a warp adds to in turn: a matmul waits for the one before it with the same group."""
# Row and chunk that a lane addresses for its operand.
B_CHUNK = Form("(lane & 7) + ((lane >> 4) << 3)", "((lane >> 3) & 1)", "nn * 16", "kk * 2")
B_TRANSPOSED = Form("(lane & 15)", "(lane >> 4)", "kk * 16", "nn * 2")
B_TWO_STEPS = Form("(lane & 7)", "(lane >> 3)", "0", "two * 4")  # eight columns


def value(em: Emission, let: Let, term: Contract) -> None:
    """A matmul whose result is a value of its own."""
    columns = em.columns(let.axes)
    if not em.has_rows(let.axes) or len(columns) != 1:
        em.refuse(let.name, let.axes, "a matmul gives rows x one axis: one operand has the rows, the other has not")
    before = None if term.onto is None else em.layouts.get(term.onto.name)
    if isinstance(before, Fragment) and before.column is columns[0]:
        accumulate(em, term, before.name, warpgroup.Sum(onto=True, goes_on=_goes_on(em, let)))
        em.layouts[let.name] = before
        return
    if term.onto is not None:
        em.refuse(let.name, let.axes, f"it goes on where {term.onto.name} ends, which is no matmul's")
    name = em.names.fresh(let.name)
    em.writer.line(f"float {name}[{em.groups(columns[0])}][{2 * em.halves}];")
    if em.binding.mma == "mma.sync":
        for_elements(em, columns[0], f"{name}[n][e] = 0.f;")
    accumulate(em, term, name, warpgroup.Sum(fresh=True, goes_on=_goes_on(em, let)))
    em.layouts[let.name] = Fragment(name, columns[0])


def _goes_on(em: Emission, let: Let) -> bool:
    """Whether the next matmul adds to a value, before anything reads it."""
    nexts = (s.term.onto for s in em.lets.values() if isinstance(s.term, Contract))
    return any(r is not None and r.name == let.name for r in nexts)


def accumulate(em: Emission, term: Contract, target: str, s: warpgroup.Sum = _SUM) -> None:
    """target += left x right, in fragments. A fresh target has been declared, and is zero or not set yet."""
    a, b = operands(em, term)
    right = _right(em, b, term.axis)
    n = next(axis for axis in em.columns(b.axes) if axis is not term.axis)
    depth, width = em.size(term.axis), em.size(n)
    if depth % STEP or width % _PAIR_COLUMNS:
        em.refuse(repr(term), b.axes, f"tiles of {depth} ({term.axis}) and {width} ({n}): multiples of 16 are needed")
    if em.binding.mma == "wgmma":
        _by_warpgroups(em, term.axis, a, right, target, n, s)
        return
    gathered = em.is_divided(term.axis) and not isinstance(em.layouts.get(a.name), SharedTile)
    left = _of_gathered(em, a, term.axis, right.dtype) if gathered else _left(em, a, term.axis, right.dtype)
    transposed, columns = right.column is not term.axis, em.binding.columns(n)
    if columns % _PAIR_COLUMNS:
        _multiply_eight(em, term, left, right, target, n)
        return
    load = "load_matrices_transposed" if transposed else "load_matrices"
    form = B_TRANSPOSED if transposed else B_CHUNK
    if em.is_divided(n) and transposed:
        form = replace(form, chunks=f"{form.chunks} + {em.part} * {columns // 8}")
    elif em.is_divided(n):
        form = replace(form, rows=f"{form.rows} + {em.part} * {columns}")
    where = address(em, right, form)
    with _sums(em, n, target) as to, em.writer.unrolled("kk", depth // STEP):
        _declare_left(em, left)
        with em.writer.unrolled("nn", columns // _PAIR_COLUMNS):
            em.writer.line("u32 b[4];")
            em.writer.line(f"{load}(b, {where});")
            for half in (0, 1):
                pair = f"b[{2 * half}], b[{2 * half + 1}]"
                _multiply(em, right.dtype, f"{to}[2 * nn + {half}]", left.text, pair)


@contextmanager
def _sums(em: Emission, n: Axis, target: str) -> Generator[str]:
    """What step kk adds to: the target, or one of several sums where a warp has few columns."""
    count = SUMS // em.groups(n) if em.is_divided(n) else 1
    if count <= 1:
        yield target
        return
    name, shape = em.names.fresh("sums"), f"[{em.groups(n)}][{em.entries}]"
    em.writer.line(f"float {name}[{count}]{shape} = {{}};")
    yield f"{name}[kk % {count}]"
    for_elements(em, n, f"{target}[n][e] += {' + '.join(f'{name}[{x}][n][e]' for x in range(count))};")


def _declare_left(em: Emission, left: _Left) -> None:
    """The A fragment of step kk."""
    if not left.registers:
        em.writer.line(f"u32 a{left_shape(em)};")
    em.writer.lines(left.lines)


def _multiply_eight(em: Emission, term: Contract, left: _Left, right: SharedTile, target: str, n: Axis) -> None:
    """A warp's eight columns of n: a load brings two steps."""
    columns, depth = em.binding.columns(n), em.size(term.axis)
    if not multiplies_columns(columns, depth, along_sum=right.column is term.axis):
        em.refuse(
            repr(term),
            {*term.left.axes, *term.right.axes},
            f"{columns} columns of {n} and {depth} of {term.axis} in a warp",
        )
    where = address(em, right, replace(B_TWO_STEPS, rows=f"{em.part} * {columns}"))
    with _sums(em, n, target) as to, em.writer.unrolled("two", depth // (2 * STEP)):
        em.writer.line("u32 b[4];")
        em.writer.line(f"load_matrices(b, {where});")
        with em.writer.unrolled("half", 2):
            em.writer.line("const int kk = 2 * two + half;")
            _declare_left(em, left)
            _multiply(em, right.dtype, f"{to}[0]", left.text, "b[2 * half], b[2 * half + 1]")


def _by_warpgroups(em: Emission, k: Axis, a: Ref, right: SharedTile, target: str, n: Axis, s: warpgroup.Sum) -> None:
    steps, rows = em.size(k) // STEP, _rows_in_boxes(em, a, k)
    if em.is_divided(k) and rows is None:
        left = warpgroup.left(em, _gathered(em, a, k, right.dtype), k)
        assert left is not None
    elif rows is None:
        left = _fragments(em, a, k, right.dtype, steps)
    elif rows.tile.dtype != right.dtype:
        raise _mixed(em, a, rows.tile, right.dtype)
    else:
        em.need(a.name)
        left = rows
    warpgroup.multiply(em, target, left, warpgroup.right(em, right, k, n), em.binding.columns(n), steps, s)


def lay_out(em: Emission, term: Contract, rows: str) -> None:
    """The A fragments of all steps, into an array that has been declared: a later ``multiply_laid_out`` reads them."""
    a, b = operands(em, term)
    left = _left(em, a, term.axis, _right(em, b, term.axis).dtype, f"{rows}[kk]")
    with em.writer.unrolled("kk", em.size(term.axis) // STEP):
        em.writer.lines(left.lines)


def multiply_laid_out(em: Emission, term: Contract, target: str, rows: str) -> None:
    """target += rows x right, by warpgroups."""
    _, b = operands(em, term)
    right = _right(em, b, term.axis)
    n = next(axis for axis in em.columns(b.axes) if axis is not term.axis)
    steps = em.size(term.axis) // STEP
    b_tile = warpgroup.right(em, right, term.axis, n)
    warpgroup.multiply(em, target, rows, b_tile, em.binding.columns(n), steps, _SUM)


def _rows_in_boxes(em: Emission, a: Ref, k: Axis) -> warpgroup.Operand | None:
    tile = em.layouts.get(a.name)
    return warpgroup.left(em, tile, k) if isinstance(tile, SharedTile) else None


def is_of_boxes(em: Emission, term: TileTerm) -> bool:
    """Whether warpgroups read both operands from tiles of boxes."""
    if not isinstance(term, Contract) or em.binding.mma != "wgmma":
        return False
    a, b = operands(em, term)
    right = em.layouts.get(b.name)
    return _rows_in_boxes(em, a, term.axis) is not None and isinstance(right, SharedTile) and right.slabs is not None


def _mixed(em: Emission, a: Ref, tile: SharedTile, dtype: str) -> CodegenError:
    return CodegenError(f"matmul of {tile.dtype} {a.name} with {dtype}: one type is needed", location=em.location)


def _fragments(em: Emission, a: Ref, k: Axis, dtype: str, steps: int) -> str:
    """Name of the A fragments of all steps: they are there before the first of them is multiplied."""
    name = em.names.fresh(f"{a.name}_rows")
    em.writer.line(f"u32 {name}[{steps}][4];")
    left = _left(em, a, k, dtype, f"{name}[kk]")
    with em.writer.unrolled("kk", steps):
        em.writer.lines(left.lines)
    return name


def _gathered(em: Emission, a: Ref, k: Axis, dtype: str) -> SharedTile:
    """Rows of which each part has computed some of the columns; for warpgroups in a tile as boxes would lay it."""
    chunks, width = em.size(k) // 8, slab_bytes(em.size(k) * 2)
    layout = em.layouts.get(a.name)
    operand = layout.operand if isinstance(layout, Rounded) and layout.dtype == dtype else a
    address, read_by_cores = em.names.fresh("gathered"), em.binding.mma == "wgmma"
    place = em.allot(em.block_rows * chunks * 16, *((ALIGNMENT,) if read_by_cores else ()))
    em.writer.line(f"const u32 {address} = {place};")
    tile = SharedTile(address, None, k, chunks, dtype)
    if read_by_cores:
        assert width is not None
        tile = replace(tile, slabs=(width // 16, em.block_rows))
    # the matmul of the trip before has read it where all have met since
    _write_rows(em, operand, k, tile, "" if em.met else em.team.barrier)
    if read_by_cores:
        em.writer.line("tensor_cores_may_read();")
    em.writer.line(em.team.barrier)
    return tile


def _of_gathered(em: Emission, a: Ref, k: Axis, dtype: str) -> _Left:
    return _Left(load_left(em, _gathered(em, a, k, dtype), k))


def _multiply(em: Emission, dtype: str, target: str, left: str, pair: str) -> None:
    if em.row_tiles == 1:
        em.writer.line(f"multiply_add<{C_TYPES[dtype]}>({target}, {left}, {pair});")
        return
    for tile in range(em.row_tiles):
        em.writer.line(f"multiply_add_at<{C_TYPES[dtype]}>({target} + {4 * tile}, {left}[{tile}], {pair});")


def operands(em: Emission, term: Contract) -> tuple[Ref, Ref]:
    """(A, B): A has the rows of the block."""
    sides = [em.has_rows(term.left.axes), em.has_rows(term.right.axes)]
    if sides == [True, False]:
        return term.left, term.right
    if sides == [False, True]:
        return term.right, term.left
    which = "both operands have" if all(sides) else "no operand has"
    names = ", ".join(a.name for a in em.rows)
    return em.refuse(repr(term), {*term.left.axes, *term.right.axes}, f"{which} the rows ({names}): exactly one must")


class _Left:
    """Lines that prepare the A fragment of step kk, and how it is written in the matmul."""

    def __init__(self, lines: list[str], text: str = "a") -> None:
        self.lines, self.text = lines, text
        self.registers = not lines


def _left(em: Emission, a: Ref, k: Axis, dtype: str, name: str = "a") -> _Left:
    """``name``: what takes the fragments of step kk, if they are not in registers already."""
    if a.name in em.held and em.held[a.name].column is k:
        return _Left([], f"{em.held[a.name].name}[kk]")
    match em.layouts.get(a.name):
        case SharedTile() as tile:
            if tile.dtype != dtype:
                raise _mixed(em, a, tile, dtype)
            em.need(a.name)
            return _Left(load_left(em, tile, k, name))
        case Rounded(operand, rounded, column) if rounded == dtype and column is k:
            return _computed(em, operand, k, dtype, name)
        case Fragment() | Scaled() | Rounded():
            return _computed(em, a, k, dtype, name)
        case _:
            return em.refuse(a.name, a.axes)


def _computed(em: Emission, operand: Term, k: Axis, dtype: str, name: str) -> _Left:
    if em.chain == "shared":
        return _through_shared(em, operand, k, dtype, name)
    # C fragments of columns 16 kk .. 16 kk + 15 are, register by register, the A fragment of step kk.
    lines: list[str] = []
    printers: dict[str, Printer] = {}
    parts = (("2 * kk", 0), ("2 * kk", 2), ("2 * kk + 1", 0), ("2 * kk + 1", 2))
    for n, (number, (group, first)) in product(range(em.row_tiles), enumerate(parts)):
        low, high = (_element(em, operand, k, group, 4 * n + entry, printers) for entry in (first, first + 1))
        lines.append(f"{of_tile(em, name, n)}[{number}] = pack<{C_TYPES[dtype]}>({low}, {high});")
    return _Left(lines)


def _element(em: Emission, operand: Term, k: Axis, group: str, entry: int, printers: dict[str, Printer]) -> str:
    printer = Printer(em, fragment_at(em, k, group, str(entry), str(entry >> 1)))
    if printers:
        known = next(iter(printers.values()))
        printer.hoisted, printer.bases = known.hoisted, known.bases
    printers[f"{group}{entry}"] = printer
    return printer.element(operand)


def _through_shared(em: Emission, operand: Term, k: Axis, dtype: str, name: str) -> _Left:
    """Each warp writes and reads its own rows, so the warp alone has to wait."""
    chunks, address = em.size(k) // 8, em.names.fresh("chain")
    em.writer.line(f"const u32 {address} = {em.allot_rows(em.block_rows * chunks * 16)};")
    tile = SharedTile(address, None, k, chunks, dtype)
    _write_rows(em, operand, k, tile, "warp_barrier();")
    em.writer.line("warp_barrier();")
    return _Left(load_left(em, tile, k, name))


def _write_rows(em: Emission, operand: Term, k: Axis, tile: SharedTile, free: str) -> None:
    """What a thread has of computed rows goes into a tile; ``free``: a barrier before which others may read it."""
    printers = dict[str, Printer]()
    low, high = (_element_of_half(em, operand, k, which, printers) for which in ("2 * h", "2 * h + 1"))
    if free:
        em.writer.line(free)
    with em.writer.unrolled("n", em.groups(k)), em.writer.unrolled("h", em.halves):
        where = f"{tile.address} + {tile.chunk('row + 8 * h', em.group_number(k))} + pair * 2"
        em.writer.line(f"shared_write_word({where}, pack<{C_TYPES[tile.dtype]}>({low}, {high}));")


def _element_of_half(em: Emission, operand: Term, k: Axis, entry: str, printers: dict[str, Printer]) -> str:
    printer = Printer(em, fragment_at(em, k, "n", entry, "h"))
    if printers:
        known = next(iter(printers.values()))
        printer.hoisted, printer.bases = known.hoisted, known.bases
    printers[entry] = printer
    return printer.element(operand)


def _right(em: Emission, b: Ref, k: Axis) -> SharedTile:
    axes = em.columns(b.axes)
    if len(axes) != 2 or k not in axes:
        em.refuse(b.name, b.axes, f"the second operand of a matmul over {k} has that axis and one more")
    layout = em.layouts.get(b.name)
    if isinstance(layout, SharedTile):
        em.need(b.name)
        return layout
    if isinstance(layout, Inline):
        return _materialise(em, b, layout.term, k)
    return em.refuse(b.name, b.axes)


def _materialise(em: Emission, b: Ref, term: Term, k: Axis) -> SharedTile:
    """A computed operand: the block writes it to shared memory, between barriers."""
    n = next(a for a in em.columns(b.axes) if a is not k)
    dtype = getattr(term, "dtype", "float16")
    dtype = dtype if dtype in STORAGE_16 else "float16"
    tile, chunks = em.names.fresh(b.name), em.size(k) // 8
    em.writer.line(f"const u32 {tile} = {em.allot(em.size(n) * chunks * 16)};")
    at = At({n: em.inside(n, "r"), k: em.inside(k, "c")}, {n: "r", k: "c"})
    text = Printer(em, at).element(term)
    em.writer.line(em.team.barrier)
    with em.writer.block(f"for (int x = {em.team.thread}; x < {em.size(n) * em.size(k)}; x += {em.team.threads})"):
        em.writer.line(f"const int r = x / {em.size(k)}, c = x % {em.size(k)};")
        em.writer.line(f"tile_write<{C_TYPES[dtype]}, {chunks}>({tile}, r, c, {text});")
    em.writer.line(em.team.barrier)
    return SharedTile(tile, n, k, chunks, dtype)
