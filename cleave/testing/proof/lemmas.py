"""The lemmas that justify every step on normal forms, each proved by z3: by induction on the extent, or directly.

Axioms: a fold over no positions is the identity of its monoid, and a fold over one position more is the fold so far
combined with the value there; the laws of an ordered field; the tables of the extended numbers below, which are those
of IEEE arithmetic without rounding. Of functions (``functions.py``): exp(a + b) = exp a * exp b, exp > 0,
log(exp a * b) = a + log b, and the definitions of sigmoid, silu and rsqrt.

An obligation is SMT-LIB text: what is known, and the claim. z3 must find the known and the denied claim contradictory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cleave.testing.proof.solver import TIMEOUT, Answer, solve

NUMBERS = """
(declare-datatypes ((Number 0)) (((fin (real Real)) (neg) (pos) (nan))))
(declare-fun exp_real (Real) Real)
(define-fun is_fin ((x Number)) Bool ((_ is fin) x))
(define-fun is_neg ((x Number)) Bool ((_ is neg) x))
(define-fun is_pos ((x Number)) Bool ((_ is pos) x))
(define-fun is_nan ((x Number)) Bool ((_ is nan) x))
(define-fun sign_of ((x Number)) Real (ite (is_fin x) (real x) (ite (is_neg x) (- 1.0) 1.0)))
(define-fun negate ((x Number)) Number
  (ite (is_fin x) (fin (- (real x))) (ite (is_neg x) pos (ite (is_pos x) neg nan))))
(define-fun add ((x Number) (y Number)) Number
  (ite (or (is_nan x) (is_nan y)) nan
  (ite (and (is_fin x) (is_fin y)) (fin (+ (real x) (real y)))
  (ite (or (and (is_neg x) (is_pos y)) (and (is_pos x) (is_neg y))) nan
  (ite (or (is_neg x) (is_neg y)) neg pos)))))
(define-fun subtract ((x Number) (y Number)) Number (add x (negate y)))
(define-fun multiply ((x Number) (y Number)) Number
  (ite (or (is_nan x) (is_nan y)) nan
  (ite (and (is_fin x) (is_fin y)) (fin (* (real x) (real y)))
  (ite (or (= (sign_of x) 0.0) (= (sign_of y) 0.0)) nan
  (ite (= (> (sign_of x) 0.0) (> (sign_of y) 0.0)) pos neg)))))
(define-fun at_most ((x Number) (y Number)) Bool
  (and (not (is_nan x)) (not (is_nan y))
  (or (is_neg x) (is_pos y) (and (is_fin x) (is_fin y) (<= (real x) (real y))))))
(define-fun maximum ((x Number) (y Number)) Number
  (ite (or (is_nan x) (is_nan y)) nan (ite (at_most x y) y x)))
(define-fun minimum ((x Number) (y Number)) Number
  (ite (or (is_nan x) (is_nan y)) nan (ite (at_most x y) x y)))
(define-fun exponential ((x Number)) Number
  (ite (is_fin x) (fin (exp_real (real x))) (ite (is_neg x) (fin 0.0) x)))
(define-fun exp_diff ((x Number) (y Number)) Number (ite (is_neg x) (fin 0.0) (exponential (subtract x y))))
(define-fun recip0 ((x Number)) Number
  (ite (is_nan x) nan (ite (and (is_fin x) (not (= (real x) 0.0))) (fin (/ 1.0 (real x))) (fin 0.0))))
"""

_MONOID = """
(declare-sort M 0)
(declare-fun op (M M) M)
(declare-const e M)
(assert (forall ((a M) (b M) (c M)) (= (op (op a b) c) (op a (op b c)))))
(assert (forall ((a M)) (= (op a e) a)))
(assert (forall ((a M)) (= (op e a) a)))
"""
_COMMUTATIVE = _MONOID + "(assert (forall ((a M) (b M)) (= (op a b) (op b a))))\n"
_REALS = "(declare-const a Real) (declare-const f Real) (declare-const g Real) (declare-const n Real)\n" + (
    "(declare-const F Real) (declare-const G Real) (declare-const H Real)\n"
)
_EXTENDED = NUMBERS + "".join(f"(declare-const {name} Number)\n" for name in ("x", "y", "z", "c", "X", "Y"))
_ELEMENTS = "".join(f"(declare-const {name} M)\n" for name in ("f", "g", "F", "G", "H"))
# x(p): the values; F(p): the fold of the first p; inner(o, j): that of the first j of chunk o; outer(o): of the chunks
_CHUNKS = """
(declare-fun x (Int) M) (declare-fun F (Int) M) (declare-fun inner (Int Int) M) (declare-fun outer (Int) M)
(declare-const o Int) (declare-const i Int) (declare-const T Int) (declare-const N Int)
(define-fun clip ((p Int)) Int (ite (< p N) p N))
(assert (and (>= T 1) (>= N 0) (>= o 0) (>= i 0) (< i T)))
"""


@dataclass(frozen=True, slots=True)
class Obligation:
    known: str
    claim: str

    def program(self, declarations: str) -> str:
        return f"{declarations}{self.known}\n(assert (not {self.claim}))"


@dataclass(frozen=True, slots=True)
class Lemma:
    """``obligations``: start and step of an induction, or one claim."""

    name: str
    says: str
    declarations: str
    obligations: tuple[Obligation, ...]


def _by_induction(name: str, says: str, declarations: str, start: str, known: str, step: str) -> Lemma:
    return Lemma(name, says, declarations, (Obligation("", start), Obligation(f"(assert {known})", step)))


def _directly(name: str, says: str, declarations: str, *claims: str) -> Lemma:
    return Lemma(name, says, declarations, tuple(Obligation("", claim) for claim in claims))


def lemmas() -> Iterator[Lemma]:
    yield from _of_monoids()
    yield from _of_reals()
    yield from _of_extended_numbers()


def _of_monoids() -> Iterator[Lemma]:
    yield _by_induction(
        "fold-combine",
        "fold (f . g) = fold f . fold g, for a commutative monoid",
        _COMMUTATIVE + _ELEMENTS,
        "(= e (op e e))",
        "(= H (op F G))",
        "(= (op H (op f g)) (op (op F f) (op G g)))",
    )
    # Rows are added one by one: F and G are the two sides so far, f the fold of the new row. On the right every column
    # is longer by one, and by fold-combine the fold of the columns is G . f.
    yield _by_induction(
        "fold-swap",
        "fold_r fold_d = fold_d fold_r, for a commutative monoid",
        _COMMUTATIVE + _ELEMENTS,
        "(= e (op e e))",
        "(= F G)",
        "(= (op F f) (op G f))",
    )
    yield Lemma(
        "fold-split",
        "a fold is the fold over chunks of the folds within chunks; T >= 1 need not divide N, for any monoid",
        _MONOID + _CHUNKS,
        (
            Obligation(
                "(assert (= (inner o 0) e))", "(= (op (F (clip (* o T))) (inner o 0)) (F (clip (+ (* o T) 0))))"
            ),
            Obligation(
                "(assert (= (op (F (clip (* o T))) (inner o i)) (F (clip (+ (* o T) i)))))"
                "(assert (= (inner o (+ i 1)) (op (inner o i) (ite (< (+ (* o T) i) N) (x (+ (* o T) i)) e))))"
                "(assert (=> (< (+ (* o T) i) N) (= (F (+ (* o T) i 1)) (op (F (+ (* o T) i)) (x (+ (* o T) i))))))",
                "(= (op (F (clip (* o T))) (inner o (+ i 1))) (F (clip (+ (* o T) i 1))))",
            ),
            Obligation(
                "(assert (= (outer o) (F (clip (* o T)))))(assert (= (outer (+ o 1)) (op (outer o) (inner o T))))"
                "(assert (= (op (F (clip (* o T))) (inner o T)) (F (clip (+ (* o T) T)))))",
                "(= (outer (+ o 1)) (F (clip (* (+ o 1) T))))",
            ),
        ),
    )
    yield Lemma(
        "fold-pad",
        "positions beyond the extent may be filled with the identity: ragged axes are rectangular ones",
        _MONOID + "(declare-fun x (Int) M) (declare-fun F (Int) M) (declare-fun P (Int) M)"
        "(declare-const n Int) (declare-const p Int) (assert (and (>= p 0) (>= n 0)))"
        "(define-fun clip ((q Int)) Int (ite (< q n) q n))",
        (
            Obligation("(assert (and (= (P 0) e) (= (F 0) e)))", "(= (P 0) (F (clip 0)))"),
            Obligation(
                "(assert (= (P p) (F (clip p))))(assert (= (P (+ p 1)) (op (P p) (ite (< p n) (x p) e))))"
                "(assert (=> (< p n) (= (F (+ p 1)) (op (F p) (x p)))))",
                "(= (P (+ p 1)) (F (clip (+ p 1))))",
            ),
        ),
    )


def _of_reals() -> Iterator[Lemma]:
    yield _by_induction(
        "sum-scale",
        "sum (a * f) = a * sum f, over the reals",
        _REALS,
        "(= 0.0 (* a 0.0))",
        "(= H (* a F))",
        "(= (+ H (* a f)) (* a (+ F f)))",
    )
    yield _by_induction(
        "sum-const",
        "sum a = n * a, over the reals",
        _REALS,
        "(= 0.0 (* 0.0 a))",
        "(= F (* n a))",
        "(= (+ F a) (* (+ n 1.0) a))",
    )
    yield _directly(
        "where-as-product",
        "where(p, x, y) = [p] x + (1 - [p]) y and [p]^2 = [p], over the reals",
        _REALS + "(declare-const p Bool) (define-fun holds () Real (ite p 1.0 0.0))",
        "(= (ite p f g) (+ (* holds f) (* (- 1.0 holds) g)))",
        "(= (* holds holds) holds)",
    )
    yield _directly(
        "absolute-product",
        "|a * b| = |a| * |b| and |a|^2 = a^2, over the reals",
        _REALS + "(define-fun magnitude ((x Real)) Real (ite (< x 0.0) (- x) x))",
        "(= (magnitude (* f g)) (* (magnitude f) (magnitude g)))",
        "(= (* (magnitude f) (magnitude f)) (* f f))",
    )
    yield _directly(
        "recip0-product",
        "recip0(a * b) = recip0 a * recip0 b, 0 included; and 1 / (a * b) where neither is 0",
        _REALS + "(define-fun r ((x Real)) Real (ite (= x 0.0) 0.0 (/ 1.0 x)))",
        "(= (r (* f g)) (* (r f) (r g)))",
        "(=> (not (= (* f g) 0.0)) (and (not (= f 0.0)) (not (= g 0.0)) (= (/ 1.0 (* f g)) (* (/ 1.0 f) (/ 1.0 g)))))",
    )


def _of_extended_numbers() -> Iterator[Lemma]:
    for name, unit in (("add", "(fin 0.0)"), ("multiply", "(fin 1.0)"), ("maximum", "neg"), ("minimum", "pos")):
        yield _directly(
            f"{name}-is-a-monoid",
            f"{name} of extended numbers, NaN included, is commutative and associative and has an identity",
            _EXTENDED,
            f"(= ({name} x y) ({name} y x))",
            f"(= ({name} x ({name} y z)) ({name} ({name} x y) z))",
            f"(= ({name} x {unit}) x)",
        )
    for name, unit in (("maximum", "neg"), ("minimum", "pos")):
        yield _by_induction(
            f"{name}-shift",
            f"{name}(x + c) = {name} x + c for a real c, over nothing as well",
            _EXTENDED + "(assert (is_fin c))",
            f"(= {unit} (add {unit} c))",
            "(= Y (add X c))",
            f"(= ({name} Y (add x c)) (add ({name} X x) c))",
        )
        yield _by_induction(
            f"{name}-scale",
            f"{name}(c * x) = c * {name} x for a real c > 0, over nothing as well",
            _EXTENDED + "(assert (and (is_fin c) (> (real c) 0.0)))",
            f"(= {unit} (multiply c {unit}))",
            "(= Y (multiply c X))",
            f"(= ({name} Y (multiply c x)) (multiply c ({name} X x)))",
        )
    yield _by_induction(
        "maximum-bound",
        "x_k <= max x: of the last position, and of all before it",
        _EXTENDED + "(assert (not (or (is_nan x) (is_nan X) (is_nan y))))",
        "(at_most x (maximum X x))",
        "(at_most y X)",
        "(at_most y (maximum X x))",
    )
    yield _by_induction(
        "minimum-bound",
        "min x <= x_k: of the last position, and of all before it",
        _EXTENDED + "(assert (not (or (is_nan x) (is_nan X) (is_nan y))))",
        "(at_most (minimum X x) x)",
        "(at_most X y)",
        "(at_most (minimum X x) y)",
    )


def prove_lemma(lemma: Lemma, timeout: int = TIMEOUT) -> Answer:
    """Excluded: every obligation is met. Else what z3 found for the first that is not."""
    for number, obligation in enumerate(lemma.obligations, 1):
        answer = solve(obligation.program(lemma.declarations), timeout)
        if not answer.excluded:
            return Answer(False, f"{lemma.name}, obligation {number}: {answer.detail}")
    return Answer(True)
