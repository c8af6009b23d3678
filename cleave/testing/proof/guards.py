"""What the guards of a rule say. A guard that is not understood is left out: then less is assumed, never more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from cleave.rewrite.rule import Rule
from cleave.rewrite.sexp import Sexp, show

Subject = Literal["axes", "whole", "exts"]
SUBJECTS: dict[str, Subject] = {"axes": "axes", "paxes": "axes", "whole": "whole", "exts": "exts"}


@dataclass(frozen=True, slots=True)
class Membership:
    """``ax`` is, or is not, in axes(variable), whole(variable) or exts(variable)."""

    subject: Subject
    variable: str
    ax: Sexp
    inside: bool


@dataclass(frozen=True, slots=True)
class Guards:
    memberships: tuple[Membership, ...]
    bases: frozenset[str]  # variables for base axes
    different: tuple[tuple[Sexp, Sexp], ...]
    wanted: tuple[Sexp, ...]  # axes of folds that the left side is a factor below

    def about(self, variable: str, *, inside: bool) -> Iterator[Sexp]:
        """Axes that a variable for a term or a predicate must, or must not, depend on."""
        return (m.ax for m in self.memberships if m.subject == "axes" and m.variable == variable and m.inside is inside)


def guards_of(rule: Rule) -> Guards:
    sets: dict[str, tuple[Subject, str]] = {}
    for fact in rule.conditions:
        match fact:
            case ("=", str(name), (str(function), str(variable))) if function in SUBJECTS:
                sets[name] = SUBJECTS[function], variable
            case ("=", (str(function), str(variable)), str(name)) if function in SUBJECTS:
                sets[name] = SUBJECTS[function], variable
            case _:
                pass
    memberships = tuple(
        Membership(*sets[show(fact[1])], fact[2], fact[0] == "set-contains")
        for fact in rule.conditions
        if fact[0] in ("set-contains", "set-not-contains") and show(fact[1]) in sets
    )
    different = tuple((fact[1], fact[2]) for fact in rule.conditions if fact[0] == "!=" and len(fact) == 3)
    wanted = tuple(fact[1] for fact in rule.conditions if fact[0] == "Want")
    return Guards(memberships, frozenset(_bases(rule)), different, wanted)


def axis_variables(rule: Rule, guards: Guards) -> tuple[str, ...]:
    """Variables for axes in the equation, in guards, and in the demand for it."""
    named = [name for name, sort in rule.variables if sort == "Ax"]
    guarded = [m.ax for m in guards.memberships if isinstance(m.ax, str)]
    return tuple(dict.fromkeys([*named, *guarded, *guards.bases, *map(show, guards.wanted)]))


def _bases(rule: Rule) -> Iterator[str]:
    """Said to be base axes, or split: only base axes are."""
    for fact in rule.conditions:
        match fact:
            case ("Axis", str(name)) | ("Splittable", str(name), _):
                yield name
            case _:
                pass
    for side in (rule.lhs, rule.rhs, *rule.conditions):
        yield from under_pieces(side)


def under_pieces(pattern: Sexp) -> Iterator[str]:
    """Variables k of (Outer k S) and (Inner k S)."""
    match pattern:
        case ("Outer" | "Inner", str(name), _):
            yield name
        case str():
            pass
        case _:
            for part in pattern:
                yield from under_pieces(part)
