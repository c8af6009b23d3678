"""Definitions of FlashInfer-Bench as graphs: which operator one is follows from its ``op_type`` and its shapes.

    gqa_paged    paged_decode, or paged_prefill where there is an input qo_indptr
    gqa_ragged   ragged_prefill
    mla_paged    mla_paged_decode, or mla_paged_prefill
    mla_ragged   ragged_prefill with values of another size

A definition names its axes and says which of them are constant: those are compiled in. Source:
https://github.com/flashinfer-ai/flashinfer-bench
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from cleave.errors import GraphError, SavedFileError
from cleave.ir.definition import Definition, check_array, value_of
from cleave.ir.generic import fixed_graph
from cleave.ir.graph import Graph
from cleave.nn.paged import mla_paged_decode, mla_paged_prefill, paged_decode, paged_prefill, ragged_prefill

PARTS = ("name", "op_type", "axes", "inputs", "outputs")
SCALE = "sm_scale"
_NOT_CAUSAL = re.compile(r"(?<![a-z])(non|not|no|without|un)[\s_-]*causal|causal\W*[:=]\W*(false|none|0)")


def from_definition(source: str | Path | Definition) -> Graph:
    """The graph of a definition, given as a file or as what is in it.

    Inputs have the names, types and order that the definition gives them, ``sm_scale`` among them; outputs are ``out``
    and ``lse``, which is -inf where nothing is seen. Errors: no JSON, a part that is missing (SavedFileError); an
    operator type that is unknown, and inputs that such an operator has not (GraphError).
    """
    definition = read_definition(source)
    name = str(definition["name"])
    kind = str(definition["op_type"])
    family = next((f for f in _BUILDERS if re.fullmatch(f"{f}(_decode|_prefill)?(_causal)?", kind)), None)
    if family is None:
        raise GraphError(f"op_type {kind!r}: allowed are {', '.join(_BUILDERS)}", location=name)
    try:
        made = _BUILDERS[family](_Shapes(definition))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise GraphError(f"an input of {family} is missing or has another rank: {error}", location=name) from None
    _check_inputs(made, definition)
    return made


def read_definition(source: str | Path | Definition) -> dict[str, Any]:
    """What is in a definition, every part that is needed among it."""
    where, found = "definition", cast("object", source)
    if isinstance(source, str | Path):
        where = str(source)
        try:
            found = json.loads(Path(source).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SavedFileError(f"is no JSON that can be read: {error}", location=where) from None
    if not isinstance(found, Mapping):
        raise SavedFileError("is no definition: an object is expected", location=where)
    definition = dict(cast("Mapping[str, Any]", found))
    missing = [part for part in PARTS if part not in definition]
    if missing:
        raise SavedFileError(f"is no definition: {', '.join(missing)} is missing", location=where)
    return definition


class _Shapes:
    """Extents of the inputs of a definition: their values where they are constant."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.inputs: Mapping[str, Any] = definition["inputs"]

    def size(self, name: str, position: int) -> int:
        value = value_of(self.definition, self.inputs[name]["shape"][position])
        if value is None:
            axis = self.inputs[name]["shape"][position]
            raise GraphError(f"axis {axis} of input {name} varies: it has to be constant", location=self.location)
        return value

    @property
    def location(self) -> str:
        return str(self.definition["name"])

    @property
    def dtype(self) -> str:
        return str(next(iter(self.inputs.values()))["dtype"])

    @property
    def prefill(self) -> bool:
        return "qo_indptr" in self.inputs

    def masked(self) -> dict[str, bool]:
        """Prefill is causal where the definition says so: shapes don't show it, and its name counts most."""
        for part in ("name", "op_type", "tags", "description", "reference"):
            said = str(self.definition.get(part)).lower()
            if "causal" in said:
                return {"causal": _NOT_CAUSAL.search(said) is None}
        return {"causal": False}


def _heads(x: _Shapes, keys: str) -> dict[str, int]:
    queries, shared = x.size("q", 1), x.size(keys, -2)
    if queries % shared:
        raise GraphError(f"{queries} query heads are not divisible by {shared} key heads", location=x.location)
    return {"group": queries // shared, "kv_heads": shared, "d": x.size("q", 2)}


def _gqa_paged(x: _Shapes) -> Graph:
    heads, page = _heads(x, "k_cache"), x.size("k_cache", 1)
    if x.prefill:
        return paged_prefill(**heads, page=page, dtype=x.dtype, scale=SCALE, **x.masked())
    return paged_decode(**heads, page=page, dtype=x.dtype, scale=SCALE)


def _ragged(x: _Shapes) -> Graph:
    return ragged_prefill(**_heads(x, "k"), e=x.size("v", 2), dtype=x.dtype, scale=SCALE, **x.masked())


def _mla_paged(x: _Shapes) -> Graph:
    sizes = {"r": x.size("q_nope", 2), "p": x.size("q_pe", 2), "page": x.size("ckv_cache", 1)}
    if x.prefill:
        made = mla_paged_prefill(**sizes, dtype=x.dtype, scale=SCALE, **x.masked())
    else:
        made = mla_paged_decode(**sizes, dtype=x.dtype, scale=SCALE)
    return fixed_graph(made, {"h": x.size("q_nope", 1)})


_BUILDERS: dict[str, Callable[[_Shapes], Graph]] = {
    "gqa_paged": _gqa_paged,
    "gqa_ragged": _ragged,
    "mla_paged": _mla_paged,
    "mla_ragged": _ragged,
}


def _check_inputs(g: Graph, definition: Definition) -> None:
    """Inputs of the graph and of the definition are the same, in one order."""
    given, ours = list(definition["inputs"]), [i.name for i in g.inputs]
    if given != ours:
        raise GraphError(f"inputs {', '.join(given)}: {', '.join(ours)} are expected", location=str(definition["name"]))
    for i in g.inputs:
        check_array(definition, "input", i.name, i)


__all__ = ["from_definition", "read_definition"]
