"""What the records of e02 add up to: a ratio a point and baseline, and geometric means over points and operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cleave.records import Outcome, Record
from experiments.e01_ablation.summary import mean
from experiments.e02_dynamic.config import BASELINES, GOALS, LATENT_GOAL, OPERATOR_GOAL
from experiments.e02_dynamic.plans import OURS, SECOND_LAUNCH, SPLIT_OFF
from experiments.e02_dynamic.workloads import operators, points

LENGTHS = ("exact", "completed", "synthetic")
BETTER = "better"
"""Of both baselines."""


@dataclass(frozen=True)
class Ratio:
    """A point: medians in microseconds of all contenders, and what their hosts do before a call at new lengths."""

    operator: str
    uuid: str
    lengths: str
    microseconds: Mapping[str, float]
    plans: Mapping[str, float]
    refused: Mapping[str, str] = field(default_factory=dict[str, str])

    def over(self, name: str, *, planned: bool = False) -> float | None:
        """Time of a contender, or of the best of a back end's ways, over ours; None if it has none."""
        wanted = BASELINES if name == BETTER else (name,)
        times = [self._total(n, planned=planned) for n in self.microseconds if n != OURS and backend(n) in wanted]
        return min(times) / self._total(OURS, planned=planned) if times else None

    def _total(self, name: str, *, planned: bool) -> float:
        return self.microseconds[name] + (self.plans[name] if planned else 0.0)


def backend(contender: str) -> str:
    """``fa2`` for both ways to decode with it; of ours the name itself."""
    first = contender.split()[0]
    return first if first in BASELINES else contender


def ratios(records: Iterable[Record]) -> list[Ratio]:
    """One a point, of the newest run of it: rows that follow that of ours."""
    runs: dict[tuple[str, str], list[Record]] = {}
    for r in records:
        w = r.workload
        if r.outcome is Outcome.OK and r.quantiles:
            key = w["operator"], w["uuid"]
            if w["contender"] == OURS:
                runs[key] = []
            runs.setdefault(key, []).append(r)
    return [_ratio(rows) for rows in runs.values() if rows[0].workload["contender"] == OURS]


def _ratio(rows: Sequence[Record]) -> Ratio:
    w = rows[0].workload
    return Ratio(
        w["operator"],
        w["uuid"],
        w["lengths"],
        {r.workload["contender"]: r.quantiles["q50"] for r in rows},
        {r.workload["contender"]: r.details["plan_us"] for r in rows},
        rows[0].details.get("refused", {}),
    )


def over(found: Sequence[Ratio], name: str, *, planned: bool = False) -> float | None:
    """Geometric mean over points."""
    values = [v for r in found if (v := r.over(name, planned=planned)) is not None]
    return mean(values) if values else None


def over_operators(found: Sequence[Ratio], name: str, *, planned: bool = False) -> float | None:
    """Geometric mean of the operators' means."""
    own = [over([r for r in found if r.operator == o], name, planned=planned) for o in named(found)]
    values = [v for v in own if v is not None]
    return mean(values) if values else None


def named(found: Sequence[Ratio]) -> list[str]:
    """Operators in the order of the workloads."""
    have = dict.fromkeys(r.operator for r in found)
    return sorted(have, key=list({**operators(points()), **have}).index)


def is_captured(operator: str) -> bool:
    return not operator.startswith("mla_ragged")


def is_paged_prefill(operator: str) -> bool:
    return operator.startswith("gqa_paged_prefill")


# ---- text

COLUMNS: Sequence[tuple[str, str, bool]] = (
    *((name, name, False) for name in (*BASELINES, BETTER)),
    *((f"{name}+plan", name, True) for name in (*BASELINES, BETTER)),
    (SPLIT_OFF, SPLIT_OFF, False),
    (SECOND_LAUNCH, SECOND_LAUNCH, False),
)


def table(found: Sequence[Ratio]) -> list[str]:
    """Means of operators, apart by where lengths come from; means over operators; baselines that are left out."""
    if not found:
        return ["no point was timed"]
    counted = Counter(p.operator for p in points())
    lines = ["time / cleave's, geometric means; +plan: with what the host does when lengths change"]
    lines.append(f"{'':52}{'points':>9}" + "".join(f"{title:>{_width(title)}}" for title, _, _ in COLUMNS))
    for operator in named(found):
        own = [r for r in found if r.operator == operator]
        lines.append(f"{operator:52}{f'{len(own)}/{counted[operator]}':>9}" + _columns(own, over) + _missed(own))
        kinds = {r.lengths for r in own}
        for lengths in (n for n in LENGTHS if n in kinds and len(kinds) > 1):
            part = [r for r in own if r.lengths == lengths]
            lines.append(f"{'    lengths ' + lengths:52}{len(part):>9}" + _columns(part, over))
    captured = [r for r in found if is_captured(r.operator)]
    for title, part in (
        ("operators that were captured", captured),
        ("    without paged prefill", [r for r in captured if not is_paged_prefill(r.operator)]),
    ):
        if part:
            lines.append(f"{title:52}{len(named(part)):>9}" + _columns(part, over_operators) + _goals(part))
    return [*lines, *_left_out(found)]


def _width(title: str) -> int:
    return max(8, len(title) + 2)


def _columns(own: Sequence[Ratio], value: Callable[..., float | None]) -> str:
    cells = [(title, value(own, name, planned=planned)) for title, name, planned in COLUMNS]
    return "".join(f"{'-' if v is None else f'{v:.3f}':>{_width(title)}}" for title, v in cells)


def _missed(own: Sequence[Ratio]) -> str:
    goals: dict[str, float] = {n: OPERATOR_GOAL for n in BASELINES}
    if own[0].operator.startswith("mla_paged"):
        goals[BETTER] = LATENT_GOAL
    return _short({n: over(own, n) for n in goals}, goals)


def _goals(part: Sequence[Ratio]) -> str:
    return _short({n: over_operators(part, n) for n in GOALS}, GOALS)


def _short(values: Mapping[str, float | None], goals: Mapping[str, float]) -> str:
    missed = [f"{n} {goals[n]:g}" for n, v in values.items() if v is not None and v < goals[n]]
    return f"  missed: {', '.join(missed)}" if missed else ""


def _left_out(found: Sequence[Ratio]) -> list[str]:
    """How many points have no time of a baseline, and why the first of them has none."""
    lines: list[str] = []
    for operator in named(found):
        own = [r for r in found if r.operator == operator]
        for name in dict.fromkeys(n for r in own for n in r.refused):
            which = [r for r in own if name in r.refused]
            first = which[0]
            why = f"{len(which)} points of {operator}; {first.uuid}: {first.refused[name]}"
            lines.append(f"left out: {name} at {why}")
    return lines
