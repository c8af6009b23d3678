"""Reductions, norms, contractions and attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, sqrt

from cleave.errors import GraphError
from cleave.frontend.reduce import bind
from cleave.frontend.tensor import PREDICATES, Tensor, arithmetic, power, quotient, term, unary, where
from cleave.frontend.torch.array import Array, Axes, Group, extent, position
from cleave.frontend.torch.elementwise import Operand, apply, array, binary
from cleave.frontend.torch.layout import ranks, transpose
from cleave.ir.dim import Dim
from cleave.ir.graph import Term
from cleave.ir.index import Index, compare, index


def dims_of(x: Array, dim: int | Sequence[int] | None) -> list[int]:
    """Dimensions counted from the start, all of them for None or an empty list."""
    if dim is None or (not isinstance(dim, int) and not dim):
        return list(range(len(x.dims)))
    return [ranks(d, len(x.dims)) for d in ([dim] if isinstance(dim, int) else dim)]


def real(x: Array) -> Term:
    return term(Tensor(x.value))


def reduced(op: str, x: Array, dims: Sequence[int], *, keepdim: bool = False) -> Array:
    value = real(x)
    for n in sorted(dims, reverse=True):
        for a in reversed(x.dims[n]):
            value = bind(op, a, value)
    kept: list[Axes] = [() if n in dims else axes for n, axes in enumerate(x.dims) if keepdim or n not in dims]
    return Array(value, tuple(kept), x.storage)


def number_of(x: Array, dims: Sequence[int]) -> Dim:
    out = index(1)
    for n in dims:
        out = out * extent(x.dims[n])
    return out


def over(x: Array, count: Index) -> Array:
    """An array divided by a number of elements."""
    return replace(x, value=quotient(Tensor(x.value), Tensor(count)).value)


def mean(x: Array, dims: Sequence[int], *, keepdim: bool = False) -> Array:
    return over(reduced("sum", x, dims, keepdim=keepdim), number_of(x, dims))


def variance(x: Array, dims: Sequence[int], *, correction: int = 1, keepdim: bool = False) -> Array:
    """Σ (x − mean)² / (n − correction)"""
    deviation = apply(binary("sub"), x.storage, x, mean(x, dims, keepdim=True))
    squares = replace(deviation, value=power(Tensor(deviation.value), 2).value)
    return over(reduced("sum", squares, dims, keepdim=keepdim), number_of(x, dims) - correction)


def softmax(x: Array, dim: int) -> Array:
    """The safe form; 0 on a row that is −inf everywhere, where torch gives NaN."""
    weights, total, _ = _exponentials(x, dim)
    return apply(_share, x.storage, weights, total)


def _share(weight: Tensor, total: Tensor) -> Tensor:
    return arithmetic("mul", weight, unary("recip0", total))


def log_softmax(x: Array, dim: int) -> Array:
    _, total, largest = _exponentials(x, dim)

    def function(a: Tensor, t: Tensor, m: Tensor) -> Tensor:
        return arithmetic("sub", arithmetic("sub", a, m), unary("log", t))

    return apply(function, x.storage, x, total, largest)


def logsumexp(x: Array, dims: Sequence[int], *, keepdim: bool = False) -> Array:
    largest = reduced("max", x, dims, keepdim=True)
    weights = apply(binary("exp_diff"), x.storage, x, largest)
    total = reduced("sum", weights, dims, keepdim=True)
    out = apply(_with_log, x.storage, largest, total)
    return out if keepdim else replace(out, dims=tuple(a for n, a in enumerate(out.dims) if n not in dims))


def _with_log(x: Tensor, total: Tensor) -> Tensor:
    return arithmetic("add", x, unary("log", total))


def _exponentials(x: Array, dim: int) -> tuple[Array, Array, Array]:
    dims = dims_of(x, dim)
    largest = reduced("max", x, dims, keepdim=True)
    weights = apply(binary("exp_diff"), x.storage, x, largest)
    return weights, reduced("sum", weights, dims, keepdim=True), largest


# ---- norms


def rms_norm(x: Array, last: int, weight: Operand | None, eps: float) -> Array:
    """x · rsqrt(mean x² + eps) · weight over the last dimensions."""
    dims = list(range(len(x.dims) - last, len(x.dims)))
    squares = replace(x, value=power(Tensor(real(x)), 2).value)
    inverse = _inverse_root(mean(squares, dims, keepdim=True), eps)
    out = apply(binary("mul"), x.storage, x, inverse)
    return _affine(out, weight, None)


def layer_norm(x: Array, last: int, weight: Operand | None, bias: Operand | None, eps: float) -> Array:
    """(x − mean) · rsqrt(variance + eps) · weight + bias over the last dimensions."""
    dims = list(range(len(x.dims) - last, len(x.dims)))
    deviation = apply(binary("sub"), x.storage, x, mean(x, dims, keepdim=True))
    inverse = _inverse_root(variance(x, dims, correction=0, keepdim=True), eps)
    out = apply(binary("mul"), x.storage, deviation, inverse)
    return _affine(out, weight, bias)


def _inverse_root(x: Array, eps: float) -> Array:
    return replace(x, value=unary("rsqrt", arithmetic("add", Tensor(x.value), eps)).value)


def _affine(x: Array, weight: Operand | None, bias: Operand | None) -> Array:
    if weight is not None:
        x = apply(binary("mul"), x.storage, x, weight)
    return x if bias is None else apply(binary("add"), x.storage, x, bias)


# ---- contractions


def contract(xs: Sequence[Array], labels: Sequence[Sequence[object]], out: Sequence[object], storage: str) -> Array:
    """Sum of products over the labels that the output does not have; a label twice in one array is refused."""
    group = Group([], {})
    for x, names in zip(xs, labels, strict=True):
        if len(names) != len(x.dims):
            raise GraphError(f"{len(names)} labels for an array of rank {len(x.dims)}")
        if len(set(names)) < len(names):
            raise GraphError("a label twice in one operand, which is its diagonal")
        group.add(x, names)
    product = Tensor(group.values[0])
    for value in group.values[1:]:
        product = arithmetic("mul", product, Tensor(value))
    result = term(product)
    for name, axes in group.axes.items():
        if name not in out:
            for a in reversed(axes):
                result = bind("sum", a, result)
    return Array(result, tuple(group.axes[n] for n in out), storage)


def matmul(x: Array, y: Array, storage: str) -> Array:
    """The last dimension of x with the last but one of y; those in front broadcast."""
    batch = max(len(x.dims), len(y.dims), 2) - 2
    left = [*range(batch - max(len(x.dims) - 2, 0), batch), *(["row"] if len(x.dims) > 1 else []), "inner"]
    right = [*range(batch - max(len(y.dims) - 2, 0), batch), "inner", *(["column"] if len(y.dims) > 1 else [])]
    ends = [n for n in ("row", "column") if n in (*left, *right)]
    return contract([x, y], [left, right], [*range(batch), *ends], storage)


def linear(x: Array, weight: Array, bias: Array | None, storage: str) -> Array:
    out = matmul(x, transpose(weight, 0, 1), storage)
    return out if bias is None else apply(binary("add"), storage, out, bias)


def einsum(equation: str, xs: Sequence[Array], storage: str) -> Array:
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(xs):
        raise GraphError(f"einsum {equation!r}: {len(xs)} operands are given")
    labels = [_labels(part, len(x.dims)) for part, x in zip(parts, xs, strict=True)]
    flat = [n for names in labels for n in names]
    dots = sorted({n for n in flat if isinstance(n, int)})
    if arrow:
        before, dotted, after = right.partition("...")
        out: list[object] = [*before, *(dots if dotted else []), *after]
    else:
        out = [*dots, *sorted({n for n in flat if isinstance(n, str) and flat.count(n) == 1})]
    return contract(xs, labels, out, storage)


def _labels(part: str, rank: int) -> list[object]:
    before, dotted, after = part.partition("...")
    more = rank - len(before) - len(after) if dotted else 0
    return [*before, *range(-more, 0), *after]


# ---- attention


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    *,
    causal: bool,
    scale: float | None,
    grouped: bool,
    storage: str,
) -> Array:
    """softmax(q kᵀ · scale + mask) v; causal: key j for query i where j <= i, counted from the first.

    A row that sees no key gives 0.
    """
    rank = len(q.dims)
    if grouped:
        k, v = _shared(k, q), _shared(v, q)
    batch = list(range(rank - 2))
    scores = contract([q, k], [[*batch, "query", "d"], [*batch, "key", "d"]], [*batch, "query", "key"], storage)
    factor = Tensor(array(scale).value) if scale is not None else _inverse_root_of(extent(q.dims[-1]))
    scores = replace(scores, value=arithmetic("mul", Tensor(scores.value), factor).value)
    if causal:
        queries, keys = map(position, scores.dims[-2:])
        scores = replace(scores, value=where(Tensor(compare("<=", keys, queries)), Tensor(scores.value), -inf).value)
    if mask is not None:
        scores = apply(_masked, storage, scores, mask)
    weights = softmax(scores, -1)
    return contract([weights, v], [[*batch, "query", "key"], [*batch, "key", "e"]], [*batch, "query", "e"], storage)


def _inverse_root_of(size: Dim) -> Tensor:
    if size.constant is not None:
        return Tensor(array(1 / sqrt(size.constant)).value)
    return unary("rsqrt", Tensor(size))


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    if isinstance(mask.value, PREDICATES):
        return where(mask, scores, -inf)
    return arithmetic("add", scores, mask)


def _shared(x: Array, q: Array) -> Array:
    """Key heads as (head, group): the query heads of a group read one of them."""
    from cleave.frontend.torch.layout import repeat_interleave

    return repeat_interleave(x, len(x.dims) - 3, extent(q.dims[-3]))
