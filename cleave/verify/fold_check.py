"""Folds on random chunkings: joined states, in any order, and the loop in its absorbing form, must give the whole.

whole     the members over the whole axis
join      state of chunk X, state of chunk Y -> state of X and Y together
absorb    running state, next tile -> state, the tile being computed relative to the joint state
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cleave.candidate import Candidate, Fold
from cleave.errors import CleaveError
from cleave.ir.axis import owners
from cleave.ir.graph import Reduce, Ref, Term, axes_in, free, reductions, walk
from cleave.ir.instance import Instance, below
from cleave.ir.interp import Space, make_space, value
from cleave.ir.op import MONOIDS
from cleave.verify.equivalence import split_instance
from cleave.verify.instantiate import Array
from cleave.verify.metric import ALGEBRA, Comparison, algebra_magnitude, compare
from cleave.verify.reference import Reference, representative
from cleave.verify.verdict import Check, Outcome, Step

State = tuple[Array, ...]

_CHUNKINGS = 2
_MOST_CHUNKS = 5
_MORE = 5
"""Instances at random beside those that every relation of sizes needs: a chunking costs as much as an instance."""


def check_folds(c: Candidate, references: Sequence[Reference], rng: np.random.Generator) -> Check:
    """Every fold of a candidate on every instance."""
    if not c.folds:
        return Check(Step.FOLDS, Outcome.SKIPPED, detail="the candidate brings none")
    faults = [fault for f in c.folds if (fault := _shape_fault(f))]
    if faults:
        return Check(Step.FOLDS, Outcome.WRONG_FOLD, detail=faults[0])
    count, worst = 0, 0.0
    for reference in representative(references, rng, _MORE):
        at = split_instance(c, reference, rng)
        for f in c.folds:
            what, ratio = _check_at(f, at, rng)
            worst = max(worst, ratio)
            if what:
                return Check(Step.FOLDS, Outcome.WRONG_FOLD, count + 1, worst, what)
        count += 1
    outcome = Outcome.PASSED if count else Outcome.NOT_EVALUABLE
    return Check(Step.FOLDS, outcome, count, worst, "" if count else "no instance could be drawn")


def _shape_fault(f: Fold) -> str:
    """Why a fold has no meaning: its lengths, an axis that is not its own, a reduction that its state lacks."""
    if len(f.members) != len(f.carry):
        return f"fold over {f.axis}: {len(f.members)} members, {len(f.carry)} carries"
    for k, m in enumerate(f.members):
        if m.axis is not f.axis:
            return f"fold over {f.axis}: member {k} reduces over {m.axis}"
        inside = [r for r in reductions(m.body) if r.axis is f.axis and r not in f.members[:k]]
        if inside:
            return f"fold over {f.axis}: member {k} needs a {inside[0].op} that the state before it lacks"
        wrong = [r.name for r in _refs(f.carry[k]) if not _refers(r.name, k)]
        if wrong:
            return f"fold over {f.axis}: carry {k} refers to {wrong[0]}; allowed: old0 .. old{k}, new0 .. new{k - 1}"
    return ""


def _refs(t: Term) -> list[Ref]:
    return [r for r in walk(t) if isinstance(r, Ref)]


def _refers(name: str, member: int) -> bool:
    kind, number = name[:3], name[3:]
    return number.isdigit() and int(number) <= member - (kind == "new") and kind in ("old", "new")


# ---- one fold on one instance


@dataclass(frozen=True)
class _Setting:
    """A fold on an instance, and the whole space of its members."""

    fold: Fold
    instance: Instance
    whole: Space

    def space(self, positions: Array) -> Space:
        """The space with only some positions on the fold's axis; what the axis owns is placed again."""
        out = self.whole.copy()
        out.place(self.fold.axis, positions)
        for a in out.order:
            if self.fold.axis in owners(a):
                out.place(a, self.whole.environment[a].ravel())
        return out


def _check_at(f: Fold, instance: Instance, rng: np.random.Generator) -> tuple[str, float]:
    """("", greatest ratio of error to bound), or what went wrong."""
    whole = make_space(axes_in((*f.members, *f.carry)), instance.inputs, instance.dims)
    memo: dict[Term, Array] = {}
    try:
        state = tuple(value(m, whole, memo) for m in f.members)
        sizes = tuple(value(algebra_magnitude(m), whole, memo) for m in f.members)
        return _check_chunkings(_Setting(f, instance, whole), state, sizes, rng)
    except CleaveError as error:
        return f"fold over {f.axis} has no value at {instance}: {error}", np.inf


def _check_chunkings(setting: _Setting, whole: State, sizes: State, rng: np.random.Generator) -> tuple[str, float]:
    worst = 0.0
    for chunks in _chunkings(setting.whole.environment[setting.fold.axis].size, rng):
        forms = {"joined": _joined(setting, chunks, rng)}
        if setting.fold.absorbing:
            forms["absorbed"] = _absorbed(setting, chunks)
        for form, state in forms.items():
            k, comparison = _worst_member(setting, state, whole, sizes)
            worst = max(worst, comparison.worst)
            if not comparison.passed:
                lengths = ", ".join(str(len(chunk)) for chunk in chunks)
                what = f"fold over {setting.fold.axis}, member {k} {form} from chunks of {lengths}"
                return f"{what} at {setting.instance}: {comparison}", worst
    return "", worst


def _chunkings(extent: int, rng: np.random.Generator) -> list[list[Array]]:
    """Cuts of 0 .. extent into chunks: even ones, and random ones in any order, some of them empty."""
    everything = np.arange(extent)
    out = [np.array_split(everything, max(min(extent, _MOST_CHUNKS), 1))]
    for _ in range(_CHUNKINGS):
        cuts = np.sort(rng.integers(0, extent + 1, 1 + below(4, rng)))
        chunks = np.split(everything, cuts)
        out.append([chunks[k] for k in rng.permutation(len(chunks))])
    return out


def _state_of(setting: _Setting, positions: Array) -> State:
    space = setting.space(positions)
    memo: dict[Term, Array] = {}
    return tuple(value(m, space, memo) for m in setting.fold.members)


def _joined(setting: _Setting, chunks: Sequence[Array], rng: np.random.Generator) -> State:
    """States of the chunks, joined two at a time in a random order."""
    states = [_state_of(setting, chunk) for chunk in chunks]
    while len(states) > 1:
        x = states.pop(below(len(states), rng))
        y = states.pop(below(len(states), rng))
        states.append(_join(setting, x, y))
    return states[0]


def _join(setting: _Setting, x: State, y: State) -> State:
    """new_k = monoid_k(carry_k(old := x), carry_k(old := y)), member after member."""
    space = setting.space(np.arange(0))
    new: list[Array] = []
    for m, carry in zip(setting.fold.members, setting.fold.carry, strict=True):
        parts = [_carried(carry, old, new, space) for old in (x, y)]
        new.append(np.asarray(MONOIDS[m.op].combine(*parts)))
    return tuple(new)


def _absorbed(setting: _Setting, chunks: Sequence[Array]) -> State:
    """The loop: each tile is computed relative to the new state, from the identity on."""
    fold = setting.fold
    running: State = tuple(np.full([1] * len(setting.whole.order), MONOIDS[m.op].identity) for m in fold.members)
    for chunk in chunks:
        space = setting.space(chunk)
        new: list[Array] = []
        memo: dict[Term, Array] = {}
        for m, carry in zip(fold.members, fold.carry, strict=True):
            contribution = value(m, space, memo)
            new.append(np.asarray(MONOIDS[m.op].combine(_carried(carry, running, new, space), contribution)))
            memo[m] = new[-1]  # what later members see is the joint state, not this tile's own
        running = tuple(new)
    return running


def _carried(carry: Term, old: State, new: Sequence[Array], space: Space) -> Array:
    memo: dict[Term, Array] = {}
    for r in _refs(carry):
        values = old if r.name.startswith("old") else new
        memo[r] = values[int(r.name[3:])]
    return value(carry, space, memo)


def _worst_member(setting: _Setting, state: State, whole: State, sizes: State) -> tuple[int, Comparison]:
    found = [(k, _compare_member(setting, m, state[k], whole[k], sizes[k])) for k, m in enumerate(setting.fold.members)]
    return max(found, key=lambda pair: (not pair[1].passed, pair[1].worst))


def _compare_member(setting: _Setting, m: Reduce, state: Array, whole: Array, size: Array) -> Comparison:
    """Where positions on the member's other axes exist."""
    valid = setting.whole.valid_for(free(m))
    a, e, s, keep = np.broadcast_arrays(state, whole, size, valid)
    return compare(a[keep], e[keep], s[keep], ALGEBRA)
