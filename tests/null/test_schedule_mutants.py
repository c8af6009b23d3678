"""Wrong schedulers: each mutant breaks one step of the lowering, and the checks that every schedule passes must see
it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng
from pytest import MonkeyPatch

from cleave.candidate import Candidate
from cleave.config import Ablation, Config
from cleave.errors import CleaveError
from cleave.ir.axis import Axis
from cleave.ir.graph import IndexValue, Output, Reduce, Term, Where, apply, children, const, fold, free, graph, load
from cleave.ir.index import compare
from cleave.ir.interp import interpret
from cleave.schedule import bounds, grouping, lower, masks, schedule
from cleave.schedule.lower import _Lowering  # pyright: ignore[reportPrivateUsage]
from cleave.target import Target
from cleave.tile.interp import run_schedule
from cleave.tile.plan import Chunk
from cleave.tile.program import Accumulator, Store
from tests.null.scheduled_candidates import (
    CASES,
    LINEAR_MOST,
    LINEAR_SHAPE,
    Case,
    Shape,
    half,
    linear_axes,
    mul,
    output,
    reference_symbols,
)
from tests.null.test_schedule_fuzz import outcome

Mutant = Callable[[MonkeyPatch], None]


def seen(case: Case, options: dict[str, object], sizes: Shape | None = None) -> str | None:
    """What is wrong with the first schedules of a candidate, None if nothing shows."""
    rng = default_rng(17)
    try:
        for s in schedule(case.candidate, Target("sm_90a"), case.shape, **options)[:2]:  # type: ignore[arg-type]
            for _ in range(4):
                drawn = case.suiting(s, {**case.draw(rng), **(sizes or {})})
                inputs = case.inputs(rng, drawn)
                with np.errstate(all="ignore"):
                    got = run_schedule(s, inputs, drawn)
                    origin = case.candidate.origin
                    wanted = interpret(origin, inputs, reference_symbols(origin, drawn))
                if not all(np.allclose(got[n], wanted[n], rtol=1e-6, atol=1e-8, equal_nan=True) for n in wanted):
                    return "wrong result"
    except (CleaveError, KeyError) as error:
        return str(error)
    return None


# ---- the mutants


def dropped_rescale(patch: MonkeyPatch) -> None:
    """The old accumulator is kept as it was when the maximum moves."""
    patch.setattr(_Lowering, "carry", lambda *_: (None, ()))


def missing_mask(patch: MonkeyPatch) -> None:
    patch.setattr(_Lowering, "mask", lambda *_: None)


def wrong_identity(patch: MonkeyPatch) -> None:
    """Tails are padded with 0, whatever the monoid."""
    original = _Lowering.mask
    patch.setattr(_Lowering, "mask", lambda self, t, a, _: original(self, t, a, 0.0))


def short_bound(patch: MonkeyPatch) -> None:
    """A predicate's upper bound is one short."""
    original = bounds.solve

    def solve(pred: object, a: Axis) -> bounds.Bound | None:
        found = original(pred, a)  # type: ignore[arg-type]
        return replace(found, value=found.value - 1) if found is not None and found.side == "upper" else found

    patch.setattr(bounds, "solve", solve)


def bound_of_any_body(patch: MonkeyPatch) -> None:
    """Predicates shorten loops whose bodies are not the identity where they are false."""
    patch.setattr(bounds, "is_identity", lambda *_: True)


def hoisted_too_far(patch: MonkeyPatch) -> None:
    """A predicate is not counted among what a value depends on."""
    original = _Lowering.loops_of

    def loops_of(self: _Lowering, t: Term) -> frozenset[Axis]:
        if isinstance(t, Where):
            return frozenset[Axis]().union(*(self.loops_of(c) for c in children(t)))
        return original(self, t)

    patch.setattr(_Lowering, "loops_of", loops_of)


def reversed_members(patch: MonkeyPatch) -> None:
    """Members of a fold are updated before what they are relative to."""
    original = grouping.group

    def group(*args: object, **named: object):  # type: ignore[no-untyped-def]
        for g in original(*args, **named):  # type: ignore[arg-type]
            yield grouping.Group(g.members[::-1], g.fold, g.places[::-1])

    patch.setattr(lower, "group", group)


def stores_in_every_tile(patch: MonkeyPatch) -> None:
    """An output that lacks an axis of the grid is stored by each of its tiles."""

    def store(output: str, indices: object, value: object, axes: object, once: object = ()) -> Store:
        _ = once
        return Store(output, indices, value, axes, ())  # type: ignore[arg-type]

    patch.setattr(lower, "Store", store)


def facts_of_terms(patch: MonkeyPatch) -> None:
    """A mask in one loop is taken to hold for the same term in another."""
    original, masked = _Lowering.mask, set[tuple[int, Term, Axis]]()

    def mask(self: _Lowering, t: Term, a: Axis, identity: float) -> None:
        if (id(self), t, a) not in masked:
            original(self, t, a, identity)
        masked.add((id(self), t, a))

    patch.setattr(_Lowering, "mask", mask)


def zero_times_anything(patch: MonkeyPatch) -> None:
    """0 times what may be infinite is taken as 0."""
    patch.setattr(masks, "is_finite", lambda _: True)
    patch.setattr(lower, "is_finite", lambda _: True)


def unfinished_statistics(patch: MonkeyPatch) -> None:
    """Reductions that need one another share a loop though no fold allows it."""
    original = grouping.group

    def group(pending: list[Reduce], *_: object, **__: object):  # type: ignore[no-untyped-def]
        for g in original(pending, (), fuse=True):
            same_axis = tuple(r for r in pending if r.axis is g.axis)
            yield grouping.Group(same_axis, None, (None,) * len(same_axis))
            return

    patch.setattr(lower, "group", group)


def short_chunks(patch: MonkeyPatch) -> None:
    """Chunks cover the extent rounded down."""
    length = property(lambda self: self.extent // (self.count * self.multiple) * self.multiple)
    patch.setattr(Chunk, "length", length)


def shared_axis(patch: MonkeyPatch) -> None:
    """An axis both stored in tiles and summed is not told apart."""
    patch.setattr(lower, "separate", lambda g, plan, folds: (g.outputs, tuple(folds), dict(plan.roles)))


def unrounded_operand(patch: MonkeyPatch) -> None:
    """A computed operand reaches the matmul without a cast in the program."""
    patch.setattr(_Lowering, "operand", lambda self, t, _: self.need_ref(t))


def forgotten_chunks(patch: MonkeyPatch) -> None:
    """The merge stops one chunk early."""
    original = _Lowering.loop

    def loop(self: _Lowering, g: grouping.Group) -> None:
        original(self, g)
        last = self.scope.statements[-1]
        if g.axis.kind == "outer":
            self.scope.statements[-1] = replace(last, upper=last.upper - 1)  # type: ignore[union-attr, type-var]

    patch.setattr(_Lowering, "loop", loop)


def first_tile_only(patch: MonkeyPatch) -> None:
    """The running value is replaced by the tile's instead of combined (an accumulator of the wrong monoid)."""
    patch.setattr(
        lower,
        "Accumulator",
        lambda name, op, axes, carry=None, needs=(): Accumulator(
            name, "max" if op == "sum" else op, axes, carry, needs
        ),
    )


# ---- candidates that show what the usual ones hide


def linear(name: str, *terms: Callable[[Axis, Axis, Axis], Term]) -> Case:
    """Outputs Y0, Y1 .. over X[m, k] and W[k, n]."""
    m, n, k, i, j, q = linear_axes()
    outputs: list[Output] = []
    for number, made in enumerate(terms):
        term = made(i, j, q)
        stored = [a for a in (i, j) if a in free(term)]
        outputs.append(output(f"Y{number}", term, [a.extent for a in stored], *stored))
    g = graph(name, (half("X", m, k), half("W", k, n)), outputs)
    return Case(Candidate(name, g, g), LINEAR_SHAPE, LINEAR_MOST)


def x(i: Axis, q: Axis) -> Term:
    return load("X", i, q)


def masked_mean(i: Axis, _: Axis, q: Axis) -> Term:
    """Beyond the predicate the body is 1, no identity of the sum."""
    return fold("sum", q, Where(compare("<=", q, i), x(i, q), const(1.0)))


def masked_rows(i: Axis, _: Axis, q: Axis) -> Term:
    """Only the predicate varies with the summed axis."""
    top = fold("max", q, x(i, q))
    return fold("sum", q, Where(compare("<=", q, i), apply("exp", apply("minimum", top, const(1.0))), const(0.0)))


def product(i: Axis, j: Axis, q: Axis) -> Term:
    return fold("sum", q, mul(x(i, q), load("W", q, j)))


def squares(i: Axis, _: Axis, q: Axis) -> Term:
    return fold("sum", q, apply("sq", x(i, q)))


def infinite_beyond(i: Axis, _: Axis, q: Axis) -> Term:
    """A factor that is finite on the axis and infinite just beyond it, where the other factor is 0."""
    left = apply("sub", IndexValue(q.extent), IndexValue(q.position))
    return fold("sum", q, mul(x(i, q), apply("recip", left)))


def below_zero(i: Axis, q: Axis) -> Term:
    return apply("sub", apply("neg", apply("sq", x(i, q))), const(1.0))


def row_maximum(i: Axis, _: Axis, q: Axis) -> Term:
    return fold("max", q, below_zero(i, q))


def row_range(i: Axis, _: Axis, q: Axis) -> Term:
    """One body under two monoids whose identities differ."""
    return apply("sub", fold("min", q, below_zero(i, q)), fold("max", q, below_zero(i, q)))


APART = Config(ablation=Ablation(horizontal_fusion=False))
EXTRA: dict[str, Callable[[], Case]] = {
    "masked mean": lambda: linear("masked_mean", masked_mean),
    "row maximum": lambda: linear("row_maximum", row_maximum),
    "row range": lambda: linear("row_range", row_range),
    "masked rows": lambda: linear("masked_rows", masked_rows),
    "two outputs": lambda: linear("two_outputs", product, squares),
    "infinite beyond": lambda: linear("infinite_beyond", infinite_beyond),
}

CAUGHT: dict[str, tuple[Mutant, str, dict[str, object], Shape]] = {
    "dropped rescale": (dropped_rescale, "attention causal", {"tile": {"t": 16}}, {"t": 40}),
    "missing mask": (missing_mask, "attention", {}, {}),
    "missing mask, centred": (missing_mask, "layernorm", {}, {}),
    "wrong identity": (wrong_identity, "row maximum", {}, {}),
    "bound one short": (short_bound, "attention causal", {"tile": {"t": 16, "s": 4}}, {"s": 4, "t": 33}),
    "bound of any body": (bound_of_any_body, "masked mean", {"tile": {"k": 16, "m": 16}}, {"m": 4, "k": 40}),
    "hoisted too far": (hoisted_too_far, "masked rows", {}, {}),
    "fold members reversed": (reversed_members, "attention", {}, {}),
    "stored in every tile": (stores_in_every_tile, "two outputs", {}, {}),
    "facts of terms": (facts_of_terms, "row range", {"config": APART}, {}),
    "zero times anything": (zero_times_anything, "infinite beyond", {}, {}),
    "unfinished statistics": (unfinished_statistics, "attention without folds", {"tile": {"t": 16}}, {"t": 40}),
    "short chunks": (short_chunks, "matmul split", {"split": {"k": 3}}, {"k": 35}),
    "operand without cast": (unrounded_operand, "attention", {}, {}),
    "chunk forgotten": (forgotten_chunks, "flash decoding", {"split": {"t": 3}}, {"t": 700}),
    "wrong monoid": (first_tile_only, "matmul", {"tile": {"k": 16}}, {"k": 40}),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_a_wrong_scheduler_is_seen(name: str, monkeypatch: MonkeyPatch) -> None:
    mutate, case_name, options, sizes = CAUGHT[name]
    case = {**CASES, **EXTRA}[case_name]()
    assert seen(case, options, sizes) is None, "the scheduler itself is wrong"
    mutate(monkeypatch)
    assert seen(case, options, sizes) is not None


@pytest.mark.parametrize("mutate", [shared_axis, missing_mask, dropped_rescale, zero_times_anything, hoisted_too_far])
def test_random_graphs_see_a_wrong_scheduler(mutate: Mutant, monkeypatch: MonkeyPatch) -> None:
    mutate(monkeypatch)
    rng, counted = default_rng(1), Counter[str]()
    with np.errstate(all="ignore"), pytest.raises((CleaveError, pytest.fail.Exception, KeyError)):
        for _ in range(600):
            outcome(rng, counted)
