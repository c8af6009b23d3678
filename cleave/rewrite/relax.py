"""Rules without one of their guards, or all of a kind: wrong as rules, but they tell what keeps two terms apart.

A guard is a fact of a rule's body that tests something:  (set-not-contains sa k), (Param b), (Want k e).  A fact that
only gives a name,  (= sa (axes a)),  is none. What a dropped guard alone bound goes with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cleave.rewrite.rule import Rule, Signature
from cleave.rewrite.sexp import Sexp, atoms, show

_VARIABLE = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Relaxed:
    """A rule, the guards that it is without, in words, and its text then (an egglog command)."""

    rule: Rule
    guards: tuple[str, ...]
    text: str


def relaxations(rule: Rule, signature: Signature) -> Iterator[Relaxed]:
    """The rule without each of its guards in turn, then without all guards that test the same thing of several terms.

    A guard that binds what the rule needs can't be dropped.
    """
    facts = _facts(rule)
    aliases = dict(named for f in rule.conditions if (named := _named(f)) is not None)
    guards = [f for f in rule.conditions if _named(f) is None]
    kinds: dict[tuple[str, str], list[Sexp]] = {}
    for guard in guards:
        kinds.setdefault(_kind(guard, aliases), []).append(guard)
    for dropped in (*([g] for g in guards), *(k for k in kinds.values() if len(k) > 1)):
        kept = _grounded([f for f in facts if f not in dropped], signature)
        text = _text(rule, kept)
        if text is not None:
            yield Relaxed(rule, tuple(words(g, aliases) for g in dropped), text)


def _kind(guard: Sexp, aliases: Mapping[str, Sexp]) -> tuple[str, str]:
    """What is tested: the relation, and of a set what it is the set of."""
    match guard:
        case (relation, str(name), *_):
            defined = aliases.get(name, "")
            return show(relation), "" if isinstance(defined, str) else show(defined[0])
        case _:
            return show(guard), ""


def _facts(rule: Rule) -> tuple[Sexp, ...]:
    if rule.command.head == "rewrite":
        return rule.conditions
    body = rule.command.expression[1]
    assert not isinstance(body, str)
    return body


def _named(fact: Sexp) -> tuple[str, Sexp] | None:
    """(= name (f ..)) -> (name, (f ..))."""
    match fact:
        case ("=", str(name), tuple(definition)) | ("=", tuple(definition), str(name)) if definition:
            return name, definition
        case _:
            return None


def _grounded(facts: list[Sexp], signature: Signature) -> list[Sexp]:
    """Facts whose variables are bound by a pattern or a relation; the others can't be tested."""
    kept = list(facts)
    while True:
        bound = {a for f in kept if _binds(f, signature) for a in _variables(f)}
        loose = [f for f in kept if not _binds(f, signature) and not _variables(f) <= bound]
        if not loose:
            return kept
        kept = [f for f in kept if f not in loose]


def _binds(fact: Sexp, signature: Signature) -> bool:
    """Patterns over constructors and look-ups bind their variables, primitive tests do not."""
    return not isinstance(fact, str) and not show(fact[0]).startswith(("set-", "!=", "<", ">"))


def _variables(fact: Sexp) -> set[str]:
    heads = _heads(fact)
    return {a for a in atoms(fact) if _VARIABLE.fullmatch(a) and a not in heads}


def _heads(fact: Sexp) -> set[str]:
    if isinstance(fact, str) or not fact:
        return set()
    return {show(fact[0])}.union(*(_heads(part) for part in fact[1:]))


def _text(rule: Rule, facts: list[Sexp]) -> str | None:
    """The command with other facts; None if its actions need a variable that no fact binds any more."""
    expression = rule.command.expression
    if rule.command.head == "rewrite":
        parts = list(expression)
        at = parts.index(":when")
        parts[at + 1] = tuple(facts)
        return show(tuple(parts))
    bound = {a for f in facts for a in _variables(f)}
    lets = {show(a[1]) for a in expression[2] if isinstance(a, tuple) and a and a[0] == "let"}
    needed = {a for action in expression[2] for a in _variables(action)} - lets
    return show((expression[0], tuple(facts), *expression[2:])) if needed <= bound else None


# ---- words


def words(guard: Sexp, aliases: Mapping[str, Sexp]) -> str:
    """A guard as a reader says it; egglog's text where no words are known."""

    def defined(part: Sexp) -> Sexp:
        return aliases.get(part, part) if isinstance(part, str) else part

    match guard:
        case ("set-not-contains", what, element):
            return _absent(defined(what), _said(element)) or show(guard)
        case ("set-contains", what, element):
            return _present(defined(what), _said(element)) or show(guard)
        case ("Want", axis, _):
            return f"the product stands under a sum over {_said(axis)}"
        case ("Swap", outer, inner, _):
            return f"reductions over {_said(inner)} and {_said(outer)} are wanted in the other order"
        case ("Param", term):
            return f"{_said(term)} depends on weights only"
        case ("Splittable", axis, _):
            return f"{_said(axis)} may be split"
        case ("Axis", axis):
            return f"{_said(axis)} is a base axis"
        case ("!=", a, b):
            return f"{_said(a)} is not {_said(b)}"
        case _:
            return show(guard)


def _absent(what: Sexp, element: str) -> str:
    match what:
        case ("axes", term):
            return f"{_said(term)} does not depend on {element}"
        case ("exts", axis):
            return f"the extent of {_said(axis)} does not depend on {element}"
        case ("whole", axis):
            return f"{element} is not {_said(axis)} nor a piece of it"
        case _:
            return ""


def _present(what: Sexp, element: str) -> str:
    match what:
        case ("axes", term):
            return f"{_said(term)} depends on {element}"
        case _:
            return ""


def _said(part: Sexp) -> str:
    match part:
        case ("Outer", axis, _):
            return f"{_said(axis)}_o"
        case ("Inner", axis, _):
            return f"{_said(axis)}_i"
        case _:
            return show(part)
