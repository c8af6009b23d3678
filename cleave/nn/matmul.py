"""Products of matrices, and products with their sums."""

from __future__ import annotations

from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.nn.spec import extent


def matmul(*, n: int | None = None, k: int | None = None, dtype: str = "float16") -> Graph:
    """out[m, n] = sum over k of a[m, k] · b[k, n].

    ``n`` and ``k`` fix the shape of b, such as a weight's: kernels are compiled for it, and only rows vary.
    """

    def graph(a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    rows, columns = extent("k", k), extent("n", n)
    return trace(graph, name="matmul", a=f"m {rows}", b=f"{rows} {columns}", dtype=dtype)


def matmul_matmul(*, d: int | None = None, e: int | None = None, dtype: str = "float16") -> Graph:
    """out[h, s, e] = sum over t of (sum over d of q[h, s, d] · k[h, t, d]) · v[h, t, e]: attention without softmax.

    Equal to q (kᵀ v), which is cheaper where s and t are larger than d and e.
    """

    def graph(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ops.einsum("h s t, h t e -> h s e", ops.einsum("h s d, h t d -> h s t", q, k), v)

    head = extent("d", d)
    return trace(graph, name="matmul_matmul", q=f"h s {head}", k=f"h t {head}", v=f"h t {extent('e', e)}", dtype=dtype)


def matmul_rowsum(*, k: int | None = None, n: int | None = None, dtype: str = "float16") -> Graph:
    """out[m] = sum over n of (sum over k of x[m, k] · w[k, n]): row sums of a product, equal to x (row sums of w)."""

    def graph(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).sum("n")

    inner = extent("k", k)
    return trace(graph, name="matmul_rowsum", x=f"m {inner}", w=f"{inner} {extent('n', n)}", dtype=dtype)


def lora(*, k: int | None = None, n: int | None = None, r: int | None = None, dtype: str = "float16") -> Graph:
    """out = x w + (x a) b: a linear layer with a correction of low rank r.

    Shapes: x [m, k], w [k, n], a [k, r], b [r, n], out [m, n]. Source: Hu et al., arXiv 2106.09685; the factor α / r
    is taken to be in b.
    """

    def graph(x: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return x @ w + (x @ a) @ b

    inner, columns, rank = extent("k", k), extent("n", n), extent("r", r)
    return trace(
        graph,
        name="lora",
        x=f"m {inner}",
        w=f"{inner} {columns}",
        a=f"{inner} {rank}",
        b=f"{rank} {columns}",
        dtype=dtype,
    )
