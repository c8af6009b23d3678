"""Gated linear units."""

from __future__ import annotations

from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.nn.spec import extent


def swiglu(*, k: int | None = None, n: int | None = None, dtype: str = "float16") -> Graph:
    """out = silu(x w1) · (x w2), silu(a) = a · sigmoid(a).

    Shapes: x [m, k], w1 and w2 [k, n], out [m, n]. Source: Shazeer, arXiv 2002.05202.
    """

    def graph(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
        return ops.silu(x @ w1) * (x @ w2)

    weight = f"{extent('k', k)} {extent('n', n)}"
    return trace(graph, name="swiglu", x=f"m {extent('k', k)}", w1=weight, w2=weight, dtype=dtype)
