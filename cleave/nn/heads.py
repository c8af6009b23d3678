"""From the numbers of heads that a user binds to the dims of a graph, whose query heads are (kv_heads, group)."""

from __future__ import annotations

from collections.abc import Mapping

from cleave.errors import ShapeError

DERIVED = ("group", "kv_heads", "freq")
"""Dims of graphs that follow from those that a user binds."""


def grouped(bindings: Mapping[str, int]) -> dict[str, int]:
    """h and kv_heads give group; either alone means that they are equal. The head size of v is d unless bound."""
    values = alike(bindings)
    heads = values.pop("h", values.get("kv_heads"))
    if heads == 0:
        raise ShapeError("h = 0 query heads: allowed is >= 1", location="attention")
    if heads is not None:
        kv_heads = values.setdefault("kv_heads", heads)
        if kv_heads == 0 or heads % kv_heads:
            raise ShapeError(
                f"h = {heads} query heads are not divisible by kv_heads = {kv_heads}", location="attention"
            )
        values["group"] = heads // kv_heads
    return values


def own_key_heads(bindings: Mapping[str, int]) -> dict[str, int]:
    """A key head for every query head."""
    values = alike(bindings)
    if "h" in values:
        values["kv_heads"] = values.pop("h")
    return values | {"group": 1}


def one_key_head(bindings: Mapping[str, int]) -> dict[str, int]:
    """All query heads read one key head."""
    values = alike(bindings)
    if "h" in values:
        values["group"] = values.pop("h")
    return values | {"kv_heads": 1}


def rotated(bindings: Mapping[str, int]) -> dict[str, int]:
    """A head of size d is two halves that are rotated against one another; v has size d unless bound."""
    values = grouped(bindings)
    size = values.pop("d", None)
    if size is not None and size % 2:
        raise ShapeError(f"d = {size}: a head of even size is rotated", location="rope")
    return values if size is None else {**values, "freq": size // 2}


def alike(bindings: Mapping[str, int]) -> dict[str, int]:
    """The head size of v is d unless bound."""
    return {**({"e": bindings["d"]} if "d" in bindings else {}), **bindings}
