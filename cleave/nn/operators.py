"""Operators by name, with the dims that a user binds: what ``cleave optimize NAME --bind ...`` needs to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cleave.errors import GraphError, ShapeError
from cleave.ir.graph import Graph
from cleave.nn.attention import attention
from cleave.nn.elementary import matmul, softmax

Bindings = Mapping[str, int]


def _unchanged(bindings: Bindings) -> dict[str, int]:
    return dict(bindings)


@dataclass(frozen=True)
class Operator:
    """``build`` makes the graph from options and from the dims in ``fixed``, for which a kernel is compiled.

    ``dims`` are those that a user may bind, ``resolve`` gives the dims of the graph from them, ``options`` are the
    other arguments of ``build`` with their defaults.
    """

    name: str
    build: Callable[..., Graph]
    dims: tuple[str, ...]
    options: Mapping[str, Any]
    fixed: tuple[str, ...] = ()
    resolve: Callable[[Bindings], dict[str, int]] = field(default=_unchanged)


def instantiate(name: str, bindings: Bindings, **options: object) -> tuple[Graph, dict[str, int]]:
    """The graph of an operator and the values of its dims, from what a user binds: ``h=32, kv_heads=8`` -> ``group=4``.

    Dims that are not bound stay symbols. Unknown operators, dims and options, and values that do not fit, are errors.
    """
    if name not in OPERATORS:
        raise GraphError(f"no such operator: allowed are {', '.join(OPERATORS)}", location=name)
    operator = OPERATORS[name]
    for dim, value in bindings.items():
        if dim not in operator.dims:
            raise GraphError(f"no dim {dim!r}: allowed are {', '.join(operator.dims)}", location=name)
        if value < 0:
            raise ShapeError(f"dim {dim} = {value}: allowed is >= 0", location=name)
    for option in options:
        if option not in operator.options:
            raise GraphError(f"no option {option!r}: allowed are {', '.join(operator.options)}", location=name)
    values = operator.resolve(bindings)
    fixed = {dim: values[dim] for dim in operator.fixed if dim in values}
    for dim, value in fixed.items():
        if value < 1:
            raise ShapeError(f"dim {dim} = {value}: allowed is >= 1", location=name)
    graph = operator.build(**fixed, **options)
    known = {s.name for s in graph.symbols}
    return graph, {dim: value for dim, value in values.items() if dim in known}


def _attention_dims(bindings: Bindings) -> dict[str, int]:
    """h and kv_heads give group; either alone means that they are equal. The head size of v is d unless bound."""
    values = dict(bindings)
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
    if "d" in values:
        values.setdefault("e", values["d"])
    return values


OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        Operator(
            "attention",
            attention,
            dims=("b", "h", "kv_heads", "s", "t", "d", "e"),
            options={"causal": False, "lse": False, "scale": None, "dtype": "float16"},
            fixed=("group", "d", "e"),
            resolve=_attention_dims,
        ),
        Operator("matmul", matmul, dims=("m", "n", "k"), options={"dtype": "float16"}),
        Operator("softmax", softmax, dims=("m", "n"), options={"dtype": "float16"}),
    )
}
"""Every operator that the command line knows."""
