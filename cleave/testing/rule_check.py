"""Property tests of rewrite rules, made from the rulebook.

A term is built from the rule's left-hand side, saturated for a few rounds, and every e-node is evaluated in float64
and compared with its class: with extents that are all different and counts that do not divide, and once more with axes
of equal extents or of one position or none, and huge values at times. Zeros, negative values, empty and ragged chunks
and, for rules that do not assume finite values, -inf are among them; of the others only the whole may be -inf, such as
the maximum over nothing. A rule that never fired was not tested, so that
fails as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from zlib import crc32

import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from cleave.errors import RuleError
from cleave.rewrite.parser import Session
from cleave.rewrite.rule import Exactness, Rule
from cleave.rewrite.rulebook import Rulebook
from cleave.rewrite.sexp import Sexp, show
from cleave.testing.egraph_check import Classes, Fault, audit, classes_of
from cleave.testing.meaning import Meaning
from cleave.testing.patterns import programs, sizes, terms_from
from cleave.testing.traits import Trait, folded, traits
from cleave.testing.world import OWNER, Numbers, Sizes, axis, base_of, dimensions, facts, pieces, resized

MATCH_LIMIT = 400
"""A round with more matches is the last: small graphs show a wrong rule as well as large ones."""
HUGE = 0.4
"""Share of huge values among worlds with odd sizes."""


class Outcome(StrEnum):
    SOUND = "no counterexample"
    COUNTEREXAMPLE = "counterexample"
    NEVER_FIRED = "never fired"


@dataclass(frozen=True, slots=True)
class Counterexample:
    term: Sexp
    numbers: Numbers
    fault: Fault

    def __str__(self) -> str:
        values = ", values up to 1e8" if self.numbers.is_huge else ""
        return f"{self.fault}, in {show(self.term)} at {self.numbers.sizes}{values}"


@dataclass(frozen=True, slots=True)
class RuleReport:
    """What a property test saw: instances evaluated, matches of each rule, e-nodes compared, instances of each kind."""

    subject: str
    outcome: Outcome
    instances: int
    matches: Counter[str]
    nodes: int
    counterexample: Counterexample | None = None
    traits: Counter[Trait] = field(default_factory=Counter[Trait])

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
    test = _Test(everything.only(found.name), rounds)
    test.run([_Source(terms_from(found, masked=infinite), examples, infinite)], seed, shrink=shrink)
    return test.report(found.name, must_fire=(found.name,))


def examine_rulebook(
    book: Rulebook, *, examples: int = 100, rounds: int = 5, seed: int | None = None, shrink: bool = True
) -> RuleReport:
    """All rules of a book together, on masked softmax programs and on instances of every left-hand side.

    Half of the examples are programs, a few are instances of each rule, so that each fires among the others.
    """
    each = -(-examples // (2 * len(book.rules))) if book.rules else 0
    instances = [_Source(terms_from(rule, masked=False), each, infinite=False) for rule in book.rules]
    test = _Test(book, rounds)
    test.run([_Source(programs(), examples // 2, infinite=True), *instances], seed, shrink=shrink)
    return test.report("rulebook", must_fire=tuple(rule.name for rule in book.rules))


def _settings(examples: int, *, shrink: bool) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=(HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large),
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """Where terms come from, how many of them, and whether values of -inf may be in them."""

    terms: st.SearchStrategy[Sexp]
    examples: int
    infinite: bool

    def has(self, term: Sexp, meaning: Meaning) -> bool:
        return is_program(term, meaning) and (self.infinite or is_finite(meaning, below=term))


@dataclass
class _Test:
    book: Rulebook
    rounds: int
    matches: Counter[str] = field(default_factory=Counter[str])
    traits: Counter[Trait] = field(default_factory=Counter[Trait])
    instances: int = 0
    nodes: int = 0
    counterexample: Counterexample | None = None

    def __post_init__(self) -> None:
        self.signature = self.book.signature
        # rules of that class may overflow, and say so
        self.may_be_huge = all(rule.exactness is not Exactness.UNSAFE for rule in self.book.rules)
        families = " ".join(f"(run {family})" for family in self.book.families)
        self.schedule = f"(seq (saturate (run analysis)) {families} (saturate (run analysis)))"

    def run(self, sources: Sequence[_Source], seed: int | None, *, shrink: bool) -> None:
        with Session(self.book.text() + facts()) as self.session, suppress(_Refuted):
            for source in sources:
                self._test(source, _settings(source.examples, shrink=shrink), seed)

    def _test(self, source: _Source, how: settings, seed: int | None) -> None:
        def instance(term: Sexp, at: Sizes, numbers: int) -> None:
            self._instance(term, self._worlds(term, at, numbers), source)

        test: Callable[[], None] = how(given(source.terms, sizes(), st.integers(0, 2**16))(instance))
        with suppress(Unsatisfiable):
            (test if seed is None else hypothesis.seed(seed)(test))()

    def report(self, subject: str, must_fire: tuple[str, ...]) -> RuleReport:
        outcome = self._outcome(must_fire)
        return RuleReport(subject, outcome, self.instances, self.matches, self.nodes, self.counterexample, self.traits)

    def _outcome(self, must_fire: tuple[str, ...]) -> Outcome:
        if self.counterexample is not None:
            return Outcome.COUNTEREXAMPLE
        return Outcome.SOUND if all(self.matches[name] for name in must_fire) else Outcome.NEVER_FIRED

    def _worlds(self, term: Sexp, at: Sizes, seed: int) -> tuple[Numbers, Numbers]:
        """Numbers for sizes that are mostly different, and for sizes and values that are out of the way."""
        # drawn from all of the instance: of numbers alone Hypothesis likes some better than others
        rng = np.random.default_rng([seed, crc32(f"{show(term)} {at}".encode())])
        is_huge = self.may_be_huge and bool(rng.random() < HUGE)
        return Numbers(at, seed), Numbers(resized(at, folded(term), rng), int(rng.integers(2**16)), is_huge)

    def _instance(self, term: Sexp, worlds: tuple[Numbers, Numbers], source: _Source) -> None:
        usual, odd = map(Meaning, worlds)
        assume(source.has(term, usual))
        classes = self._saturated(term)
        self.instances += 1
        self._compare(term, classes, worlds[0], usual)
        if source.has(term, odd):
            self._compare(term, classes, worlds[1], odd)

    def _saturated(self, term: Sexp) -> Classes:
        self.session.push(f"(let $root {show(term)})")
        try:
            self._saturate()
            return classes_of(self.session.nodes(), self.signature)
        finally:
            self.session.pop()

    def _compare(self, term: Sexp, classes: Classes, numbers: Numbers, meaning: Meaning) -> None:
        checked = audit(classes, meaning, is_huge=numbers.is_huge)
        self.nodes += checked.nodes
        self.traits.update(traits(term, numbers, meaning))
        if checked.faults:
            self.counterexample = Counterexample(term, numbers, checked.faults[0])
            raise _Refuted

    def _saturate(self) -> None:
        for _ in range(self.rounds):
            found = self.session.run(self.schedule)
            self.matches.update(found)
            if sum(found.values()) > MATCH_LIMIT:
                return


POSITIVE = ("Exp", "Sigmoid")
"""Of finite numbers they are not 0 over the reals; below -745 a float64 says so. ``ExpDiff`` is there to be 0."""


INVERSES = ("Recip", "Rsqrt")
"""Of a zero they are no number, and of which infinity they are is the sign of a zero: none of a real number's."""


class _Refuted(Exception):
    """Ends one property test; never leaves this module."""


def is_program(term: Sexp, meaning: Meaning) -> bool:
    """Whether a term could be a graph's: a number everywhere, and no owner reduced before the ragged axis it owns.

    +inf is no value, but for the minimum over nothing, and 0 is none of an exponential of a finite number.
    """
    meaning.value(term)
    return all(_is_number(part, meaning) and _keeps_owned(part, meaning) for part in meaning.memo)


def _is_number(term: Sexp, meaning: Meaning) -> bool:
    value = meaning.at_positions(meaning.memo[term])
    if np.isnan(value).any() or (term[0] != "Red" and np.isposinf(value).any()):
        return False
    if term[0] in INVERSES and np.isneginf(value).any():
        return False
    return term[0] not in POSITIVE or bool(value[np.isfinite(meaning.at_positions(meaning.memo[term[1]]))].all())


def _keeps_owned(term: Sexp, meaning: Meaning) -> bool:
    if term[0] != "Red":
        return True
    ax, shape = term[2], meaning.memo[term[3]].shape
    owned = [pieces(base_of(ax))[1]] if ax[0] == "Outer" else [axis(u) for u, b in OWNER.items() if ax == axis(b)]
    return all(shape[d] == 1 for piece in owned for d in dimensions(piece))


def is_finite(meaning: Meaning, below: Sexp) -> bool:
    """Whether all that a term is made of is finite. It itself may be -inf: a maximum over nothing is."""
    inside = (value for part, value in meaning.memo.items() if part != below)
    return all(bool(np.isfinite(meaning.at_positions(value)).all()) for value in inside)
