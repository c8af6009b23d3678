"""Property tests generated from the rulebook, and wrong rules that they must catch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from cleave.errors import RuleError
from cleave.rewrite import Exactness, Rule, Rulebook
from cleave.rewrite.sexp import Sexp, atoms
from cleave.testing import Outcome, check_rule, examine_rule, examine_rulebook
from cleave.testing.meaning import Meaning, Values
from cleave.testing.rule_check import is_program
from cleave.testing.traits import Trait

RULES = [rule.name for rule in Rulebook.installed().rules]
LEAST_MATCHES = 40
ROUNDS = 3
"""Draws until every trait was seen often enough: some are rare, and one round of a few dozen may miss them."""


@pytest.mark.parametrize("name", RULES)
def test_every_rule_holds_and_fires(name: str, rng: np.random.Generator) -> None:
    wanted = dict(least_seen(Rulebook.installed().rule(name)))
    seen, missing = Counter[Trait](), wanted
    for _ in range(ROUNDS):
        report = check_rule(name, seed=int(rng.integers(2**32)))
        assert report.matches[name] >= LEAST_MATCHES, report
        seen.update(report.traits)
        missing = {trait: seen[trait] for trait, least in wanted.items() if seen[trait] < least}
        if not missing:
            break
    assert not missing


def least_seen(rule: Rule) -> Iterator[tuple[Trait, int]]:
    """What instances of a rule must have been like, and how many of them."""
    yield from ((Trait.DIFFERENT, 10), (Trait.UNEVEN, 5), (Trait.EQUAL, 2), (Trait.NEGATIVE, 10))
    operations = set(atoms(rule.lhs))
    if "Red" in operations or any(fact[0] == "Want" for fact in rule.conditions):
        yield from ((Trait.SINGLE, 2), (Trait.EMPTY, 2))
    if operations.isdisjoint(("Recip", "Rsqrt")):  # they have no value at 0
        yield Trait.ZERO, 2
    if rule.exactness is not Exactness.UNSAFE:  # which may overflow
        yield Trait.HUGE, 1
    if "finite" not in rule.assumes and operations.isdisjoint(("Mul", "Rsqrt")):  # most infinite values have no product
        yield Trait.INFINITE, 2


@pytest.mark.parametrize("book", [Rulebook.default(), Rulebook.installed()], ids=["default", "installed"])
def test_the_rules_hold_together(book: Rulebook, rng: np.random.Generator) -> None:
    report = examine_rulebook(book, examples=240, seed=int(rng.integers(2**32)))
    assert report.outcome is Outcome.SOUND, report
    assert report.matches["telescope"] >= 60, report  # masked softmax, split into chunks, was among them


# title: (rule, text of it, replacement); each result is a wrong rule
MUTANTS = {
    "telescope with the wrong sign": ("telescope", "(ExpDiff p m)", "(ExpDiff m p)"),
    "telescope by what is not the chunk's maximum": ("telescope", "(= p (Red (MaxOf) (Inner k S) s))", ""),
    "telescope of what is the same in every chunk": (
        "telescope",
        "(set-contains sa (Outer k S)) (set-contains sa (Inner k S))",
        "",
    ),
    "telescope of what is the same within a chunk": ("telescope", "(set-contains sa (Inner k S))", ""),
    "telescope that forgets the rescale": ("telescope", "(Mul (ExpDiff s p) (ExpDiff p m))", "(ExpDiff s p)"),
    "factor through a maximum": ("factor", "(= r (Red (Sum) k e))", "(= r (Red (MaxOf) k e))"),
    "factor without its guard": ("factor", "(set-not-contains sa k)", ""),
    "factor with its guard on the wrong operand": ("factor", "(axes a)", "(axes b)"),
    "split without the reduction inside chunks": ("split-red", "(Red op (Inner k S) a)", "a"),
    "split that sums the chunks of any monoid": ("split-red", "(union r (Red op ", "(union r (Red (Sum) "),
    "reassoc with d in c": ("reassoc", "(set-not-contains sc d)", ""),
    "reassoc with r in q": ("reassoc", "(set-not-contains sq r)", ""),
    "reassoc of an axis and a piece of it": ("reassoc", "(set-not-contains wr d)", ""),
    "reassoc past a ragged extent": ("reassoc", "(set-not-contains xd r)", ""),
    "sum of a constant without the extent": ("sum-const", "(Mul (Size k) a)", "a"),
    "sum of a constant without its guard": ("sum-const", "(set-not-contains sa k)", ""),
    "maximum shifted by what varies": ("max-shift", "(set-not-contains sc k)", ""),
    "maximum that forgets the shift": ("max-shift", "(Add (Red (MaxOf) k a) c)", "(Red (MaxOf) k a)"),
    "minimum shifted as a maximum": ("max-shift", "(= r (Red (MaxOf) k", "(= r (Red (MinOf) k"),
    "sum of a difference with the wrong weight": (
        "linear-sub",
        "(Sub (Red (Sum) k (Mul a w))",
        "(Sub (Red (Sum) k (Mul b a))",
    ),
    "sum of a sum without its second part": ("linear-sum", "(Red (Sum) k b)", "b"),
    "square of a difference, half the cross term": ("square-diff", "(Const -2.0)", "(Const -1.0)"),
    "centred sum with the wrong sign": ("centred-sum", "(Const -1.0)", "(Const 1.0)"),
    "sums over different axes merged": ("merge-sums", "(Red (Sum) k b))", "(Red (Sum) j b))"),
    "a sum and a maximum merged": ("merge-sums", "(Add (Red (Sum) k a)", "(Add (Red (MaxOf) k a)"),
    "param-fold that drops a factor": ("param-fold", "(Mul b c)", "b"),
    "bring-out that drops a factor": ("bring-out", "(Mul a (Mul b c))", "(Mul a c)"),
    "distribute that forgets a factor": ("distribute", "(Mul b c)", "b"),
    "distribute over a product": ("distribute", "(= x (Add a b))", "(= x (Mul a b))"),
    "distribute a maximum": ("distribute", "(= x (Add a b))", "(= x (Maximum a b))"),
    "square of a sum": ("square-mul", "(= x (Mul a b))", "(= x (Add a b))"),
    "square of one factor": ("square-mul", "(Mul (Sq a) (Sq b))", "(Mul (Sq a) b)"),
    "magnitude of one factor": ("abs-mul", "(Mul (Abs a) (Abs b))", "(Mul (Abs a) b)"),
    "magnitude of a sum": ("abs-mul", "(Abs (Mul a b)) (Mul", "(Abs (Add a b)) (Add"),
    "magnitude of a root": ("abs-rsqrt", "(Abs (Rsqrt a)) (Rsqrt a)", "(Abs (Log a)) (Log a)"),
    "reciprocal of a sum": ("recip-mul", "(Recip0 (Mul a b)) (Mul", "(Recip0 (Add a b)) (Add"),
    "reciprocal that keeps a factor": ("recip-mul", "(Recip0 b))", "b)"),
    "maximum scaled by what may be negative": ("max-scale", "(= c (Rsqrt x))", "(= c (Neg x))"),
    "maximum scaled by what varies": ("max-scale", "(set-not-contains sx k)", ""),
    "minimum scaled as a maximum": ("max-scale", "(= r (Red (MaxOf) k e))", "(= r (Red (MinOf) k e))"),
    "a sum and a maximum change places": ("exchange", "(= p (Red op d a))", "(= p (Red (Sum) d a))"),
    "exchange of an axis and a piece of it": ("exchange", "(set-not-contains wr d)", ""),
    "exchange past a ragged extent": ("exchange", "(set-not-contains xd r)", ""),
    "a common factor of different terms": ("collect", "(= q (Mul a c))", "(= q (Mul d c))"),
    "a common factor counted once": ("collect", "(Mul a (Add b c))", "(Add (Mul a b) c)"),
    "exponential of a difference the other way round": ("exp-diff", "(ExpDiff a b)", "(ExpDiff b a)"),
    "shift by another sign": ("shift-exp", "(Exp (Red (MaxOf) k s))", "(Exp (Neg (Red (MaxOf) k s)))"),
    "shift that is not undone": (
        "shift-exp",
        "(Mul (ExpDiff s (Red (MaxOf) k s)) (Exp (Red (MaxOf) k s)))",
        "(ExpDiff s (Red (MaxOf) k s))",
    ),
    "different exponentials cancelled": ("cancel-exp", "(= d (Mul x c))", "(= d (Mul y c))"),
    "a divisor that becomes a factor": ("cancel-exp", "(Recip0 c)", "c"),
    "logarithm of a product as a product": ("log-exp", "(Add a (Log b))", "(Mul a (Log b))"),
    "logarithm without its exponential": ("log-exp", "(Mul (Exp a) b)", "(Mul a b)"),
    "exponential of a sum as a sum": ("exp-sum", "(Mul (Exp a) (Exp b))", "(Add (Exp a) (Exp b))"),
    "square of something else": ("mul-self", "(Mul a a)", "(Mul a b)"),
    "silu of something else": ("silu", "(Mul a (Sigmoid a))", "(Mul a (Sigmoid b))"),
    "sigmoid with the wrong sign": ("sigmoid", "(Exp (Neg a))", "(Exp a)"),
    "one over a square root that is the root": ("recip-sqrt", "(Rsqrt a)", "(Sqrt a)"),
    "another unit of multiplication": ("mul-one", "(Const 1.0)", "(Const -1.0)"),
    "another unit of addition": ("add-zero", "(Const 0.0)", "(Const 1.0)"),
    "a product taken for a sum": ("comm-mul", "(Mul b a)", "(Add b a)"),
}


@pytest.mark.parametrize("title", MUTANTS)
def test_a_wrong_rule_is_caught(title: str, tmp_path: Path) -> None:
    name, old, new = MUTANTS[title]
    report = examine_rule(name, mutant(tmp_path, name, old, new), examples=150, shrink=False)
    assert report.outcome is Outcome.COUNTEREXAMPLE, report


# title: an equation that no rule of ours is near, wrong at 0 only or far from it only, whatever it assumes
WRONG_SOMEWHERE = {
    "a quotient by itself, nothing assumed": ("(Mul x (Recip0 x))", "(Const 1.0)", "nothing"),
    "a quotient by itself, finite": ("(Mul x (Recip0 x))", "(Const 1.0)", "finite"),
    "the reciprocal that is infinite at 0": ("(Recip0 x)", "(Recip x)", "finite"),
    "a product divided again": ("(Mul (Mul a b) (Recip0 b))", "a", "finite"),
    "an exponential with a ceiling": ("(Exp x)", "(Minimum (Exp x) (Const 1000.0))", "nothing"),
    "a hyperbolic tangent that is the identity": ("(Tanh x)", "x", "finite"),
    "a minimum of maxima": ("(Red (MaxOf) k (Red (MinOf) j x))", "(Red (MinOf) j (Red (MaxOf) k x))", "nothing"),
    "the maximum of one value, over nothing": ("(Red (MaxOf) k (Const c))", "(Const c)", "nothing"),
    "the same where values are finite": ("(Red (MaxOf) k (Const c))", "(Const c)", "finite"),
    "a mask taken out of its reduction": (
        "(Red op k (Where p x y))",
        "(Where p (Red op k x) (Red op k y))",
        "nothing",
    ),
}


@pytest.mark.parametrize("title", WRONG_SOMEWHERE)
def test_a_rule_that_is_wrong_somewhere_is_caught(title: str, tmp_path: Path) -> None:
    left, right, assumes = WRONG_SOMEWHERE[title]
    comment = f"; wrong\n;   x  =  y\n; class:   exact\n; assumes: {assumes}\n; source:  none\n; guards:  none\n"
    rule = f'(rewrite {left} {right} :ruleset user :name "wrong")\n'
    book = Rulebook.installed().with_files(write(tmp_path / "user.egg", f"(ruleset user)\n\n{comment}{rule}"))
    report = examine_rule("wrong", book, examples=150, shrink=False)
    assert report.outcome is Outcome.COUNTEREXAMPLE, report


FAR = {
    "a product with a ceiling": ("(Mul a b)", "(Minimum (Mul a b) (Const 100000.0))"),
    "a sum with a floor": ("(Add a b)", "(Maximum (Add a b) (Const -50000.0))"),
}


@pytest.mark.parametrize("title", FAR)
def test_a_rule_that_is_wrong_far_from_zero_only_is_caught(title: str, tmp_path: Path) -> None:
    left, right = FAR[title]
    comment = "; wrong\n;   x  =  y\n; class:   exact\n; assumes: finite\n; source:  none\n; guards:  none\n"
    rule = f'(rewrite {left} {right} :ruleset user :name "wrong")\n'
    book = Rulebook.installed().with_files(write(tmp_path / "user.egg", f"(ruleset user)\n\n{comment}{rule}"))
    report = examine_rule("wrong", book, examples=150, shrink=False)
    assert report.outcome is Outcome.COUNTEREXAMPLE, report


RAGGED_RESULT = "(set (axes e) (set-union (set-diff s w) d))"
SECOND_OPERAND = "(rule ((= e (Mul x y)) (= s (axes x)) (= t (axes y)))"
# title: (rule that it misleads, text of analysis.egg, replacement); the guards are right, what they read is not
WRONG_ANALYSES = {
    "a sum over a ragged axis forgets the owner": ("factor", RAGGED_RESULT, "(set (axes e) (set-diff s w))"),
    "a product forgets an operand": ("factor", SECOND_OPERAND, SECOND_OPERAND.replace("(axes y)", "(axes x)")),
}


@pytest.mark.parametrize("title", WRONG_ANALYSES)
def test_a_wrong_analysis_is_caught(title: str, tmp_path: Path) -> None:
    name, old, new = WRONG_ANALYSES[title]
    paths = {file.family: write(tmp_path / file.path.name, file.text) for file in Rulebook.installed().files}
    text = paths["analysis"].read_text()
    assert old in text
    write(paths["analysis"], text.replace(old, new))
    report = examine_rule(name, Rulebook.from_files(paths.values()), examples=150, shrink=False)
    assert report.outcome is Outcome.COUNTEREXAMPLE, report


def test_a_counterexample_is_one_line_with_its_place(tmp_path: Path) -> None:
    book = mutant(tmp_path, "telescope", "(ExpDiff p m)", "(ExpDiff m p)")
    with pytest.raises(RuleError) as error:
        check_rule("telescope", book)
    message = str(error.value)
    assert f"shift.egg:{book.rule('telescope').line}: telescope: counterexample" in message
    assert "off by" in message and "(ExpDiff (Leaf" in message and "S=" in message
    assert "\n" not in message


def test_a_rule_that_never_fires_fails(tmp_path: Path) -> None:
    book = mutant(tmp_path, "param-fold", "(Param b)", "(Param b) (= c (Neg b))")
    with pytest.raises(RuleError, match="param-fold: never fired"):
        check_rule("param-fold", book, examples=20)


def mutant(folder: Path, name: str, old: str, new: str) -> Rulebook:
    """The rulebook with the text of one rule changed."""
    rule = Rulebook.installed().rule(name)
    assert old in rule.text, f"{name} has changed: {old}"
    files = Rulebook.installed().files
    changed = {rule.family: rule.text.replace(old, new)}
    return Rulebook.from_files(
        write(folder / file.path.name, file.text.replace(rule.text, changed.get(file.family, rule.text)))
        for file in files
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(("inverse", "x"), [("Recip", -2.0), ("Rsqrt", -2.0), ("Recip", 2.0)])
def test_an_inverse_of_a_zero_is_no_number_whatever_its_sign(inverse: str, x: float) -> None:
    """-2 * 0 is -0, and 1 / -0 is -inf: which zero it is no rule says."""
    term: Sexp = (inverse, ("Mul", ("Leaf", "0"), ("Const", "0.0")))
    world = SimpleNamespace(slots=(), leaves=[np.array(x)], exists_for=lambda shape: np.ones(shape, bool))
    meaning = Meaning(cast("Values", world))
    assert not is_program(term, meaning) and np.isinf(meaning.memo[term])
