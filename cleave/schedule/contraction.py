"""Contract or Reduce: whether a sum of a product is a matmul of two tiles, and on which side each factor stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from cleave.ir.axis import Axis
from cleave.ir.graph import Cast, Load, Map, Term, product_factors, walk

NARROW = ("float16", "bfloat16")
"""Storage types that tensor cores multiply with FP32 accumulation."""


@dataclass(frozen=True)
class Sides:
    """Factors of a product in two groups that share no axis but the summed one; the left carries the rows."""

    left: tuple[Term, ...]
    right: tuple[Term, ...]


def product(terms: Sequence[Term]) -> Term:
    return reduce(lambda a, b: Map("mul", (a, b)), terms)


@dataclass
class _Component:
    axes: frozenset[Axis]
    terms: list[Term]


def split_sides(
    body: Term,
    a: Axis,
    axes: Callable[[Term], frozenset[Axis]],
    rows: Callable[[Axis], bool],
) -> Sides | None:
    """Factors connected by shared axes, if that gives exactly two components that both carry the summed axis.

    ``axes``: tiled axes of a term; ``rows``: whether an axis is divided among blocks. Factors with the summed axis
    only go to the side that is computed anyway.
    """
    components: list[_Component] = []
    shared: list[Term] = []
    for f in product_factors(body):
        own = axes(f) - {a}
        if not own:
            shared.append(f)
            continue
        touching = [c for c in components if c.axes & own]
        joined = _Component(own.union(*(c.axes for c in touching)), [g for c in touching for g in c.terms] + [f])
        components = [c for c in components if c not in touching] + [joined]
    if len(components) != 2 or not all(any(a in axes(f) for f in c.terms) for c in components):
        return None
    left, right = sorted(components, key=lambda c: (not any(map(rows, c.axes)), _loaded(c.terms)))
    if _loaded(left.terms) and not _loaded(right.terms):
        return Sides(tuple(left.terms), (*right.terms, *shared))
    return Sides((*left.terms, *shared), tuple(right.terms))


def _loaded(terms: Iterable[Term]) -> bool:
    return all(isinstance(t, Load) for t in terms)


def narrow_type(body: Term, dtypes: Callable[[str], str]) -> str | None:
    """The storage type of a matmul's operands: that of the loads below it, None if none of them is narrow."""
    for t in walk(body):
        if isinstance(t, Load) and dtypes(t.input) in NARROW:
            return dtypes(t.input)
        if isinstance(t, Cast) and t.dtype in NARROW:
            return t.dtype
    return None
