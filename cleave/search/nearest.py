"""What stood between two terms that a rulebook did not find equal: a rule that is off, or a guard of a rule.

Each guess is tried by saturating once more: with every rule on, then with each guard of each rule dropped in turn (or
all its guards that test one thing, such as "depends on weights only" of two terms). A rule without its guard is wrong
in general, so its steps are evaluated: what is given says whether the very step that was missing is false, or true here
although the rule can't know it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cleave.candidate import Step
from cleave.config import Config, SearchLimits
from cleave.errors import CleaveError
from cleave.rewrite.relax import relaxations
from cleave.rewrite.rule import Signature
from cleave.rewrite.rulebook import Rulebook
from cleave.rewrite.sexp import Sexp, show
from cleave.search import engine
from cleave.search.egraph import EGraph, read_snapshot
from cleave.search.encode import Encoding
from cleave.search.saturate import request
from cleave.search.select import refused_for
from cleave.search.small import small_form
from cleave.search.steps import make_explainer
from cleave.search.term import ETerm

Goal = tuple[str, ETerm, ETerm]

_SECONDS = 20.0
"""Of all attempts together."""
_LIMITS = SearchLimits(rounds=12, nodes=5000, seconds=2.0)
_MOST = 3


@dataclass(frozen=True)
class Near:
    """A rule that would have made the terms equal, were it not off (``why`` says what keeps it off), or were it not
    for a guard (``why`` states it); and the first step that it would have made, if that was found.

    ``holds``: whether both sides of that step have one value on a small instance.
    """

    kind: Literal["off", "guard"]
    rule: str
    why: str
    step: Step | None = None
    holds: bool | None = None


@dataclass(frozen=True)
class _Attempt:
    kind: Literal["off", "guard"]
    rule: str
    why: str
    book: Rulebook


def nearest(
    encoding: Encoding,
    goals: Sequence[Goal],
    book: Rulebook,
    everything: Rulebook,
    config: Config,
    operators: frozenset[str] | None = None,
) -> tuple[Near, ...]:
    """Rules that are off if switching them on is enough, else guards of which dropping one is enough; best first.

    ``operators`` are the constructors of the saturated e-graph: without its guard too a rule first matches there.
    """
    off = [r.name for r in everything.rules if r.name not in {own.name for own in book.rules}]
    deadline = time.monotonic() + _SECONDS
    if off:
        attempts = [_Attempt("off", "", "", everything)]
        for attempt, graph, _ in _met(encoding, goals, attempts, config, deadline):
            return _switched_on(encoding, goals, graph, attempt.book, book, config)
    found = sorted(_met(encoding, goals, list(_without_a_guard(book, operators)), config, deadline), key=lambda f: f[2])
    return tuple(_near(encoding, goals, attempt, graph) for attempt, graph, _ in found[:_MOST])


def _without_a_guard(book: Rulebook, operators: frozenset[str] | None) -> Iterator[_Attempt]:
    for rule in book.rules:
        if operators is not None and not _constructors(rule.lhs, book.signature) <= operators:
            continue
        for relaxed in relaxations(rule, book.signature):
            try:
                yield _Attempt("guard", rule.name, "; ".join(relaxed.guards), book.with_text(rule.name, relaxed.text))
            except CleaveError:
                continue  # a guard that is no part of the command that can be left out


def _constructors(pattern: Sexp, signature: Signature) -> set[str]:
    """Those of terms in a pattern."""
    if isinstance(pattern, str) or not pattern:
        return set()
    head = show(pattern[0])
    own = {head} if signature.get(head, ("",))[0] == "E" else set[str]()
    return own.union(*(_constructors(part, signature) for part in pattern[1:]))


def _met(
    encoding: Encoding, goals: Sequence[Goal], attempts: Sequence[_Attempt], config: Config, deadline: float
) -> Iterator[tuple[_Attempt, EGraph, tuple[int, int]]]:
    """Attempts that make the goals equal, with the e-graph and its size: rounds and e-nodes."""
    pairs = [(a, b) for _, a, b in goals]
    limits = replace(_LIMITS, nodes=min(_LIMITS.nodes, config.limits.nodes))
    requests = [request(encoding, attempt.book, limits, pairs) for attempt in attempts]
    snapshot, size = b"", (0, 0)
    messages = engine.saturate_each(requests, isolate=config.isolate)
    try:
        for number, message in messages:
            match message:
                case engine.Round():
                    size = (message.number, message.nodes)
                case engine.Snapshot():
                    snapshot = message.graph
                case engine.Ended(engine.Stop.EQUAL):
                    book = attempts[number].book
                    yield attempts[number], read_snapshot(snapshot, book.signature, encoding.roots), size
                case _:
                    pass
            if time.monotonic() > deadline:
                return
    finally:
        messages.close()


# ---- the steps


def _switched_on(
    encoding: Encoding, goals: Sequence[Goal], graph: EGraph, everything: Rulebook, book: Rulebook, config: Config
) -> tuple[Near, ...]:
    """The rules of the derivation that are off, with the reason."""
    on = {r.name for r in book.rules}
    explainer = make_explainer(encoding, graph, everything, small_form(encoding.graph))
    derived = explainer.explain(goals)
    out: list[Near] = []
    for name in dict.fromkeys(s.rule for s in derived.steps if s.rule not in on):
        step = next(s for s in derived.steps if s.rule == name)
        why = ", ".join(refused_for(everything.rule(name), config)) or "switched off"
        out.append(Near("off", name, why, step, _holds(step)))
    return tuple(out)


def _near(encoding: Encoding, goals: Sequence[Goal], attempt: _Attempt, graph: EGraph) -> Near:
    explainer = make_explainer(encoding, graph, attempt.book, small_form(encoding.graph))
    derived = explainer.explain(goals)
    steps = [s for s in derived.steps if s.rule == attempt.rule]
    step = next(iter([s for s in steps if s.is_false] or steps), None)
    return Near("guard", attempt.rule, attempt.why, step, None if step is None else _holds(step))


def _holds(step: Step) -> bool | None:
    return None if step.check is None else not step.is_false
