"""Up to four schedules of one operator, and a few comparisons of dims by which the host picks one of them at a call.

    seconds[shape][schedule]  ->  tree of comparisons  ->  variants in order: the first one whose comparisons all hold

A tree is grown from its root: the comparison that gains most comes next, until there are as many leaves as variants or
none gains what a comparison is worth. What is compared is a dim with a number, or one dim with another's multiple. A
leaf has the schedule that is best over its shapes in the geometric mean; seconds are measured or the cost model's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor, log, sqrt

from cleave.errors import ScheduleError
from cleave.ir.dim import dim
from cleave.ir.index import Pred, evaluate_pred, indices_of, symbols_of
from cleave.ir.polynomial import compare, show_pred
from cleave.kernel import Buffer, OperatorSource, Variant
from cleave.tile.plan import Schedule
from cleave.tune.description import described

MOST = 4
"""Variants of an operator."""

WORTH = 0.02
"""What a comparison has to gain, as a share of the time over all shapes."""


@dataclass(frozen=True)
class Sample:
    """A shape, and what schedules take there, by number; one that is wrong or can't run there is left out."""

    dims: Mapping[str, int]
    seconds: Mapping[int, float]


@dataclass(frozen=True)
class Variants:
    """Schedules of one graph and the comparisons of each, in the order in which the host looks at them."""

    schedules: tuple[Schedule, ...]
    when: tuple[tuple[Pred, ...], ...]

    def text(self) -> str:
        """The rule, a line for each schedule: ``total_q <= 96 -> cta-ring ...``."""
        shown = list(map(told, self.when))
        width = max(map(len, shown))
        return "\n".join(f"{test:{width}} -> {described(s)}" for test, s in zip(shown, self.schedules, strict=True))

    def __str__(self) -> str:
        return self.text()


def told(tests: Sequence[Pred]) -> str:
    """Comparisons that all have to hold, as text; of none it is what is left."""
    return " and ".join(map(show_pred, tests)) or "else"


def picked(when: Sequence[Sequence[Pred]], dims: Mapping[str, int]) -> int:
    """Number of the first comparisons that all hold; the last are none."""
    return next(n for n, tests in enumerate(when) if all(evaluate_pred(p, dims) for p in tests))


def choose_variants(schedules: Sequence[Schedule], samples: Sequence[Sample], most: int = MOST) -> Variants:
    """The best rule that a greedy search finds. Errors (ScheduleError): no schedule runs at all shapes of a part."""
    found = rule(samples, most)
    return Variants(tuple(schedules[number] for number, _ in found), tuple(tests for _, tests in found))


def rule(samples: Sequence[Sample], most: int = MOST) -> list[tuple[int, tuple[Pred, ...]]]:
    """(Number of a schedule, comparisons), in order; the last has none. Errors: as ``choose_variants``."""
    root, leaves = _leaf(samples), 1
    while leaves < most:
        found = [(s.gain, n, s) for n, leaf in enumerate(root.leaves()) if (s := _best_split(leaf)) is not None]
        if not found:
            break
        gain, at, split = max(found, key=lambda x: x[:2])
        if gain < WORTH * len(samples):
            break
        root, leaves = root.grown(at, split), leaves + 1
    if any(leaf.number is None for leaf in root.leaves()):
        raise ScheduleError(f"no schedule runs at all shapes, and none of {most} at all of a part that dims tell apart")
    return list(root.variants())


def variants_of(sources: Sequence[OperatorSource], when: Sequence[tuple[Pred, ...]]) -> tuple[Variant, ...]:
    """What the runtime picks from: inputs and outputs meet what each of the variants needs of memory.

    A variant is picked where its comparisons hold and it can run: dims that were compiled in have their values, its own
    constraints hold. Where the last one can't, the one that asks least is looked at again. Errors (ScheduleError): one
    needs another layout than the others, so no array suits all.
    """
    first = sources[0]
    inputs = tuple(_common([s.inputs[n] for s in sources]) for n in range(len(first.inputs)))
    outputs = tuple(_common([s.outputs[n] for s in sources]) for n in range(len(first.outputs)))
    constraints = tuple(p for p in first.constraints if all(p in s.constraints for s in sources))
    named = {d.name for s in sources for d in s.dims}
    fixed = {n: v for n, v in first.fixed.items() if n in named and all(s.fixed.get(n) == v for s in sources)}
    needs = [_needs(s, constraints, {*named} - {*fixed}) for s in sources]
    able = [
        replace(
            s,
            inputs=inputs,
            outputs=outputs,
            constraints=constraints,
            fixed={n: v for n, v in s.fixed.items() if n in fixed or n not in named},
            dims=first.dims,
        )
        for s in sources
    ]
    found = [Variant(s, (*tests, *need)) for s, tests, need in zip(able, when, needs, strict=True)]
    least = min(range(len(needs)), key=lambda n: len(needs[n]))
    return tuple(found) if not needs[-1] or least == len(needs) - 1 else (*found, Variant(able[least], needs[least]))


def _needs(s: OperatorSource, common: Sequence[Pred], free: Collection[str]) -> tuple[Pred, ...]:
    """What one variant needs of a call and others do not. ``free``: dims that not all of them have compiled in. Lengths
    that the host derives from the dims, those of chunks, meet what is asked of them, and no call gives them."""
    compiled = [compare("==", dim(n), v) for n, v in s.fixed.items() if n in free]
    derived = {symbol.name for symbol, _ in s.derived}
    own = (p for p in s.constraints if p not in common and not derived & _names(p))
    return (*compiled, *own)


def _names(p: Pred) -> frozenset[str]:
    return frozenset(s.name for i in indices_of(p) for s in symbols_of(i))


def _common(buffers: Sequence[Buffer]) -> Buffer:
    first = buffers[0]
    alike = {(b.name, b.dtype, b.shape, b.layout) for b in buffers}
    if len(alike) > 1:
        layouts = ", ".join(dict.fromkeys(b.layout for b in buffers))
        raise ScheduleError(f"variants need different layouts of {first.name}: {layouts}", location=first.name)
    return replace(first, alignment=max(b.alignment for b in buffers))


# ---- the tree


@dataclass(frozen=True)
class _Split:
    """``compared``: a dim, or one over another; ``test``: that it is at most so much."""

    compared: tuple[str, ...]
    test: Pred
    gain: float
    holds: _Leaf
    fails: _Leaf


@dataclass(frozen=True)
class _Leaf:
    """Shapes and the schedule that is best over them; ``cost``: the sum of the logarithms of its times."""

    samples: tuple[Sample, ...]
    number: int | None
    cost: float
    split: _Split | None = None

    def leaves(self) -> Iterator[_Leaf]:
        if self.split is None:
            yield self
        else:
            yield from self.split.holds.leaves()
            yield from self.split.fails.leaves()

    def grown(self, at: int, split: _Split) -> _Leaf:
        """The tree with a split at its leaf of that number."""
        if self.split is None:
            return replace(self, split=split)
        left = sum(1 for _ in self.split.holds.leaves())
        if at < left:
            return replace(self, split=replace(self.split, holds=self.split.holds.grown(at, split)))
        return replace(self, split=replace(self.split, fails=self.split.fails.grown(at - left, split)))

    def variants(self, tests: Mapping[tuple[str, ...], Pred] | None = None) -> Iterator[tuple[int, tuple[Pred, ...]]]:
        """Where a comparison fails nothing needs to be tested: what holds was looked at before. Of what is compared
        twice the later number is the smaller one."""
        known = dict(tests or {})
        if self.split is None:
            assert self.number is not None
            yield self.number, tuple(known.values())
            return
        yield from self.split.holds.variants({**known, self.split.compared: self.split.test})
        yield from self.split.fails.variants(known)


def _leaf(samples: Sequence[Sample]) -> _Leaf:
    everywhere = [n for n in samples[0].seconds if all(n in s.seconds for s in samples)] if samples else []
    costs = {n: sum(log(s.seconds[n]) for s in samples) for n in everywhere}
    if not costs:
        return _Leaf(tuple(samples), None, float("inf"))
    best = min(costs, key=costs.__getitem__)
    return _Leaf(tuple(samples), best, costs[best])


def _best_split(leaf: _Leaf) -> _Split | None:
    found = [s for what, test in _tests(leaf.samples) if (s := _divided(leaf, what, test)) is not None]
    return max(found, key=lambda s: s.gain, default=None)


def _divided(leaf: _Leaf, compared: tuple[str, ...], test: Pred) -> _Split | None:
    holds = [s for s in leaf.samples if evaluate_pred(test, s.dims)]
    fails = [s for s in leaf.samples if not evaluate_pred(test, s.dims)]
    if not holds or not fails:
        return None
    left, right = _leaf(holds), _leaf(fails)
    if left.number is None or right.number is None or left.number == right.number:
        return None
    return _Split(compared, test, leaf.cost - left.cost - right.cost, left, right)


def _tests(samples: Sequence[Sample]) -> Iterator[tuple[tuple[str, ...], Pred]]:
    """Between neighbouring values: of a dim, then of a dim over another."""
    names = [n for n in samples[0].dims if len({s.dims[n] for s in samples}) > 1]
    for name in names:
        for low, high in _neighbours([s.dims[name] for s in samples]):
            yield (name,), dim(name) <= (floor(sqrt(low * high)) if low else 0)
    for above in names:
        for below in names:
            if above != below:
                pairs = [s.dims[above] / s.dims[below] for s in samples if s.dims[below]]
                for low, high in _neighbours([r for r in pairs if r > 0]):
                    between = sqrt(low * high)
                    if between >= 1 and floor(between) >= low:
                        yield (above, below), dim(above) <= floor(between) * dim(below)
                    elif between < 1 and ceil(1 / between) <= 1 / low:
                        yield (above, below), ceil(1 / between) * dim(above) <= dim(below)


def _neighbours(values: Sequence[float]) -> Iterator[tuple[float, float]]:
    yield from pairwise(sorted(set(values)))
