"""Views: other axes over the same elements, by putting index expressions in the place of axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import EllipsisType
from typing import Any, cast

import numpy as np

from cleave.errors import ShapeError
from cleave.frontend.align import join
from cleave.frontend.context import fail
from cleave.frontend.spec import (
    describe,
    fixed_value,
    is_unit,
    merged_extent,
    merged_position,
    parse_spec,
    resolve,
    same_extent,
    settled,
)
from cleave.frontend.tensor import Item, Tensor, check_owners, expression, is_integer, replaced, slot_number
from cleave.ir.axis import Axis
from cleave.ir.dim import Dim, is_name, of_value
from cleave.ir.index import Index, ceildiv, index, maximum, minimum

# ---- order and names


def transpose(x: Tensor, axes: Sequence[str | int]) -> Tensor:
    words = axes[0].split() if len(axes) == 1 and isinstance(axes[0], str) else list(axes)
    order = [slot_number(x, a) for a in words] or list(range(x.ndim))[::-1]
    if sorted(order) != list(range(x.ndim)):
        fail(f"transpose: {', '.join(map(str, words))} are not all axes of {x.name}: {', '.join(x.axes)}")
    return replace(x, slots=tuple(x.slots[n] for n in order))


def rename(x: Tensor, names: Mapping[str, str]) -> Tensor:
    for new in names.values():
        if not is_name(new):
            fail(f"rename: {new!r} is no name of an axis")
    out = rename_slots(x, {slot_number(x, old): new for old, new in names.items()})
    for name in out.axes:
        if out.axes.count(name) > 1:
            fail(f"rename: two axes of {x.name} would be called {name}")
    return out


def rename_slots(x: Tensor, names: Mapping[int, str]) -> Tensor:
    slots = tuple(Axis(names.get(n, a.name), a.extent) for n, a in enumerate(x.slots))
    mapping = {a: b.position for a, b in zip(x.slots, slots, strict=True) if a is not b and not is_unit(a)}
    check_owners(x, mapping)
    return replace(x, value=replaced(x.value, mapping), slots=slots, label="")


# ---- reshape


def reshape(x: Tensor, shape: Sequence[str | int | Dim]) -> Tensor:
    """Row-major: the position in the new shape, counted as one number, is taken apart along the old one."""
    spec = parse_spec(shape[0] if len(shape) == 1 and isinstance(shape[0], str) else tuple(shape), "reshape")
    known = {a.name: a.extent for a in x.slots}
    for word in spec.words:
        if isinstance(word.extent, str) and word.extent not in known:
            fail(f"reshape: the extent of {word.extent} is not known: write {word.extent}=64, or pass a dim")
    new = [a for group in resolve(spec, known, "reshape") for a in group]
    ours, theirs = merged_extent(x.slots), merged_extent(new)
    if not same_extent(ours, theirs):
        fail(f"reshape: {x.name} has {describe(ours)} elements, the new shape {describe(theirs)}", ShapeError)
    flat = merged_position(new)
    mapping: dict[Axis, Index] = {}
    stride = of_value(1)
    for number, a in reversed(list(enumerate(x.slots))):
        place = flat // stride
        mapping[a] = place if number == 0 else place % settled(a.extent)
        stride = stride * settled(a.extent)
    live = {a: i for a, i in mapping.items() if not is_unit(a)}
    check_owners(x, live)
    return replace(x, value=replaced(x.value, live), slots=tuple(new), label="")


# ---- indexing


@dataclass
class _Selection:
    """What an index expression does so far: axes of the result, and what takes the place of those of the tensor."""

    slots: list[Axis] = field(default_factory=list[Axis])
    mapping: dict[Axis, Index] = field(default_factory=dict[Axis, Index])
    gathered: list[tuple[Axis, Tensor]] = field(default_factory=list[tuple[Axis, Tensor]])
    place: int | None = None


def take(x: Tensor, items: Sequence[Item]) -> Tensor:
    """Integers, slices, None, ... and integer tensors, as in NumPy; the latter are matched by the names of their axes.

    The axes of integer tensors stand where the first of them stood. A position outside is an error at run time.
    """
    chosen = _Selection()
    number = 0
    for item in _without_ellipsis(x, items):
        if item is None:
            chosen.slots.append(Axis(_new_name(chosen, x), of_value(1)))
            continue
        _select(x, x.slots[number], item, chosen)
        number += 1
    chosen.slots += x.slots[number:]
    slots = _gather(chosen, x)
    names = [a.name for a in slots]
    for name in names:
        if names.count(name) > 1:
            fail(f"indexing {x.name}: two axes of the result are called {name}; rename one first")
    mapping = {a: i for a, i in chosen.mapping.items() if not is_unit(a)}
    check_owners(x, mapping)
    return replace(x, value=replaced(x.value, mapping), slots=tuple(slots), label="")


def _new_name(chosen: _Selection, x: Tensor) -> str:
    """The name of an axis that None adds, so that it may be added twice."""
    taken = {*x.axes, *(a.name for a in chosen.slots)}
    return next(name for name in (f"new.{n}" for n in range(len(taken) + 1)) if name not in taken)


def _without_ellipsis(x: Tensor, items: Sequence[Item]) -> list[Item]:
    given = [i for i in items if i is not None and not isinstance(i, EllipsisType)]
    dots = [n for n, i in enumerate(items) if isinstance(i, EllipsisType)]
    if len(given) > x.ndim or len(dots) > 1:
        fail(f"indexing {x.name}: {len(given)} indices for {x.ndim} axes ({', '.join(x.axes)})", ShapeError)
    if not dots:
        return list(items)
    whole: list[Item] = [slice(None)] * (x.ndim - len(given))
    return [*items[: dots[0]], *whole, *items[dots[0] + 1 :]]


def _select(x: Tensor, a: Axis, item: object, chosen: _Selection) -> None:
    match item:
        case slice():
            slot, position = _sliced(x, a, cast("slice[Any, Any, Any]", item))
            chosen.slots.append(slot)
            chosen.mapping[a] = position
        case Tensor():
            if not is_integer(item):
                fail(f"indexing {x.name} with {item.name}, which is {item.dtype}: an integer tensor is needed")
            chosen.place = len(chosen.slots) if chosen.place is None else chosen.place
            chosen.gathered.append((a, item))
        case int() | np.integer() | Index() if not isinstance(item, bool):
            chosen.mapping[a] = _position(x, a, item)
        case _:
            fail(f"indexing {x.name} with {item!r}: integers, slices, None and integer tensors are allowed")


def _position(x: Tensor, a: Axis, item: int | np.integer[Any] | Dim) -> Index:
    """One position; a negative one counts from the end."""
    size = fixed_value(a.extent)
    if not isinstance(item, Index):
        if size is not None and not -size <= item < size:
            fail(f"axis {a.name} of {x.name}: index {item}, allowed is {-size} <= index < {size}", ShapeError)
        return a.extent + int(item) if item < 0 else index(int(item))
    return index(item)


def _sliced(x: Tensor, a: Axis, cut: slice[Any, Any, Any]) -> tuple[Axis, Index]:
    """The axis of a slice, and where it reads the old one."""
    step = 1 if cut.step is None else cut.step
    if not isinstance(step, int) or step < 1:
        fail(f"axis {a.name} of {x.name}: step {step!r}, allowed is a positive integer")
    if cut.start is None and cut.stop is None and step == 1:
        return a, index(0) if is_unit(a) else a.position
    size = fixed_value(a.extent)
    if size is not None and all(isinstance(end, (int, type(None))) for end in (cut.start, cut.stop)):
        start, stop, _ = cut.indices(size)
        slot = Axis(a.name, of_value(len(range(start, stop, step))))
        return slot, start + (index(0) if is_unit(slot) else slot.position * step)
    first = index(0) if cut.start is None else _bound(a, cut.start)
    last = a.extent if cut.stop is None else minimum(_bound(a, cut.stop), a.extent)
    slot = Axis(a.name, ceildiv(maximum(last - first, 0), step))
    return slot, first + slot.position * step


def _bound(a: Axis, end: int | Dim) -> Index:
    return maximum(a.extent + end, 0) if isinstance(end, int) and end < 0 else index(end)


def _gather(chosen: _Selection, x: Tensor) -> list[Axis]:
    """Axes of the result, those of the integer tensors among them."""
    if chosen.place is None:
        return chosen.slots
    slots: tuple[Axis, ...] = ()
    for a, item in chosen.gathered:
        joint = join(slots, item.slots, (x.name, item.name), positions=True)
        slots = joint.slots
        renamed = {old: new.position for old, new in joint.renamed.items()}
        chosen.mapping[a] = expression(replace(item, value=replaced(item.value, renamed)), "index")
    return [*chosen.slots[: chosen.place], *slots, *chosen.slots[chosen.place :]]
