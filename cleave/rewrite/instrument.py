"""Rules that record their matches, so that a derivation can be read off the e-graph.

A recorded row holds the rule's variables. The pattern and the classes of its variables give back both sides of the
match, also after later unions; the sides themselves would be one class and tell nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from cleave.rewrite.rule import Rule, options_of
from cleave.rewrite.sexp import Sexp, show


def recording(rule: Rule) -> str:
    """Declarations of the record, and the rule with one more action."""
    sorts = " ".join(sort for _, sort in rule.variables)
    declarations = f"(relation {rule.fired} ({sorts}))\n(function At-{rule.fired} ({sorts}) i64 :merge (min old new))\n"
    action = f"({rule.fired}{_variables(rule)})"
    parts = rule.command.expression
    if rule.command.head == "rewrite":
        conditions = "".join(" " + show(condition) for condition in rule.conditions)
        body = f"((= matched__ {show(parts[1])}){conditions})"
        actions = f"((union matched__ {show(parts[2])}) {action})"
    else:
        body, actions = show(parts[1]), _inner(parts[2]) + f" {action})"
    options = options_of(rule.command)
    return f"{declarations}(rule {body} {actions} :ruleset {show(options[':ruleset'])} :name {show(options[':name'])})"


def tick(rules: Iterable[Rule], number: int) -> str:
    """Dates new records. Rules can't read a clock (look-ups are forbidden in actions), so each round has a ruleset."""
    ruleset = f"dated-{number}"
    lines = [f"(ruleset {ruleset})"]
    for rule in rules:
        row = f"{rule.fired}{_variables(rule)}"
        lines.append(f"(rule (({row})) ((set (At-{row}) {number})) :ruleset {ruleset})")
    return "\n".join([*lines, f"(run-schedule (run {ruleset}))"])


def _variables(rule: Rule) -> str:
    return "".join(f" {name}" for name, _ in rule.variables)


def _inner(actions: Sexp) -> str:
    """(a b) without its closing parenthesis."""
    return show(actions)[:-1]
