"""The documentation table of a rulebook, made from the comments of the rule files."""

from __future__ import annotations

from collections.abc import Iterable

from cleave.rewrite.rule import Rule

HEADINGS = ("rule", "family", "says", "class", "assumes", "guards", "proof", "source")


def row(rule: Rule) -> tuple[str, ...]:
    """Cells under ``HEADINGS``."""
    says = " ; ".join(" ".join(line.split()) for line in rule.algebra.splitlines())
    assumes = ", ".join(rule.assumes) or "nothing"
    return rule.name, rule.family, says, str(rule.exactness), assumes, rule.guards, rule.proof, rule.source


def render(rules: Iterable[Rule]) -> str:
    """A Markdown table, one rule a line."""
    lines = [HEADINGS, tuple("-" * len(heading) for heading in HEADINGS), *(row(rule) for rule in rules)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
