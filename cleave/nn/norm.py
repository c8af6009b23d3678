"""Norms along the last axis, alone, in front of a linear layer and between residual sums."""

from __future__ import annotations

from cleave.frontend import ops
from cleave.frontend.tensor import AxisLike, Tensor
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.nn.spec import extent, not_negative


def rms_normed(x: Tensor, eps: float, axis: AxisLike = -1) -> Tensor:
    """x / sqrt(mean x² + eps) along axes; eps is the number written here, whatever the storage type of x."""
    return x * ops.rsqrt(ops.mean(ops.square(x), axis, keepdims=True) + eps)


def layer_normed(x: Tensor, eps: float, axis: AxisLike = -1) -> Tensor:
    """(x − mean x) / sqrt(mean (x − mean x)² + eps) along axes: the variance in a pass of its own."""
    return rms_normed(x - ops.mean(x, axis, keepdims=True), eps, axis)


def rmsnorm(*, eps: float = 1e-6, dtype: str = "float16") -> Graph:
    """out = x / sqrt(mean over n of x² + eps) · gain. Shapes: x [m, n], gain [n], out [m, n].

    Source: Zhang and Sennrich, arXiv 1910.07467.
    """
    not_negative("rmsnorm", "eps", eps)

    def graph(x: Tensor, gain: Tensor) -> Tensor:
        return rms_normed(x, eps) * gain

    return trace(graph, name="rmsnorm", x="m n", gain="n", dtype=dtype)


def rmsnorm_matmul(*, k: int | None = None, n: int | None = None, eps: float = 1e-6, dtype: str = "float16") -> Graph:
    """out = (x / sqrt(mean over k of x² + eps) · gain) w. Shapes: x [m, k], gain [k], w [k, n], out [m, n]."""
    not_negative("rmsnorm_matmul", "eps", eps)

    def graph(x: Tensor, gain: Tensor, w: Tensor) -> Tensor:
        return (rms_normed(x, eps) * gain) @ w

    inner = extent("k", k)
    columns = extent("n", n)
    return trace(graph, name="rmsnorm_matmul", x=f"m {inner}", gain=inner, w=f"{inner} {columns}", dtype=dtype)


def layernorm(*, eps: float = 1e-5, dtype: str = "float16") -> Graph:
    """out = (x − μ) / sqrt(σ² + eps) · gain + shift, μ and σ² over n. Shapes: x and out [m, n], gain and shift [n].

    Source: Ba et al., arXiv 1607.06450.
    """
    not_negative("layernorm", "eps", eps)

    def graph(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        return layer_normed(x, eps) * gain + shift

    return trace(graph, name="layernorm", x="m n", gain="n", shift="n", dtype=dtype)


def layernorm_linear(*, k: int | None = None, n: int | None = None, eps: float = 1e-5, dtype: str = "float16") -> Graph:
    """out = ((x − μ) / sqrt(σ² + eps) · gain + shift) w + bias, μ and σ² the mean and the variance over k.

    Shapes: x [m, k], gain and shift [k], w [k, n], bias [n], out [m, n]. Source: Ba et al., arXiv 1607.06450.
    """
    not_negative("layernorm_linear", "eps", eps)

    def graph(x: Tensor, gain: Tensor, shift: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return (layer_normed(x, eps) * gain + shift) @ w + bias

    inner, columns = extent("k", k), extent("n", n)
    return trace(
        graph,
        name="layernorm_linear",
        x=f"m {inner}",
        gain=inner,
        shift=inner,
        w=f"{inner} {columns}",
        bias=columns,
        dtype=dtype,
    )


def residual_rmsnorm(*, eps: float = 1e-6, dtype: str = "float16") -> Graph:
    """total = x + y and out = total / sqrt(mean over n of total² + eps) · gain: two outputs that share the sum.

    Shapes: x, y, total and out [m, n], gain [n].
    """
    not_negative("residual_rmsnorm", "eps", eps)

    def graph(x: Tensor, y: Tensor, gain: Tensor) -> dict[str, Tensor]:
        total = x + y
        return {"total": total, "out": rms_normed(total, eps) * gain}

    return trace(graph, name="residual_rmsnorm", x="m n", y="m n", gain="n", dtype=dtype)


def norm_residual_norm(*, eps: float = 1e-6, dtype: str = "float16") -> Graph:
    """out = norm(x + alpha · (norm(y) − x)), norm(a) = a / sqrt(mean over n of a² + eps): a step of nGPT.

    Shapes: x, y and out [m, n], alpha [n]. Source: Loshchilov et al., arXiv 2410.01131.
    """
    not_negative("norm_residual_norm", "eps", eps)

    def graph(x: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
        return rms_normed(x + alpha * (rms_normed(y, eps) - x), eps)

    return trace(graph, name="norm_residual_norm", x="m n", y="m n", alpha="n", dtype=dtype)
