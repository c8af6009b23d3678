"""Proofs of rewrite rules for all sizes.

A rule is proved if, in every case of its axes, both sides have one normal form, or z3 finds no values for which they
differ; and if its right side mentions no axis that its left side may lack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from cleave.rewrite.rule import Rule
from cleave.rewrite.rulebook import Rulebook
from cleave.rewrite.sexp import Sexp, atoms
from cleave.testing.proof.arithmetic import Numbers, Outside
from cleave.testing.proof.axes import Ax, Case, cases
from cleave.testing.proof.evaluate import Evaluation, free_scope
from cleave.testing.proof.guards import Guards, axis_variables, guards_of
from cleave.testing.proof.infinite import Infinite, equal
from cleave.testing.proof.normal import Extent, Polynomial, of_atom, positions, rename, single, text
from cleave.testing.proof.scope import bound_anew, mentioned

POINTWISE = frozenset({"ExpDiff", "Exp", "NegInf", "Where", "Maximum", "Minimum"})


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether a rule is proved for all sizes; ``reason``: how, or in which case it is not and what stands there.

    ``assumes``: what of its values the proof rests on, as the rule says it.
    """

    rule: str
    proved: bool
    reason: str
    assumes: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.proved:
            return f"{self.rule}: not proved, {self.reason}"
        return f"{self.rule}: proved{' assuming ' + ', '.join(self.assumes) if self.assumes else ''}, {self.reason}"


def prove_rule(rule: Rule | str, book: Rulebook | None = None) -> Proof:
    """Prove a rule of ``book`` (default: the installed rules) for all sizes, or say where the proof fails.

    What is not proved need not be wrong: ``check_rule`` looks for a counterexample.
    """
    everything = book or Rulebook.installed()
    found = rule if isinstance(rule, Rule) else everything.rule(rule)
    sorts = {op: sort for op, (sort, _) in everything.signature.items()}
    try:
        proof = _Prover(found, guards_of(found), everything, frozenset(op for op in sorts if sorts[op] == "Op")).prove()
    except Outside as error:
        return Proof(found.name, False, f"outside what the prover knows: {error}")
    return replace(proof, assumes=found.assumes)


@dataclass(frozen=True, slots=True)
class _Prover:
    rule: Rule
    guards: Guards
    book: Rulebook
    monoids: frozenset[str]

    def prove(self) -> Proof:
        self._one_count_for_each_axis()
        axes = axis_variables(self.rule, self.guards)
        how: dict[str, None] = {}
        number = 0
        for case in cases(axes, (self.rule.lhs, self.rule.rhs), self.guards):
            for chosen in self._chosen_monoids():
                number += 1
                step = self._case(case, chosen)
                if not step.proved:
                    where = [*([str(case)] if axes else []), *chosen.values()]
                    return self._not(f"case {', '.join(where)}: {step.reason}" if where else step.reason)
                how[step.reason] = None
        if not number:
            return self._not("its guards contradict each other")
        counted = f"{number} case{'s' * (number != 1)} of axes"
        return Proof(self.rule.name, True, f"by {' and '.join(how)} in {counted}")

    def _one_count_for_each_axis(self) -> None:
        counts: dict[Sexp, Sexp] = {}
        for side in (self.rule.lhs, self.rule.rhs):
            for base, count in _counts(side):
                if counts.setdefault(base, count) != count:
                    raise Outside(f"{base} is split twice")

    def _chosen_monoids(self) -> Iterator[dict[str, str]]:
        names = [name for name, sort in self.rule.variables if sort == "Op"]
        for chosen in product(sorted(self.monoids), repeat=len(names)):
            yield dict(zip(names, chosen, strict=True))

    def _case(self, case: Case, monoids: dict[str, str]) -> Proof:
        evaluation = self._evaluation(case, monoids)
        more = self._mentioned(self.rule.rhs, case) - self._mentioned(self.rule.lhs, case)
        if more:
            axes = ", ".join(sorted(map(str, more)))
            return self._not(f"scope: the right side depends on {axes}, which the left side may lack")
        anew = bound_anew(self.rule, case, self.guards)
        if anew:
            return self._not(f"scope: only the right side folds {anew}, which may own an axis that stays free")
        refused = self._by_normal_form(evaluation)
        if not refused:
            return Proof(self.rule.name, True, "normal form")
        if not POINTWISE & {*atoms(self.rule.lhs), *atoms(self.rule.rhs)}:
            return self._not(refused)
        return self._by_z3(evaluation, refused)

    def _by_normal_form(self, evaluation: Evaluation) -> str:
        """Why the normal forms prove nothing; empty if they do."""
        scope = free_scope(evaluation.case)
        try:
            evaluation.value(self.rule.lhs, scope)
            finite = (
                frozenset(map(_where_it_exists, evaluation.infinite)) | evaluation.infinite | self._nonzero(evaluation)
            )
            informed = replace(evaluation, finite=finite, infinite=set())
            left, right = informed.value(self.rule.lhs, scope), informed.value(self.rule.rhs, scope)
        except Outside as error:
            return f"no normal form: {error}"
        if left != right:
            return f"{text(left)}  is not  {text(right)}"
        created = informed.infinite - finite
        if created and not evaluation.numbers.extended:
            return f"the right side creates {', '.join(sorted(map(text, created)))}, which may be infinite"
        return ""

    def _by_z3(self, evaluation: Evaluation, refused: str) -> Proof:
        case = evaluation.case
        pointwise = self._evaluation(case, dict(evaluation.monoids), extended=True)
        found = Infinite(pointwise, pointwise.existing, "finite" in self.rule.assumes)
        try:
            answer = equal(self.rule.lhs, self.rule.rhs, free_scope(case), found)
        except Outside:
            return self._not(refused)
        if answer.excluded:
            return Proof(self.rule.name, True, "z3")
        return self._not(f"{refused}, {_shown(answer.detail)}")

    def _evaluation(self, case: Case, monoids: dict[str, str], *, extended: bool = False) -> Evaluation:
        names = frozenset(words[1] for words in self._assumptions("finite"))
        numbers = Numbers(extended or "finite" not in self.rule.assumes, names)
        existing = self._mentioned(self.rule.lhs, case)
        out = Evaluation(case, self.guards, numbers, self.book.signature, monoids, existing)
        atoms = (out.value(pattern, free_scope(case)) for name, pattern in self.rule.definitions if name in names)
        finite = frozenset(a for p in atoms for m, _ in p.terms if single(p) for a, n in m.powers if len(m.powers) == n)
        return replace(out, numbers=replace(numbers, finite_atoms=finite), infinite=set())

    def _assumptions(self, kind: str) -> Iterator[list[str]]:
        return (words for a in self.rule.assumes if len(words := a.split()) == 2 and words[0] == kind)

    def _nonzero(self, evaluation: Evaluation) -> set[Polynomial]:
        """1/x of what the rule assumes to be no zero."""
        scope = free_scope(evaluation.case)
        out: set[Polynomial] = set()
        for _, name in self._assumptions("nonzero"):
            size = name.strip("|")
            if size in evaluation.case.axes:
                ax = evaluation.case.resolve(size)
                owners = tuple(scope.positions[owner] for owner in evaluation.case.extent_slots(ax))
                out.add(of_atom(Extent(str(ax), owners), -1))
            else:
                out |= {of_atom(a, -1) for m, _ in evaluation.value(name, scope).terms for a, _ in m.powers}
        return out

    def _mentioned(self, side: Sexp, case: Case) -> frozenset[Ax]:
        return mentioned(side, case, self.guards, self.book.signature)

    def _not(self, reason: str) -> Proof:
        return Proof(self.rule.name, False, reason)


def _where_it_exists(p: Polynomial) -> Polynomial:
    """What is finite for all chunks is so for the chunk in scope, where a free place exists."""
    return rename(p, {position: position.removesuffix("?") for position in positions(p)})


def _shown(values: str) -> str:
    """Values that z3 found, as numbers are written here; or that it found none."""
    for sort, sign in ((r"fin\(([^()]*)\)", r"\1"), (r"\bneg\b", "-inf"), (r"\bpos\b", "+inf")):
        values = re.sub(sort, sign, values)
    return values if values.startswith("z3 ") else f"as for {values}"


def _counts(pattern: Sexp) -> Iterator[tuple[Sexp, Sexp]]:
    match pattern:
        case str():
            pass
        case ("Outer" | "Inner", base, count):
            yield base, count
        case _:
            for part in pattern:
                yield from _counts(part)
