"""Property tests of rewrite rules, made from the rulebook.

A term is built from the rule's left-hand side, saturated for a few rounds, and every e-node is evaluated in float64
and compared with its class. Counts that do not divide, empty chunks, ragged extents and, for rules that do not assume
finite values, -inf are among the instances. A rule that never fired was not tested, so that fails as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from cleave.errors import RuleError
from cleave.rewrite.parser import Session
from cleave.rewrite.rule import Rule
from cleave.rewrite.rulebook import Rulebook
from cleave.rewrite.sexp import Sexp, show
from cleave.testing.egraph_check import Fault, audit, classes_of
from cleave.testing.meaning import Meaning
from cleave.testing.patterns import programs, sizes, terms_from
from cleave.testing.world import OWNER, Numbers, Sizes, axis, base_of, dimensions, facts, pieces

MATCH_LIMIT = 400
"""A round with more matches is the last: small graphs show a wrong rule as well as large ones."""


class Outcome(StrEnum):
    SOUND = "no counterexample"
    COUNTEREXAMPLE = "counterexample"
    NEVER_FIRED = "never fired"


@dataclass(frozen=True, slots=True)
class Counterexample:
    term: Sexp
    sizes: Sizes
    fault: Fault

    def __str__(self) -> str:
        return f"{self.fault}, in {show(self.term)} at {self.sizes}"


@dataclass(frozen=True, slots=True)
class RuleReport:
    """What a property test saw: instances evaluated, matches of each rule, e-nodes compared."""

    subject: str
    outcome: Outcome
    instances: int
    matches: Counter[str]
    nodes: int
    counterexample: Counterexample | None = None

    def __str__(self) -> str:
        found = f": {self.counterexample}" if self.counterexample else ""
        fired = sum(self.matches.values())
        seen = f"{self.instances} instances, {fired} matches, {self.nodes} e-nodes"
        return f"{self.subject}: {self.outcome} in {seen}{found}"


def check_rule(
    rule: Rule | str, book: Rulebook | None = None, *, examples: int = 60, rounds: int = 3, seed: int | None = None
) -> RuleReport:
    """Raise RuleError if the rule is wrong, with a small counterexample, or never fired; else say what was tested.

    ``rule``: a rule of ``book`` (default: the installed rules), by itself or by name. Without a ``seed`` the instances
    are the same in every run.
    """
    report = examine_rule(rule, book, examples=examples, rounds=rounds, seed=seed)
    if report.outcome is not Outcome.SOUND:
        raise RuleError(str(report), location=(book or Rulebook.installed()).rule(report.subject).location)
    return report


def examine_rule(
    rule: Rule | str,
    book: Rulebook | None = None,
    *,
    examples: int = 60,
    rounds: int = 3,
    seed: int | None = None,
    shrink: bool = True,
) -> RuleReport:
    """As ``check_rule``, with the outcome as data. The rule runs alone."""
    everything = book or Rulebook.installed()
    found = everything.rule(rule if isinstance(rule, str) else rule.name)
    infinite = "finite" not in found.assumes
    test = _Test(everything.only(found.name), rounds, infinite)
    test.run(terms_from(found, masked=infinite), _settings(examples, seed, shrink=shrink), seed)
    return test.report(found.name, must_fire=(found.name,))


def examine_rulebook(
    book: Rulebook, *, examples: int = 100, rounds: int = 5, seed: int | None = None, shrink: bool = True
) -> RuleReport:
    """All rules of a book together, on masked softmax programs and on instances of every left-hand side."""
    seeds = [terms_from(rule, masked=False) for rule in book.rules]
    test = _Test(book, rounds, infinite=True)
    test.run(st.one_of(programs(), programs(), *seeds), _settings(examples, seed, shrink=shrink), seed)
    return test.report("rulebook", must_fire=())


def _settings(examples: int, seed: int | None, *, shrink: bool) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=seed is None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=(HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large),
    )


@dataclass
class _Test:
    book: Rulebook
    rounds: int
    infinite: bool  # whether the rule claims to hold for -inf as well
    matches: Counter[str] = field(default_factory=Counter[str])
    instances: int = 0
    nodes: int = 0
    counterexample: Counterexample | None = None

    def __post_init__(self) -> None:
        self.signature = self.book.signature
        families = " ".join(f"(run {family})" for family in self.book.families)
        self.schedule = f"(seq (saturate (run analysis)) {families} (saturate (run analysis)))"

    def run(self, terms: st.SearchStrategy[Sexp], how: settings, seed: int | None) -> None:
        test: Callable[[], None] = how(given(terms, sizes(), st.integers(0, 2**16))(self._instance))
        with Session(self.book.text() + facts()) as self.session, suppress(_Refuted, Unsatisfiable):
            (test if seed is None else hypothesis.seed(seed)(test))()

    def report(self, subject: str, must_fire: tuple[str, ...]) -> RuleReport:
        outcome = self._outcome(must_fire)
        return RuleReport(subject, outcome, self.instances, self.matches, self.nodes, self.counterexample)

    def _outcome(self, must_fire: tuple[str, ...]) -> Outcome:
        if self.counterexample is not None:
            return Outcome.COUNTEREXAMPLE
        return Outcome.SOUND if all(self.matches[name] for name in must_fire) else Outcome.NEVER_FIRED

    def _instance(self, term: Sexp, at: Sizes, seed: int) -> None:
        meaning = Meaning(Numbers(at, seed))
        assume(is_program(term, meaning) and (self.infinite or is_finite(meaning)))
        self.session.push(f"(let $root {show(term)})")
        try:
            self._saturate()
            checked = audit(classes_of(self.session.nodes(), self.signature), meaning)
        finally:
            self.session.pop()
        self.instances += 1
        self.nodes += checked.nodes
        if checked.faults:
            self.counterexample = Counterexample(term, at, checked.faults[0])
            raise _Refuted

    def _saturate(self) -> None:
        for _ in range(self.rounds):
            found = self.session.run(self.schedule)
            self.matches.update(found)
            if sum(found.values()) > MATCH_LIMIT:
                return


class _Refuted(Exception):
    """Ends one property test; never leaves this module."""


def is_program(term: Sexp, meaning: Meaning) -> bool:
    """Whether a term could be a graph's: a number everywhere, and no owner reduced before the ragged axis it owns.

    +inf is no value, but for the minimum over nothing.
    """
    meaning.value(term)
    return all(_is_number(part, meaning) and _keeps_owned(part, meaning) for part in meaning.memo)


def _is_number(term: Sexp, meaning: Meaning) -> bool:
    value = meaning.at_positions(meaning.memo[term])
    return not np.isnan(value).any() and (term[0] == "Red" or not np.isposinf(value).any())


def _keeps_owned(term: Sexp, meaning: Meaning) -> bool:
    if term[0] != "Red":
        return True
    ax, shape = term[2], meaning.memo[term[3]].shape
    owned = [pieces(base_of(ax))[1]] if ax[0] == "Outer" else [axis(u) for u, b in OWNER.items() if ax == axis(b)]
    return all(shape[d] == 1 for piece in owned for d in dimensions(piece))


def is_finite(meaning: Meaning) -> bool:
    return all(np.isfinite(meaning.at_positions(value)).all() for value in meaning.memo.values())
