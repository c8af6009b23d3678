"""Softmax along rows, alone and in front of a product."""

from __future__ import annotations

from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.nn.spec import extent


def softmax(*, dtype: str = "float16") -> Graph:
    """out[m, n] = exp(x[m, n] − max over n) / sum over n of that; 0 on a row that is −inf everywhere."""

    def graph(x: Tensor) -> Tensor:
        return ops.softmax(x, axis="n")

    return trace(graph, name="softmax", x="m n", dtype=dtype)


def softmax_matmul(*, n: int | None = None, dtype: str = "float16") -> Graph:
    """out = softmax(x) w, the softmax along k. Shapes: x [m, k], w [k, n], out [m, n]."""

    def graph(x: Tensor, w: Tensor) -> Tensor:
        return ops.softmax(x, axis="k") @ w

    return trace(graph, name="softmax_matmul", x="m k", w=f"k {extent('n', n)}", dtype=dtype)
