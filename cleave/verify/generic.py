"""The generic form of a candidate: see ``cleave.ir.generic``.

Where a candidate and its input graph agree on all small sizes of their generic form, the literal size is one more. It
is evidence beside the sampled test at the literal sizes, never instead of it.
"""

from __future__ import annotations

from dataclasses import replace

from cleave.candidate import Candidate, Fold, Split
from cleave.ir.generic import Freed, Rewriting, generic_graph
from cleave.ir.graph import Reduce, axes_in


def generic_candidate(c: Candidate, freed: Freed) -> Candidate:
    """The candidate of the generic input graph, with its folds and splits."""
    parts = [*(t for f in c.folds for t in (*f.members, *f.carry)), *c.graph.terms]
    rewriting = Rewriting(freed, axes_in(parts, (i for o in c.graph.outputs for i in o.indices)))
    return replace(
        c,
        graph=rewriting.graph(c.graph),
        origin=generic_graph(c.origin, freed),
        folds=tuple(_fold(f, rewriting) for f in c.folds),
        splits=tuple(_split(s, rewriting) for s in c.splits),
    )


def _fold(f: Fold, to: Rewriting) -> Fold:
    members = tuple(m for m in map(to.term, f.members) if isinstance(m, Reduce))
    return Fold(to.axis(f.axis), members, tuple(map(to.term, f.carry)), f.absorbing)


def _split(s: Split, to: Rewriting) -> Split:
    return replace(s, outer=to.axis(s.outer), inner=to.axis(s.inner))
