"""Wrong versions of a rule, made from its text, and what becomes of them: a test of the property test and of the prover.

    dropped     a guard; a definition of the body, so that its name stands for anything; a reduction; an operand
    exchanged   the operands of an operation; an axis, a variable, a monoid or an operation for another
    negated     a term of the right side, a constant

Most of them are wrong. Some are right: an operand that commutes was exchanged, or a guard that is there to keep the
e-graph small was dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from cleave.errors import CleaveError
from cleave.rewrite.rule import Rule, Signature
from cleave.rewrite.rulebook import Rulebook
from cleave.rewrite.sexp import Sexp, show
from cleave.testing.proof import Proof, prove_rule
from cleave.testing.rule_check import Outcome, RuleReport, examine_rule

OPERATIONS = {
    "Add": ("Sub", "Mul"),
    "Sub": ("Add",),
    "Mul": ("Add", "Maximum"),
    "ExpDiff": ("Sub",),
    "Exp": ("Neg",),
    "Recip": ("Recip0",),
    "Recip0": ("Recip",),
    "Maximum": ("Minimum", "Add"),
    "Minimum": ("Maximum",),
    "Sum": ("MaxOf",),
    "MaxOf": ("Sum", "MinOf"),
    "MinOf": ("MaxOf",),
}
"""What an operation or a monoid is exchanged for."""


class Fate(StrEnum):
    REFUTED = "counterexample"
    REFUSED = "not proved, no counterexample"
    EQUIVALENT = "proved"
    CONTRADICTION = "proved, with a counterexample"
    MALFORMED = "no rule"


@dataclass(frozen=True, slots=True)
class Mutant:
    rule: str
    change: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.change}"


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a mutant. ``proof`` and ``report`` are there unless it is malformed."""

    mutant: Mutant
    fate: Fate
    proof: Proof | None = None
    report: RuleReport | None = None

    def __str__(self) -> str:
        return f"{self.mutant}: {self.fate}; {self.proof}; {self.report}"


def mutants(rule: Rule, signature: Signature) -> Iterator[Mutant]:
    """Every mutant of a rule, each text once."""
    seen = {show(rule.command.expression)}
    for change, expression in _changes(rule, signature):
        text = show(expression)
        if text not in seen:
            seen.add(text)
            yield Mutant(rule.name, change, text)


def try_mutant(mutant: Mutant, book: Rulebook | None = None, *, examples: int = 150, seed: int | None = None) -> Trial:
    """Test it and try to prove it. A text that egglog or the rulebook refuses is malformed."""
    try:
        changed = (book or Rulebook.installed()).with_rule_text(mutant.rule, mutant.text)
    except CleaveError:
        return Trial(mutant, Fate.MALFORMED)
    proof = prove_rule(mutant.rule, changed)
    report = examine_rule(mutant.rule, changed, examples=examples, seed=seed, shrink=False)
    wrong = report.outcome is Outcome.COUNTEREXAMPLE
    if proof.proved:
        fate = Fate.CONTRADICTION if wrong else Fate.EQUIVALENT
    else:
        fate = Fate.REFUTED if wrong else Fate.REFUSED
    return Trial(mutant, fate, proof, report)


# ---- changes ----------------------------------------------------------------------------------------------------


def _changes(rule: Rule, signature: Signature) -> Iterator[tuple[str, Sexp]]:
    command = rule.command.expression
    sorts = dict(rule.variables)
    if rule.command.head == "rewrite":
        for position, side in ((1, "left"), (2, "right")):
            for change, term in _terms(command[position], "E", sorts, signature, is_right=side == "right"):
                yield f"{change} on the {side}", _put(command, position, term)
        options = [i for i, part in enumerate(command) if part == ":when"]
        for position in (i + 1 for i in options):
            yield from _facts(command, position, sorts, signature)
        return
    yield from _facts(command, 1, sorts, signature)
    actions = command[2]
    for number, action in enumerate(actions):
        if action[0] == "union":
            for change, term in _terms(action[2], "E", sorts, signature, is_right=True):
                yield f"{change} on the right", _put(command, 2, _put(actions, number, _put(action, 2, term)))


def _facts(
    command: Sexp, position: int, sorts: dict[str, str], signature: Signature
) -> Iterator[tuple[str, Sexp]]:
    facts = command[position]
    for number, fact in enumerate(facts):
        without = (*facts[:number], *facts[number + 1 :])
        yield f"{show(fact)} dropped", _put(command, position, without)
        for change, other in _fact(fact, sorts, signature):
            yield f"{change} in {show(fact)}", _put(command, position, _put(facts, number, other))


def _fact(fact: Sexp, sorts: dict[str, str], signature: Signature) -> Iterator[tuple[str, Sexp]]:
    match fact:
        case ("=", str(), (str(function), str(variable))) if function not in signature:
            for other in _others(variable, sorts):
                yield f"{variable} exchanged for {other}", _put(fact, 2, (function, other))
        case ("set-contains" | "set-not-contains", _, ax):
            for change, other in _axes(ax, sorts):
                yield change, _put(fact, 2, other)
        case ("=", str(), pattern):
            for change, term in _terms(pattern, "E", sorts, signature, is_right=False):
                yield change, _put(fact, 2, term)
        case _:
            pass


def _terms(
    term: Sexp, sort: str, sorts: dict[str, str], signature: Signature, *, is_right: bool
) -> Iterator[tuple[str, Sexp]]:
    """Changes of a term and of all its parts."""
    if sort == "Ax":
        yield from _axes(term, sorts)
        return
    if isinstance(term, str):
        for other in _others(term, sorts):
            yield f"{term} exchanged for {other}", other
    else:
        yield from _node(term, signature)
        _, parts = signature.get(show(term[0]), ("", ()))
        for number, (part, part_sort) in enumerate(zip(term[1:], parts, strict=False), 1):
            for change, other in _terms(part, part_sort, sorts, signature, is_right=is_right):
                yield change, _put(term, number, other)
    if sort == "E" and is_right:
        yield f"{show(term)} negated", ("Neg", term)


def _node(term: tuple[Sexp, ...], signature: Signature) -> Iterator[tuple[str, Sexp]]:
    head = show(term[0])
    _, parts = signature.get(head, ("", ()))
    operands = [i for i, sort in enumerate(parts, 1) if sort == "E"]
    for number in operands:
        yield f"{show(term)} replaced by {show(term[number])}", term[number]
    if len(operands) == 2:
        first, second = operands
        swapped = _put(_put(term, first, term[second]), second, term[first])
        yield f"operands of {show(term)} exchanged", swapped
    for other in OPERATIONS.get(head, ()):
        yield f"{head} exchanged for {other}", (other, *term[1:])
    if head == "Const" and isinstance(term[1], str):
        number = term[1].removeprefix("-") if term[1].startswith("-") else f"-{term[1]}"
        yield f"{show(term)} negated", ("Const", number)


def _axes(ax: Sexp, sorts: dict[str, str]) -> Iterator[tuple[str, Sexp]]:
    if isinstance(ax, str):
        for other in _others(ax, sorts):
            yield f"{ax} exchanged for {other}", other
    elif ax[0] in ("Outer", "Inner"):
        piece = "Inner" if ax[0] == "Outer" else "Outer"
        yield f"{ax[0]} exchanged for {piece}", (piece, *ax[1:])
        yield f"{show(ax)} exchanged for {show(ax[1])}", ax[1]


def _others(variable: str, sorts: dict[str, str]) -> Iterator[str]:
    """Other variables of the same sort."""
    return (other for other, sort in sorts.items() if other != variable and sort == sorts.get(variable))


def _put(expression: Sexp, position: int, part: Sexp) -> Sexp:
    return (*expression[:position], part, *expression[position + 1 :])
