"""Schedules as files: a table of nodes, each stored once, so that shared terms stay shared; the text beside it is
for people.

    {"format": "cleave-schedules", "version": 1, "text": ["schedule of ..", ..], "nodes": [["Symbol", "t", 0, null,
    1], ..], "schedules": [..]}

A field is a number, a text, null, a list, or one of {"#": node}, {"map": pairs}, {"set": list}, {"float": "-inf"}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import Any, cast

import msgspec

from cleave.errors import CleaveError, SavedFileError
from cleave.ir.axis import Axis
from cleave.ir.graph import Cast, Const, Graph, IndexValue, Input, Load, Map, Output, Reduce, Ref, Where
from cleave.ir.index import And, BoolRead, Compare, Floor, Index, Max, Min, Mod, Not, Or, Position, Read, Symbol
from cleave.saved import Saved, read_saved, write_saved
from cleave.target import Target
from cleave.tile.check import check_schedule
from cleave.tile.plan import Binding, Chunk, Division, KernelPlan, Modelled, Multicast, Schedule
from cleave.tile.program import Accumulator, Buffer, Contract, Let, Loop, Program, Store, Update

FORM = ("cleave-schedules", 1)

_CLASSES: dict[str, Callable[..., Any]] = {
    c.__name__: c
    for c in (
        *(Axis, Symbol, Position, Read, Floor, Mod, Min, Max, Index, Compare, BoolRead, And, Or, Not),
        *(Load, Const, IndexValue, Map, Reduce, Where, Cast, Ref, Input, Output, Graph),
        *(Contract, Accumulator, Let, Update, Store, Loop, Buffer, Program),
        *(Chunk, Binding, Division, Multicast, KernelPlan, Modelled, Schedule, Target),
    )
}


class _SavedFile(Saved):
    text: list[str]
    nodes: list[list[Any]]
    schedules: list[Any]


class Packed(msgspec.Struct, forbid_unknown_fields=True):
    """Schedules as part of another file."""

    nodes: list[list[Any]]
    schedules: list[Any]


def save_schedules(schedules: Sequence[Schedule], path: str | Path) -> None:
    """Write schedules as JSON, atomically."""
    packed = pack(schedules)
    text = [line for s in schedules for line in s.text().splitlines()]
    write_saved(_SavedFile(*FORM, text, packed.nodes, packed.schedules), path, indent=-1)


def load_schedules(path: str | Path) -> tuple[Schedule, ...]:
    """Read what ``save_schedules`` wrote; anything else is a ``SavedFileError`` that says what is wrong."""
    saved = read_saved(path, _SavedFile, FORM, what="schedule")
    return unpack(Packed(saved.nodes, saved.schedules), Path(path).name)


def pack(schedules: Sequence[Schedule]) -> Packed:
    table = _Writer()
    entries = [table.encode(s) for s in schedules]
    return Packed(table.nodes, entries)


def unpack(packed: Packed, where: str) -> tuple[Schedule, ...]:
    """The schedules again, checked. Errors: what ``pack`` did not make (SavedFileError)."""
    try:
        table = _Reader(packed.nodes)
        found = tuple(table.decode(entry) for entry in packed.schedules)
        return tuple(_checked(s) for s in found)
    except CleaveError as error:
        raise SavedFileError(f"is damaged: {error}", location=where) from None
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise SavedFileError(f"is damaged: {type(error).__name__} {error}", location=where) from None


def _checked(s: object) -> Schedule:
    if not isinstance(s, Schedule):
        raise SavedFileError(f"a {type(s).__name__} stands where a schedule should")
    return check_schedule(s)


class _Writer:
    """Nodes in order of first completion, so that each refers to earlier ones only."""

    def __init__(self) -> None:
        self.nodes: list[list[Any]] = []
        self.numbers: dict[int, int] = {}
        self.kept: list[object] = []

    def encode(self, value: object) -> Any:
        match value:
            case None | str() | int():
                return value
            case float():
                return value if isfinite(value) else {"float": str(value)}
            case tuple():
                return [self.encode(v) for v in cast("tuple[object, ...]", value)]
            case frozenset():
                members = [self.encode(v) for v in cast("frozenset[object]", value)]
                return {"set": sorted(members, key=str)}
            case Mapping():
                pairs = cast("Mapping[object, object]", value).items()
                return {"map": [[self.encode(k), self.encode(v)] for k, v in pairs]}
            case _:
                return self.node(value)

    def node(self, value: object) -> Any:
        if id(value) not in self.numbers:
            name = type(value).__name__
            if name not in _CLASSES or not is_dataclass(value):
                raise SavedFileError(f"a {name} can't be saved")
            parts = [self.encode(getattr(value, f.name)) for f in fields(value)]
            self.numbers[id(value)] = len(self.nodes)
            self.kept.append(value)  # an object that went away would leave its number to another
            self.nodes.append([name, *parts])
        return {"#": self.numbers[id(value)]}


class _Reader:
    def __init__(self, nodes: Sequence[Sequence[Any]]) -> None:
        self.made: list[object] = []
        for name, *parts in nodes:
            self.made.append(_CLASSES[name](*(self.decode(p) for p in parts)))

    def decode(self, value: Any) -> Any:
        match value:
            case {"#": int(number)}:
                return self.made[number]
            case {"map": pairs}:
                return {self.decode(k): self.decode(v) for k, v in pairs}
            case {"set": members}:
                return frozenset(self.decode(m) for m in members)
            case {"float": str(text)}:
                return float(text)
            case list():
                return tuple(self.decode(v) for v in cast("list[Any]", value))
            case None | str() | int() | float():
                return value
            case _:
                raise ValueError(f"{value!r} is no field")
