"""What an array library must offer to be exported to: ``lower.py`` walks a graph once and calls these.

A *size* is a 0-d integer: a Python int where it is known, otherwise what the library has for it. A *value* is an
array of the program being built. Dimensions are counted from 0.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from cleave.errors import GraphError
from cleave.ir.graph import Input, Output
from cleave.ir.op import FLOATS

Value: TypeAlias = Any
Size: TypeAlias = Any


def check_request(package: str, title: str, precision: str) -> None:
    """Errors: a library that is not installed, an unknown precision (GraphError)."""
    location = f"to_{package}"
    if importlib.util.find_spec(package) is None:
        raise GraphError(f"{title} is not installed (pip install cleave[{package}])", location=location)
    if precision not in FLOATS:
        raise GraphError(f"precision {precision!r}: allowed are {', '.join(sorted(FLOATS))}", location=location)


class Builder(Protocol):
    """``name`` arguments are hints that make the program readable."""

    # ---- arguments
    def input(self, source: Input, shape: Sequence[str | int]) -> Value:
        """An array argument; of its shape, dims by name or value and expressions of them as text."""
        ...

    def dim(self, name: str) -> Size:
        """An integer argument."""
        ...

    # ---- sizes
    def size(self, x: Value, dimension: int, name: str) -> Size: ...
    def whole(self, op: str, a: Size, b: Size, name: str) -> Size:
        """One of ``+ - * // % min max``, floor division and its remainder."""
        ...

    def greatest(self, x: Value, name: str) -> Size:
        """The greatest element of an integer array, 0 if there is none or all are negative."""
        ...

    def require(self, op: str, a: Size, b: Size, message: str) -> None:
        """Refuse a call in which ``a == b`` or ``a <= b`` does not hold."""
        ...

    # ---- integers and masks
    def arange(self, n: Size, name: str) -> Value: ...
    def number(self, n: Size) -> Value:
        """A size as a 0-d integer array."""
        ...

    def integers(self, op: str, a: Value | Size, b: Value | Size) -> Value: ...
    def compare(self, op: str, a: Value | Size, b: Value | Size) -> Value: ...
    def logic(self, op: str, *masks: Value) -> Value:
        """``and``, ``or``, ``not``."""
        ...

    def to_real(self, x: Value) -> Value: ...
    def inside(self, i: Value, n: Size, valid: Value | None, message: str) -> Value:
        """Positions for a gather along n elements: those that exist must lie inside, the others become 0."""
        ...

    # ---- layout
    def unsqueeze(self, x: Value, dimensions: Sequence[int]) -> Value: ...
    def permute(self, x: Value, order: Sequence[int]) -> Value: ...
    def select(self, x: Value, dimension: int, position: Size) -> Value: ...
    def narrow(self, x: Value, dimension: int, start: Size, length: Size) -> Value: ...
    def reshape(self, x: Value, shape: Sequence[Size]) -> Value: ...
    def expand(self, x: Value, shape: Sequence[Size]) -> Value: ...
    def pad(self, x: Value, dimension: int, rank: int, value: float) -> Value:
        """One more element at the end of a dimension of an array of some rank."""
        ...

    def gather(self, x: Value, indices: Sequence[Value]) -> Value:
        """``x[i0, i1, ..]``: along the first dimensions of x, whose place those of the indices take.

        The indices broadcast and have one rank.
        """
        ...

    # ---- numbers
    def constant(self, value: float) -> Value: ...
    def map(self, op: str, args: Sequence[Value], name: str) -> Value: ...
    def where(self, mask: Value, a: Value, b: Value, name: str) -> Value: ...
    def round_to(self, x: Value, dtype: str) -> Value: ...
    def reduce(self, op: str, x: Value, dimension: int, name: str) -> Value: ...
    def einsum(self, equation: str, factors: Sequence[Value], name: str) -> Value: ...

    # ---- results
    def scatter(self, shape: Sequence[Size], indices: Sequence[Value], x: Value, valid: Value | None) -> Value:
        """NaN, but ``x`` at the positions that are valid; indices, x and valid have one shape."""
        ...

    def store(self, x: Value, target: Output, shape: Sequence[str | int]) -> None:
        """The next output; its shape as for inputs."""
        ...
