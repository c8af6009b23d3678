"""The float64 meaning of terms of the rule language in a world, chunks and ragged axes included."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from cleave.ir.op import MAPS, MONOIDS, round_to
from cleave.ir.top_k import selected
from cleave.rewrite.sexp import Sexp, show
from cleave.testing.world import Array, base_of

MONOID_NAMES = {"Sum": "sum", "MaxOf": "max", "MinOf": "min"}
ROUNDING, CANCELLING = 1e-6, 1e-11
"""Two float64 evaluations of one real number may differ by the first, relative to the larger of 1 and the number; or by
the second, relative to the magnitude of what it was made of.
"""
_STEP = 1e-6


def map_name(constructor: str) -> str:
    """ExpDiff -> exp_diff."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", constructor).lower()


class Arrays(Protocol):
    """Arrays by number."""

    def __getitem__(self, number: int, /) -> Array: ...


class Values(Protocol):
    """Values of leaves and predicates, as arrays with a dimension for each axis, or two for one that is split.

    A dimension of size 1 means that a value does not depend on the axis, so no axis has fewer than two positions;
    those beyond an extent do not exist. ``slots``: the axis, or the piece of one, of each dimension.
    """

    @property
    def slots(self) -> Sequence[Sexp]: ...
    @property
    def leaves(self) -> Arrays: ...
    @property
    def predicates(self) -> Arrays: ...
    @property
    def positions(self) -> Mapping[str, Array]: ...
    @property
    def existing(self) -> Mapping[str, Array]: ...
    def dimensions(self, ax: Sexp) -> tuple[int, ...]: ...
    def exists_for(self, shape: tuple[int, ...]) -> Array: ...


@dataclass
class Meaning:
    """Evaluates terms and single e-nodes."""

    numbers: Values
    memo: dict[Sexp, Array] = field(default_factory=dict[Sexp, Array])

    def value(self, term: Sexp) -> Array:
        """Value of a whole term."""
        if term not in self.memo:
            operands = [self.value(part) for part in term[1:] if is_term(part)]
            self.memo[term] = self.apply(show(term[0]), tuple(p for p in term[1:] if not is_term(p)), operands)
        return self.memo[term]

    @property
    def rank(self) -> int:
        return len(self.numbers.slots)

    def apply(self, constructor: str, plain: tuple[Sexp, ...], operands: list[Array]) -> Array:
        """Value of one constructor; ``plain`` are its arguments that are no terms."""
        with np.errstate(all="ignore"):
            match constructor:
                case "Leaf":
                    return self.numbers.leaves[int(show(plain[0]))]
                case "Const":
                    return np.full([1] * self.rank, float(show(plain[0])))
                case "NegInf":
                    return np.full([1] * self.rank, -np.inf)
                case "Size":
                    return self._reduce("Sum", plain[0], np.ones([1] * self.rank))
                case "Where":
                    return np.where(self.numbers.predicates[int(show(plain[0]))], *operands)
                case "Cast":
                    return round_to(operands[0], show(plain[0]).strip('"'))
                case "TopK":
                    return self._top_k(
                        show(plain[0]).strip('"'), plain[1], self.numbers.leaves[int(show(plain[2]))], *operands
                    )
                case "Red":
                    return self._reduce(show(plain[0][0]), plain[1], operands[0])
                case _:
                    return MAPS[map_name(constructor)].meaning(*operands)

    def _reduce(self, op: str, ax: Sexp, body: Array) -> Array:
        """A fold over the positions that exist. A fold over Outer alone meets no tail: that is inside the chunks."""
        monoid, name, dims = MONOIDS[MONOID_NAMES[op]], base_of(ax), self.numbers.dimensions(ax)
        if ax[0] != "Outer" or body.shape[dims[0] + 1] > 1:
            body = np.where(self.numbers.existing[name], body, monoid.identity)
        full = self.numbers.positions[name].shape
        body = np.broadcast_to(body, [full[d] if d in dims else n for d, n in enumerate(body.shape)])
        return monoid.reduce(body, axis=dims, keepdims=True, initial=monoid.identity)

    def _top_k(self, part: str, ax: Sexp, rank: Array, body: Array) -> Array:
        """A selection over the positions that exist; the ranks are the nearest whole numbers of the leaf."""
        dims, inside = self.numbers.dimensions(ax), self.numbers.existing[base_of(ax)]
        shape = np.broadcast_shapes(body.shape, inside.shape)
        first, joined = dims[0], [1 if d in dims[1:] else n for d, n in enumerate(shape)]
        joined[first] = int(np.prod([shape[d] for d in dims]))
        values, exists = (np.broadcast_to(x, shape).reshape(joined) for x in (body, inside))
        return selected(part, values, exists, np.rint(rank), first)

    def magnitude(
        self,
        constructor: str,
        plain: tuple[Sexp, ...],
        operands: Sequence[Array],
        magnitudes: Sequence[Array],
        value: Array,
    ) -> Array:
        """How large the numbers are that a value was added up from: its rounding error is a share of that.

        Of a map it is what a relative change of its operands by their magnitudes would make of it.
        """
        with np.errstate(all="ignore"):
            match constructor:
                case "Red" | "TopK":
                    over = show(plain[0][0]) if constructor == "Red" else "MaxOf"
                    found = self._reduce("Sum" if over == "Sum" else "MaxOf", plain[1], magnitudes[0])
                case "Where":
                    found = np.where(self.numbers.predicates[int(show(plain[0]))], *magnitudes)
                case _:
                    found = np.abs(value)
                    for number, part in enumerate(magnitudes):
                        moved = [*operands]
                        moved[number] = moved[number] + _STEP * part
                        found = found + np.abs(self.apply(constructor, plain, moved) - value) / _STEP
            return np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)

    def difference(self, a: Array, b: Array, magnitude: Array | float = 0.0) -> float | None:
        """Greatest difference where both exist: None if equal, NaN if only one of them is NaN somewhere.

        Zero times -inf may be part of a product that a rule regroups, below an empty axis: a class of its own, NaN in
        all its members. What is made of it has no value either, and shows if it is said to equal something that has.
        """
        inside = self.numbers.exists_for(np.broadcast_shapes(a.shape, b.shape))
        a, b, inside, slack = np.broadcast_arrays(a, b, inside, magnitude)
        inside = inside & ~(np.isnan(a) & np.isnan(b))
        a, b, slack = a[inside], b[inside], CANCELLING * slack[inside]
        if np.isnan(a).any() or np.isnan(b).any():
            return float("nan")
        with np.errstate(all="ignore"):
            close: Any = np.isclose(a, b, rtol=ROUNDING, atol=ROUNDING) | (np.abs(a - b) <= slack)
            return None if close.all() else float(np.max(np.abs(a - b)[~close]))

    def at_positions(self, value: Array) -> Array:
        """The values at positions that exist."""
        inside = np.broadcast_to(self.numbers.exists_for(value.shape), value.shape)
        return value[inside]

    def depends_on(self, value: Array) -> set[Sexp]:
        """Axes along which a value changes between positions that exist."""
        inside = np.broadcast_to(self.numbers.exists_for(value.shape), value.shape)
        low, high = np.where(inside, value, np.inf), np.where(inside, value, -np.inf)
        return {
            ax
            for d, ax in enumerate(self.numbers.slots)
            if value.shape[d] > 1 and _differ(low.min(axis=d), high.max(axis=d))
        }


def _differ(low: Array, high: Array) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.any((high > low) & ~np.isclose(high, low, rtol=ROUNDING, atol=ROUNDING)))


def is_term(part: Sexp) -> bool:
    """Whether an argument of a constructor is a term, not an axis, a monoid, a number or a name."""
    return not isinstance(part, str) and part[0] not in ("A", "Outer", "Inner", "DSym", *MONOID_NAMES)
