"""How inputs and outputs are written.

"b h s d=64"               four axes; d has extent 64, here and wherever d is mentioned without a value
"b (kv_heads group) s d"   three extents, four axes: position kv_heads * group + group's own along the second
"s t=s"                    axis t of extent s
"m 1", "3 10"              numbers: an extent of 1 is no axis, others are axes without a name
""                         a scalar
"int32[b t]", "bool[s t]"  with a storage type in front; commas instead of spaces are fine
(b, 64, "d")               a tuple of dims, numbers and words
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cleave.errors import ShapeError
from cleave.frontend.context import fail
from cleave.ir.axis import Axis
from cleave.ir.dim import Dim, Symbol, dim, facts, is_name, of_value
from cleave.ir.index import Index, index, of, show, substitute, symbols_of
from cleave.ir.op import DTYPES

SpecLike: TypeAlias = str | Sequence[str | int | Dim]


@dataclass(frozen=True)
class Word:
    """One axis as written: its name (None for a number), its extent as a name, a value or a Dim."""

    name: str | None
    extent: str | int | Dim


@dataclass(frozen=True)
class Spec:
    """A parsed specification: per dimension of the buffer, the axes that it is made of."""

    dtype: str | None
    groups: tuple[tuple[Word, ...], ...]

    @property
    def words(self) -> tuple[Word, ...]:
        return tuple(w for group in self.groups for w in group)


_TYPED = re.compile(r"\s*([A-Za-z]\w*)\s*\[(.*)\]\s*", re.DOTALL)
_GROUP = re.compile(r"\(([^()]*)\)|([^\s,()]+)|([()])")


def parse_spec(spec: SpecLike, owner: str) -> Spec:
    """Words of a specification, not yet resolved; ``owner`` is the input or output, for messages."""
    if isinstance(spec, str):
        typed = _TYPED.fullmatch(spec)
        dtype = dtype_name(typed[1], owner) if typed else None
        return Spec(dtype, tuple(_groups(typed[2] if typed else spec, owner)))
    if isinstance(spec, (tuple, list)):
        return Spec(None, tuple((_element(part, owner),) for part in spec))
    fail(f'{owner}: {spec!r} is no specification; a string such as "b h s d=64" or a tuple of dims is')


def _groups(text: str, owner: str) -> list[tuple[Word, ...]]:
    out: list[tuple[Word, ...]] = []
    for inside, single, stray in _GROUP.findall(text):
        if stray:
            fail(f"{owner}: parentheses in {text!r} do not match, or stand in one another")
        words = inside.replace(",", " ").split() if not single else [single]
        out.append(tuple(_word(w, owner) for w in words))
    return out


def _word(text: str, owner: str) -> Word:
    name, equals, value = text.partition("=")
    if name.isdecimal() and not equals:
        return Word(None, int(name))
    if not is_name(name) or (equals and not (value.isdecimal() or is_name(value))):
        fail(f"{owner}: {text!r} is no axis; a name such as t, t=64, t=s or a number is")
    if value.isdecimal():
        return Word(name, dim(text))
    return Word(name, value or name)


def _element(part: object, owner: str) -> Word:
    match part:
        case str():
            return _word(part, owner)
        case Index():
            atom = part.atom
            return Word(atom.name if isinstance(atom, Symbol) else None, part)
        case int() | np.integer() if not isinstance(part, bool) and part >= 0:
            return Word(None, int(part))
        case _:
            fail(f"{owner}: {part!r} is no extent; a dim, a non-negative integer or a word such as 't' is")


def dtype_name(dtype: object, owner: str = "") -> str:
    """A storage type by its name, or what NumPy understands as one; ``owner`` is who has it, for messages."""
    name = dtype if isinstance(dtype, str) else _numpy_name(dtype)
    if name not in DTYPES:
        prefix = f"{owner}: " if owner else ""
        fail(f"{prefix}dtype {name!r}: allowed are {', '.join(DTYPES)}")
    return name


def _numpy_name(dtype: object) -> str:
    try:
        return np.dtype(dtype).name  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnknownMemberType]
    except TypeError:
        return repr(dtype)


# ---- resolving


def collect_dims(specs: Mapping[str, Spec]) -> dict[str, Dim]:
    """Every dim that some inputs mention, by name; one that is given a value or facts anywhere has them everywhere."""
    found: dict[str, Dim] = {}
    source: dict[str, str] = {}
    for owner, spec in specs.items():
        for word in spec.words:
            for symbol in symbols_of(word.extent) if isinstance(word.extent, Index) else ():
                given = of(symbol)
                if found.setdefault(symbol.name, given) is not given:
                    first = f"{describe(found[symbol.name])} of {source[symbol.name]}"
                    fail(f"axis {symbol.name}: extent {first}, {describe(given)} of {owner}", ShapeError)
                source.setdefault(symbol.name, owner)
    for spec in specs.values():
        for word in spec.words:
            if isinstance(word.extent, str):
                found.setdefault(word.extent, dim(word.extent))
    return found


def resolve(spec: Spec, dims: Mapping[str, Dim], owner: str) -> tuple[tuple[Axis, ...], ...]:
    """The axes of each dimension of a buffer; numbers become axes called after the owner and their place."""
    out: list[tuple[Axis, ...]] = []
    seen: set[str] = set()
    number = 0
    for group in spec.groups:
        axes: list[Axis] = []
        for word in group:
            if isinstance(word.extent, str) and word.extent not in dims:
                fail(f"{owner}: no axis or dim is called {word.extent}: there are {', '.join(dims) or 'none'}")
            extent = dims[word.extent] if isinstance(word.extent, str) else index(word.extent)
            name = word.name or f"{owner}.{number}"
            if name in seen:
                fail(f"{owner}: axis {name} twice; give the second a name of its own, such as {name}2={name}")
            seen.add(name)
            axes.append(Axis(name, extent))
            number += 1
        out.append(tuple(axes))
    return tuple(out)


def merged_extent(axes: Sequence[Axis]) -> Dim:
    """Extent of a dimension that several axes share."""
    out = of_value(1)
    for a in axes:
        out = out if is_unit(a) else out * a.extent
    return out


def merged_position(axes: Sequence[Axis]) -> Index:
    """Position along a dimension that several axes share, the last of them fastest."""
    out = index(0)
    for a in axes:
        out = out if is_unit(a) else out * a.extent + a.position
    return out


def is_unit(axis: Axis) -> bool:
    """An extent that is 1 whatever is bound: no axis of the graph."""
    return fixed_value(axis.extent) == 1


def is_anonymous(axis: Axis) -> bool:
    return "." in axis.name


def settled(extent: Index) -> Index:
    """The extent with the value of every symbol that has only one."""
    return substitute(extent, {s: index(s.value) for s in symbols_of(extent) if s.value is not None})


def fixed_value(extent: Index) -> int | None:
    """The value of an extent that has only one."""
    return settled(extent).constant


def same_extent(a: Dim, b: Dim) -> bool:
    return a is b or settled(a) is settled(b)


def describe(extent: Dim) -> str:
    """``d = 64``, ``t``, ``3``."""
    atom = extent.atom
    return show(extent) + (facts(atom) if isinstance(atom, Symbol) else "")
