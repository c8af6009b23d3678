"""Axes of a specification whose extent an option may fix, and numbers that options may be."""

from __future__ import annotations

from math import isfinite

from cleave.errors import GraphError


def extent(name: str, value: int | None) -> str:
    """An axis of a spec, of a fixed extent if there is one."""
    return name if value is None else f"{name}={value}"


def finite(operator: str, name: str, value: float) -> float:
    if not isfinite(value):
        raise GraphError(f"{name} = {value}: a finite number is expected", location=operator)
    return value


def positive(operator: str, name: str, value: float) -> float:
    if not (isfinite(value) and value > 0):
        raise GraphError(f"{name} = {value}: a finite number > 0 is expected", location=operator)
    return value


def not_negative(operator: str, name: str, value: float) -> float:
    if not (isfinite(value) and value >= 0):
        raise GraphError(f"{name} = {value}: a finite number >= 0 is expected", location=operator)
    return value
