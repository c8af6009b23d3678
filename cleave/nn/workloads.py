"""The sizes at which operators are compared, prefill and decode: what tables of experiments are made of.

    for w in WORKLOADS:
        graph, dims = w.build()           # at the middle one of its sizes; w.build(0) at the first
        cleave.search(graph, sizes=dims, weights=w.weights)
        cleave.search(w.graph())          # its weights' extents and heads compiled in

``NINE`` are the subgraphs of tables 3 and 4 of arXiv 2610.07742, ``EXTENSION`` those of other systems, ``LAYERS`` whole
decoder layers of the published sizes.
A size is what a user would bind: ``cleave optimize OPERATOR --bind h=32,s=256,...``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cleave.ir.generic import fixed_graph
from cleave.ir.graph import Graph
from cleave.nn.operators import OPERATORS, instantiate

Phase = Literal["prefill", "decode"]
Sizes = Mapping[str, int]

PREFILL = (256, 512, 1024, 2048, 4096)
"""Rows."""
DECODE = (16, 32, 64, 128)
KEYS = 4096


@dataclass(frozen=True)
class Workload:
    """An operator with options at some sizes: ``sizes`` are bindings, smallest first; ``source`` says whose it is."""

    name: str
    phase: Phase
    operator: str
    sizes: tuple[Sizes, ...]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    source: str = "Cleave"

    def __str__(self) -> str:
        return f"{self.name} {self.phase}"

    @property
    def weights(self) -> tuple[str, ...]:
        """The inputs that are parameters of a model."""
        return OPERATORS[self.operator].weights

    def build(self, number: int | None = None) -> tuple[Graph, dict[str, int]]:
        """The graph and the values of its dims at one of the sizes, the middle one by default."""
        sizes = self.sizes[len(self.sizes) // 2 if number is None else number]
        return instantiate(self.operator, sizes, **self.options)

    def graph(self) -> Graph:
        """The graph of the operator that a model compiles: extents of weights, heads and head sizes are literal.

        What differs between the sizes stays a symbol, and so does what calls of one model differ in: requests, rows,
        positions.
        """
        built, _ = self.build()
        every = [self.build(number)[1] for number in range(len(self.sizes))]
        varying = OPERATORS[self.operator].varying
        return fixed_graph(
            built, {n: v for n, v in every[0].items() if n not in varying and all(dims[n] == v for dims in every)}
        )

    def dims(self, number: int) -> dict[str, int]:
        """The values of the symbols of ``graph()`` at one of the sizes."""
        free = {s.name for s in self.graph().symbols if s.value is None}
        return {n: v for n, v in self.build(number)[1].items() if n in free}


def _rows(axis: str, values: Iterable[int], others: Sizes) -> tuple[Sizes, ...]:
    return tuple({axis: value, **others} for value in values)


def _both(name: str, operator: str, axis: str, others: Sizes, source: str = "Cleave") -> tuple[Workload, Workload]:
    """An operator whose prefill and decode differ in the number of rows only."""
    return (
        Workload(name, "prefill", operator, _rows(axis, PREFILL, others), source=source),
        Workload(name, "decode", operator, _rows(axis, DECODE, others), source=source),
    )


def _attentions() -> tuple[Workload, ...]:
    out: list[Workload] = []
    for d in (64, 128):
        sizes = {"b": 1, "h": 32, "t": KEYS, "d": d}
        out += _both(f"mha d{d}", "mha", "s", sizes)
        out += _both(f"gqa d{d}", "gqa", "s", {**sizes, "kv_heads": 8})
        out += _both(f"mqa d{d}", "mqa", "s", sizes)
    return tuple(out)


NINE: tuple[Workload, ...] = (
    *_both("matmul", "matmul", "m", {"k": 4096, "n": 4096}),
    Workload("matmul W(4096,b)", "decode", "matmul", tuple({"m": b, "k": 4096, "n": b} for b in DECODE)),
    *_both("matmul_matmul", "matmul_matmul", "s", {"h": 32, "t": KEYS, "d": 64}),
    *_both("matmul_rowsum", "matmul_rowsum", "m", {"k": 64, "n": 4096}),
    *_both("swiglu", "swiglu", "m", {"k": 4096, "n": 14336}),
    *_both("rmsnorm_matmul", "rmsnorm_matmul", "m", {"k": 4096, "n": 6144}),
    *_attentions(),
    Workload("mla", "prefill", "mla", _rows("s", PREFILL, {"b": 1, "h": 128, "t": KEYS, "d": 192, "e": 128})),
    Workload("mla", "decode", "mla_decode", _rows("t", (1024, 2048, 4096), {"b": 128, "h": 128, "r": 512, "p": 64})),
)

_QUERIES = (2048, 8192)
_CAUSAL = {"causal": True}
_SQUARE = {"k": 4096, "n": 4096}
_LORA = {**_SQUARE, "r": 16}


def _masked(name: str, options: Mapping[str, Any]) -> Workload:
    sizes = tuple({"b": 1, "h": 32, "s": n, "t": n, "d": 128} for n in _QUERIES)
    return Workload(name, "prefill", "mha", sizes, options, "Neptune, FlexAttention")


EXTENSION: tuple[Workload, ...] = (
    Workload(
        "qk_norm_attention",
        "prefill",
        "qk_norm_attention",
        tuple({"b": 1, "h": 32, "kv_heads": 8, "s": n, "t": n, "d": 128} for n in _QUERIES),
        _CAUSAL,
        "Mirage",
    ),
    Workload(
        "qk_norm_attention",
        "decode",
        "qk_norm_attention",
        tuple({"b": b, "h": 32, "kv_heads": 8, "s": 1, "t": 8192, "d": 128} for b in (1, 8)),
        source="Mirage",
    ),
    Workload("lora", "prefill", "lora", ({"m": 4096, **_LORA},), source="Mirage"),
    Workload("lora", "decode", "lora", _rows("m", (1, 16), _LORA), source="Mirage"),
    Workload("rmsnorm_linear", "prefill", "rmsnorm_matmul", _rows("m", (512, 4096), _SQUARE), source="Mirage"),
    Workload("rmsnorm_linear", "decode", "rmsnorm_matmul", _rows("m", (1, 16), _SQUARE), source="Mirage"),
    *_both("norm_residual_norm", "norm_residual_norm", "m", {"n": 4096}, "Mirage"),
    *_both("residual_rmsnorm", "residual_rmsnorm", "m", {"n": 4096}, "Mirage"),
    Workload(
        "qkv_attention",
        "decode",
        "qkv_attention",
        ({"h": 32, "s": 16, "t": 1024, "m": 4096, "d": 128},),
        source="Trinity",
    ),
    Workload("moe_routing", "prefill", "moe_routing", ({"m": 4096, "n": 4096, "k": 8},), source="RedFuser"),
    *_both("quantised_matmul", "quantised_matmul", "m", {"k": 4096, "n": 4096}, "RedFuser"),
    Workload(
        "mla_projected",
        "decode",
        "mla_projected",
        _rows("t", (1024, 2048, 4096), {"b": 16, "h": 16, "d": 128, "r": 512, "p": 64}),
        source="extension",
    ),
    Workload(
        "rope_attention",
        "prefill",
        "rope_attention",
        tuple({"b": 1, "h": 32, "kv_heads": 8, "s": n, "t": n, "d": 128} for n in _QUERIES),
        _CAUSAL,
        "extension",
    ),
    Workload(
        "rope_attention",
        "decode",
        "rope_attention",
        tuple({"b": b, "h": 32, "kv_heads": 8, "s": 1, "t": 8192, "d": 128} for b in (1, 8)),
        source="extension",
    ),
    _masked("causal", _CAUSAL),
    _masked("window 1024", {"window": 1024}),
    _masked("soft cap", {"causal": True, "soft_cap": 50.0}),
    Workload("softmax", "prefill", "softmax", _rows("m", (4096, 32768), {"n": 4096}), source="extension"),
    Workload("softmax_matmul", "prefill", "softmax_matmul", ({"m": 4096, "k": 4096, "n": 128},), source="extension"),
    Workload("softmax_matmul", "decode", "softmax_matmul", ({"m": 16, "k": 4096, "n": 4096},), source="extension"),
    *_both("layernorm_linear", "layernorm_linear", "m", {"k": 4096, "n": 4096}, "extension"),
    *_both("linear_attention", "linear_attention", "s", {"h": 32, "t": KEYS, "d": 64}, "extension"),
)

_LLAMA = {"b": 1, "m": 4096, "h": 32, "kv_heads": 8, "d": 128, "f": 14336}
_QWEN = {"b": 1, "m": 5120, "h": 64, "kv_heads": 8, "d": 128, "f": 25600}
_GPT2 = {"b": 1, "m": 768, "h": 12, "d": 64, "f": 3072}

LAYERS: tuple[Workload, ...] = (
    Workload("Llama-3 8B layer", "prefill", "llama_layer", _rows("s", PREFILL, _LLAMA), source="layers"),
    Workload("Qwen3-32B layer", "prefill", "llama_layer", _rows("s", PREFILL, _QWEN), {"qk_norm": True}, "layers"),
    Workload("GPT-2 layer", "prefill", "gpt2_layer", _rows("s", (256, 512, 1024), _GPT2), source="layers"),
)

WORKLOADS: tuple[Workload, ...] = NINE + EXTENSION + LAYERS
