"""Values of terms at one small instance, modulo primes: what tells equal graphs from others, but for accidents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cleave.errors import CleaveError, GraphError
from cleave.ir.graph import Term, axes_in, reductions
from cleave.ir.index import symbols_of
from cleave.ir.instance import dims_near, free_symbols, shape_of
from cleave.ir.interp import Space, make_space
from cleave.ir.op import FLOATS
from cleave.verify.field import MODULI, Array, Residues, draw, levels, residues
from experiments.e03_search.vocabulary import Vocabulary

_REDUCED, _OTHER, _CHUNKS = 3, 2, 2
"""Extents of axes that are reduced and of others; a reduced one is cut into two chunks of two, the last of them short.
"""
_KEPT = 20_000


@dataclass
class Fingerprints:
    """Compares terms with the goal of an enumeration; keeps the values of shared terms."""

    vocabulary: Vocabulary
    space: Space
    drawn: Mapping[str, list[Array]]
    goal: Residues
    memo: dict[Term, Residues] = field(default_factory=dict[Term, Residues])

    def equal(self, t: Term) -> bool:
        """Whether a term has the goal's value wherever both have one, and they have one somewhere."""
        if len(self.memo) > _KEPT:
            self.memo.clear()
        try:
            found = residues(t, self.space, self.drawn, self.memo)
        except GraphError:  # more exponentials in one another than the goal has
            return False
        known = ~(found.lost | self.goal.lost)
        same = (found.low == self.goal.low) & (found.low | (found.parts[0] == self.goal.parts[0]))
        return bool(known.any()) and bool((same | ~known).all())


def fingerprints(v: Vocabulary, rng: np.random.Generator) -> Fingerprints:
    """At one small instance.

    Errors: a graph that has no such instance, or that reads integers.
    """
    g = v.graph
    if any(i.dtype not in FLOATS for i in g.inputs):
        raise CleaveError("an enumeration can't draw integer inputs", location=g.name)
    reduced = {s.name for r in reductions(v.term) for s in symbols_of(r.axis.extent)}
    wish = {s.name: _REDUCED if s.name in reduced else _OTHER for s in free_symbols(g)}
    dims = dims_near(g, wish, rng)
    if dims is None or levels(v.term) > len(MODULI):
        raise CleaveError("no small instance in the finite fields", location=g.name)
    if v.split is not None:
        dims |= {s.name: _CHUNKS for e in (v.split.outer.extent, v.split.chunk) for s in symbols_of(e)}
    drawn = {i.name: draw(shape_of(i, dims), levels(v.term), rng) for i in g.inputs}
    space = make_space(axes_in((v.term, *v.leaves)), {n: a[0] for n, a in drawn.items()}, dims)
    return Fingerprints(v, space, drawn, residues(v.term, space, drawn, {}))
