"""Calls like the last one, recognised by one expression over their arguments: it is compiled once for a form.

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
from functools import cache
from typing import Any, cast

from cleave.runtime.arrays import READERS, Reader, as_dim, as_number, cupy_facts, torch_facts

Values = list[float]
"""The address or value of each argument."""

Match = Callable[[tuple[Any, ...]], Values | None]

_FACTS: dict[Reader, str] = {
    torch_facts: "{a}.shape == {f}0 and {a}.stride() == {f}1 and {a}.dtype is {f}2 and {a}.get_device() == {f}3"
    " and {a}.is_neg() is {f}4",
    cupy_facts: "{a}.shape == {f}0 and {a}.strides == {f}1 and {a}.dtype is {f}2 and {a}.data.device_id == {f}3",
    as_dim: "{a} == {f}0",
}
_VALUES: dict[Reader, str] = {
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
    readers = [READERS[type(a)] for a in arguments]
    guarded = [n for n, reader in enumerate(readers) if reader is torch_facts]
    guard = _guard([arguments[n] for n in guarded])
    names: dict[str, Any] = {"guard": guard}
    tests: list[str] = []
    if guard is not None:
        every = len(guarded) == len(arguments)
        tests.append("guard(*arguments)" if every else f"guard({', '.join(f'a{n}' for n in guarded)})")
    for n, (argument, reader, fact) in enumerate(zip(arguments, readers, facts, strict=True)):
        if reader is torch_facts and guard is not None:
            continue
        names[f"t{n}"] = type(argument)
        found = cast("tuple[object, ...]", fact) if isinstance(fact, tuple) else (fact,)
        names |= {f"f{n}_{k}": part for k, part in enumerate(found)}
        tests.append(f"type(a{n}) is t{n}")
        if reader in _FACTS:
            tests.append(_facts(argument, reader).format(a=f"a{n}", f=f"f{n}_"))
    values = ", ".join(_VALUES[readers[n]].format(a=f"a{n}") for n in order)
    parts = "".join(f"a{n}, " for n in range(len(arguments)))
    text = f"""
def match(arguments):
    {f"{parts} = arguments" if parts else ""}
    return [{values}] if {" and ".join(tests) or "True"} else None
"""
    exec(text, names)
    return cast("Match", names["match"])


def _facts(argument: Any, reader: Reader) -> str:
    """CuPy arrays know whether they are in C order without gaps: that and the shape decide the strides that count."""
    if reader is cupy_facts and getattr(argument, "_c_contiguous", False) is True:
        return _FACTS[reader].replace("{a}.strides == {f}1", "{a}._c_contiguous")
    return _FACTS[reader]


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
