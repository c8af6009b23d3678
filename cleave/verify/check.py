"""All steps of verification for one candidate, in order; the first failure ends it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from cleave.candidate import Candidate
from cleave.config import Config
from cleave.errors import CleaveError, ShapeError
from cleave.ir.bind import broken_constraint
from cleave.ir.dim import check_binding
from cleave.ir.hash import graph_hash
from cleave.ir.index import Pred, indices_of, symbols_of
from cleave.ir.instance import fixed_dims
from cleave.verify.equivalence import check_scope
from cleave.verify.final import check_at_shape
from cleave.verify.forms import guarded, small_form
from cleave.verify.reference import References
from cleave.verify.verdict import Check, Outcome, Step, Verdict

_NO_SHAPE = "no shape is bound"
_NO_KERNEL = "no compiled kernel was run"


def verify(
    candidate: Candidate,
    config: Config | None = None,
    *,
    bind: Mapping[str, int] | None = None,
    references: References | None = None,
) -> Verdict:
    """Check a candidate against its input graph: scope, small and medium instances, folds, and the shape in ``bind``.

    ``references``: values of the input graph that candidates of one search share, so that they are computed once.

    Never raises for a bad candidate: every fault is an outcome. The final test is skipped without ``bind``, and its
    kernel half (``check_executable``) until it is added with ``with_check``; the verdict says so.
    Errors: a dim in ``bind`` that does not exist or can't have that value, and values that break a constraint.
    """
    config = config or Config()
    _check_bind(candidate, bind or {})
    rng = _generator(candidate, config)
    known = References(candidate.origin, config.seed) if references is None else references
    if known.origin != candidate.origin:
        raise CleaveError("references of another input graph", location=candidate.name)
    checks: list[Check] = []
    for check in _ladder(candidate, known, bind, rng):
        checks.append(check)
        if check.outcome.failed:
            break
    return Verdict(candidate.name, tuple(checks))


def _ladder(
    c: Candidate, known: References, bind: Mapping[str, int] | None, rng: np.random.Generator
) -> Iterator[Check]:
    """The checks in order; whoever asks for the next one was content with the last."""
    yield guarded(Step.SCOPE, lambda: check_scope(c))
    form = small_form(c, known, rng, bound=bind is not None)
    yield form.check
    yield guarded(Step.FIELD, lambda: form.field(rng))
    yield guarded(Step.FOLDS, lambda: form.folds(rng))
    yield guarded(Step.MEDIUM, lambda: form.medium(rng))
    yield guarded(Step.GRAPH_HALF, lambda: _at_shape(c, bind, known, rng))
    yield Check(Step.KERNEL_HALF, Outcome.SKIPPED, detail=_NO_KERNEL)


def _check_bind(candidate: Candidate, bind: Mapping[str, int]) -> None:
    known = {s.name: s for g in (candidate.graph, candidate.origin) for s in g.symbols}
    for name, value in bind.items():
        if name not in known:
            raise ShapeError(f"no dim {name!r}: there are {', '.join(sorted(known))}", location=candidate.name)
        check_binding(known[name], value)
    own = {n for s in candidate.splits for n in (s.count, s.chunk)}
    split = [p for p in candidate.graph.constraints if _symbols(p) & own]
    bound = {**fixed_dims(candidate.origin), **bind}
    broken = broken_constraint(
        [p for p in (*candidate.origin.constraints, *split) if _symbols(p) <= bound.keys()], bound
    )
    if broken is not None:
        raise ShapeError("{} does not hold for {}".format(*broken), location=candidate.name)


def _symbols(p: Pred) -> set[str]:
    return {s.name for i in indices_of(p) for s in symbols_of(i)}


def _at_shape(
    candidate: Candidate, bind: Mapping[str, int] | None, references: References, rng: np.random.Generator
) -> Check:
    if bind is None:
        return Check(Step.GRAPH_HALF, Outcome.SKIPPED, detail=_NO_SHAPE)
    return check_at_shape(candidate, bind, rng, references=references)


def _generator(candidate: Candidate, config: Config) -> np.random.Generator:
    """Fresh data a candidate, the same again for the same seed."""
    return np.random.default_rng([config.seed, int(graph_hash(candidate.graph)[:12], 16)])
