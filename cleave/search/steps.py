"""Derivations as steps of a candidate: equations as text under the names of the input graph, evaluated on a small
instance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.candidate import Step
from cleave.errors import CleaveError
from cleave.ir.axis import Axis
from cleave.ir.generic import Rewriting
from cleave.ir.graph import Term, axes_in, free, substitute_axes
from cleave.ir.instance import chunked, greatest_extent
from cleave.ir.interp import Space, make_space, value
from cleave.ir.text import shared_names, show_term
from cleave.rewrite.rule import Exactness, Rule
from cleave.rewrite.rulebook import Rulebook
from cleave.search.decode import Decoder
from cleave.search.egraph import EGraph
from cleave.search.encode import AxisSplit, Encoding
from cleave.search.explain import Derivations, NoDerivation, Rewrite, equations, replays
from cleave.search.small import Small
from cleave.search.term import ETerm

Array = NDArray[Any]
_TOLERANCE = 1e-8
_MOST_AXES = 30
_WEAKEST = (Exactness.EXACT, Exactness.REASSOCIATES, Exactness.UNSAFE)


@dataclass(frozen=True)
class Derived:
    """The steps of a candidate and what they rest on. ``notes`` say if a step is false on the instance or none were
    found.
    """

    steps: tuple[Step, ...]
    exactness: str
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass
class Explainer:
    """Derives, prints and checks candidates of one search; keeps names and values between them."""

    derivations: Derivations
    decoder: Decoder
    small: Small
    names: dict[Term, str] = field(default_factory=dict[Term, str])
    values: dict[Term, Array] = field(default_factory=dict[Term, Array])
    verdicts: dict[tuple[ETerm, ETerm], bool] = field(default_factory=dict[tuple[ETerm, ETerm], bool])
    space: Space | None = None
    to: Rewriting = field(init=False)

    def __post_init__(self) -> None:
        encoding = self.decoder.encoding
        self.names = term_names(encoding)
        axes = _order(encoding.graph.axes, encoding.splits)
        self.to = Rewriting(self.small.freed, axes)
        if self.small.instances and len(axes) <= _MOST_AXES:
            self.space = self._space(encoding.graph.axes)

    def explain(self, goals: Sequence[tuple[str, ETerm, ETerm]]) -> Derived:
        """Steps from one term to another for each output: (name, source, target)."""
        steps: dict[tuple[str, frozenset[str]], Step] = {}
        used: dict[str, None] = {}
        notes: list[str] = []
        for output, source, target in goals:
            try:
                rewrites = self.derivations.derive(source, target)
            except NoDerivation:
                return self._unexplained(output)
            if not replays(source, target, rewrites):
                return self._unexplained(output)
            used |= dict.fromkeys(r.rule for r in rewrites)
            for place, r in equations(source, rewrites):
                step = self._step(output, place, r)
                steps.setdefault((step.rule, frozenset((step.before, step.after))), step)
                if not self._is_true(r):
                    notes.append(f"a step is false on a small instance: {step.rule} at {step.place}")
        rules = [self.derivations.rules.by_name[name] for name in used]
        return Derived(tuple(steps.values()), weakest(rules), assumptions(rules), tuple(dict.fromkeys(notes)))

    def _unexplained(self, output: str) -> Derived:
        """Without a derivation a candidate may rest on every rule that is on."""
        rules = tuple(self.derivations.rules.by_name.values())
        return Derived((), weakest(rules), assumptions(rules), (f"no derivation of {output} was found in time",))

    def _step(self, output: str, place: str, r: Rewrite) -> Step:
        before, after = (self._show(t) for t in (r.before, r.after))
        return Step(r.rule, f"{output} / {place}" if place else output, before, after, r.backward)

    def _show(self, t: ETerm) -> str:
        return show_term(self.decoder.term(t), self.names)

    def _is_true(self, r: Rewrite) -> bool:
        """Both sides have one value wherever both exist; without an instance nothing can be said."""
        if not self.small.instances:
            return True
        key = (r.before, r.after)
        if key not in self.verdicts:
            whole = [self.decoder.term(t) for t in key]
            in_chunks = [self.decoder.in_chunks(t) for t in whole]
            before, after = map(self.to.term, in_chunks)
            if self.space is not None:
                self.verdicts[key] = _equal(before, after, self.space, self.values)
            else:  # too many axes for one array: only those of the equation
                self.verdicts[key] = _equal(before, after, self._space(axes_in([*in_chunks, *whole])), {})
        return self.verdicts[key]

    def _space(self, axes: Sequence[Axis]) -> Space:
        """Some axes of the input graph and both pieces of those that may be split, at small sizes."""
        at, splits = self.small.instances[0], self.decoder.encoding.splits
        dims = dict(at.dims)
        for split in splits.values():
            dims |= chunked(split.count, split.chunk, greatest_extent(self.to.axis(split.axis), dims, at.inputs))
        return make_space(tuple(map(self.to.axis, _order(axes, splits))), at.inputs, dims)


def _equal(before: Term, after: Term, space: Space, memo: dict[Term, Array]) -> bool:
    try:
        with np.errstate(all="ignore"):
            a, b = value(before, space, memo), value(after, space, memo)
            a, b, inside = np.broadcast_arrays(a, b, space.valid_for(free(before) | free(after)))
            return bool(np.allclose(a[inside], b[inside], _TOLERANCE, _TOLERANCE, equal_nan=True))
    except CleaveError:
        return False
    except RuntimeError:  # more axes than an array can have
        return True


def _order(axes: Sequence[Axis], splits: Mapping[str, AxisSplit]) -> list[Axis]:
    """Axes, owners first, each that may be split followed by its pieces."""
    pieces = {s.axis: (s.pieces.outer, s.pieces.inner) for s in splits.values()}
    return list(dict.fromkeys(b for a in axes for b in (a, *pieces.get(a, ()))))


def make_explainer(encoding: Encoding, graph: EGraph, book: Rulebook, small: Small, seconds: float = 0.5) -> Explainer:
    """Of the matches that an e-graph recorded under a rulebook; ``seconds`` bounds the search for one derivation."""
    sources = list(encoding.sources.values())
    derivations = Derivations(graph, book.rules, book.signature, sources, seconds)
    return Explainer(derivations, Decoder(encoding), small)


def term_names(encoding: Encoding) -> dict[Term, str]:
    """Names of the input graph's terms, also where they are read at a position within a chunk: ``v1[t_o, t_i]``."""
    names = shared_names(encoding.graph)
    out = dict(names)
    for split in encoding.splits.values():
        for t, name in list(out.items()):
            if split.axis in free(t):
                piece = f"{split.pieces.outer}, {split.pieces.inner}"
                shown = f"{name[:-1]}, {piece}]" if name.endswith("]") else f"{name}[{piece}]"
                out.setdefault(substitute_axes(t, {split.axis: split.pieces.position}), shown)
    return out


def weakest(rules: Sequence[Rule]) -> str:
    """The class that makes the fewest promises."""
    return str(max((r.exactness for r in rules), key=_WEAKEST.index, default=Exactness.EXACT))


def assumptions(rules: Sequence[Rule]) -> tuple[str, ...]:
    return tuple(sorted({word for r in rules for word in r.assumes}))
