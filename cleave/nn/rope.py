"""Rotary position embeddings, alone and on the queries and keys of an attention.

A head of size d is read as (pair=2, freq=d/2): element pair · d/2 + freq, rotated by the angle of its frequency.
Source: Su et al., arXiv 2104.09864, with the halves rotated against one another as in Llama.
"""

from __future__ import annotations

from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.dim import dim
from cleave.ir.graph import Graph
from cleave.ir.index import compare
from cleave.nn.attention import VALUES, attended, log_sum_exp
from cleave.nn.scores import ScoreOptions
from cleave.nn.spec import extent


def rope(*, freq: int | None = None, dtype: str = "float16") -> Graph:
    """out[.., r, f] = sum over u of x[.., u, f] · T[u, r, s, f], T the rotation by the angle of (s, f).

    Shapes: x and out [h, s, 2 · freq], cos and sin [s, freq], float32.
    """

    def graph(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return ops.rotary(x, cos, sin, "pair")

    half = extent("freq", freq)
    table = f"float32[s {half}]"
    head = f"h s (pair=2 {half})"
    return trace(graph, name="rope", x=head, cos=table, sin=table, dtype=dtype, outputs=head)


def rope_attention(
    *,
    causal: bool = False,
    lse: bool = False,
    scale: float | None = None,
    dtype: str = "float16",
    freq: int | None = None,
    e: int | None = None,
    group: int | None = None,
) -> Graph:
    """Attention over rotated queries and keys: query i has position i + t − s, key j position j, s <= t.

    Shapes: as in ``attention`` with d = 2 · freq, cos and sin [t, freq], float32. The default scale is 1/√(2 · freq).
    """
    options = ScoreOptions("rope_attention", scale, causal)

    def graph(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> dict[str, Tensor]:
        own = q.position("s") + (k.shape[2] - q.shape[3])
        rotated = ops.rotary(q, cos[own], sin[own], "pair")
        keys = ops.rotary(k, cos, sin, "pair")
        scores = ops.einsum(
            "b kv_heads group s pair freq, b kv_heads t pair freq -> b kv_heads group s t", rotated, keys
        )
        scores = options.applied(scores, 2 * q.shape[-1])
        out = attended(scores, v, VALUES)
        return {"out": out, "lse": log_sum_exp(scores, "e")} if lse else {"out": out}

    half, width = extent("freq", freq), extent("e", e)
    heads = f"(kv_heads {extent('group', group)})"
    stored = {"out": f"b {heads} s e", "lse": f"float32[b {heads} s]"}
    return trace(
        graph,
        name="rope_attention",
        q=f"b {heads} s (pair=2 {half})",
        k="b kv_heads t (pair freq)",
        v=f"b kv_heads t {width}",
        cos="float32[t freq]",
        sin="float32[t freq]",
        dtype=dtype,
        outputs=stored if lse else {"out": stored["out"]},
        constraints=[compare("<=", dim("s"), dim("t"))],
    )
