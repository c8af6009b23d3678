"""Calls like the last one, recognised by one expression over their arguments: its text is compiled once for all sizes.

    def match(arguments):
        a0, a1, a2 = arguments
        return [a0.data_ptr(), a2.data.ptr, a1] if <a0, a1 and a2 have the facts of the form> else None

The facts are those that the readers of ``cleave.runtime.arrays`` give. Tensors of torch are compared by torch itself,
all in one call, with what its compiler uses for its own calls: that takes a fifth of the time of reading their
attributes. Where torch is of a version that this was not tested with, the attributes are read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, cast

from cleave.runtime.arrays import READERS, Reader, as_dim, as_number, cupy_facts, torch_facts

Values = list[float]
"""The address or value of each argument."""

Match = Callable[[tuple[Any, ...]], Values | None]

_SIZES: dict[Reader, str] = {
    torch_facts: "{a}.shape == {f}0 and {a}.stride() == {f}1",
    cupy_facts: "{a}.shape == {f}0 and {a}.strides == {f}1",
    as_dim: "{a} == {f}0",
}
KINDS: dict[Reader, str] = {
    torch_facts: "{a}.dtype is {f}2 and {a}.get_device() == {f}3 and {a}.is_neg() is {f}4",
    cupy_facts: "{a}.dtype is {f}2 and {a}.data.device_id == {f}3",
}
"""The facts that are no sizes."""

VALUES: dict[Reader, str] = {
    torch_facts: "{a}.data_ptr()",
    cupy_facts: "{a}.data.ptr",
    as_dim: "{a}",
    as_number: "{a}",
}

_GUARDED = ((2, 11), (2, 13))
"""The oldest and the newest version of torch whose guards were tested."""


def matcher(arguments: Sequence[Any], facts: Sequence[object], order: Sequence[int]) -> Match:
    """A function of as many arguments: their values in this order if they have these facts, else None.

    Errors: RuntimeError for tensors without an address, from the function.
    """
    types: list[type] = [type(a) for a in arguments]
    readers = tuple([READERS[kind] for kind in types])
    guard = _guard([a for a, reader in zip(arguments, readers, strict=True) if reader is torch_facts])
    read = tuple([not (guard and reader is torch_facts) for reader in readers])
    regular = tuple([reader is cupy_facts and _is_regular(a) for a, reader in zip(arguments, readers, strict=True)])
    expected: list[object] = []
    for kind, fact, is_read in zip(types, facts, read, strict=True):
        if is_read:
            expected.append(kind)
            expected += cast("tuple[object, ...]", fact) if isinstance(fact, tuple) else (fact,)
    return _maker(readers, read, regular, tuple(order))(guard, *expected)


def facts_of(arguments: Sequence[Any]) -> list[object]:
    """Of arguments that all have readers."""
    return [READERS[type(a)](a)[1] for a in arguments]


def _is_regular(array: Any) -> bool:
    """CuPy arrays know whether they are in C order without gaps: that and the shape decide the strides that count."""
    return getattr(array, "_c_contiguous", False) is True


_COUNTS: dict[Reader, int] = {torch_facts: 5, cupy_facts: 4, as_dim: 1, as_number: 1}
"""Facts that a reader gives."""


@lru_cache(maxsize=256)
def _maker(
    readers: tuple[Reader, ...], read: tuple[bool, ...], regular: tuple[bool, ...], order: tuple[int, ...]
) -> Callable[..., Match]:
    """What makes matches of torch's guard, and the type and the facts of each argument whose attributes are read."""
    guarded = [f"a{n}" for n, is_read in enumerate(read) if not is_read]
    tests = [f"guard({'*arguments' if len(guarded) == len(readers) else ', '.join(guarded)})"] if guarded else []
    expected: list[str] = []
    for n, reader in enumerate(readers):
        if read[n]:
            expected += [f"t{n}", *(f"f{n}_{k}" for k in range(_COUNTS[reader]))]
            found = " and ".join(known[reader] for known in (_SIZES, KINDS) if reader in known)
            if regular[n]:
                found = found.replace("{a}.strides == {f}1", "{a}._c_contiguous")
            tests += [f"type(a{n}) is t{n}", *([found.format(a=f"a{n}", f=f"f{n}_")] if found else [])]
    values = ", ".join(VALUES[readers[n]].format(a=f"a{n}") for n in order)
    parts = "".join(f"a{n}, " for n in range(len(readers)))
    return made(
        f"""
def make(guard, {", ".join(expected)}):
    def match(arguments):
        {f"{parts} = arguments" if parts else ""}
        return [{values}] if {" and ".join(tests) or "True"} else None
    return match
""",
        "make",
    )


def made(text: str, name: str, **names: Any) -> Callable[..., Any]:
    """A function of this name from its text, which may use these names."""
    exec(text, names)
    return cast("Callable[..., Any]", names[name])


def _guard(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """torch's comparison of tensors with these in type, dtype, shape, strides, device, and kind of view."""
    if not tensors or len({id(t) for t in tensors}) < len(tensors):  # it refuses one tensor twice
        return None
    make = _guards()
    return make and make(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check


@cache
def _guards() -> Any:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    version = tuple(int(part) for part in str(torch.__version__).split(".")[:2])
    if not _GUARDED[0] <= version <= _GUARDED[1]:
        return None
    return getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "TensorGuards", None)
