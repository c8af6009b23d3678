"""Registers, shared memory, stack and spills of a kernel, read from the ELF of its cubin.

No tool of the CUDA toolkit is needed, and a cubin that comes from a cache tells the same figures as a fresh one (NVRTC
may give an empty log). What is read where:

    .nv.info             EIATTR_REGCOUNT, EIATTR_FRAME_SIZE: pairs (symbol, value)
    .nv.shared.<entry>   size of the static shared memory; from sm_90 on, 1 KB of it belongs to the system
    .nv.info.<entry>     EIATTR_ANNOTATIONS: pairs (1, offset of an instruction that spills or refills)
    .text.<entry>        those instructions: STL is a spill store, LDL a refill; their width is in bits 73 to 75

The last two are not documented by NVIDIA; the tests hold them against what ptxas prints.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from cleave.errors import CodegenError
from cleave.kernel import Resources

_REGISTER_COUNT = 0x2F
_FRAME_SIZE = 0x11
_ANNOTATIONS = 0x55
_SPILL_ANNOTATION = 1
_SIZED_PAYLOAD = 4

_OPCODE_MASK = 0xFFF
_STORE_LOCAL = 0x387
_LOAD_LOCAL = 0x983
_INSTRUCTION_BYTES = 16
_WIDTH_SHIFT = 73 - 64
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 8, 6: 16}

_SYSTEM_SHARED_SECTION = ".nv.shared.reserved.0"
_SYSTEM_SHARED_BYTES = 1024
_NO_BITS = 8


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int


def read_resources(cubin: bytes, entry: str, *, dynamic_shared_bytes: int = 0) -> Resources:
    """What one kernel of a cubin takes from a multiprocessor.

    ``shared_bytes`` is static plus ``dynamic_shared_bytes`` (the launch's), without the system's share.
    Errors: bytes that are no cubin, or a cubin without that entry.
    """
    try:
        return _read(cubin, entry, dynamic_shared_bytes)
    except (struct.error, IndexError, ValueError, UnicodeDecodeError) as error:
        raise CodegenError(f"not a readable cubin ({len(cubin)} bytes)", location=entry) from error


def entries(cubin: bytes) -> tuple[str, ...]:
    """Names of the kernels in a cubin, in the order of its sections."""
    prefix = ".nv.info."
    return tuple(s.name.removeprefix(prefix) for s in _sections(cubin) if s.name.startswith(prefix))


def _read(cubin: bytes, entry: str, dynamic_shared_bytes: int) -> Resources:
    sections = {s.name: s for s in _sections(cubin)}
    text = sections.get(f".text.{entry}")
    if text is None:
        present = ", ".join(n.removeprefix(".text.") for n in sections if n.startswith(".text.")) or "none"
        raise CodegenError(f"the cubin has no kernel of that name; it has: {present}", location=entry)
    symbol = _symbol(cubin, sections[".symtab"], sections[".strtab"], entry)
    figures = _per_symbol(cubin, sections[".nv.info"])
    static = sections.get(f".nv.shared.{entry}")
    shared = static.size if static else 0
    if static and _SYSTEM_SHARED_SECTION in sections:
        shared -= _SYSTEM_SHARED_BYTES
    stores, loads = _spills(cubin, sections.get(f".nv.info.{entry}"), text)
    return Resources(
        registers=figures[_REGISTER_COUNT, symbol],
        shared_bytes=shared + dynamic_shared_bytes,
        local_bytes=figures.get((_FRAME_SIZE, symbol), 0),
        spill_stores=stores,
        spill_loads=loads,
        cubin_bytes=len(cubin),
    )


def _sections(cubin: bytes) -> list[_Section]:
    if cubin[:4] != b"\x7fELF":
        raise ValueError("no ELF header")
    programs, start = struct.unpack_from("<QQ", cubin, 0x20)
    program_size, program_count, entry_size, count, names = struct.unpack_from("<HHHHH", cubin, 0x36)
    if programs + program_size * program_count > len(cubin):
        raise ValueError("a program header lies beyond the end")
    raw = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + i * entry_size) for i in range(count)]
    name_offset = raw[names][4]
    sections = [_Section(_text_at(cubin, name_offset + r[0]), r[1], r[4], r[5], r[6]) for r in raw]
    if any(s.kind != _NO_BITS and s.offset + s.size > len(cubin) for s in sections):
        raise ValueError("a section lies beyond the end")
    return sections


def _text_at(cubin: bytes, offset: int) -> str:
    return cubin[offset : cubin.index(b"\0", offset)].decode()


def _symbol(cubin: bytes, table: _Section, names: _Section, entry: str) -> int:
    for index in range(table.size // 24):
        (name,) = struct.unpack_from("<I", cubin, table.offset + 24 * index)
        if _text_at(cubin, names.offset + name) == entry:
            return index
    raise ValueError(f"no symbol {entry}")


def _attributes(cubin: bytes, section: _Section) -> Iterator[tuple[int, bytes]]:
    """(attribute, payload) of one .nv.info section; a payload is two bytes, or its length and so many bytes."""
    at, end = section.offset, section.offset + section.size
    while at < end:
        form, attribute, value = struct.unpack_from("<BBH", cubin, at)
        at += 4
        if form == _SIZED_PAYLOAD:
            yield attribute, cubin[at : at + value]
            at += value
        else:
            yield attribute, struct.pack("<H", value)


def _per_symbol(cubin: bytes, section: _Section) -> dict[tuple[int, int], int]:
    figures: dict[tuple[int, int], int] = {}
    for attribute, payload in _attributes(cubin, section):
        if len(payload) == 8:
            symbol, value = struct.unpack("<II", payload)
            figures[attribute, symbol] = value
    return figures


def _spills(cubin: bytes, info: _Section | None, text: _Section) -> tuple[int, int]:
    """Bytes that the annotated instructions store to and load from the stack."""
    total = {_STORE_LOCAL: 0, _LOAD_LOCAL: 0}
    if info is None:
        return 0, 0
    for attribute, payload in _attributes(cubin, info):
        if attribute != _ANNOTATIONS:
            continue
        for kind, offset in struct.iter_unpack("<II", payload):
            if kind != _SPILL_ANNOTATION or offset + _INSTRUCTION_BYTES > text.size:
                continue
            low, high = struct.unpack_from("<QQ", cubin, text.offset + offset)
            if (opcode := low & _OPCODE_MASK) in total:
                total[opcode] += _WIDTHS.get((high >> _WIDTH_SHIFT) & 7, 4)
    return total[_STORE_LOCAL], total[_LOAD_LOCAL]
