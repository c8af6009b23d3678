"""A candidate's graph against the input graph in finite fields, on the integers and sizes of small instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from cleave.candidate import Candidate
from cleave.errors import GraphError
from cleave.ir.axis import Axis
from cleave.ir.graph import Graph, Output, Term, axes_in, free, walk
from cleave.ir.index import axes_of, evaluate
from cleave.ir.instance import greatest_extents, shape_of
from cleave.ir.interp import make_space
from cleave.ir.op import FLOATS
from cleave.verify.equivalence import split_instance
from cleave.verify.field import MODULI, Array, Residues, constants, draw, inexact, levels, residues
from cleave.verify.reference import Reference, References, representative
from cleave.verify.verdict import Check, Outcome, Step

_MORE = 2
_LIMIT = 60_000
"""Elements of the largest array of an instance: powers in a field cost hundreds of operations each."""
_DRAWS = 2
"""An accident (a sum that is 0 modulo p) is no counterexample: one has to be found twice."""


@dataclass(frozen=True)
class _Stored:
    """An output by position, sorted: residues modulo p (p itself for −inf), and whether there is a value."""

    where: Array
    value: Array
    known: Array


def check_field(c: Candidate, references: References, rng: np.random.Generator) -> Check:
    """Compare every output in finite fields; the detail says which were left open, and why."""
    small = references.once("field", lambda _: [r for r in references.small() if _size(references.origin, r) <= _LIMIT])
    if not small:
        return Check(Step.FIELD, Outcome.SKIPPED, detail=f"every instance has arrays of more than {_LIMIT} elements")
    chosen = representative(small, rng, _MORE)
    opened: list[str] = []
    for o in c.origin.outputs:
        other = next(x for x in c.graph.outputs if x.name == o.name)
        try:
            fault, reason = _compared(_Pair(c, o, other, references), chosen, rng)
        except GraphError as error:
            fault, reason = "", str(error)
        if fault and not reason:
            return Check(Step.FIELD, Outcome.WRONG_VALUE, len(chosen), np.inf, fault)
        if reason:
            opened.append(f"{o.name} is left open: {reason}")
    if len(opened) == len(c.origin.outputs):
        return Check(Step.FIELD, Outcome.SKIPPED, detail="; ".join(opened))
    return Check(Step.FIELD, Outcome.PASSED, len(chosen), 0.0, "; ".join(opened))


def _size(g: Graph, reference: Reference) -> int:
    """Elements of the largest array of a graph on an instance; here products under a sum are made."""
    extents = greatest_extents(g.axes, reference.instance.dims, reference.instance.inputs)
    return max((prod(extents[a] for a in free(t)) for t in walk(*g.terms)), default=1)


@dataclass(frozen=True)
class _Pair:
    """An output of the input graph and the same of a candidate."""

    candidate: Candidate
    origin: Output
    other: Output
    references: References

    @property
    def levels(self) -> int:
        return levels(self.origin.term, self.other.term)

    def doubt(self) -> str:
        """Why different values would prove nothing, or ""."""
        standing = inexact(self.origin.term, self.other.term)
        if standing:
            return f"laws of {', '.join(sorted(standing))} do not hold there"
        own = constants(self.other.term) - constants(self.origin.term)
        return f"the candidate has the constant {min(own)!r}" if own else ""


def _compared(pair: _Pair, chosen: Sequence[Reference], rng: np.random.Generator) -> tuple[str, str]:
    """(a difference, why it proves nothing); ("", reason) where nothing could be compared; ("", "") where all agree."""
    if pair.levels > len(MODULI):
        return "", f"{pair.levels - 1} exponentials in one another, {len(MODULI) - 1} can be followed"
    if pair.origin.term is pair.other.term:
        return "", ""
    valued, different, lost = False, "", False
    for number, reference in enumerate(chosen):
        at = split_instance(pair.candidate, reference, rng)
        for attempt in range(_DRAWS):
            drawn, expected = _expected(pair, number, reference, attempt)
            actual = _stored(pair.other, at.dims, at.inputs, drawn)
            different, known = _different(expected, actual)
            valued, lost = valued or known or not expected.known.size, bool((expected.known & ~actual.known).any())
            if not different and not lost:
                break
        else:
            if not different:
                return "", "it has no value in the fields where the input graph has one"
            return f"output {pair.origin.name} at {different}, {at}: other residues modulo {MODULI[0]}", pair.doubt()
    return "", "" if valued else "it has no value in the fields"


def _expected(pair: _Pair, number: int, reference: Reference, attempt: int) -> tuple[dict[str, list[Array]], _Stored]:
    """Residues of the inputs and of the input graph's output, the same for all candidates."""
    at, count = reference.instance, pair.levels
    g = pair.references.origin

    def make(rng: np.random.Generator) -> tuple[dict[str, list[Array]], _Stored]:
        drawn = {i.name: draw(shape_of(i, at.dims), count, rng) for i in g.inputs if i.dtype in FLOATS}
        return drawn, _stored(pair.origin, at.dims, at.inputs, drawn)

    return pair.references.once(("field", pair.origin.name, number, str(at), count, attempt), make)


def _stored(
    o: Output, dims: Mapping[str, int], inputs: Mapping[str, Array], drawn: Mapping[str, list[Array]]
) -> _Stored:
    space = make_space(axes_in((o.term,), o.indices), inputs, dims)
    memo: dict[Term, Residues] = {}
    found = residues(o.term, space, drawn, memo)
    value = np.where(found.low, MODULI[0], found.parts[0])
    axes = frozenset[Axis]().union(*(axes_of(i) for i in o.indices))
    where = [np.asarray(evaluate(i, space.environment, space.inputs)) for i in o.indices]
    kept, value, lost, *where = np.broadcast_arrays(space.valid_for(axes), value, found.lost, *where)
    table = np.stack([p[kept] for p in where], axis=-1) if where else np.zeros((1, 0), dtype=int)
    order = np.lexsort(table.T[::-1]) if where else np.zeros(1, dtype=int)
    return _Stored(table[order], value[kept].ravel()[order], ~lost[kept].ravel()[order])


def _different(a: _Stored, b: _Stored) -> tuple[str, bool]:
    """A position at which both have values and they differ, or ""; and whether both have one anywhere."""
    if not np.array_equal(a.where, b.where):
        raise GraphError("other positions are stored than in the input graph")
    known = a.known & b.known
    bad = known & (a.value != b.value)
    spot = str(tuple(int(p) for p in a.where[int(np.argmax(bad))])) if bad.any() else ""
    return spot, bool(known.any())
