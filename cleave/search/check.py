"""Steps of a derivation tried: both sides evaluated in float64 on small instances of the input graph.

    normal     numbers of both signs
    whole      -3 .. 3, zeros among them (-inf comes from masks)
    positive   for rules that assume something nonnegative

An instance tells something about a rule only if the rule speaks about it: every value inside the side that the rule
starts from is a number or -inf, and no input holds a 0 if something is assumed nonzero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.candidate import StepCheck
from cleave.errors import CleaveError
from cleave.ir.axis import Axis
from cleave.ir.generic import Rewriting
from cleave.ir.graph import Term, axes_in, free
from cleave.ir.instance import Instance, chunked, footprint, greatest_extent
from cleave.ir.interp import MOST_AXES, Evaluation, Space, make_space, value
from cleave.rewrite.rule import Rule
from cleave.search.decode import Decoder
from cleave.search.encode import AxisSplit
from cleave.search.explain import Rewrite
from cleave.search.small import MOST_ELEMENTS, Small, narrow_form
from cleave.search.term import ETerm

Array = NDArray[Any]

_TOLERANCE = 1e-8
"""Relative to 1 + |value|."""
_NORMAL = 2
"""Instances with normal numbers."""
_MOST = 1 << 18
"""Elements of an array, where the graph can be made narrower."""


@dataclass
class _Place:
    """An instance, its space over all axes of the graph (None: too many for one array), and the values found in it."""

    at: Instance
    space: Space | None
    values: dict[Term, Array] = field(default_factory=dict[Term, Array])

    @property
    def floats(self) -> list[Array]:
        return [a for a in self.at.inputs.values() if a.dtype.kind == "f"]


@dataclass(frozen=True)
class _Form:
    """Places at which terms of the input graph are tried, and how terms are restated for them."""

    to: Rewriting
    places: tuple[_Place, ...]


@dataclass
class Checker:
    """Tries the steps of one search; keeps values and verdicts between them."""

    decoder: Decoder
    small: Small
    verdicts: dict[tuple[str, ETerm, ETerm], StepCheck | None] = field(
        default_factory=dict[tuple[str, ETerm, ETerm], StepCheck | None]
    )

    def check(self, r: Rewrite, rule: Rule) -> StepCheck | None:
        """Whether both sides have one value wherever both exist; None if no instance tells."""
        key = (rule.name, r.before, r.after)
        if key not in self.verdicts:
            self.verdicts[key] = self._tried(r, rule)
        return self.verdicts[key]

    def _tried(self, r: Rewrite, rule: Rule) -> StepCheck | None:
        terms = [self.decoder.term(t) for t in (r.before, r.after)]
        chunks = [self.decoder.in_chunks(t) for t in terms]
        for form, most in self._forms():
            sides = (form.to.term(chunks[0]), form.to.term(chunks[1]))
            places = (p for p in form.places if _allowed(rule, p))
            found = [self._compared(sides, sides[r.backward], [*chunks, *terms], form, p, most) for p in places]
            told = [c for c in found if c is not None]
            if told:
                return _joined(told)
        return None

    def _forms(self) -> Iterator[tuple[_Form, int]]:
        """Where to try a step, and how large its arrays may be there: later ones if those before do not tell."""
        yield self._usual, _MOST
        yield self._narrow, _MOST
        if not self._narrow.places:
            yield self._usual, MOST_ELEMENTS

    @cached_property
    def _usual(self) -> _Form:
        return self._form(self.small)

    @cached_property
    def _narrow(self) -> _Form:
        return self._form(narrow_form(self.decoder.encoding.graph))

    def _form(self, small: Small) -> _Form:
        encoding, normal = self.decoder.encoding, small.instances
        axes = _order(encoding.graph.axes, encoding.splits)
        to, fits = Rewriting(small.freed, axes), len(axes) <= MOST_AXES
        drawn = [*normal[:_NORMAL], *map(_whole, normal[-1:]), *map(_positive, normal[:1])]
        return _Form(to, tuple(_Place(at, self._space(to, at, encoding.graph.axes) if fits else None) for at in drawn))

    def _compared(
        self, sides: tuple[Term, Term], given: Term, mentioned: Sequence[Term], form: _Form, p: _Place, most: int
    ) -> StepCheck | None:
        space, values = p.space, p.values
        if space is None:  # too many axes for one array: only those of the equation
            axes = axes_in(mentioned)
            if len(_order(axes, self.decoder.encoding.splits)) > MOST_AXES:
                return None
            space, values = self._space(form.to, p.at, axes), {}
        if footprint(sides, {a: space.environment[a].size for a in space.order}) > most:
            return None
        try:
            return _difference(*sides, space, values) if _is_regular(given, space, values) else None
        except CleaveError as error:
            return StepCheck(1, float("inf"), f"at {p.at}: {error}")

    def _space(self, to: Rewriting, at: Instance, axes: Sequence[Axis]) -> Space:
        """Some axes of the input graph and both pieces of those that may be split, at small sizes."""
        splits = self.decoder.encoding.splits
        dims = dict(at.dims)
        for split in splits.values():
            dims |= chunked(split.count, split.chunk, greatest_extent(to.axis(split.axis), dims, at.inputs))
        return make_space(tuple(map(to.axis, _order(axes, splits))), at.inputs, dims)


def _order(axes: Iterable[Axis], splits: Mapping[str, AxisSplit]) -> list[Axis]:
    """Axes, owners first, each that may be split followed by its pieces."""
    pieces = {s.axis: (s.pieces.outer, s.pieces.inner) for s in splits.values()}
    return list(dict.fromkeys(b for a in axes for b in (a, *pieces.get(a, ()))))


# ---- data


def _whole(at: Instance) -> Instance:
    rng = np.random.default_rng(7)

    floats = {n: rng.integers(-3, 4, a.shape).astype(np.float64) for n, a in at.inputs.items() if a.dtype.kind == "f"}
    return _redrawn(at, floats, "whole")


def _positive(at: Instance) -> Instance:
    return _redrawn(at, {n: np.abs(a) for n, a in at.inputs.items() if a.dtype.kind == "f"}, "positive")


def _redrawn(at: Instance, floats: Mapping[str, Array], data: str) -> Instance:
    return replace(at, inputs={**at.inputs, **floats}, data=data)


def _allowed(rule: Rule, p: _Place) -> bool:
    """Whether the inputs are such as a rule may assume."""
    positive = p.at.data == "positive"
    if "nonzero" in rule.kinds and any((a == 0).any() for a in p.floats):
        return False
    return positive == ("nonnegative" in rule.kinds)


# ---- comparing


def _is_regular(t: Term, space: Space, memo: dict[Term, Array]) -> bool:
    value(t, space, memo)
    return Evaluation({}, space, memo).regular(t)


def _difference(before: Term, after: Term, space: Space, memo: dict[Term, Array]) -> StepCheck | None:
    with np.errstate(all="ignore"):
        a, b = value(before, space, memo), value(after, space, memo)
        axes = sorted(free(before) | free(after), key=space.number)
        a, b, inside = np.broadcast_arrays(a, b, space.valid_for(axes))
        if not inside.any():
            return None
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)) | ~inside, 0.0, abs(a - b) / (1 + abs(a)))
    apart = np.where(np.isnan(apart), np.inf, apart)
    worst = float(apart.max())
    if worst <= _TOLERANCE:
        return StepCheck(1, worst)
    where = np.unravel_index(int(apart.argmax()), apart.shape)
    place = "".join(f" {x.name} = {where[space.number(x)]}," for x in axes)
    dims = ", ".join(f"{n} = {v}" for n, v in sorted(space.environment.items(), key=str) if isinstance(n, str))
    return StepCheck(1, worst, f"at{place} where {dims}: {a[where]:.6g} before, {b[where]:.6g} after")


def _joined(checks: Sequence[StepCheck]) -> StepCheck | None:
    if not checks:
        return None
    worst = max(c.difference for c in checks)
    return StepCheck(len(checks), worst, next((c.failure for c in checks if c.failure), ""))
