"""Products of operands that are rounded to few levels."""

from __future__ import annotations

from cleave.errors import GraphError
from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.nn.spec import extent

LEVELS = 127
"""The largest whole number of a signed byte."""


def quantised_matmul(
    *, k: int | None = None, n: int | None = None, levels: int = LEVELS, dtype: str = "float16"
) -> Graph:
    """out = (round(x · levels / peak) · peak / levels) (w · scale), peak[m] = max over k of |x|: a scale per token.

    The scales of token and column move behind the product; nothing moves across the rounding. A row of zeros gives 0.
    Shapes: x [m, k], w [k, n] (already rounded), scale [n], out [m, n].
    """
    if levels < 1:
        raise GraphError(f"levels = {levels}: a whole number >= 1 is expected", location="quantised_matmul")

    def graph(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        peak = ops.maximum(ops.max(ops.abs(x), "k", keepdims=True), 0.0)  # the maximum of nothing is −inf
        rounded = ops.round(x * (ops.reciprocal0(peak) * float(levels)))
        return (rounded * (peak * (1.0 / levels))) @ (w * scale)

    inner, columns = extent("k", k), extent("n", n)
    return trace(graph, name="quantised_matmul", x=f"m {inner}", w=f"{inner} {columns}", scale=columns, dtype=dtype)
