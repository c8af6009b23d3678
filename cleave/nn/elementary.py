"""Graphs of one step."""

from __future__ import annotations

from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph


def matmul(*, n: int | None = None, k: int | None = None, dtype: str = "float16") -> Graph:
    """out[m, n] = sum over k of a[m, k] · b[k, n].

    ``n`` and ``k`` fix the shape of b, such as a weight's: kernels are compiled for it, and only rows vary.
    """

    def graph(a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    rows, columns = extent("k", k), extent("n", n)
    return trace(graph, name="matmul", a=f"m {rows}", b=f"{rows} {columns}", dtype=dtype)


def extent(name: str, value: int | None) -> str:
    """An axis of a spec, of a fixed extent if there is one."""
    return name if value is None else f"{name}={value}"


def softmax(*, dtype: str = "float16") -> Graph:
    """out[m, n] = exp(x[m, n] − max over n) / sum over n of that; 0 on a row that is −inf everywhere."""

    def graph(x: Tensor) -> Tensor:
        return ops.softmax(x, axis="n")

    return trace(graph, name="softmax", x="m n", dtype=dtype)
