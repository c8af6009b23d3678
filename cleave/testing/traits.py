"""What a term and a world it was compared in were like, so that a test can say what it has seen."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import numpy as np

from cleave.rewrite.sexp import Sexp
from cleave.testing.meaning import Meaning, is_term
from cleave.testing.world import LEAVES, OWNER, SPLIT, Array, Numbers, base_of


class Trait(StrEnum):
    """The kinds of sizes and of values that rules go wrong at; axes are those that the term depends on or folds."""

    UNEVEN = "a split count that does not divide"
    DIFFERENT = "axes all different"
    EQUAL = "axes of equal extents"
    SINGLE = "a fold over one position"
    EMPTY = "a fold over none"
    NEGATIVE = "a negative value"
    ZERO = "a zero"
    HUGE = "a value above 10000"
    INFINITE = "-inf"


LARGE = 1e4


def traits(term: Sexp, numbers: Numbers, meaning: Meaning) -> frozenset[Trait]:
    """Of a term with its value in a world; none where it has no position, since nothing is compared there."""
    if not meaning.at_positions(meaning.value(term)).size:
        return frozenset()
    return frozenset((*_of_sizes(term, numbers), *_of_values(meaning)))


def folded(term: Sexp) -> tuple[str, ...]:
    """Base axes that the term folds over, or over a piece of which."""
    return tuple(sorted({base_of(part[2]) for part in _parts(term) if part[0] == "Red"}))


def _of_sizes(term: Sexp, numbers: Numbers) -> Iterator[Trait]:
    at = numbers.sizes
    folds = folded(term)
    used = {*folds} | {name for part in _parts(term) if part[0] == "Leaf" for name in LEAVES[int(str(part[1]))].axes}
    extents = [at.extents[name] for name in used if name not in OWNER]
    of_folds = {n for name in folds for n in (at.lengths[name] if name in OWNER else (at.extents[name],))}
    if len(extents) > 1:
        yield Trait.EQUAL if len(set(extents)) == 1 else Trait.DIFFERENT
    if any(at.greatest(name) % at.counts[SPLIT[name]] for name in used & SPLIT.keys()):
        yield Trait.UNEVEN
    yield from (trait for extent, trait in ((1, Trait.SINGLE), (0, Trait.EMPTY)) if extent in of_folds)


def _of_values(meaning: Meaning) -> Iterator[Trait]:
    found: Array = np.concatenate([meaning.at_positions(value) for value in meaning.memo.values()])
    finite = np.isfinite(found)
    yield from (
        trait
        for trait, holds in (
            (Trait.NEGATIVE, (finite & (found < 0)).any()),
            (Trait.ZERO, (found == 0).any()),
            (Trait.HUGE, (finite & (np.abs(found) > LARGE)).any()),
            (Trait.INFINITE, np.isneginf(found).any()),
        )
        if holds
    )


def _parts(term: Sexp) -> Iterator[tuple[Sexp, ...]]:
    if not isinstance(term, str):
        yield term
        for part in term[1:]:
            if is_term(part):
                yield from _parts(part)
