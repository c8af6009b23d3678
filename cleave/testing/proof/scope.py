"""Which free positions a term certainly depends on, by its structure and by guards; and what may be bound.

A fold over the owner of a ragged axis that stays free has no meaning: the position along the ragged axis does not exist
for every owner. In a program no such fold occurs, so a rule must not make one.
"""

from __future__ import annotations

from collections.abc import Iterator

from cleave.rewrite.rule import Rule, Signature
from cleave.rewrite.sexp import Sexp, show
from cleave.testing.proof.axes import Ax, Case
from cleave.testing.proof.guards import Guards


def mentioned(pattern: Sexp, case: Case, guards: Guards, signature: Signature) -> frozenset[Ax]:
    """Slots that the term mentions whatever its variables are: by a guard that says so, or in the extent of an axis."""
    match pattern:
        case str(name):
            asked = (case.resolve(ax) for ax in guards.about(name, inside=True))
            return frozenset(slot for ax in asked for slot in case.slots(ax) if len(case.slots(ax)) == 1)
        case ("Size", ax):
            return _extent(case.resolve(ax), case)
        case ("Red", _, ax, body):
            found = case.resolve(ax)
            inside = mentioned(body, case, guards, signature)
            return inside - set(case.slots(found)) | _extent(found, case)
        case _:
            _, sorts = signature.get(show(pattern[0]), ("", ()))
            parts = [p for p, sort in zip(pattern[1:], sorts, strict=False) if sort == "E"]
            return frozenset[Ax]().union(*(mentioned(part, case, guards, signature) for part in parts))


def _extent(ax: Ax, case: Case) -> frozenset[Ax]:
    """The free positions that an extent depends on: those that are not bound with it."""
    slots = case.slots(ax)
    return frozenset(owner for slot in slots for owner in case.extent_slots(slot)) - set(slots)


def bound_anew(rule: Rule, case: Case, guards: Guards) -> str:
    """A variable that the right side folds over an axis that it may depend on, and nothing on the left does; or "".

    It might depend on an axis that the first one owns as well. ``Want`` says that the left side is below such a fold.
    """
    terms = frozenset(name for name, sort in rule.variables if sort in ("E", "i64"))
    wanted = frozenset(slot for ax in guards.wanted for slot in case.slots(case.resolve(ax)))
    before: dict[str, frozenset[Ax]] = {}
    for name, around in _binders(rule.lhs, case, terms, wanted):
        before[name] = before.get(name, wanted) | around
    for name, around in _binders(rule.rhs, case, terms, frozenset()):
        hidden = frozenset(slot for ax in guards.about(name, inside=False) for slot in case.whole(case.resolve(ax)))
        anew = around - before.get(name, wanted) - hidden
        if anew:
            return f"{name} over {', '.join(sorted(map(str, anew)))}"
    return ""


def _binders(
    pattern: Sexp, case: Case, terms: frozenset[str], around: frozenset[Ax]
) -> Iterator[tuple[str, frozenset[Ax]]]:
    """Every occurrence of a variable with the positions that are bound around it."""
    match pattern:
        case str(name):
            if name in terms:
                yield name, around
        case ("Red", _, ax, body):
            yield from _binders(body, case, terms, around | set(case.slots(case.resolve(ax))))
        case _:
            for part in pattern[1:]:
                yield from _binders(part, case, terms, around)
