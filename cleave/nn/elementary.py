"""Graphs of one step."""

from __future__ import annotations

from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph


def matmul(*, dtype: str = "float16") -> Graph:
    """out[m, n] = sum over k of a[m, k] · b[k, n]."""

    def graph(a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    return trace(graph, name="matmul", a="m k", b="k n", dtype=dtype)


def softmax(*, dtype: str = "float16") -> Graph:
    """out[m, n] = exp(x[m, n] − max over n) / sum over n of that; 0 on a row that is −inf everywhere."""

    def graph(x: Tensor) -> Tensor:
        return ops.softmax(x, axis="n")

    return trace(graph, name="softmax", x="m n", dtype=dtype)
