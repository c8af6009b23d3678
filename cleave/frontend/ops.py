"""The functions of a traced program, named and called as in NumPy.

An axis is given by its name or its position, several as a tuple; reductions take ``keepdims``. Arguments are traced
tensors, dims and Python numbers. Masks are comparisons of ``position(...)``, dims and integer inputs, or boolean
inputs, joined with & | ~.
"""

from __future__ import annotations

from collections.abc import Sequence

from cleave.frontend import reduce, rotate
from cleave.frontend.context import current, fail
from cleave.frontend.einsum import einsum, matmul
from cleave.frontend.placed import Placed, placed
from cleave.frontend.spec import is_unit
from cleave.frontend.tensor import (
    AxisLike,
    Tensor,
    TensorLike,
    arithmetic,
    expression,
    integers,
    is_integer,
    tensor,
    term,
    unary,
    where,
)
from cleave.ir.axis import Axis
from cleave.ir.dim import is_name
from cleave.ir.index import index, show

# ---- reductions


def sum(x: TensorLike, axis: AxisLike = None, *, keepdims: bool = False) -> Tensor:
    """Sum over axes, all by default; 0 over an empty axis."""
    return reduce.reduction("sum", x, axis, keepdims=keepdims)


def max(x: TensorLike, axis: AxisLike = None, *, keepdims: bool = False) -> Tensor:
    """Maximum over axes, all by default; −inf over an empty axis."""
    return reduce.reduction("max", x, axis, keepdims=keepdims)


def min(x: TensorLike, axis: AxisLike = None, *, keepdims: bool = False) -> Tensor:
    """Minimum over axes, all by default; +inf over an empty axis."""
    return reduce.reduction("min", x, axis, keepdims=keepdims)


def mean(x: TensorLike, axis: AxisLike = None, *, keepdims: bool = False) -> Tensor:
    """Sum divided by the number of elements."""
    return reduce.mean(x, axis, keepdims=keepdims)


def softmax(x: TensorLike, axis: AxisLike = -1) -> Tensor:
    """exp(x − max x) / sum exp(x − max x) along axes; 0 on a row that is −inf everywhere, NaN on one that holds inf."""
    return reduce.softmax(x, axis)


def logsumexp(x: TensorLike, axis: AxisLike = None, *, keepdims: bool = False) -> Tensor:
    """log sum exp x, natural; −inf on a row that is −inf everywhere."""
    return reduce.logsumexp(x, axis, keepdims=keepdims)


def top_k(x: TensorLike, k: int, axis: str | int = -1, *, name: str = "rank") -> tuple[Tensor, Tensor]:
    """The k largest along an axis, the largest first, and their positions (int32, to be stored); k is a number.

    The axis ``name`` of extent k takes the place of the old one. NaN comes before every number, of equal values the one
    at the lower index first. Where the axis turns out shorter than k, the rest are −inf, at its extent as position.
    What is below is rewritten, and what is made of the values; no rewrite moves anything across.
    """
    return reduce.top_k(x, k, axis, name)


# ---- elementwise


def exp(x: TensorLike) -> Tensor:
    return unary("exp", x)


def log(x: TensorLike) -> Tensor:
    return unary("log", x)


def sqrt(x: TensorLike) -> Tensor:
    return unary("sqrt", x)


def rsqrt(x: TensorLike) -> Tensor:
    """1 / sqrt(x)."""
    return unary("rsqrt", x)


def reciprocal(x: TensorLike) -> Tensor:
    return unary("recip", x)


def reciprocal0(x: TensorLike) -> Tensor:
    """1 / x, and 0 at 0."""
    return unary("recip0", x)


def square(x: TensorLike) -> Tensor:
    return unary("sq", x)


def abs(x: TensorLike) -> Tensor:
    return unary("abs", x)


def round(x: TensorLike) -> Tensor:
    """The nearest whole number, an even one if two are as near; no rewrite moves anything across it."""
    return unary("round", x)


def tanh(x: TensorLike) -> Tensor:
    return unary("tanh", x)


def sigmoid(x: TensorLike) -> Tensor:
    """1 / (1 + exp(−x))."""
    return unary("sigmoid", x)


def silu(x: TensorLike) -> Tensor:
    """x · sigmoid(x)."""
    return unary("silu", x)


def maximum(a: TensorLike, b: TensorLike) -> Tensor:
    """The larger of two, element by element."""
    return _extreme("maximum", a, b)


def minimum(a: TensorLike, b: TensorLike) -> Tensor:
    """The smaller of two, element by element."""
    return _extreme("minimum", a, b)


def _extreme(op: str, a: TensorLike, b: TensorLike) -> Tensor:
    x, y = tensor(a), tensor(b)
    return integers(op, x, y) if is_integer(x) and is_integer(y) else arithmetic(op, x, y)


# ---- positions and masks


def position(axis: str) -> Tensor:
    """0, 1, 2, .. along an axis of the inputs, by name; ``x.position(axis)`` is that of a tensor's own axis."""
    axes = current().axes
    if axis not in axes:
        known = ", ".join(axes) or "none"
        fail(f"no axis {axis!r} among those of the inputs, {known}; x.position({axis!r}) takes the axis of a tensor")
    return Tensor(index(axes[axis]), (axes[axis],), "int64")


def arange(extent: TensorLike, axis: str | None = None) -> Tensor:
    """0, 1, .., extent − 1 along a new axis, called ``axis`` or like the dim that the extent is; an integer tensor.

    An extent that is an integer tensor makes the axis ragged: ``arange(lengths, "t")`` has lengths[b] positions.
    """
    size = expression(tensor(extent), "arange")
    name = axis or (show(size) if is_name(show(size)) else "")
    if not is_name(name):
        fail(f"arange({show(size)}): give the axis a name, such as arange({show(size)}, 't')")
    a = Axis(name, size)
    return Tensor(index(0) if is_unit(a) else a.position, (a,), "int64")


def place(x: TensorLike, **places: TensorLike) -> Placed:
    """An output whose elements lie at computed places: ``place(x, row=start + i)``, with ``row`` in its specification.

    A place is an integer tensor over axes of x, which stand for the new axis there. Places must differ; elements of the
    buffer that are at no place are left alone.
    """
    return placed(tensor(x), {name: tensor(p) for name, p in places.items()})


def value(x: TensorLike) -> Tensor:
    """A dim or an integer expression as a real number."""
    operand = tensor(x)
    return Tensor(term(operand), operand.slots, None if is_integer(operand) else operand.storage)


def rotary(x: TensorLike, cos: TensorLike, sin: TensorLike, pair: str | int = -2) -> Tensor:
    """Rotary position embedding: x[0] cos − x[1] sin and x[1] cos + x[0] sin, 0 and 1 along the axis ``pair``.

    A head whose halves are rotated against one another ("rotate half") is two axes, ``(pair=2 freq)``. Written as one
    contraction over the pair with a table of cos and sin, so that the product that makes x stays one product. ``cos``
    and ``sin`` have axes that x has.
    """
    return rotate.rotary(tensor(x), tensor(cos), tensor(sin), pair)


def causal(x: Tensor, query: str | int = -2, key: str | int = -1) -> Tensor:
    """The mask key <= query + (number of keys − number of queries), aligned at the last query, along axes of x."""
    queries, keys = x.position(query), x.position(key)
    return keys <= queries + (keys.shape[0] - queries.shape[0])


__all__: Sequence[str] = [
    "abs",
    "arange",
    "causal",
    "einsum",
    "exp",
    "log",
    "logsumexp",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "place",
    "position",
    "reciprocal",
    "reciprocal0",
    "rotary",
    "round",
    "rsqrt",
    "sigmoid",
    "silu",
    "softmax",
    "sqrt",
    "square",
    "sum",
    "tanh",
    "top_k",
    "value",
    "where",
]
