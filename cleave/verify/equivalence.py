"""A candidate's graph against the input graph in float64, on drawn instances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from cleave.candidate import Candidate
from cleave.errors import CleaveError
from cleave.ir.axis import Axis
from cleave.ir.graph import free
from cleave.ir.index import axes_of
from cleave.ir.instance import Instance
from cleave.ir.interp import interpret
from cleave.verify.instantiate import Array, split_values
from cleave.verify.metric import ALGEBRA, DECIDED, MAGNITUDE, Comparison, compare
from cleave.verify.reference import Reference
from cleave.verify.steps import steps_of_sums
from cleave.verify.verdict import Check, Outcome, Step

_NO_VALUE = "the input graph has no value on any instance that was drawn: NaN everywhere"
_EMPTY = "no output has an element"
_STEPS = "a step function ({}) follows a reduction: either side of a jump is an honest rounding"


# ---- scope


def check_scope(c: Candidate) -> Check:
    """Inputs, outputs and dims are those of the input graph (plus counts and chunks of splits); no axis is loose."""
    fault = _scope_fault(c)
    return Check(Step.SCOPE, Outcome.OUT_OF_SCOPE if fault else Outcome.PASSED, 0, 0.0, fault)


def _scope_fault(c: Candidate) -> str:
    for i in c.graph.inputs:
        if i not in c.origin.inputs:
            return f"input {i.name} is not one of the input graph's"
    if [(o.name, o.dtype, o.shape) for o in c.graph.outputs] != [(o.name, o.dtype, o.shape) for o in c.origin.outputs]:
        return "outputs differ in name, dtype or shape from the input graph's"
    for o in c.graph.outputs:
        loose = free(o.term) - frozenset[Axis]().union(*(axes_of(i) for i in o.indices))
        if loose:
            return f"output {o.name} depends on {', '.join(sorted(a.name for a in loose))}"
    known = {s.name for s in c.origin.symbols} | {n for s in c.splits for n in (s.count, s.chunk)}
    unknown = sorted({s.name for s in c.graph.symbols} - known)
    return f"dim {unknown[0]} is neither the input graph's nor a split's" if unknown else ""


# ---- comparison


def check_equivalence(c: Candidate, step: Step, references: Iterable[Reference], rng: np.random.Generator) -> Check:
    """Compare on every instance; the first difference ends the step and is its detail."""
    count, worst, valued, empty, decided = 0, 0.0, False, True, set[str]()
    for reference in references:
        if not reference.regular and "finite" in c.assumptions:
            continue  # the input graph itself leaves the finite numbers here (1 / 0 on an empty axis)
        found = _compare_at(c, reference, rng)
        if isinstance(found, str):
            return Check(step, Outcome.NOT_EVALUABLE, count, worst, found)
        name, comparison, where = found
        count, worst = count + 1, max(worst, comparison.worst)
        valued = valued or any(not np.isnan(v).all() for v in reference.values.values() if v.size)
        empty = empty and not any(v.size for v in reference.values.values())
        decided |= {o.name for o in c.origin.outputs if _decides(o.name, reference)}
        if not comparison.passed:
            return Check(step, comparison.outcome, count, worst, f"{name} at {where}: {comparison}")
    if count and empty:
        return Check(step, Outcome.PASSED, count, worst, _EMPTY)
    if not valued:
        return Check(step, Outcome.NOT_EVALUABLE, count, worst, _NO_VALUE)
    return _undecided(c, decided, step, count, worst)


def _undecided(c: Candidate, decided: set[str], step: Step, count: int, worst: float) -> Check:
    """Passed, unless all of an output lies at jumps of step functions: then its values say nothing."""
    steps = steps_of_sums(*c.origin.terms)
    said = _STEPS.format(", ".join(steps)) if steps else ""
    left = [o.name for o in c.origin.outputs if o.name not in decided]
    if not left or c.graph == c.origin:
        return Check(step, Outcome.PASSED, count, worst, said)
    return Check(step, Outcome.UNDECIDED, count, worst, f"{said}; all of output {left[0]} lies at jumps")


def _decides(name: str, reference: Reference) -> bool:
    """Whether some element of an output is away from the jumps of its step functions."""
    plain = reference.values.get(DECIDED.format(name))
    if plain is None:
        return True
    return bool((plain == reference.values[MAGNITUDE.format(name)]).any())


def split_instance(c: Candidate, reference: Reference, rng: np.random.Generator) -> Instance:
    """The instance with counts and chunk lengths of the candidate's splits."""
    at = reference.instance
    return replace(at, dims={**at.dims, **split_values(c, reference.sizes, at.inputs, rng)})


def _compare_at(c: Candidate, reference: Reference, rng: np.random.Generator) -> tuple[str, Comparison, str] | str:
    """(output, comparison, instance) of the worst output; text where the candidate has no value."""
    at = split_instance(c, reference, rng)
    known = {x.name for x in c.graph.symbols}
    try:
        # The very same graph has the very same values.
        same = c.graph == c.origin
        given = {n: v for n, v in at.dims.items() if n in known}
        actual = reference.values if same else interpret(c.graph, at.inputs, given)
    except CleaveError as error:
        return f"the candidate has no value at {at}: {error}"
    compared = [(o.name, _compared(o.name, actual, reference)) for o in c.origin.outputs]
    name, comparison = max(compared, key=lambda pair: (not pair[1].passed, pair[1].worst))
    return name, comparison, str(at)


def _compared(name: str, actual: dict[str, Array], reference: Reference) -> Comparison:
    return compare(actual[name], reference.values[name], reference.values[MAGNITUDE.format(name)], ALGEBRA)
