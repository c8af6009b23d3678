"""The one metric for numbers, used by the verifier, the tests and the experiments.

    relative Frobenius error <= 1e-3 (bfloat16: 8e-3), half a spacing aside for what is below the least normal number
    |actual - expected| <= 8 * u * (sum of |terms| of its reduction) + 2 ulp of the output type      for every element
    the non-finite outputs are those of the reference, with their signs

u is the unit roundoff of the coarsest storage type among the inputs and the output. The sum of |terms| of an output is
the value of its *magnitude* term: the same term over absolute values, with sums in the place of differences. Where a
kernel rounds a computed operand of a matmul to float16, the operand counts as at least the least normal number: below
it, rounding is absolute. An exponential has room for the least normal number of float32: below it, those of a GPU are
0. Under a function that is about its argument near 0 (silu, tanh, maximum, minimum) and under a maximum or minimum over
an axis a sum counts with the rounding of float32. Between two graphs in float64 a maximum is as exact as what it is
taken over, and a step function behind a reduction has room for its jump (``steps.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.ir.graph import (
    Cast,
    Const,
    Graph,
    Load,
    Map,
    Output,
    Reduce,
    Term,
    TopK,
    Where,
    graph,
    product_factors,
    walk,
)
from cleave.ir.op import FLOATS, MANTISSA_BITS, round_to
from cleave.verify.steps import is_step_of_sum, jump, steps_of_sums
from cleave.verify.verdict import Outcome

Array = NDArray[Any]

MAGNITUDE = "{}__magnitude"
DECIDED = "{}__decided"
"""Names of what an output is measured by."""
LEAST_EXPONENT = {"float16": -14, "bfloat16": -126, "float32": -126, "float64": -1022}
_FROBENIUS = {"bfloat16": 8e-3}
_NEGLIGIBLE = 1e-280
_SINGLE = 2.0**-13
"""The unit roundoff of float32, in which sums are kept, in those of float16."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What is allowed: ``relative`` times the magnitude plus ``ulps`` of the type ``dtype``; and a Frobenius error.

    ``skip_nan``: where the reference is NaN anything goes (a source without a value says nothing about a rewrite).
    """

    frobenius: float
    relative: float
    ulps: float
    dtype: str
    skip_nan: bool = False


ALGEBRA = Tolerance(frobenius=np.inf, relative=1e-7, ulps=2.0, dtype="float64", skip_nan=True)
"""Two graphs that are equal over the reals, in float64. Element by element: adversarial data may cancel to nothing."""


def storage(dtypes: Iterable[str], output: str) -> Tolerance:
    """The metric for an output of a kernel that reads inputs of some dtypes; positions have no rounding."""
    if output not in FLOATS:
        return Tolerance(frobenius=np.inf, relative=0.0, ulps=0.0, dtype="float64")
    kinds = [d for d in (*dtypes, output) if d in FLOATS]
    unit = max(2.0 ** -MANTISSA_BITS[d] for d in kinds)
    frobenius = max(_FROBENIUS.get(d, 1e-3) for d in kinds)
    return Tolerance(frobenius=frobenius, relative=8 * unit, ulps=2.0, dtype=output)


def graph_tolerance(g: Graph, output: str) -> Tolerance:
    """The metric for one output of a graph, by its name."""
    dtype = next(o.dtype for o in g.outputs if o.name == output)
    casts = [t.dtype for t in walk(*g.terms) if isinstance(t, Cast)]
    return storage([*(i.dtype for i in g.inputs), *casts], dtype)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``worst``: greatest error of an element over its bound; ``where``: flat position of it, or of the first bad."""

    outcome: Outcome
    frobenius: float
    worst: float
    where: int = 0
    expected: float = 0.0
    actual: float = 0.0

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    def __str__(self) -> str:
        numbers = f"relative Frobenius error {self.frobenius:.2g}, worst element at {self.worst:.2g} of its bound"
        return numbers if self.passed else f"{self.actual:.8g} instead of {self.expected:.8g}, {numbers}"


def compare(actual: Array, expected: Array, magnitude: Array, tolerance: Tolerance) -> Comparison:
    """Compare arrays of one shape under the metric; ``expected`` and ``magnitude`` are float64 values, not rounded."""
    a, e, m = (np.asarray(x, dtype=np.float64).ravel() for x in (actual, expected, magnitude))
    counted = ~np.isnan(e) if tolerance.skip_nan else np.ones(e.shape, dtype=bool)
    stored = round_to(e, tolerance.dtype)
    bad = counted & ~_same_kind(a, stored)
    if bad.any():
        first = int(np.argmax(bad))
        return Comparison(Outcome.WRONG_NON_FINITE, np.inf, np.inf, first, float(e[first]), float(a[first]))
    finite = counted & np.isfinite(stored)
    where = np.flatnonzero(finite)
    if not where.size:
        return Comparison(Outcome.PASSED, 0.0, 0.0)
    return _compare_finite(a[where], e[where], m[where], where, tolerance)


def _same_kind(a: Array, e: Array) -> Array:
    """Both finite, both NaN, or the same infinity."""
    return (np.isfinite(a) & np.isfinite(e)) | (np.isnan(a) & np.isnan(e)) | (a == e)


def _compare_finite(a: Array, e: Array, m: Array, where: Array, tolerance: Tolerance) -> Comparison:
    error = np.abs(a - e)
    terms = np.where(np.isfinite(m), m, np.abs(e))
    allowed = tolerance.relative * terms + tolerance.ulps * ulp(e, tolerance.dtype) + _NEGLIGIBLE
    ratio = error / allowed
    worst = int(np.argmax(ratio))
    frobenius = 0.0
    if np.isfinite(tolerance.frobenius):
        frobenius = _relative_norm(np.maximum(error - _subnormal_rounding(e, tolerance.dtype), 0.0), e)
    passed = bool(ratio[worst] <= 1.0) and frobenius <= tolerance.frobenius
    outcome = Outcome.PASSED if passed else Outcome.WRONG_VALUE
    return Comparison(outcome, frobenius, float(ratio[worst]), int(where[worst]), float(e[worst]), float(a[worst]))


def _relative_norm(error: Array, e: Array) -> float:
    """|error| / |e|; a reference that is zero everywhere is judged element by element only."""
    largest = float(np.abs(e).max())
    if largest == 0.0:
        return 0.0
    return float(np.sqrt(np.square(error / largest).sum() / np.square(e / largest).sum()))


def _subnormal_rounding(e: Array, dtype: str) -> Array:
    """What rounding alone does to a number below the least normal one: up to all of it."""
    return np.where(np.abs(e) < 2.0 ** LEAST_EXPONENT[dtype], ulp(e, dtype) / 2, 0.0)


def ulp(value: Array, dtype: str) -> Array:
    """Distance between neighbours of a storage type at a value (that of the least normal number below it)."""
    _, exponent = np.frexp(np.abs(value))
    return np.ldexp(1.0, np.maximum(exponent - 1, LEAST_EXPONENT[dtype]) - MANTISSA_BITS[dtype] + 1)


# ---- magnitudes


@dataclass(frozen=True, slots=True)
class Least:
    """What counts for at least so much: computed factors of a product that is summed, and exponentials."""

    operand: float = 0.0
    exponential: float = 0.0


EXACT = Least()
"""Of evaluations in float64: they round by a part of the number."""


def least(g: Graph, output: str) -> Least:
    """Of kernels for a graph, in one of its outputs.

    An operand is at least the least normal number of the type that kernels may round it to: of float16, if an input has
    it. The bound of an exponential is at least the least normal number of float32.
    """
    half = any(i.dtype == "float16" for i in g.inputs)
    relative = graph_tolerance(g, output).relative
    flushed = 2.0 ** LEAST_EXPONENT["float32"] / relative if relative else 0.0
    return Least(2.0 ** LEAST_EXPONENT["float16"] if half else 0.0, flushed)


def magnitude(term: Term, least: Least = EXACT) -> Term:
    """The term over absolute values: sums of |terms| for sums and products, |value| for everything else.

    sum_k a * b  ->  sum_k |a| * |b|     a - b  ->  |a| + |b|     max_k a  ->  |max_k a| + 2^-13 max_k |a|
    """
    made: dict[Term, Term] = {}
    for t in walk(term):
        made[t] = _magnitude_node(t, made, least)
    return made[term]


def algebra_magnitude(term: Term, *, jumps: bool = True) -> Term:
    """The magnitude for two graphs that are equal over the reals: room for the rounding of every sum in them.

    max_k a  ->  max_k |a|: sums that cancel leave their rounding, and a maximum of those is as small as that; nor can
    the element of a rank be further off than all elements are.

    ``jumps``: step functions of reductions have room for their jumps.
    """
    made: dict[Term, Term] = {}
    for t in walk(term):
        made[t] = _algebra_node(t, made, jumps=jumps)
    return made[term]


def _algebra_node(t: Term, made: dict[Term, Term], *, jumps: bool) -> Term:
    match t:
        case Reduce("max" | "min", axis, body) | TopK("value", axis, _, body):
            return Reduce("max", axis, made[body])
        case _:
            size = _magnitude_node(t, made, EXACT)
            return Map("add", (size, jump(t, made, ALGEBRA.relative))) if jumps and is_step_of_sum(t) else size


def _summed(body: Term, made: dict[Term, Term], least: float) -> Term:
    """The magnitude of a product, its computed factors together at least ``least``."""
    factors = product_factors(body)
    loaded = [made[f] for f in factors if isinstance(f, Load | Const)]
    computed = [made[f] for f in factors if not isinstance(f, Load | Const)]
    if not least or len(factors) < 2 or not computed:
        return made[body]
    floor = Const(least)
    if loaded:
        return _product([Map("maximum", (_product(computed), floor)), *loaded])
    return _product([Map("maximum", (f, floor)) for f in computed])


def _product(factors: Sequence[Term]) -> Term:
    return reduce(lambda a, b: Map("mul", (a, b)), factors)


def _magnitude_node(t: Term, made: dict[Term, Term], least: Least) -> Term:
    match t:
        case Const(value) if not np.isfinite(value):
            return Const(0.0)  # exact: what a mask puts in a maximum has no error
        case Map("mul", (a, b)):
            return Map("mul", (made[a], made[b]))
        case Map("add" | "sub", (a, b)):
            return Map("add", (made[a], made[b]))
        case Map("sq", (a,)):
            return Map("sq", (made[a],))
        case Map("neg" | "abs", (a,)) | Cast(_, a):
            return made[a]
        case Reduce("sum", axis, body):
            return Reduce("sum", axis, _summed(body, made, least.operand))
        case Where(pred, a, b):
            return Where(pred, made[a], made[b])
        case Map("silu" | "tanh" | "maximum" | "minimum", args):
            return reduce(lambda size, a: _with_sum(size, a, made), args, Map("abs", (t,)))
        case Reduce("max" | "min", axis, body) if not _is_absolute(body, made):
            return Map("add", (Map("abs", (t,)), _single(Reduce("max", axis, made[body]))))
        case Load() | Map() | Reduce() | _:
            return _at_least(t, least.exponential)


def _at_least(t: Term, exponential: float) -> Term:
    """|t|, and of an exponential at least so much."""
    size = Map("abs", (t,))
    is_exponential = isinstance(t, Map) and t.op in ("exp", "exp_diff", "sigmoid")
    return Map("maximum", (size, Const(exponential))) if is_exponential and exponential else size


def _with_sum(size: Term, a: Term, made: dict[Term, Term]) -> Term:
    """A sum that cancels leaves its float32 rounding, and the function is as small as what is left of the sum."""
    return size if _is_absolute(a, made) else Map("add", (size, _single(made[a])))


def _is_absolute(a: Term, made: dict[Term, Term]) -> bool:
    """Whether the magnitude of a term is its own: nothing in it cancels."""
    match made[a]:
        case Map("maximum", (size, Const())):
            return size is Map("abs", (a,))
        case size:
            return size is Map("abs", (a,))


def _single(size: Term) -> Term:
    """The rounding of float32 in something of this size."""
    return Map("mul", (Const(_SINGLE), size))


@cache
def with_magnitudes(g: Graph) -> Graph:
    """The graph with, for each output x, one more output ``x__magnitude``: the sum of |terms| of its reduction.

    And ``x__decided`` where a step function follows a reduction in x: the same without room for jumps.
    """
    extra = [(MAGNITUDE, o, algebra_magnitude(o.term)) for o in g.outputs]
    extra += [(DECIDED, o, algebra_magnitude(o.term, jumps=False)) for o in g.outputs if steps_of_sums(o.term)]
    more = [Output(name.format(o.name), "float64", o.shape, o.indices, t) for name, o, t in extra]
    return graph(g.name, g.inputs, (*g.outputs, *more), g.constraints)
