"""The identities that fused kernels rest on: for each the pairs and goals that show it, or why it needs no rule.

Numbers are those of the list that the rules were made from: A ring 1-7, B broadcast and layout 8-12, C reductions
13-20, D matmul 21-27, E concatenation 28-32, F split 33-40, G softmax 41-46, H norms 47-50, I quantisation and routing
51-53, J housekeeping 54.

A *pair* is two ways to write one thing, traced: the search must find that they are one. A *goal* is a term of the rule
language that must be reached (``rule_goals``); chunks can be written in that language only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cleave
from cleave import ops
from cleave.ir.graph import Graph

Two = tuple[Any, Any]


@dataclass(frozen=True)
class Pair:
    """``inputs`` are specs; ``families`` those that suffice, none if already the terms are one object."""

    program: Callable[..., Two]
    inputs: Mapping[str, str]
    families: tuple[str, ...] = ()
    weights: Sequence[str] = ()

    def graph(self) -> Graph:
        """A graph with the outputs ``left`` and ``right``."""

        def both(**tensors: Any) -> dict[str, Any]:
            left, right = self.program(**tensors)
            return {"left": left, "right": right}

        return cleave.trace(both, name="pair", dtype="float32", **self.inputs)


def _written_out(a: Any) -> Any:
    largest = ops.max(a, "n", keepdims=True)
    return largest + ops.log(ops.sum(ops.exp(a - largest), "n", keepdims=True))


def _mean_square(x: Any) -> Any:
    return ops.mean(ops.square(x), "k", keepdims=True) + 1e-5


def _layer_norm(x: Any, gain: Any, bias: Any, w: Any) -> Two:
    """With bias, then a matmul: as written, and with mean, scale and bias behind the matmul."""
    mean = ops.mean(x, "k", keepdims=True)
    scale = ops.rsqrt(ops.mean(ops.square(x - mean), "k", keepdims=True) + 1e-5)
    folded = gain[:, None] * w
    behind = scale * (x @ folded - mean * ops.sum(folded, "k"))
    return ((x - mean) * scale * gain + bias) @ w, behind + bias @ w


def _moments(x: Any) -> Two:
    """A sum of squared differences, and the same from the moments."""
    n = ops.value(x.shape[-1])
    mean = ops.sum(x, "k", keepdims=True) / n
    return ops.sum(ops.square(x - mean), "k"), ops.sum(ops.square(x), "k") + -1.0 * (n * ops.square(mean[:, 0]))


def _quantised(x: Any, w: Any) -> Two:
    """Rounded to a storage type relative to the largest of a row: the scale leaves the matmul, the rounding stays."""
    largest = ops.max(abs(x), "k", keepdims=True)
    rounded = (x / largest).astype("float16")
    return (rounded * largest) @ w, (rounded @ w) * largest


def _norm_then_quantised(x: Any, gain: Any) -> Two:
    """The largest of a normalised row is that of the row as it was, scaled."""
    scale = ops.rsqrt(_mean_square(x))
    return ops.max(abs(x * scale * gain), "k"), ops.max(abs(x * gain), "k") * scale[:, 0]


def _experts(h: Any, w: Any, p: Any) -> Two:
    """The weight of an expert before and behind its down projection."""
    return (
        ops.einsum("e m f, e f n -> m n", h * p, w),
        ops.sum(p * ops.einsum("e m f, e f n -> e m n", h, w), "e"),
    )


A, AB, ABC = ({name: "m n" for name in names} for names in ("a", "ab", "abc"))
ROWS = {"a": "m n", "c": "m 1"}
MATMUL = {"a": "m k", "b": "k n"}
CHAIN = {"a": "m k", "b": "k n", "c": "n p"}
LORA = {"x": "m k", "w": "k n", "p": "k r", "q": "r n"}
NORMED = {"x": "m k", "g": "k", "w": "k n"}

PAIRS: dict[str, Pair] = {
    # A
    "order of summands and factors": Pair(lambda a, b: (a + a * b, b * a + a), AB, ("products",)),
    "a common factor": Pair(lambda a, b, c: (a * b + a * c, a * (b + c)), ABC, ("gather",)),
    "a common divisor": Pair(lambda a, b, c: (a / c + b / c, (a + b) / c), ABC, ("gather", "products")),
    "a bias under a sum, of weights": Pair(
        lambda a, b, c: (ops.sum((a + b) * c, "n"), ops.sum(a * c, "n") + ops.sum(b * c, "n")),
        {"a": "m n", "b": "n", "c": "n"},
        ("products", "reductions"),
        ("b", "c"),
    ),
    "a quotient is a product": Pair(lambda a, b: (a / b, a * ops.reciprocal(b)), AB),
    "a quotient within a product": Pair(lambda a, b, c: (a @ (b / c), (a @ b) / c), {**MATMUL, "c": ""}, ("products",)),
    "an exponential of a difference": Pair(
        lambda a: (_written_out(a), ops.logsumexp(a, "n", keepdims=True)), A, ("shift",)
    ),
    "an exponential of a sum": Pair(lambda a, b: (ops.exp(a + b), ops.exp(a) * ops.exp(b)), AB, ("expand",)),
    "the logarithm of an exponential": Pair(lambda a, b: (ops.log(ops.exp(a) * b), a + ops.log(b)), AB, ("shift",)),
    "the exponential of 0": Pair(lambda a: (a * ops.exp(0.0), a * 1.0), A),
    "the square of a product, under a sum": Pair(
        lambda a, b: (ops.sum(ops.square(a * b), "n"), ops.sum(ops.square(a) * ops.square(b), "n")), AB, ("products",)
    ),
    "a product with itself": Pair(lambda a: (a * a, ops.square(a)), A, ("definitions",)),
    "the root of a square": Pair(lambda a: (ops.sqrt(a * a), abs(a)), A, ("definitions",)),
    "the absolute value of a product": Pair(lambda a, b: (abs(a * b), abs(a) * abs(b)), AB, ("products",)),
    "units": Pair(lambda a: (a * 1.0 + 0.0, a), A, ("definitions", "products")),
    "silu written out": Pair(lambda a: (a * (1 / (1 + ops.exp(-a))), ops.silu(a)), A, ("definitions",)),
    # B
    "transposed twice": Pair(lambda a: (a.transpose("n m p").transpose("p m n"), a.T), {"a": "m n p"}),
    "a map before and after a reshape": Pair(
        lambda a: (ops.exp(a.reshape("m p=2 q=3")), ops.exp(a).reshape("m p=2 q=3")), {"a": "m n=6"}
    ),
    "the transpose of a product": Pair(lambda a, b: ((a @ b).T, b.T @ a.T), MATMUL, ("products",)),
    "a product is a sum of products": Pair(lambda a, b: (a @ b, ops.sum(a[:, :, None] * b[None], 1)), MATMUL),
    # C
    "sums change places": Pair(
        lambda a: (ops.sum(ops.sum(a, "m"), "n"), ops.sum(ops.sum(a, "n"), "m")), {"a": "r m n"}, ("contract",)
    ),
    "the sum of a sum": Pair(
        lambda a, b: (ops.sum(a + b, "n"), ops.sum(a, "n") + ops.sum(b, "n")), AB, ("reductions",)
    ),
    "a constant factor and a constant divisor": Pair(
        lambda a, c: (ops.sum(a * c / (c + 1), "n"), (ops.sum(a, "n", keepdims=True) * c / (c + 1))[:, 0]),
        ROWS,
        ("products",),
    ),
    "a maximum, shifted": Pair(lambda a, c: (ops.max(a + c, "n"), ops.max(a, "n") + c[:, 0]), ROWS, ("reductions",)),
    "a maximum, scaled": Pair(
        lambda a, c: (ops.max(a * ops.rsqrt(c), "n"), ops.max(a, "n") * ops.rsqrt(c)[:, 0]),
        ROWS,
        ("reductions", "products"),
    ),
    "a mean is a sum": Pair(lambda a: (ops.mean(a, "n"), ops.sum(a, "n") / ops.value(a.shape[1])), A),
    "the row sum of a product": Pair(
        lambda a, b: (ops.sum(a @ b, "n"), a @ ops.sum(b, "n")), MATMUL, ("contract", "products")
    ),
    "the column sum of a product": Pair(
        lambda a, b: (ops.sum(a @ b, "m"), ops.sum(a, "m") @ b), MATMUL, ("contract", "products")
    ),
    # D
    "a chain of products": Pair(lambda a, b, c: ((a @ b) @ c, a @ (b @ c)), CHAIN, ("contract",)),
    "linear attention": Pair(
        lambda q, k, v: ((q @ k.T) @ v, q @ (k.T @ v)), {"q": "s d", "k": "t d", "v": "t e"}, ("contract", "products")
    ),
    "a product of a sum": Pair(
        lambda a, b, c: ((a + c) @ b, a @ b + c @ b), {**MATMUL, "c": "m k"}, ("gather", "products")
    ),
    "a product with a sum of weights": Pair(
        lambda a, b, c: (a @ (b + c), a @ b + a @ c), {**MATMUL, "c": "k n"}, ("gather",)
    ),
    "a row scale": Pair(lambda a, b, c: ((a * c) @ b, (a @ b) * c), {**MATMUL, "c": "m 1"}, ("products",)),
    "a column scale": Pair(lambda a, b, c: (a @ (b * c), (a @ b) * c), {**MATMUL, "c": "n"}, ("products",)),
    "a row divisor": Pair(lambda a, b, c: ((a / c) @ b, (a @ b) / c), {**MATMUL, "c": "m 1"}, ("products",)),
    "an inner scale, folded into the weight": Pair(
        lambda a, b, c: ((a * c) @ b, a @ (c[:, None] * b)), {**MATMUL, "c": "k"}, ("products",), ("b", "c")
    ),
    "a scalar factor": Pair(
        lambda a, b, c: ((c * a) @ b + a @ (b * c), c * (a @ b) + (a @ b) * c), {**MATMUL, "c": ""}, ("products",)
    ),
    # E
    "a slice of a product": Pair(lambda a, b: ((a @ b)[:, 2:5], a @ b[:, 2:5]), {"a": "m k", "b": "k n=6"}),
    "LoRA merged": Pair(
        lambda x, w, p, q: (x @ w + (x @ p) @ q, x @ (w + p @ q)), LORA, ("contract", "gather"), ("w", "p", "q")
    ),
    # G
    "softmax without a maximum": Pair(
        lambda a: (ops.exp(a) / ops.sum(ops.exp(a), "n", keepdims=True), ops.softmax(a)), A, ("shift", "products")
    ),
    "log-sum-exp without a maximum": Pair(
        lambda a: (ops.log(ops.sum(ops.exp(a), "n")), ops.logsumexp(a, "n")), A, ("shift", "products")
    ),
    # H
    "RMSNorm written out": Pair(
        lambda x, g: (x / ops.sqrt(_mean_square(x)) * g, x * ops.rsqrt(_mean_square(x)) * g),
        {"x": "m k", "g": "k"},
        ("definitions",),
    ),
    "RMSNorm behind the matmul, the gain in the weight": Pair(
        lambda x, g, w: ((x * ops.rsqrt(_mean_square(x)) * g) @ w, (x @ (g[:, None] * w)) * ops.rsqrt(_mean_square(x))),
        NORMED,
        ("products",),
        ("g", "w"),
    ),
    "the squares of a scaled row": Pair(
        lambda x, c: (ops.sum(ops.square(x * c), "k"), ops.sum(ops.square(x), "k") * ops.square(c)[:, 0]),
        {"x": "m k", "c": "m 1"},
        ("products",),
    ),
    "layer norm with bias behind the matmul": Pair(
        _layer_norm,
        {"x": "m k", "gain": "k", "bias": "k", "w": "k n"},
        ("products", "reductions", "gather"),
        ("gain", "bias", "w"),
    ),
    "a variance from the moments": Pair(_moments, {"x": "m k"}, ("expand", "products")),
    "a residual that is read twice": Pair(
        lambda x, y: ((x + y) * ops.rsqrt(_mean_square(x + y)), (x + y) * ops.rsqrt(_mean_square(x + y))),
        {"x": "m k", "y": "m k"},
    ),
    # I
    "scales of a quantised row": Pair(_quantised, {"x": "m k", "w": "k n"}, ("products",)),
    "a norm before a quantisation": Pair(_norm_then_quantised, {"x": "m k", "gain": "k"}, ("products", "reductions")),
    "the weight of an expert": Pair(_experts, {"h": "e m f", "w": "e f n", "p": "e m 1"}, ("products", "contract")),
}


@dataclass(frozen=True)
class Identity:
    """``shown_by`` are titles of pairs and goals; ``why`` says what needs no rule, and why."""

    says: str
    shown_by: tuple[str, ...] = ()
    why: str = ""


_IMPLICIT = "broadcasting is implicit, and an axis has a name and no place: both sides are one term"
_REFINED = "a splittable axis is the pair of its pieces, so nothing is pushed through a graph: "
_FLASH = "attention: flash decoding"

IDENTITIES: dict[int, Identity] = {
    1: Identity(
        "commutativity and associativity of + and *",
        ("order of summands and factors", "a quotient within a product", "an inner scale, folded into the weight"),
        "products associate on demand and sums of several terms not at all: all orders of n terms are n! forms, and no "
        "fusion needs another one than the graph has",
    ),
    2: Identity("distributivity", ("a common factor", "a common divisor", "a bias under a sum, of weights")),
    3: Identity(
        "quotients of products",
        ("a quotient is a product", "a quotient within a product", "a reciprocal of a product"),
    ),
    4: Identity(
        "exponentials of sums and differences, exp 0, log of exp",
        (
            "an exponential of a difference",
            "an exponential of a sum",
            "the exponential of 0",
            "the logarithm of an exponential",
        ),
    ),
    5: Identity(
        "squares and roots of products",
        ("the square of a product, under a sum", "a product with itself", "the root of a square"),
        "no rule takes roots of products apart: (a b)^p has a sign condition on both factors, and no workload has such "
        "a root",
    ),
    6: Identity(
        "units, negation",
        ("units",),
        "a - b as a + (-1) b would hand every difference to the rules of sums, past the class of linear-sub; x / x is "
        "not 1 at 0",
    ),
    7: Identity("silu and sigmoid", ("silu written out",)),
    8: Identity("maps of broadcasts", (), _IMPLICIT),
    9: Identity("reshapes and transposes", ("transposed twice", "a map before and after a reshape")),
    10: Identity("the transpose of a product", ("the transpose of a product",)),
    11: Identity(
        "batch and row axes through a product",
        (),
        "an axis has a name and no place, so rows and batch are two axes of one term; grouped heads are the axes "
        "(kv_head, group), so a key does not mention the group",
    ),
    12: Identity("a matmul is a sum of products", ("a product is a sum of products",)),
    13: Identity("sums change places; sums over merged axes", ("sums change places", "sum in chunks")),
    14: Identity("the sum of a sum", ("the sum of a sum",)),
    15: Identity("factors and divisors leave a sum", ("a constant factor and a constant divisor",)),
    16: Identity(
        "shifts and scales leave a maximum; nested maxima",
        ("a maximum, shifted", "a maximum, scaled", "maximum in chunks"),
        "only factors that are positive, not those that may be 0: a masked or empty row has the maximum -inf",
    ),
    17: Identity("a mean is a sum", ("a mean is a sum",)),
    18: Identity("the sum of a constant", ("sum of a constant",)),
    19: Identity("row and column sums of a product", ("the row sum of a product", "the column sum of a product")),
    20: Identity(
        "the maximum of a monotone function",
        (),
        "false over an empty axis, where the maximum is -inf and exp(-inf) is 0, and chunks may be empty; the function "
        "is needed at every element all the same",
    ),
    21: Identity("associativity of matmul", ("a chain of products", "linear attention")),
    22: Identity(
        "matmul of a sum",
        ("a product of a sum", "a product with a sum of weights"),
        "two products become one; one becomes two only to get a bias out, since sums of activations, multiplied out, "
        "grow without need (the features of linear attention: 92 e-nodes to 4171)",
    ),
    23: Identity("row and column scales of a matmul", ("a row scale", "a column scale")),
    24: Identity("row divisors of a matmul", ("a row divisor", "attention: the division behind the second matmul")),
    25: Identity(
        "inner scales of a matmul",
        ("an inner scale, folded into the weight",),
        "without weights it is the order of the factors under one sum, which makes no other kernel",
    ),
    26: Identity("scalar factors of a matmul", ("a scalar factor",)),
    27: Identity(
        "products with zero and identity matrices",
        (),
        "0 * x is 0 for finite x only, and a graph that contains either is a graph written wrongly",
    ),
    28: Identity(
        "matmuls with stacked weights",
        ("a slice of a product",),
        "reductions over one axis that share an operand are one loop: horizontal fusion is the scheduler's, and two "
        "weights are read as well as one that holds both",
    ),
    29: Identity(
        "a sum of matmuls is one over a longer axis",
        ("two contractions of one axis: Split-K of both",),
        "a contraction over a concatenation is traced as the sum of two, and two reductions are one loop if their "
        "axes are one; of different axes (MLA) they are two loops that share an accumulator",
    ),
    30: Identity("LoRA", ("LoRA merged", "LoRA merged into the weight")),
    31: Identity(
        "concatenation of rows",
        ("a slice of a product",),
        "concatenation and slicing are index expressions and masks on leaves: nothing is left to move",
    ),
    32: Identity("reductions over a concatenated axis", (), "traced as the sum of two reductions, see 29"),
    33: Identity("a sum in chunks", ("sum in chunks",)),
    34: Identity("a maximum in chunks", ("maximum in chunks",)),
    35: Identity("Split-K", ("matmul: Split-K",)),
    36: Identity(
        "Split through maps, broadcasts, transposes",
        ("attention with a mask and a soft cap: flash decoding",),
        _REFINED + "a map of k is a map of its pieces",
    ),
    37: Identity(
        "Split of a free axis of a matmul",
        (_FLASH,),
        _REFINED + "in attention the columns of the first product are the inner axis of the second",
    ),
    38: Identity(
        "Merge of a Split, Split of a Split",
        (),
        _REFINED + "there is no Merge, and levels of a Split are levels at which the scheduler binds its count",
    ),
    39: Identity(
        "a Split into one chunk", (), "S = 1 is a value of the count: every candidate is checked at it (test_search)"
    ),
    40: Identity("quotients of partial sums", (_FLASH,)),
    41: Identity(
        "softmax is invariant under shifts",
        (
            "softmax without a maximum",
            "log-sum-exp without a maximum",
            "attention without a maximum: flash decoding, safe",
        ),
    ),
    42: Identity(
        "exponentials relative to another shift",
        ("safe sum of exponentials in two levels",),
        "only from the maximum of a chunk to that of all: an unrelated shift makes inf * 0 of masked rows",
    ),
    43: Identity("two-level safe sum", ("safe sum of exponentials in two levels",)),
    44: Identity("two-level safe attention, with log-sum-exp", (_FLASH, "log-sum-exp in two levels")),
    45: Identity(
        "the running form",
        (),
        "no rule but a fold: the candidate's own combine, read with two chunks, checked over any chunking (test_folds)",
    ),
    46: Identity("masks, soft cap", ("attention with a mask and a soft cap: flash decoding",)),
    47: Identity("RMSNorm", ("RMSNorm written out",)),
    48: Identity(
        "RMSNorm and a matmul",
        ("RMSNorm behind the matmul, the gain in the weight", "the squares of a scaled row"),
    ),
    49: Identity(
        "layer norm and a matmul",
        (
            "layer norm with bias behind the matmul",
            "layer norm: the mean behind the matmul",
            "a variance from the moments",
            "variance in one pass",
        ),
    ),
    50: Identity("residuals are shared", ("a residual that is read twice",)),
    51: Identity("scales of quantised operands", ("scales of a quantised row", "a norm before a quantisation")),
    52: Identity(
        "top-k of a softmax",
        (),
        "softmax and top-k of the same scores are read off one pass by a fold; exchanging them changes which of two "
        "scores wins where their exponentials round to one number",
    ),
    53: Identity("weights of experts", ("the weight of an expert",)),
    54: Identity(
        "housekeeping",
        ("a residual that is read twice", "the exponential of 0"),
        "equal terms are one e-node; constants fold when traced; dims are polynomials in normal form",
    ),
}
