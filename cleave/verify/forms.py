"""In which form a candidate is tried at small sizes: as it is, or with its literal extents freed.

no large literal          as it is, on whole outputs
large literals            the generic form on whole outputs; and at the literal sizes at sampled points, in the
                          final test or, where no shape is bound, here
the generic form fails    at the literal sizes: whole where that is small, else at sampled points. What holds there
                          only is said so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from cleave.candidate import Candidate
from cleave.errors import CleaveError
from cleave.ir.generic import literals
from cleave.ir.instance import fixed_dims, footprint, greatest_extents
from cleave.verify.equivalence import check_equivalence
from cleave.verify.field_check import check_field
from cleave.verify.final import check_at_shape
from cleave.verify.fold_check import check_folds
from cleave.verify.generic import generic_candidate
from cleave.verify.instantiate import prime_dims
from cleave.verify.reference import References
from cleave.verify.verdict import Check, Outcome, Step

_WHOLE = 200_000
"""Elements of the largest array up to which graphs with literal extents are evaluated whole."""
_PRIMES = (2, 3, 5, 7, 11, 13)


@dataclass(frozen=True)
class Form:
    """A candidate as it is tried, what its input graph is there, and how the small instantiations ended.

    ``generic``: the form in which folds are tried where the candidate itself has no small instance.
    """

    candidate: Candidate
    references: References
    check: Check
    generic: tuple[Candidate, References] | None = None

    @property
    def sampled(self) -> bool:
        return self.generic is not None

    def folds(self, rng: np.random.Generator) -> Check:
        """A fold says nothing of the input graph: it holds or not, whatever else the generic form does."""
        c, references = self.generic or (self.candidate, self.references)
        return check_folds(c, references.small(), rng)

    def field(self, rng: np.random.Generator) -> Check:
        if self.sampled:
            return Check(Step.FIELD, Outcome.SKIPPED, detail="no instance is small enough")
        return check_field(self.candidate, self.references, rng)

    def medium(self, rng: np.random.Generator) -> Check:
        if self.sampled:
            return Check(Step.MEDIUM, Outcome.SKIPPED, detail="no medium shape is small enough")
        return check_equivalence(self.candidate, Step.MEDIUM, self.references.medium(), rng)


def guarded(step: Step, run: Callable[[], Check]) -> Check:
    """A candidate that breaks the checker itself (an axis that nothing declares) is a row, not a crash."""
    try:
        return run()
    except CleaveError as error:
        return Check(step, Outcome.NOT_EVALUABLE, detail=str(error))
    except MemoryError:
        return Check(step, Outcome.NOT_EVALUABLE, detail="out of memory")


def small_form(c: Candidate, known: References, rng: np.random.Generator, *, bound: bool) -> Form:
    """The small instantiations, in the first form in which they pass; ``bound``: a final test follows."""
    freed = literals(c.origin)
    if not freed:
        return _whole(c, known, rng) if known.small() else _large(c, known, rng)
    generic = generic_candidate(c, freed)
    references = known.once("generic", lambda _: References(generic.origin, known.seed))
    found = _whole(generic, references, rng)
    if found.check.outcome.failed:
        return _literal(c, known, rng, found)
    said = f"with {', '.join(freed.names)} freed"
    if bound:
        return replace(found, check=_with_detail(found.check, said))
    sampled = guarded(Step.SMALL, lambda: _sampled(c, known, rng))
    if sampled.outcome.failed:
        return Form(c, known, sampled, (generic, references))
    also = f"at the literal sizes {_ran(sampled)}"
    return replace(found, check=_with_detail(found.check, f"{said}; {also}"))


def _with_detail(check: Check, said: str) -> Check:
    return replace(check, detail="; ".join(filter(None, (said, check.detail))))


def _ran(check: Check) -> str:
    return f"at {check.instances} samples" if check.outcome is Outcome.PASSED else f"not tried: {check.detail}"


def _large(c: Candidate, known: References, rng: np.random.Generator) -> Form:
    """A graph whose least sizes are large: at sampled points, if it has an instance at all."""
    found = guarded(Step.SMALL, lambda: _sampled(c, known, rng))
    why = known.why_none()
    if found.outcome is Outcome.SKIPPED:
        found = replace(found, outcome=Outcome.NOT_EVALUABLE, detail=why)
    return Form(c, known, _with_detail(found, "" if found.detail == why else why), (c, known))


def _whole(c: Candidate, known: References, rng: np.random.Generator) -> Form:
    return Form(c, known, guarded(Step.SMALL, lambda: check_equivalence(c, Step.SMALL, known.small(), rng)))


def _literal(c: Candidate, known: References, rng: np.random.Generator, generic: Form) -> Form:
    """At the literal sizes alone; what the generic form lacks is said where they pass."""
    dims = {**fixed_dims(c.origin), **next(prime_dims(c.origin, rng, _PRIMES), dict[str, int]())}
    if footprint(c.origin.terms, greatest_extents(c.origin.axes, dims, {})) <= _WHOLE:
        found = _whole(c, known, rng)
    else:
        check = guarded(Step.SMALL, lambda: _sampled(c, known, rng))
        found = Form(c, known, check, (generic.candidate, generic.references))
    if found.check.outcome is Outcome.SKIPPED:  # what is wrong in the generic form is not right unseen
        said = f"{generic.check.detail}; at the literal sizes not tried: {found.check.detail}"
        return replace(found, check=replace(generic.check, detail=said))
    if found.check.outcome is not Outcome.PASSED:
        return found
    said = f"at the literal sizes only: otherwise {generic.check.detail}"
    return replace(found, check=_with_detail(found.check, said))


def _sampled(c: Candidate, known: References, rng: np.random.Generator) -> Check:
    """At the literal sizes, the other dims small, at sampled points."""
    count, worst = 0, 0.0
    assignments = known.once("literal", lambda own: list(islice(prime_dims(c.origin, own, _PRIMES), 2)) or [{}])
    for dims in assignments:
        found = check_at_shape(c, dims, rng, references=known, step=Step.SMALL)
        if found.outcome is not Outcome.PASSED:
            return found
        count, worst = count + found.instances, max(worst, found.worst)
    return Check(Step.SMALL, Outcome.PASSED, count, worst)
