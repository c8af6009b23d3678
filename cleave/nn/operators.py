"""Operators by name, with the dims that a user binds: what ``cleave optimize NAME --bind ...`` needs to know."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cleave.errors import GraphError, ShapeError
from cleave.ir.graph import Graph
from cleave.nn import heads
from cleave.nn.attention import attention, qk_norm_attention
from cleave.nn.layers import gpt2_layer, llama_layer
from cleave.nn.linear_attention import linear_attention
from cleave.nn.matmul import lora, matmul, matmul_matmul, matmul_rowsum
from cleave.nn.mla import mla_decode, mla_projected
from cleave.nn.mlp import swiglu
from cleave.nn.moe import enough_experts, moe_routing
from cleave.nn.norm import layernorm, layernorm_linear, norm_residual_norm, residual_rmsnorm, rmsnorm, rmsnorm_matmul
from cleave.nn.paged import mla_paged_decode, mla_paged_prefill, paged_decode, paged_prefill, ragged_prefill
from cleave.nn.projection import qkv_attention
from cleave.nn.quantised import quantised_matmul
from cleave.nn.rope import rope, rope_attention
from cleave.nn.softmax import softmax, softmax_matmul

Bindings = Mapping[str, int]


def _unchanged(bindings: Bindings) -> dict[str, int]:
    return dict(bindings)


@dataclass(frozen=True)
class Operator:
    """``build`` makes the graph from options and from the dims in ``fixed``, for which a kernel is compiled.

    ``dims`` are those that a user may bind, ``resolve`` gives the dims of the graph from them. ``weights`` are the
    inputs that are parameters of a model: ``search`` may combine them ahead of time. ``varying`` are the dims that
    calls of one model differ in: requests, rows, positions. ``meant`` is what the operator is by another name.
    """

    name: str
    build: Callable[..., Graph]
    dims: tuple[str, ...]
    fixed: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    resolve: Callable[[Bindings], dict[str, int]] = field(default=_unchanged)
    varying: tuple[str, ...] = ("b", "m", "s", "t")
    meant: str = ""

    @property
    def summary(self) -> str:
        """One line: what it computes."""
        return self.meant or (inspect.getdoc(self.build) or "").split("\n\n")[0].split(" Shapes: ")[0].replace(
            "\n", " "
        )

    @property
    def options(self) -> dict[str, Any]:
        """The other arguments of ``build`` with their defaults."""
        parameters = inspect.signature(self.build).parameters
        return {n: p.default for n, p in parameters.items() if n not in (*self.dims, *heads.DERIVED)}


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


_HEADS = ("b", "h", "kv_heads", "s", "t", "d", "e")
_FIXED_HEADS = ("group", "d", "e")
_ONE_KIND_OF_HEADS = ("b", "h", "s", "t", "d", "e")

_PAGES = ("num_pages", "num_kv_indices", "page")
_LENGTHS = ("b", "total_q", "total_kv", "num_pages", "num_kv_indices")

_GPT2_WEIGHTS = (
    *("gain1", "shift1", "wq", "wk", "wv", "bq", "bk", "bv", "wo", "bo"),
    *("gain2", "shift2", "w1", "b1", "w2", "b2"),
)

OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        Operator("attention", attention, _HEADS, _FIXED_HEADS, resolve=heads.grouped),
        Operator(
            "mha",
            attention,
            _ONE_KIND_OF_HEADS,
            _FIXED_HEADS,
            resolve=heads.own_key_heads,
            meant="attention with a key head for every query head",
        ),
        Operator(
            "gqa",
            attention,
            _HEADS,
            _FIXED_HEADS,
            resolve=heads.grouped,
            meant="attention whose query heads share key heads in groups",
        ),
        Operator(
            "mqa",
            attention,
            _ONE_KIND_OF_HEADS,
            ("kv_heads", *_FIXED_HEADS),
            resolve=heads.one_key_head,
            meant="attention whose query heads share one key head",
        ),
        Operator(
            "qk_norm_attention",
            qk_norm_attention,
            _HEADS,
            _FIXED_HEADS,
            weights=("gain_q", "gain_k"),
            resolve=heads.grouped,
        ),
        Operator("rope", rope, ("h", "s", "d"), ("freq",), resolve=heads.rotated),
        Operator("rope_attention", rope_attention, _HEADS, ("group", "freq", "e"), resolve=heads.rotated),
        Operator(
            "mla",
            attention,
            _ONE_KIND_OF_HEADS,
            _FIXED_HEADS,
            resolve=heads.own_key_heads,
            meant="latent attention in prefill: mha with values of another size",
        ),
        Operator("mla_decode", mla_decode, ("b", "h", "t", "r", "p"), ("r", "p")),
        Operator(
            "mla_projected",
            mla_projected,
            ("b", "h", "t", "d", "e", "r", "p"),
            ("d", "e", "r", "p"),
            weights=("wk", "wv"),
            resolve=heads.alike,
        ),
        Operator(
            "paged_decode",
            paged_decode,
            ("b", "h", "kv_heads", "d", *_PAGES),
            ("group", "d", "page"),
            resolve=heads.grouped,
            varying=_LENGTHS,
        ),
        Operator(
            "paged_prefill",
            paged_prefill,
            ("b", "total_q", "h", "kv_heads", "d", *_PAGES),
            ("group", "d", "page"),
            resolve=heads.grouped,
            varying=_LENGTHS,
        ),
        Operator(
            "ragged_prefill",
            ragged_prefill,
            ("b", "total_q", "total_kv", "h", "kv_heads", "d", "e"),
            _FIXED_HEADS,
            resolve=heads.grouped,
            varying=_LENGTHS,
        ),
        Operator(
            "mla_paged_decode", mla_paged_decode, ("b", "h", "r", "p", *_PAGES), ("r", "p", "page"), varying=_LENGTHS
        ),
        Operator(
            "mla_paged_prefill",
            mla_paged_prefill,
            ("b", "total_q", "h", "r", "p", *_PAGES),
            ("r", "p", "page"),
            varying=_LENGTHS,
        ),
        Operator(
            "qkv_attention",
            qkv_attention,
            ("h", "s", "t", "m", "d", "e"),
            ("d", "e"),
            weights=("wq", "wk", "wv"),
            resolve=heads.alike,
            varying=("s", "t"),
        ),
        Operator(
            "llama_layer",
            llama_layer,
            ("b", "s", "m", "h", "kv_heads", "d", "f"),
            ("freq", "group"),
            weights=("norm1", "wq", "wk", "wv", "wo", "norm2", "w1", "w3", "w2"),
            resolve=heads.rotated,
            varying=("b", "s"),
        ),
        Operator(
            "gpt2_layer",
            gpt2_layer,
            ("b", "s", "m", "h", "d", "f"),
            ("d",),
            weights=_GPT2_WEIGHTS,
            varying=("b", "s"),
        ),
        Operator("linear_attention", linear_attention, ("h", "s", "t", "d", "e"), ("d", "e"), resolve=heads.alike),
        Operator("matmul", matmul, ("m", "n", "k"), weights=("b",)),
        Operator("matmul_matmul", matmul_matmul, ("h", "s", "t", "d", "e"), ("d", "e"), resolve=heads.alike),
        Operator("matmul_rowsum", matmul_rowsum, ("m", "n", "k"), weights=("w",)),
        Operator("lora", lora, ("m", "n", "k", "r"), ("r",), weights=("w", "a", "b")),
        Operator("moe_routing", moe_routing, ("m", "n", "k"), ("k",), resolve=enough_experts),
        # w holds few levels, and others if folded with anything: it is no weight that rules may combine
        Operator("quantised_matmul", quantised_matmul, ("m", "n", "k"), weights=("scale",)),
        Operator("softmax", softmax, ("m", "n")),
        Operator("softmax_matmul", softmax_matmul, ("m", "k", "n"), weights=("w",)),
        Operator("swiglu", swiglu, ("m", "n", "k"), weights=("w1", "w2")),
        Operator("rmsnorm", rmsnorm, ("m", "n"), weights=("gain",)),
        Operator("rmsnorm_matmul", rmsnorm_matmul, ("m", "n", "k"), weights=("gain", "w")),
        Operator("layernorm", layernorm, ("m", "n"), weights=("gain", "shift")),
        Operator("layernorm_linear", layernorm_linear, ("m", "n", "k"), weights=("gain", "shift", "w", "bias")),
        Operator("residual_rmsnorm", residual_rmsnorm, ("m", "n"), weights=("gain",)),
        Operator("norm_residual_norm", norm_residual_norm, ("m", "n"), weights=("alpha",)),
    )
}
"""Every operator that the command line knows."""
