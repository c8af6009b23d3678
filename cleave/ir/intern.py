"""Hash-consing: structurally equal nodes are one object, so equality is identity and a pass is a dict over nodes."""

from __future__ import annotations

import threading
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform
from weakref import WeakValueDictionary

T = TypeVar("T")


class Interned(type):
    """Metaclass of frozen dataclasses (``eq=False``): a call with equal arguments returns the object that exists.

    Keys hold the types of floats and bools as well, so that 1, 1.0 and True stay apart.
    """

    _table: ClassVar[WeakValueDictionary[Any, Any]] = WeakValueDictionary()
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __call__(cls: type[T], *args: Any, **named: Any) -> T:
        args = _all_arguments(cls, args, named)
        key = (cls, tuple([_key(a) for a in args]))
        with Interned._lock:
            found = Interned._table.get(key)
            if found is None:
                found = type.__call__(cls, *args)
                Interned._table[key] = found
        return found


@cache
def _fields(cls: type[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((f.name, f.default) for f in fields(cls))


def _all_arguments(cls: type[Any], args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Every field by position, defaults included, so that one node has one key however it was written."""
    known = _fields(cls)
    if len(args) == len(known) and not named:
        return args
    filled = (*args, *(named.pop(name, default) for name, default in known[len(args) :]))
    if named or len(filled) > len(known) or any(value is MISSING for value in filled):
        wanted = ", ".join(name for name, _ in known)
        raise TypeError(f"{cls.__name__} has the fields {wanted}: given {len(args)} by position and {', '.join(named)}")
    return filled


def _key(value: Any) -> Any:
    """Of an integer the number itself, which no key of a float or a bool equals."""
    if isinstance(value, tuple):
        return tuple([_key(v) for v in cast("tuple[Any, ...]", value)])
    if isinstance(value, float):
        return (float, value.hex())
    return (bool, value) if isinstance(value, bool) else value


class Node:
    """Base of interned dataclasses: identity equality, and pickling through the constructor so that it survives."""

    __slots__ = ("__weakref__",)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, f.name) for f in fields(cast(Any, self)))

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type[T]) -> type[T]:
    """The dataclass decorator of every interned node: frozen, compared by identity, printed by its own ``__repr__``."""
    return dataclass(frozen=True, eq=False, repr=False)(cls)
