"""Vectors of a row in global memory, where threads share a row: which arrays have them, and how they are read and
written.

    even   every vector of every array that can have them starts at a multiple of 16 bytes, and ends with its row
    else   each thread takes every so-manieth element, so that threads side by side read elements side by side

Where only the dims and addresses of a call decide, both kernels are written, one of which a block takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cleave.codegen.emission import C_TYPES, Emission, Memory
from cleave.codegen.expression import At, Printer, exists, fragment_at, index_text, offset_text, present, row_at
from cleave.codegen.range import multiple_of
from cleave.ir.axis import Axis
from cleave.ir.dim import is_dim
from cleave.ir.graph import Load
from cleave.ir.index import Index, Position, Symbol, axes_of, inputs_of
from cleave.ir.op import DTYPES
from cleave.tile.program import Let, Store, statements
from cleave.tile.skeleton import VECTOR_BYTES

_TYPES = frozenset({"float16", "bfloat16", "float32"})


@dataclass(frozen=True)
class Access:
    """An array that is read or written along rows: its elements lie side by side along ``column``, at ``rest`` and the
    position."""

    memory: Memory
    column: Axis
    rest: Index
    name: str
    indices: tuple[Index, ...]


def access(em: Emission, name: str, indices: tuple[Index, ...], columns: Sequence[Axis]) -> Access | None:
    """None: elements of a row do not lie side by side."""
    if len(columns) != 1 or em.memory[name].dtype not in _TYPES:
        return None
    linear = em.offset(name, indices).linear_in(Position(columns[0]))
    if linear is None or linear[0].constant != 1 or columns[0] in axes_of(linear[1]):
        return None
    return Access(em.memory[name], columns[0], linear[1], name, indices)


def stride_tests(em: Emission, rest: Index, elements: int) -> list[str] | None:
    """C++ tests of dims that all rows start at multiples of so many elements; None: they do not."""
    tests: dict[str, None] = {}
    for monomial, factor in rest.terms:
        dims = tuple((atom, power) for atom, power in monomial if _is_dim(atom))
        coefficient = Index(((dims, factor),))
        if multiple_of(em, coefficient) % elements == 0:
            continue
        if not dims:
            return None
        tests[f"({offset_text(em, coefficient, At())} & {elements - 1}) == 0"] = None
    return list(tests)


def address_test(pointer: str) -> str:
    return f"((u64){pointer} & {VECTOR_BYTES - 1}) == 0"


def _is_dim(atom: object) -> bool:
    return isinstance(atom, Symbol) and not atom.name.startswith("%")


def even_tests(em: Emission) -> list[str] | None:
    """C++ tests that all vectors of a program are even; None: no array has such. Empty: they are.

    Where dims say so already, the address of an array has to be a multiple of a vector, and is not tested.
    """
    found = list(_accesses(em))
    tests: dict[str, None] = {}
    for a, pointer in found:
        own = _evenness(em, a)
        if own:
            tests.update(dict.fromkeys([address_test(pointer), *own]))
        else:
            em.parameters.require(pointer, VECTOR_BYTES)
    return list(tests) if found else None


def _accesses(em: Emission) -> Iterator[tuple[Access, str]]:
    """Arrays that may have even vectors, with their pointers."""
    for s in statements(em.program.body):
        match s:
            case Let(_, _, Load(name, indices) as load):
                found = access(em, name, indices, em.columns(em.load_axes(load)))
                if found is not None and _evenness(em, found) is not None:
                    yield found, em.parameters.pointer(found.memory)
            case Store(name, indices, _, axes):
                found = access(em, name, indices, em.columns(axes))
                if found is not None and _evenness(em, found) is not None:
                    yield found, em.parameters.output(found.memory)
            case _:
                pass


def _evenness(em: Emission, a: Access) -> list[str] | None:
    """C++ tests of dims that all vectors of an array are even; None: they can't be."""
    tests = stride_tests(em, a.rest, VECTOR_BYTES // DTYPES[a.memory.dtype])
    extent = em.extent(a.column)
    if tests is None or not is_dim(extent) or multiple_of(em, extent) % em.vector == 0:
        return tests
    return [*tests, f"({index_text(em, extent, At())} & {em.vector - 1}) == 0"]


@dataclass(frozen=True)
class _Place:
    """Where a thread's elements of an array lie, as C++ text.

    start    distance of the first one from the array
    element  distance of register ``[n][e]`` from it; ``vector``: of the n-th vector, None where it is no vector
    rows     whether the row exists; ``left``: elements from the n-th vector to the end of the row, None if all exist or
             none does
    """

    start: str
    element: str
    vector: str | None
    rows: str
    left: str | None


def _place(em: Emission, a: Access, others: Sequence[Axis]) -> _Place:
    at, lanes, width = row_at(em, "0"), em.lanes, em.vector
    base = offset_text(em, a.rest + em.corner(a.column, "first"), at)
    rows, extent = present(em, a.name, a.indices, list(others), at), em.extent(a.column)
    if not em.vectors:
        return _Place(f"{base} + place", f"(n * {width} + e) * {lanes}", None, rows, None)
    vector = f"n * {lanes * width}" if _evenness(em, a) is not None else None
    partly = not is_dim(extent) and multiple_of(em, extent) % width != 0
    left = f"{index_text(em, extent, at)} - {em.inside(a.column, em.local(a.column, 'n', '0'))}" if partly else None
    return _Place(f"{base} + place * {width}", f"n * {lanes * width} + e", vector, rows, left)


def _element_present(em: Emission, a: Access, place: _Place, at: At) -> str:
    test = _both(place.rows, exists(em, [a.column], at))
    by_table = any(a.column in axes_of(i) and inputs_of(i) for i in map(em.fix, a.indices))
    return _both(test, present(em, a.name, a.indices, [], at)) if by_table else test


def read(em: Emission, load: Load, name: str, column: Axis) -> bool:
    """Declare a fragment and read it, elements that do not exist as 0; False: its elements do not lie side by side."""
    a = access(em, load.input, load.indices, [column])
    if a is None:
        return False
    pointer, place = em.parameters.pointer(a.memory), _place(em, a, [x for x in em.load_axes(load) if x is not column])
    source, kind = em.names.fresh(f"{name}_source"), "_fresh" if a.memory.fresh else ""
    em.writer.line(f"const {C_TYPES[a.memory.dtype]}* {source} = {pointer} + {place.start};")
    em.writer.line(f"float {name}[{em.groups(column)}][{em.vector}];")
    at = fragment_at(em, column, entry="e" if place.vector is None else "0")
    with em.writer.unrolled("n", em.groups(column)):
        if place.vector is None:
            test = _element_present(em, a, place, at)
            with em.writer.unrolled("e", em.vector):
                em.writer.line(f"{name}[n][e] = read{kind}({source} + {place.element}, {test});")
        else:
            shared = "" if kind or set(em.load_axes(load)) & set(em.rows) else "_shared"
            test = _both(place.rows, exists(em, [column], at) if place.left is None else f"{place.left} >= {em.vector}")
            em.writer.line(f"read_vector{kind or shared}<{em.vector}>({name}[n], {source} + {place.vector}, {test});")
    if place.vector is not None and place.left is not None:
        with em.writer.unrolled("n", em.groups(column)):
            left = place.left if place.rows == "true" else f"({place.rows}) ? {place.left} : 0"
            em.writer.line(f"read_tail<{em.vector}>({name}[n], {source} + {place.vector}, {left});")
    return True


def write(em: Emission, s: Store, column: Axis, pointer: str) -> bool:
    """Write a fragment where its elements exist; False: its elements do not lie side by side."""
    a = access(em, s.output, s.indices, [column])
    if a is None:
        return False
    place = _place(em, a, [x for x in s.axes if x is not column])
    target, values, at = em.names.fresh("target"), em.names.fresh("values"), fragment_at(em, column)
    text = Printer(em, at).element(s.value)
    em.writer.line(f"{C_TYPES[a.memory.dtype]}* {target} = {pointer} + {place.start};")
    with em.writer.unrolled("n", em.groups(column)):
        if place.vector is None:
            test = _element_present(em, a, place, at)
            with em.writer.unrolled("e", em.vector):
                em.writer.line(f"if ({test}) write({target} + {place.element}, {text});")
            return True
        em.writer.line(f"float {values}[{em.vector}];")
        with em.writer.unrolled("e", em.vector):
            em.writer.line(f"{values}[e] = {text};")
        whole = exists(em, [column], fragment_at(em, column, entry="0"))
        test = _both(place.rows, whole if place.left is None else f"{place.left} >= {em.vector}")
        em.writer.line(f"if ({test}) write_vector({target} + {place.vector}, {values});")
        if place.left is not None:
            left = place.left if place.rows == "true" else f"({place.rows}) ? {place.left} : 0"
            em.writer.line(f"write_tail({target} + {place.vector}, {values}, {left});")
    return True


def _both(one: str, other: str) -> str:
    return " && ".join(t for t in (one, other) if t != "true") or "true"
