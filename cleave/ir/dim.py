"""Dims: integer expressions over symbols, with range and divisibility facts carried by the symbols.

A dim is an ``Index`` without axes and inputs; ``polynomial.py`` has the arithmetic (exact, canonical, floor and ceil
division).
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from numbers import Integral

from cleave.errors import GraphError
from cleave.ir.index import Index, Symbol, axes_of, evaluate, inputs_of, of, show

Dim = Index

LARGEST = 2**48
"""Of a dim: no memory holds a longer axis, and positions in it fit 64 bits."""


def dims(names: str, *, minimum: int = 0, maximum: int | None = None, multiple_of: int = 1) -> tuple[Dim, ...]:
    """Symbolic dims from ``"b h t"`` or ``"b, h, d=64"``; ``d=64`` fixes the value.

    The facts hold for every name in the list: ``minimum <= value <= maximum`` and ``value % multiple_of == 0``.
    """
    words = names.replace(",", " ").split()
    return tuple(dim(word, minimum=minimum, maximum=maximum, multiple_of=multiple_of) for word in words)


def dim(word: str, *, minimum: int = 0, maximum: int | None = None, multiple_of: int = 1) -> Dim:
    """One dim from ``"t"``, ``"d=64"`` or a bare number."""
    name, _, value = word.partition("=")
    if name.isdigit() and not value:
        return of_value(int(name))
    if not is_name(name):
        raise GraphError(f"dim {word!r}: a name such as t, or name=value such as d=64, is expected")
    if value:
        if not value.isdigit():
            raise GraphError(f"dim {word!r}: the value {value!r} is no non-negative integer")
        minimum = maximum = int(value)
        multiple_of = 1
    if (maximum is not None and maximum < minimum) or minimum < 0 or multiple_of < 1:
        raise GraphError(f"dim {name}: no value with {minimum} <= {name} <= {maximum}, divisible by {multiple_of}")
    return of(Symbol(name, minimum, maximum, multiple_of))


def is_name(text: str) -> bool:
    """Whether dims and buffers may be called that: it has to read as a Python name."""
    return text.isidentifier() and not keyword.iskeyword(text)


def of_value(value: int) -> Dim:
    return Index(((((), value),)) if value else ())


def is_dim(expression: Index) -> bool:
    return not axes_of(expression) and not inputs_of(expression)


def value_of(extent: Dim, bindings: Mapping[str, int]) -> int:
    """The value of a dim under bindings of its symbols; the facts of each symbol are checked."""
    return int(evaluate(extent, bindings))


def check_binding(symbol: Symbol, value: int) -> None:
    """Refuse what is no integer, lies outside the symbol's range, or is not divisible as declared."""
    if not isinstance(value, Integral):
        raise GraphError(f"dim {symbol.name} = {value!r}: an integer is expected")
    maximum = LARGEST if symbol.maximum is None else min(symbol.maximum, LARGEST)
    allowed = f">= {symbol.minimum}" if symbol.maximum is None else f"in [{symbol.minimum}, {symbol.maximum}]"
    if symbol.value is not None:
        allowed = f"{symbol.value}"
    elif value > LARGEST:
        allowed = f"<= {LARGEST}"
    if value < symbol.minimum or value > maximum:
        raise GraphError(f"dim {symbol.name} = {value}: allowed is {allowed}")
    if value % symbol.multiple:
        raise GraphError(f"dim {symbol.name} = {value}: must be divisible by {symbol.multiple}")


def facts(symbol: Symbol) -> str:
    """The facts of a symbol as text, ``""`` if there are none: ``= 64``, ``in [1, 4096] % 8``."""
    if symbol.value is not None:
        return f" = {symbol.value}"
    text = ""
    if symbol.maximum is not None:
        text = f" in [{symbol.minimum}, {symbol.maximum}]"
    elif symbol.minimum:
        text = f" >= {symbol.minimum}"
    return text + (f" % {symbol.multiple}" if symbol.multiple != 1 else "")


__all__ = [
    "Dim",
    "Symbol",
    "check_binding",
    "dim",
    "dims",
    "facts",
    "is_dim",
    "is_name",
    "of_value",
    "show",
    "value_of",
]
