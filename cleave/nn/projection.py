"""Attention with the projections that make its queries, keys and values."""

from __future__ import annotations

from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.nn.scores import ScoreOptions
from cleave.nn.spec import extent


def qkv_attention(
    *,
    causal: bool = False,
    scale: float | None = None,
    dtype: str = "float16",
    d: int | None = None,
    e: int | None = None,
) -> Graph:
    """out = softmax((x wq) (y wk)ᵀ · scale) (y wv) per head: rows of x ask, rows of y answer.

    Shapes: x [s, m], y [t, m], wq and wk [m, h, d], wv [m, h, e], out [h, s, e]; ``scale`` is 1/√d unless given.
    """
    options = ScoreOptions("qkv_attention", scale, causal)

    def graph(x: Tensor, y: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> Tensor:
        q = ops.einsum("s m, m h d -> h s d", x, wq)
        k = ops.einsum("t m, m h d -> h t d", y, wk)
        v = ops.einsum("t m, m h e -> h t e", y, wv)
        scores = options.applied(ops.einsum("h s d, h t d -> h s t", q, k), q.shape[-1])
        return ops.einsum("h s t, h t e -> h s e", ops.softmax(scores, axis="t"), v)

    head = extent("d", d)
    return trace(
        graph,
        name="qkv_attention",
        x="s m",
        y="t m",
        wq=f"m h {head}",
        wk=f"m h {head}",
        wv=f"m h {extent('e', e)}",
        dtype=dtype,
    )
