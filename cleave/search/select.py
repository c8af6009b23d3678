"""Which rules of a book a configuration lets the search use."""

from __future__ import annotations

from cleave.config import Config
from cleave.rewrite.rule import Exactness, Rule
from cleave.rewrite.rulebook import Rulebook
from cleave.rewrite.sexp import Sexp, show


def selected(book: Rulebook | None, config: Config) -> tuple[Rulebook, list[str]]:
    """The book without what the configuration forbids, and notes on what that was."""
    if book is None:
        book = Rulebook.installed() if config.unsafe else Rulebook.default()
    reasons: dict[str, list[str]] = {}
    for rule in book.rules:
        for why in refused_for(rule, config):
            reasons.setdefault(why, []).append(rule.name)
    off = [name for names in reasons.values() for name in names]
    notes = [f"rules off, {why}: {', '.join(names)}" for why, names in reasons.items()]
    return (book.without(*off) if off else book), notes


def refused_for(rule: Rule, config: Config) -> list[str]:
    """What in a configuration keeps a rule from being used; nothing if it may be."""
    reasons = {
        "class numerically-unsafe": rule.exactness is Exactness.UNSAFE and not config.unsafe,
        "assumptions not granted": not rule.kinds <= config.assume,
        "reassociation off": not config.ablation.reassociation and exchanges_binders(rule),
    }
    return [why for why, holds in reasons.items() if holds]


def exchanges_binders(rule: Rule) -> bool:
    """Whether two reductions change places, as in associativity of the matrix product."""
    before, after = _nested(rule.lhs, ()), _nested(rule.rhs, ())
    return any((inner, outer) in after for outer, inner in before if outer != inner)


def _nested(side: Sexp, around: tuple[str, ...]) -> set[tuple[str, str]]:
    """(outer, inner) for every two reductions of which one lies inside the other."""
    if isinstance(side, str):
        return set()
    out: set[tuple[str, str]] = set()
    if side and side[0] == "Red":
        axis = show(side[2])
        out |= {(outer, axis) for outer in around}
        around = (*around, axis)
    return out.union(*(_nested(part, around) for part in side))
