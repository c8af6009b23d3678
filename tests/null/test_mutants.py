"""Wrong versions of every rule, made from its text: each is caught by the property test or by the prover, or proved.

All of them go to the prover, a sample of each rule to the property test as well; ``cleave rules check --mutants``
tests all.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cleave.rewrite import Rulebook
from cleave.testing import Fate, Mutant, Trial, mutants, try_mutant

RULES = [rule.name for rule in Rulebook.installed().rules]
TESTED = 4
"""Mutants of each rule that the property test sees."""


@pytest.mark.parametrize("name", RULES)
def test_every_mutant_is_caught_or_proved(name: str, rng: np.random.Generator) -> None:
    made = mutants(name)
    tested = {int(n) for n in rng.choice(len(made), min(TESTED, len(made)), replace=False)}
    seed = int(rng.integers(2**32))
    trials = [try_mutant(m, examples=40, seed=seed, test=n in tested) for n, m in enumerate(made)]
    assert not [str(trial) for trial in trials if trial.fate.is_fault]
    fates = Counter(trial.fate for trial in trials)
    assert len(made) >= 5 and fates[Fate.EQUIVALENT] < len(made) / 2, fates


def test_the_mutants_of_a_rule_are_of_every_kind() -> None:
    changes = {m.change for m in mutants("reassoc")}
    assert changes >= {
        "(set-not-contains wr d) dropped",
        "(set-not-contains xd r) dropped",
        "the assumption finite dropped",
        "operands of (Mul p c) exchanged in (= e (Red (Sum) r (Mul p c)))",
        "(Red (Sum) r (Mul w c)) replaced by (Mul w c) on the right",
        "r exchanged for d on the right",
        "Sum exchanged for MaxOf on the right",
        "w negated on the right",
    }
    assert {m.change for m in mutants("telescope")} >= {
        "(= p (Red (MaxOf) (Inner k S) s)) dropped",
        "Inner exchanged for Outer in (set-contains sa (Inner k S))",
        "ExpDiff exchanged for Sub on the right",
    }


def test_a_mutant_is_a_rule_with_one_change() -> None:
    book = Rulebook.installed()
    (dropped,) = [m for m in mutants("factor") if m.change == "(set-not-contains sa k) dropped"]
    changed = dropped.book(book)
    assert changed.rule("factor").conditions == book.rule("factor").conditions[:1]
    assert [r.text for r in changed.without("factor").rules] == [r.text for r in book.without("factor").rules]
    (weaker,) = [m for m in mutants("factor") if m.change == "the assumption finite dropped"]
    assert weaker.book(book).rule("factor").assumes == () and weaker.text == book.rule("factor").text


def trial(name: str, change: str, *, book: Rulebook | None = None, test: bool = True) -> Trial:
    (mutant,) = [m for m in mutants(name, book) if m.change == change]
    return try_mutant(mutant, book, examples=40, test=test)


def test_every_fate_is_told_with_its_reason() -> None:
    wrong = trial("factor", "(set-not-contains sa k) dropped")
    assert wrong.fate is Fate.REFUTED and "refuted; factor: counterexample in " in str(wrong)
    refused = trial("factor", "(set-not-contains sa k) dropped", test=False)
    assert refused.fate is Fate.REFUSED and "not proved; case " in str(refused)
    silent = trial("reassoc", "r exchanged for d in (= wr (whole r))")
    assert silent.fate is Fate.SILENT and silent.fate.is_caught
    right = trial("factor", "operands of (Mul a b) exchanged in (= e (Mul a b))")
    assert right.fate is Fate.EQUIVALENT and str(right).endswith("proved; by normal form in 3 cases of axes")


def test_a_mutant_of_a_rule_that_is_not_proved_must_be_refuted(tmp_path: Path) -> None:
    path = tmp_path / "user.egg"
    path.write_text(
        "(ruleset user)\n\n; user\n;   x  =  y\n; class:   exact\n; assumes: finite\n; source:  none\n; guards:  none\n"
        '(rewrite (Tanh (Neg a)) (Neg (Tanh a)) :ruleset user :name "user")\n'
    )
    book = Rulebook.installed().with_files(path)
    made = {m.change: try_mutant(m, book, examples=40, test=False) for m in mutants("user", book)}
    assert made["(Neg (Tanh a)) replaced by (Tanh a) on the right"].fate is Fate.REFUTED
    weaker = made["the assumption finite dropped"]
    assert weaker.fate is Fate.SURVIVED and weaker.fate.is_fault, weaker


def test_a_text_that_is_no_rule_is_no_mutant() -> None:
    assert "(= e (Mul a b)) dropped" not in {m.change for m in mutants("factor")}  # nothing would define a
    assert all(isinstance(m, Mutant) for m in mutants("factor"))
