"""Schedules of an operator, made at a few shapes and compiled before a GPU is needed.

cleave         any: up to four, and the comparisons of dims that pick one, from times at the shapes that are tried
split off      no reduction is split
second launch  partials of a split are merged by a second kernel (latent attention)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from cleave.candidate import load_candidates
from cleave.config import Ablation, Config
from cleave.ir.index import Pred
from cleave.schedule.request import Forced
from cleave.target import Target
from cleave.tune.description import described, microseconds
from cleave.tune.plan import Chosen as Alternatives
from cleave.tune.plan import Made, Request, chosen_of, prepared
from cleave.tune.variants import picked, told
from experiments.e02_dynamic.config import CANDIDATES, TARGET
from experiments.e02_dynamic.search import planned
from experiments.e02_dynamic.workloads import Point

OURS, SPLIT_OFF, SECOND_LAUNCH = "cleave", "split off", "second launch"
OTHERS = 2
"""Schedules whose partials a second launch merges, besides those that the model prefers anyway."""
AHEAD = 3
"""Times as many schedules of split candidates are looked at: some are split into one chunk."""


@dataclass(frozen=True)
class Tried:
    """Schedules of one operator to choose from by measuring, the model's first choice first; ``refused``: why a
    candidate has none."""

    operator: str
    made: tuple[Made, ...]
    refused: tuple[str, ...] = ()

    def kinds(self) -> dict[str, list[int]]:
        """Numbers of schedules, by the name of the contender that one of them becomes; the first comes first."""
        every = list(range(len(self.made)))
        schedules = [m.schedule for m in self.made]
        found = {
            OURS: every,
            SPLIT_OFF: [n for n in every if schedules[n].merge == "none"],
            SECOND_LAUNCH: [n for n in every if schedules[n].merge == "second-launch"],
        }
        return {name: numbers for name, numbers in found.items() if numbers and name in _kinds(self.operator)}


@dataclass(frozen=True)
class Rule:
    """Schedules that are one contender, in the order in which the host looks at their comparisons of dims."""

    made: tuple[Made, ...]
    when: tuple[tuple[Pred, ...], ...] = ((),)

    @property
    def text(self) -> str:
        """A line for each schedule."""
        if len(self.made) == 1:
            return shown(self.made[0])
        return "; ".join(f"{told(t)}: {shown(m)}" for t, m in zip(self.when, self.made, strict=True))

    def at(self, dims: Mapping[str, int]) -> Made:
        """The one that a call with these dims runs."""
        return self.made[picked(self.when, dims)]

    @property
    def source(self) -> tuple[object, ...]:
        """Equal for contenders that are the same programs under the same comparisons."""
        return (*map(text_of, self.made), *self.when)


@dataclass(frozen=True)
class Chosen:
    """Contenders of one operator at all of its shapes; ``rules``: numbers of schedules and their comparisons."""

    operator: str
    made: tuple[Made, ...]
    rules: Mapping[str, Sequence[tuple[int, tuple[Pred, ...]]]] = field(
        default_factory=dict[str, Sequence[tuple[int, tuple[Pred, ...]]]]
    )

    def __getitem__(self, name: str) -> Rule:
        found = self.rules[name]
        return Rule(tuple(self.made[n] for n, _ in found), tuple(tests for _, tests in found))


def _kinds(operator: str) -> tuple[str, ...]:
    latent = operator.startswith("mla_paged")
    return (OURS, SPLIT_OFF, SECOND_LAUNCH) if latent else (OURS, SPLIT_OFF)


def plan(pool: Executor, points: tuple[Point, ...], operators: Sequence[str], count: int) -> list[Tried]:
    """Of some operators, each at a few shapes; ``count`` as below."""
    return plan_at(pool, [(name, [p.dims for p in planned(points, name)]) for name in operators], count)


def plan_at(pool: Executor, wanted: Sequence[tuple[str, Sequence[Mapping[str, int]]]], count: int) -> list[Tried]:
    """Of operators at shapes, in their order; ``count``: schedules at each without a split, and as many with one."""
    requests = [[r for dims in shapes for r in _requests(name, dims, count)] for name, shapes in wanted]
    chosen = iter(chosen_of(pool, [r for group in requests for r in group]))
    alternatives = [[_worth(r, next(chosen), count) for r in group] for group in requests]
    made = [[pool.submit(prepared, s) for w in group for s in w.schedules] for group in alternatives]
    return [
        _tried(name, [f.result() for f in futures], [why for w in group for why in w.refused])
        for (name, _), futures, group in zip(wanted, made, alternatives, strict=True)
    ]


def _requests(operator: str, dims: Mapping[str, int], count: int) -> list[Request]:
    found = load_candidates(CANDIDATES / f"{operator}.json")
    split = tuple(c for c in found if c.splits)
    whole = tuple(c for c in found if not c.splits)
    target = Target(TARGET)
    off = Config(ablation=Ablation(split=False))
    out = [Request(whole, target, dims, count, off), Request(split, target, dims, AHEAD * count)]
    if SECOND_LAUNCH in _kinds(operator):
        out.append(Request(split, target, dims, OTHERS, forced=Forced(merge="second-launch")))
    return out


def _worth(r: Request, found: Alternatives, count: int) -> Alternatives:
    """A candidate that is split into one chunk is one without a split, of which there are others."""
    splits = [s for s in found.schedules if s.merge != "none"]
    return replace(found, schedules=tuple(splits[:count])) if any(c.splits for c in r.candidates) else found


def _tried(operator: str, made: Sequence[Made], refused: Sequence[str]) -> Tried:
    """The same program only once; by modelled time."""
    texts = {text_of(m): m for m in reversed(made)}
    distinct = [m for m in made if texts[text_of(m)] is m]
    return Tried(
        operator, tuple(sorted(distinct, key=lambda m: microseconds(m.schedule))), tuple(dict.fromkeys(refused))
    )


def text_of(m: Made) -> tuple[object, ...]:
    """Equal for schedules that are one program."""
    if m.source is None:
        return (m.error, m.schedule.candidate, m.schedule.merge)
    constants = tuple(sorted(m.source.fixed.items()))
    return (*((k.text, k.grid, k.shared_bytes) for k in m.source.kernels), *m.source.derived, constants)


def shown(m: Made) -> str:
    return f"{m.schedule.candidate}: {described(m.schedule)}"
