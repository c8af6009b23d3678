"""Wrong versions of a rule, made from its text, and what becomes of them: a test of property test and prover.

    dropped     a guard; an assumption; a definition of the body, so that its name stands for anything; an operation
                around an operand, a reduction among them
    exchanged   the operands of an operation; an axis, a variable, a monoid or an operation for another
    negated     a term of the right side, a constant

Most of them are wrong. Some are right: an operand that commutes was exchanged, or a guard that is there to keep the
e-graph small was dropped. Those are proved, so nobody has to list them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from cleave.errors import RuleError
from cleave.rewrite.parser import Session, accepts
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
    "Log": ("Neg",),
    "Recip": ("Recip0", "Neg"),
    "Recip0": ("Recip", "Neg"),
    "Rsqrt": ("Sqrt", "Recip"),
    "Sqrt": ("Rsqrt", "Abs"),
    "Sq": ("Abs",),
    "Abs": ("Neg",),
    "Sigmoid": ("Silu", "Tanh"),
    "Silu": ("Sigmoid",),
    "Maximum": ("Minimum", "Add"),
    "Minimum": ("Maximum",),
    "Sum": ("MaxOf",),
    "MaxOf": ("Sum", "MinOf"),
    "MinOf": ("MaxOf",),
}
"""What an operation or a monoid is exchanged for."""


class Fate(StrEnum):
    """What became of a mutant.

    refuted: by a counterexample. not proved: the prover, which proves the rule, refuses it. proved: right as well.
    survived: not refuted, and the prover can say nothing of such a rule. contradiction: refuted and proved.
    """

    REFUTED = "refuted"
    REFUSED = "not proved"
    SILENT = "never fired"
    EQUIVALENT = "proved"
    SURVIVED = "survived"
    CONTRADICTION = "contradiction"

    @property
    def is_caught(self) -> bool:
        return self in (Fate.REFUTED, Fate.REFUSED, Fate.SILENT)

    @property
    def is_fault(self) -> bool:
        """Of the nets, not of the mutant."""
        return self in (Fate.SURVIVED, Fate.CONTRADICTION)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule with one change. ``assumes``: what it assumes, if that was changed."""

    rule: str
    change: str
    text: str
    assumes: str | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.change}"

    def book(self, book: Rulebook) -> Rulebook:
        """The book with the mutant in the place of its rule."""
        return book.with_rule(self.rule, self.text, self.assumes)


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutant with what prover and property test said; ``report`` is missing if it was not tested."""

    mutant: Mutant
    fate: Fate
    proof: Proof
    report: RuleReport | None = None

    def __str__(self) -> str:
        show_proof = self.report is None or self.fate is Fate.EQUIVALENT
        return f"{self.mutant}: {self.fate}; {self.proof.reason if show_proof else self.report}"


def mutants(rule: Rule | str, book: Rulebook | None = None) -> tuple[Mutant, ...]:
    """Every mutant of a rule that is a rule: the rulebook reads it and egglog accepts it. Each text once."""
    everything = book or Rulebook.installed()
    found = everything.rule(rule if isinstance(rule, str) else rule.name)
    made: dict[tuple[str, str | None], Mutant] = {}
    for change, expression in _changes(found, everything.signature):
        text = show(expression)
        made.setdefault((text, None), Mutant(found.name, change, text))
    made.pop((show(found.command.expression), None), None)
    for number, assumption in enumerate(found.assumes):
        rest = ", ".join((*found.assumes[:number], *found.assumes[number + 1 :])) or "nothing"
        made[found.text, rest] = Mutant(found.name, f"the assumption {assumption} dropped", found.text, rest)
    with Session(everything.without(found.name).text()) as session:
        return tuple(mutant for mutant in made.values() if _is_rule(mutant, everything, session))


def _is_rule(mutant: Mutant, book: Rulebook, session: Session) -> bool:
    with suppress(RuleError):
        mutant.book(book)
        return accepts(session, mutant.text)
    return False


def try_mutant(
    mutant: Mutant, book: Rulebook | None = None, *, examples: int = 60, seed: int | None = None, test: bool = True
) -> Trial:
    """Try to prove it and, with ``test`` or where the prover can't say anything, test it."""
    everything = book or Rulebook.installed()
    changed = mutant.book(everything)
    proof = prove_rule(mutant.rule, changed)
    says_something = proof.proved or everything.rule(mutant.rule).is_proved
    if not test and says_something:
        return Trial(mutant, Fate.EQUIVALENT if proof.proved else Fate.REFUSED, proof)
    report = examine_rule(mutant.rule, changed, examples=examples, seed=seed, shrink=False)
    return Trial(mutant, _fate(proof, report.outcome, says_something=says_something), proof, report)


def _fate(proof: Proof, outcome: Outcome, *, says_something: bool) -> Fate:
    match outcome:
        case Outcome.COUNTEREXAMPLE:
            return Fate.CONTRADICTION if proof.proved else Fate.REFUTED
        case _ if proof.proved:
            return Fate.EQUIVALENT
        case Outcome.NEVER_FIRED:
            return Fate.SILENT
        case Outcome.SOUND:
            return Fate.REFUSED if says_something else Fate.SURVIVED


# ---- changes ----------------------------------------------------------------------------------------------------


def _changes(rule: Rule, signature: Signature) -> Iterator[tuple[str, Sexp]]:
    command = rule.command.expression
    sorts = dict(rule.variables)
    if rule.command.head == "rewrite":
        for position, side in ((1, "left"), (2, "right")):
            for change, term in _terms(command[position], "E", sorts, signature, is_right=side == "right"):
                yield f"{change} on the {side}", _put(command, position, term)
        for position in (number + 1 for number, part in enumerate(command) if part == ":when"):
            yield from _facts(command, position, sorts, signature)
        return
    yield from _facts(command, 1, sorts, signature)
    actions = command[2]
    for number, action in enumerate(actions):
        if action[0] == "union":
            for change, term in _terms(action[2], "E", sorts, signature, is_right=True):
                yield f"{change} on the right", _put(command, 2, _put(actions, number, _put(action, 2, term)))


def _facts(command: Sexp, position: int, sorts: dict[str, str], signature: Signature) -> Iterator[tuple[str, Sexp]]:
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
    operands = [number for number, sort in enumerate(parts, 1) if sort == "E"]
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
