"""Rotations of pairs: the rotary position embedding as one contraction."""

from __future__ import annotations

from cleave.errors import ShapeError
from cleave.frontend.context import fail
from cleave.frontend.einsum import einsum
from cleave.frontend.spec import describe, fixed_value
from cleave.frontend.tensor import Tensor, slot_number, where
from cleave.ir.axis import Axis


def rotary(x: Tensor, cos: Tensor, sin: Tensor, pair: str | int) -> Tensor:
    """y[r, ..] = sum over u of x[u, ..] · T[u, r, ..]; T = cos if u = r, sin if u < r, −sin if u > r; r, u in 0, 1."""
    number = slot_number(x, pair)
    rotated = x.slots[number]
    if fixed_value(rotated.extent) != 2:
        fail(f"rotary: axis {rotated.name} of {x.name} has extent {describe(rotated.extent)}, expected 2", ShapeError)
    source = Axis(_unused(rotated.name, x), rotated.extent)
    to, of = (Tensor(a.position, (a,), "int64") for a in (rotated, source))
    near, far = cos[..., None, None], sin[..., None, None]
    table = where(of == to, near, where(of < to, far, -far))
    read = " ".join(source.name if n == number else name for n, name in enumerate(x.axes))
    return einsum(f"{read} , {' '.join(table.axes)} -> {' '.join(x.axes)}", x, table)


def _unused(name: str, x: Tensor) -> str:
    return next(n for n in (f"{name}_{k}" for k in range(1, x.ndim + 2)) if n not in x.axes)
