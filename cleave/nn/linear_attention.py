"""Attention whose weights are products of features: by associativity its cost is linear in the number of keys."""

from __future__ import annotations

from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.nn.spec import extent


def linear_attention(
    *, normalised: bool = True, dtype: str = "float16", d: int | None = None, e: int | None = None
) -> Graph:
    """out = f(q) f(k)ᵀ v, divided by the row sums of f(q) f(k)ᵀ if ``normalised``; f(x) = elu(x) + 1 > 0.

    Written with the s by t weights; equal to f(q) (f(k)ᵀ v). Without keys the output is 0. Shapes: q [h, s, d], k
    [h, t, d], v [h, t, e], out [h, s, e]. Source: Katharopoulos et al., arXiv 2006.16236.
    """

    def feature(x: Tensor) -> Tensor:
        return ops.maximum(x, 0.0) + ops.exp(ops.minimum(x, 0.0))

    def graph(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = ops.einsum("h s d, h t d -> h s t", feature(q), feature(k))
        out = ops.einsum("h s t, h t e -> h s e", weights, v)
        return out * ops.reciprocal0(weights.sum("t", keepdims=True)) if normalised else out

    head = extent("d", d)
    return trace(
        graph, name="linear_attention", q=f"h s {head}", k=f"h t {head}", v=f"h t {extent('e', e)}", dtype=dtype
    )
