"""What a running trace knows: the dims of its inputs by name, the default storage type, and how to make fresh axes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import CodeType
from typing import NoReturn

from cleave.errors import CleaveError, GraphError, location_of
from cleave.ir.axis import Axis
from cleave.ir.dim import Dim
from cleave.ir.index import Pred

FRONTEND = str(Path(__file__).parent) + os.sep
PACKAGE = str(Path(__file__).parents[1]) + os.sep


@dataclass
class Trace:
    dims: dict[str, Dim]
    axes: dict[str, Axis]
    dtype: str
    numbers: count[int] = field(default_factory=count)
    conditions: list[Pred] = field(default_factory=list[Pred])
    """What an importer found that dims must meet."""

    def fresh(self, axis: Axis) -> Axis:
        """An axis like the given one that occurs nowhere else, to be bound: it captures nothing."""
        return Axis(f"{axis.name}%{next(self.numbers)}", axis.extent, axis.kind)


CURRENT: ContextVar[Trace | None] = ContextVar("trace", default=None)
HOME: ContextVar[str | None] = ContextVar("home", default=None)


def current() -> Trace:
    trace = CURRENT.get()
    if trace is None:
        fail("there is no trace here: call this in a function given to cleave.trace")
    return trace


def fail(message: str, error: type[CleaveError] = GraphError) -> NoReturn:
    """Raise with the line of the caller's program in front."""
    raise error(message, location=user_location())


def user_location() -> str:
    """``file:line`` of the innermost frame outside cleave; the traced function where the rest of cleave is nearer."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        home = HOME.get()
        if home is not None and not frame.f_code.co_filename.startswith(FRONTEND):
            return home
        frame = frame.f_back
    return location_of(Path(frame.f_code.co_filename), frame.f_lineno)


def home_of(fn: Callable[..., object], name: str | None) -> str:
    """Where a traced function is defined; for those of cleave itself, what they are called."""
    title = name or getattr(fn, "__name__", "the function")
    code = getattr(fn, "__code__", None)
    if not isinstance(code, CodeType) or code.co_filename.startswith(PACKAGE):
        return title
    return location_of(Path(code.co_filename), code.co_firstlineno)
