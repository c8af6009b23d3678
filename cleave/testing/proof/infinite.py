"""Rules whose values may be infinite, or are chosen by a predicate: both sides as SMT-LIB terms over extended numbers.

A reduction is one unknown number for each normal form; of a maximum it is known besides that the value at the position
in scope is no greater, where that position exists. Of exp the laws are stated for the arguments that occur.

Assumed is what makes the left side a program: none of its values is NaN, and none +inf but that of a minimum, which may
be over nothing. A variable stands for no such minimum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

from cleave.rewrite.sexp import Sexp, show
from cleave.testing.proof.axes import Ax
from cleave.testing.proof.evaluate import Evaluation, Scope
from cleave.testing.proof.lemmas import NUMBERS
from cleave.testing.proof.normal import Holds, Polynomial, Value, of_atom, text
from cleave.testing.proof.solver import Answer, solve

FUNCTIONS = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Neg": "negate",
    "Exp": "exponential",
    "ExpDiff": "exp_diff",
    "Recip0": "recip0",
    "Maximum": "maximum",
    "Minimum": "minimum",
}


@dataclass
class Infinite:
    """Collects what is declared and known while the sides of a rule are written down.

    ``existing``: slots whose position in scope is known to exist, because the left side depends on it.
    """

    evaluation: Evaluation
    existing: frozenset[Ax]
    all_finite: bool
    names: dict[Polynomial, str] = field(default_factory=dict[Polynomial, str])
    declared: list[str] = field(default_factory=list[str])
    known: list[str] = field(default_factory=list[str])
    exponents: list[str] = field(default_factory=list[str])

    def number(self, pattern: Sexp, scope: Scope, *, is_left: bool) -> str:
        """The SMT-LIB term of a pattern. Of the left side it is also known that its values are numbers."""
        out = self._number(pattern, scope, is_left=is_left)
        if is_left:
            self.known.append(f"(not (is_nan {out}))")
            if self.all_finite:
                self.known.append(f"(is_fin {out})")
            elif not self._is_minimum(pattern):
                self.known.append(f"(not (is_pos {out}))")
        return out

    def _number(self, pattern: Sexp, scope: Scope, *, is_left: bool) -> str:
        match pattern:
            case str():
                return self._variable(pattern, scope)
            case ("Const", str(number)) if number.lstrip("-").replace(".", "", 1).isdigit():
                return f"(fin {_real(number)})"
            case ("NegInf",):
                return "neg"
            case ("Size", _):
                return self._unknown(self.evaluation.value(pattern, scope), "(and (is_fin {0}) (>= (real {0}) 0.0))")
            case ("Where", str(predicate), x, y):
                holds = Holds(predicate, self.evaluation.seen(predicate, scope))
                truth = self._declare(of_atom(holds), "Bool")
                return f"(ite {truth} {self._number(x, scope, is_left=False)} {self._number(y, scope, is_left=False)})"
            case ("Red", op, ax, body):
                return self._fold(self.evaluation.monoid(op), self.evaluation.case.resolve(ax), body, pattern, scope)
            case ("Sq", x):
                inside = self.number(x, scope, is_left=is_left)
                return f"(multiply {inside} {inside})"
            case _:
                return self._applied(pattern, scope, is_left=is_left)

    def _is_minimum(self, pattern: Sexp) -> bool:
        return not isinstance(pattern, str) and pattern[0] == "Red" and self.evaluation.monoid(pattern[1]) == "MinOf"

    def _applied(self, pattern: tuple[Sexp, ...], scope: Scope, *, is_left: bool) -> str:
        function = FUNCTIONS.get(show(pattern[0]))
        if function is None:
            return self._unknown(self.evaluation.value(pattern, scope))
        arguments = [self.number(part, scope, is_left=is_left) for part in pattern[1:]]
        if function in ("exponential", "exp_diff"):
            self.exponents.append(f"(real {arguments[0]})" if len(arguments) == 1 else _difference(*arguments))
        return f"({function} {' '.join(arguments)})"

    def _variable(self, name: str, scope: Scope) -> str:
        out = self._unknown(of_atom(Value(name, self.evaluation.seen(name, scope))))
        if name in self.evaluation.numbers.finite:
            self.known.append(f"(is_fin {out})")
        return out

    def _fold(self, monoid: str, ax: Ax, body: Sexp, pattern: Sexp, scope: Scope) -> str:
        out = self._unknown(self.evaluation.value(pattern, scope))
        slots = self.evaluation.case.slots(ax)
        if monoid in ("MaxOf", "MinOf") and self.existing.issuperset(slots):
            inside = self.number(body, scope, is_left=False)
            self.known.append(f"(at_most {inside} {out})" if monoid == "MaxOf" else f"(at_most {out} {inside})")
        return out

    def _unknown(self, form: Polynomial, fact: str = "") -> str:
        name = self._declare(form, "Number")
        if fact:
            self.known.append(fact.format(name))
        return name

    def _declare(self, form: Polynomial, sort: str) -> str:
        if form not in self.names:
            self.names[form] = f"|{text(form).replace('|', 'size ')}|"
            self.declared.append(f"(declare-const {self.names[form]} {sort})")
        return self.names[form]

    def program(self, left: str, right: str) -> str:
        known = "".join(f"(assert {fact})\n" for fact in dict.fromkeys([*self.known, *_exp_laws(self.exponents)]))
        return f"{NUMBERS}{''.join(self.declared)}\n{known}(assert (not (= {left} {right})))"


def equal(left: Sexp, right: Sexp, scope: Scope, found: Infinite) -> Answer:
    """Whether both sides have the same value, whatever the values of the variables."""
    a = found.number(left, scope, is_left=True)
    b = found.number(right, scope, is_left=False)
    return solve(found.program(a, b))


def _difference(a: str, b: str) -> str:
    return f"(- (real {a}) (real {b}))"


def _exp_laws(arguments: list[str]) -> list[str]:
    """exp > 0; exp(a + b) = exp a * exp b; exp 0 = 1: for the arguments that occur."""
    found = list(dict.fromkeys(arguments))
    laws = [f"(and (> (exp_real {a}) 0.0) (=> (= {a} 0.0) (= (exp_real {a}) 1.0)))" for a in found]
    for a, b, c in product(found, repeat=3):
        laws.append(f"(=> (= (+ {a} {b}) {c}) (= (exp_real {c}) (* (exp_real {a}) (exp_real {b}))))")
    return laws


def _real(number: str) -> str:
    digits = number.lstrip("-")
    digits = digits if "." in digits else f"{digits}.0"
    return f"(- {digits})" if number.startswith("-") else digits
