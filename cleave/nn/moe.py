"""Routing of tokens to experts."""

from __future__ import annotations

from collections.abc import Mapping

from cleave.errors import ShapeError
from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.dim import dim
from cleave.ir.graph import Graph
from cleave.ir.index import compare, index
from cleave.nn.spec import extent

EXPERTS = 8
"""To which a token is sent."""


def moe_routing(*, k: int = EXPERTS, n: int | None = None, normalised: bool = True, dtype: str = "float16") -> Graph:
    """experts[m, j] = where softmax(logits[m, :]) is the j-th largest, j < k, and weights[m, j] = what it is there.

    With ``normalised`` the weights of a token are divided by their sum. Of equal logits the lower expert comes first; a
    row that is −inf everywhere gives weights 0. Shapes: logits [m, n], weights [m, k], experts [m, k] in int32, k <= n.
    Source: Shazeer et al., arXiv 1701.06538; the order softmax, top-k, division as in Mixtral and Qwen3.
    """

    def graph(logits: Tensor) -> dict[str, Tensor]:
        weights, experts = ops.top_k(ops.softmax(logits, axis="n"), k, axis="n", name="k")
        if normalised:
            weights = weights * ops.reciprocal0(ops.sum(weights, "k", keepdims=True))
        return {"weights": weights, "experts": experts}

    return trace(
        graph,
        name="moe_routing",
        logits=f"m {extent('n', n)}",
        dtype=dtype,
        constraints=[compare("<=", index(k), dim("n"))] if n is None else [],
    )


def enough_experts(bindings: Mapping[str, int]) -> dict[str, int]:
    """As many experts as are chosen, at least."""
    n, k = bindings.get("n"), bindings.get("k", EXPERTS)
    if n is not None and n < k:
        raise ShapeError(f"n = {n} experts, k = {k} of them are chosen: allowed is n >= k", location="moe_routing")
    return dict(bindings)
