"""Proofs of the rules for all sizes: the lemmas, the installed rules, and what must not be proved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cleave.rewrite import Rulebook
from cleave.testing import Proof, prove_rule
from cleave.testing.proof import Lemma, lemmas, prove_lemma
from cleave.testing.proof.solver import solve

INSTALLED = [rule.name for rule in Rulebook.installed().rules]
SOON = 300  # milliseconds, in which z3 would have found a contradiction: what it proves takes it a tenth of that
LEMMAS = {lemma.name: lemma for lemma in lemmas()}


@pytest.mark.parametrize("name", LEMMAS)
def test_every_lemma_is_proved_from_what_can_be(name: str) -> None:
    lemma = LEMMAS[name]
    for obligation in lemma.obligations:  # what is known contradicts itself nowhere
        assert not solve(lemma.declarations + obligation.known, SOON).excluded
    answer = prove_lemma(lemma)
    assert answer.excluded, answer


# name of a lemma: (text of it, replacement); each result is false
WRONG_LEMMAS = {
    "fold-combine": ("(= (op a b) (op b a))", "(= (op a a) (op a a))"),
    "fold-split": ("(op (inner o i) (ite (< (+ (* o T) i) N)", "(op (inner o i) (ite (<= (+ (* o T) i) N)"),
    "fold-pad": ("(ite (< p n) (x p) e)", "(x p)"),
    "sum-scale": ("(+ H (* a f))", "(+ H f)"),
    "sum-const": ("(+ n 1.0)", "n"),
    "where-as-product": ("(ite p 1.0 0.0)", "(ite p 1.0 2.0)"),
    "recip0-product": ("(ite (= x 0.0) 0.0 ", "(ite (= x 0.0) 1.0 "),
    "add-is-a-monoid": ("(or (is_neg x) (is_neg y)) neg", "(is_neg x) neg"),
    "maximum-shift": ("(assert (is_fin c))", "(assert (not (is_nan c)))"),
}


@pytest.mark.parametrize("name", WRONG_LEMMAS)
def test_a_wrong_lemma_is_refused(name: str) -> None:
    old, new = WRONG_LEMMAS[name]
    lemma = LEMMAS[name]
    assert old in lemma.declarations + "".join(o.known + o.claim for o in lemma.obligations)
    obligations = tuple(type(o)(o.known.replace(old, new), o.claim.replace(old, new)) for o in lemma.obligations)
    wrong = Lemma(lemma.name, lemma.says, lemma.declarations.replace(old, new), obligations)
    assert not prove_lemma(wrong, SOON).excluded


@pytest.mark.parametrize("name", INSTALLED)
def test_the_rule_file_says_whether_a_rule_is_proved(name: str) -> None:
    rule = Rulebook.installed().rule(name)
    proof = prove_rule(rule)
    assert proof.proved is rule.is_proved, proof
    assert rule.is_proved or rule.proof.startswith("tested only: "), f"{name}: its comment must say why"


def test_proofs_need_z3_only_where_they_use_it() -> None:
    code = (
        "import sys, cleave.testing as t; from cleave.rewrite import Rulebook; Rulebook.installed().table();"
        "print(t.prove_rule('factor').proved, 'z3' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True False"


ASKS_K = "(Want k s) (Axis k) (= ss (axes s)) (set-contains ss k)"
# title: (left, right, assumes, conditions); identities that no rule states
RIGHT = {
    "distribution": ("(Mul a (Add b c))", "(Add (Mul a b) (Mul a c))", "finite", ""),
    "square of a product": ("(Sq (Mul a b))", "(Mul (Sq a) (Sq b))", "finite", ""),
    "exponential of a sum": ("(Exp (Add a b))", "(Mul (Exp a) (Exp b))", "finite", ""),
    "exponential of a sum with -inf": ("(Exp (Add a b))", "(Mul (Exp a) (Exp b))", "nothing", ""),
    "reciprocal of a product": ("(Recip (Mul a b))", "(Mul (Recip a) (Recip b))", "finite", ""),
    "reciprocal of a product, 0 at 0": ("(Recip0 (Mul a b))", "(Mul (Recip0 a) (Recip0 b))", "nothing", ""),
    "sums of unrelated axes change places": (
        "(Red (Sum) k (Red (Sum) d e))",
        "(Red (Sum) d (Red (Sum) k e))",
        "finite",
        "(= wk (whole k)) (set-not-contains wk d) (= wd (whole d)) (set-not-contains wd k)"
        "(= xk (exts k)) (set-not-contains xk d) (= xd (exts d)) (set-not-contains xd k)",
    ),
    "a mask taken out of a sum": (
        "(Red (Sum) k (Where p x (Const 0.0)))",
        "(Where p (Red (Sum) k x) (Const 0.0))",
        "finite",
        "(= sp (paxes p)) (set-not-contains sp k)",
    ),
    "a mask on both branches": ("(Mul (Where p a b) c)", "(Where p (Mul a c) (Mul b c))", "nothing", ""),
    "exponential of a mask": (
        "(ExpDiff (Where p x (NegInf)) m)",
        "(Where p (ExpDiff x m) (Const 0.0))",
        "nothing",
        "",
    ),
    "a maximum of maxima": ("(Maximum a (Maximum b c))", "(Maximum (Maximum a b) c)", "nothing", ""),
    "an exponential as a quotient": ("(ExpDiff a b)", "(Mul (Exp a) (Recip0 (Exp b)))", "nothing", ""),
    "silu as a product": ("(Silu a)", "(Mul a (Sigmoid a))", "finite", ""),
    "the sigmoid written out": ("(Sigmoid a)", "(Recip (Add (Exp (Neg a)) (Const 1.0)))", "finite", ""),
    "the reciprocal of a root": ("(Rsqrt a)", "(Recip (Sqrt a))", "finite", ""),
    "the magnitude of a product": ("(Abs (Mul a (Sq b)))", "(Mul (Sq b) (Abs a))", "finite", ""),
    "the magnitude of what is not negative": ("(Abs (Rsqrt a))", "(Rsqrt a)", "nothing", ""),
    "the logarithm of a scaled exponential": ("(Log (Mul b (Exp a)))", "(Add a (Log b))", "finite", ""),
    "a quotient whose divisor is not 0": ("(Mul (Recip (Mul a b)) a)", "(Recip0 b)", "finite", ""),
    "a shift by a maximum over something": (
        "(Exp s)",
        "(Mul (ExpDiff s (Red (MaxOf) k s)) (Exp (Red (MaxOf) k s)))",
        "finite",
        ASKS_K,
    ),
    "a maximum with a positive factor": (
        "(Red (MaxOf) k (Mul (Rsqrt y) x))",
        "(Mul (Red (MaxOf) k x) (Rsqrt y))",
        "finite",
        "(= sy (axes y)) (set-not-contains sy k)",
    ),
    "an exponential less a sum": ("(ExpDiff a (Add b c))", "(Mul (ExpDiff a b) (Exp (Neg c)))", "finite", ""),
}

# title: as above, and a part of the reason
WRONG = {
    "a product with an infinite sum": ("(Mul a (Add b c))", "(Add (Mul a b) (Mul a c))", "nothing", "", "is not"),
    "a quotient by itself": ("(Mul x (Recip0 x))", "(Const 1.0)", "finite", "", "is not"),
    "a reciprocal that may be infinite": ("(Recip0 x)", "(Recip x)", "finite", "", "is not"),
    "a factor that may be infinite": (
        "(Add x (Mul (Const 0.0) y))",
        "(Mul x (Mul (Recip y) y))",
        "finite",
        "",
        "creates y^-1, which may be",
    ),
    "a maximum that may be over nothing": (
        "(Add x (Mul (Const 0.0) (Red (Sum) k y)))",
        "(Add x (Sub (Red (MaxOf) k y) (Red (MaxOf) k y)))",
        "finite",
        "",
        "creates MaxOf",
    ),
    "sums of ragged axes change places": (
        "(Red (Sum) k (Red (Sum) d e))",
        "(Red (Sum) d (Red (Sum) k e))",
        "finite",
        "(= wk (whole k)) (set-not-contains wk d) (= wd (whole d)) (set-not-contains wd k)",
        "the extent of",
    ),
    "sum and maximum change places": (
        "(Red (Sum) k (Red (MaxOf) d e))",
        "(Red (MaxOf) d (Red (Sum) k e))",
        "finite",
        "",
        "is not",
    ),
    "a factor through a maximum": (
        "(Red (MaxOf) k (Mul c x))",
        "(Mul c (Red (MaxOf) k x))",
        "finite",
        "(= sc (axes c)) (set-not-contains sc k)",
        "is not",
    ),
    "a maximum over what may be nothing": (
        "(Exp s)",
        "(Mul (ExpDiff s (Red (MaxOf) k s)) (Exp (Red (MaxOf) k s)))",
        "finite",
        "(Want k s) (Axis k)",
        "creates MaxOf",
    ),
    "a maximum that nobody asked for": (
        "(Exp s)",
        "(Mul (ExpDiff s (Red (MaxOf) k s)) (Exp (Red (MaxOf) k s)))",
        "finite",
        "(Axis k) (= ss (axes s)) (set-contains ss k)",
        "scope: only the right side folds s over k, which may own an axis that stays free",
    ),
    "a maximum with a factor that may be 0": (
        "(Red (MaxOf) k (Mul (Abs y) x))",
        "(Mul (Abs y) (Red (MaxOf) k x))",
        "nothing",
        "(= sy (axes y)) (set-not-contains sy k)",
        "is not",
    ),
    "a logarithm of a product": ("(Log (Mul a b))", "(Add (Log a) (Log b))", "finite", "", "is not"),
    "the magnitude of a sum": ("(Abs (Add a b))", "(Add (Abs a) (Abs b))", "finite", "", "is not"),
    "a rounding through a sum": (
        '(Red (Sum) k (Cast "float16" x))',
        '(Cast "float16" (Red (Sum) k x))',
        "finite",
        "",
        "is not",
    ),
    "an exponential as a difference": ("(ExpDiff a b)", "(Exp (Sub a b))", "nothing", "", "b = -inf"),
    "a mask taken out of its own axis": (
        "(Red (Sum) k (Where p x (Const 0.0)))",
        "(Where p (Red (Sum) k x) (Const 0.0))",
        "finite",
        "",
        "is not",
    ),
    "an axis that the left side may lack": (
        "(Red (Sum) (Outer k S) (Red (Sum) (Inner k S) s))",
        "(Red (Sum) (Inner k S) (Red (Sum) (Outer k S) s))",
        "finite",
        "",
        "scope: the right side depends on k.outer",
    ),
}


@pytest.mark.parametrize("title", RIGHT)
def test_an_identity_is_proved(title: str, tmp_path: Path) -> None:
    proof = prove(tmp_path, *RIGHT[title])
    assert proof.proved, proof


@pytest.mark.parametrize("title", WRONG)
def test_what_is_no_identity_is_refused_with_its_reason(title: str, tmp_path: Path) -> None:
    *rule, reason = WRONG[title]
    proof = prove(tmp_path, *rule)
    assert not proof.proved and reason in str(proof), proof


def test_what_the_prover_does_not_know_is_said(tmp_path: Path) -> None:
    over_four = "(Red (Sum) a (Red (Sum) b (Red (Sum) c (Red (Sum) d e))))"
    proof = prove(tmp_path, over_four, over_four, "finite", "")
    assert str(proof) == "user: not proved, outside what the prover knows: 4 axis variables; it lists the cases of 3"


def prove(folder: Path, left: str, right: str, assumes: str, conditions: str) -> Proof:
    text = (
        "(ruleset user)\n\n; user\n;   x  =  y\n; class:   exact\n"
        f"; assumes: {assumes}\n; source:  none\n; guards:  none\n"
        f'(rewrite {left} {right} :when ({conditions}) :ruleset user :name "user")\n'
    )
    path = folder / "user.egg"
    path.write_text(text)
    return prove_rule("user", Rulebook.installed().with_files(path))
