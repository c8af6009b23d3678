"""Arrays of a definition of FlashInfer-Bench, held against those of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from cleave.errors import GraphError
from cleave.ir.graph import Input, Output
from cleave.ir.index import Atom, Index, index, show, substitute, symbols_of

Definition: TypeAlias = Mapping[str, Any]


def value_of(definition: Definition, axis: object) -> int | None:
    """The value of a constant axis; None: it varies.

    Errors (GraphError): an axis that is not listed, or that is no axis; a value other than an integer from 1.
    """
    where, axes = str(definition["name"]), definition["axes"]
    if not isinstance(axes, Mapping) or not isinstance(axis, str) or axis not in axes:
        raise GraphError(f"axis {axis!r} is in no list of axes", location=where)
    known = cast("Mapping[str, object]", axes)[axis]
    facts: Mapping[str, object] = cast("Mapping[str, object]", known) if isinstance(known, Mapping) else {}
    if facts.get("type") not in ("const", "var"):
        raise GraphError(f"axis {axis} is {known!r}: its type has to be const or var", location=where)
    if facts["type"] == "var":
        return None
    value = facts.get("value")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise GraphError(f"axis {axis} = {value!r}: an integer from 1 is expected", location=where)
    return value


def check_array(definition: Definition, role: str, name: str, ours: Input | Output) -> None:
    """An input or output of the definition has the dtype, the rank and the fixed extents of that of a graph.

    Errors (GraphError): it has others, or an axis varies that the graph has fixed.
    """
    where, given = f"{definition['name']}, {role} {name}", definition[f"{role}s"][name]
    if given["dtype"] != ours.dtype:
        raise GraphError(f"dtype {given['dtype']}, {ours.dtype} is expected", location=where)
    axes = given["shape"] or ()
    if len(axes) != len(ours.shape):
        raise GraphError(f"rank {len(axes)}, [{', '.join(map(show, ours.shape))}] is expected", location=where)
    for axis, extent in zip(axes, ours.shape, strict=True):
        known: dict[Atom, Index] = {s: index(s.value) for s in symbols_of(extent) if s.value is not None}
        value, fixed = value_of(definition, axis), substitute(extent, known).constant
        if fixed is not None and value != fixed:
            has = f"axis {axis} varies" if value is None else f"extent {value}"
            raise GraphError(f"{has}, {fixed} is expected", location=where)
