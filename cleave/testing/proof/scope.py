"""Which free positions a term certainly depends on, by its structure and by guards."""

from __future__ import annotations

from cleave.rewrite.rule import Signature
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
