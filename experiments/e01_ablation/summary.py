"""What the records of e01 add up to: a ratio a point, geometric means over points, subgraphs and phases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

from cleave.records import Outcome, Record
from experiments.e01_ablation.config import IN_ORDER, MEAN_GOAL, SETS, SUBGRAPH_GOAL, points
from experiments.e01_ablation.reach import reach

PHASES = ("prefill", "decode")


@dataclass(frozen=True)
class Ratio:
    """Time of the best baseline over ours at one point; ``microseconds``: ours, at the median."""

    point: str
    subgraph: str
    phase: str
    nine: bool
    value: float
    microseconds: float = 0.0
    baseline: str = ""


def is_of(r: Record, commit: Mapping[str, object] | None) -> bool:
    """Whether a record was made by a commit, changes included."""
    return r.environment.get("commit") == commit


def is_schedule(r: Record) -> bool:
    """Whether a record is the time of a schedule as it is launched when it is used."""
    timed = r.outcome is Outcome.OK and bool(r.quantiles) and bool(r.schedule.get("plan"))
    return timed and r.workload.get("contender") != IN_ORDER


def measured_points(records: Iterable[Record], commit: Mapping[str, object] | None, mode: str) -> set[str]:
    """Points that need not be measured again: with a record of this commit and of this mode of torch.compile."""
    return {r.workload["point"] for r in records if is_of(r, commit) and r.workload.get("compile") == mode}


def ratios(records: Iterable[Record], commit: Mapping[str, object] | None, contender: str = "cleave") -> list[Ratio]:
    """One a point: against the best of the baselines of all modes of torch.compile, each as in its own run."""
    best: dict[str, Ratio] = {}
    newest: dict[tuple[str, str], Ratio] = {}
    for r in records:
        w = r.workload
        if w.get("contender") == contender and r.outcome is Outcome.OK and r.quantiles and is_of(r, commit):
            best_baseline = r.details.get("best_baseline", "")
            place = w["point"], w["subgraph"], w["phase"], w["nine"]
            made = Ratio(*place, r.details["ratio"], r.quantiles["q50"], best_baseline)
            newest[w["point"], w["compile"]] = made
    for made in newest.values():
        if made.point not in best or made.value < best[made.point].value:
            best[made.point] = made
    return list(best.values())


def mean(values: Iterable[float]) -> float:
    """Geometric."""
    logs = [log(v) for v in values]
    return exp(sum(logs) / len(logs))


def table(found: Sequence[Ratio]) -> list[str]:
    """Means of subgraphs, and over them: prefill, decode, both; of the nine also what share of ``reach`` that is."""
    lines: list[str] = []
    for title, chosen in (("nine", [r for r in found if r.nine]), ("extension", [r for r in found if not r.nine])):
        if chosen:
            lines += _lines(title, chosen)
    return [*lines, *missed_goals(found)]


def in_order_lines(found: Sequence[Ratio]) -> list[str]:
    """The same means over the nine where no call begins before the one before it is over."""
    groups = _by_subgraph([r for r in found if r.nine])
    return [f"{'launched in order':22}" + _columns([*groups.values()], "")] if groups else []


def _by_subgraph(found: Sequence[Ratio]) -> dict[str, list[Ratio]]:
    """In the order in which they come first."""
    groups: dict[str, list[Ratio]] = {}
    for r in found:
        groups.setdefault(r.subgraph, []).append(r)
    return groups


def missed_goals(found: Sequence[Ratio]) -> list[str]:
    """Points whose own goal is not met, a line each."""
    goals = {p.name: p.goal for p in points(SETS["all"])}
    short = [(r, goals.get(r.point)) for r in found]
    return [f"missed: {r.point}: {r.value:.3f}, goal {goal:g}" for r, goal in short if goal and r.value < goal]


def _lines(title: str, found: Sequence[Ratio]) -> list[str]:
    groups = _by_subgraph(found)
    lines = [f"{title}: {len(found)} points; best baseline / cleave, geometric means"]
    share = shares_of_reach(found)
    lines.append(f"{'':22}" + "".join(f"{phase:>9}" for phase in (*PHASES, "all")) + f"{'reach':>8}" * bool(share))
    for name, own in groups.items():
        missed = ", missed" if mean(r.value for r in own) < SUBGRAPH_GOAL else ""
        lines.append(f"{name:22}" + _columns([own], _reached([own], share) + missed))
    whole = mean(mean(r.value for r in own) for own in groups.values())
    missed = ", missed" if title == "nine" and whole < MEAN_GOAL else ""
    goal = f" (goal {MEAN_GOAL:g}{missed})" if title == "nine" else ""
    lines.append(f"{'over subgraphs':22}" + _columns([*groups.values()], _reached([*groups.values()], share) + goal))
    return lines


def _columns(groups: Sequence[Sequence[Ratio]], remark: str) -> str:
    """Means over groups of the means of each: of prefill, of decode, of all points."""
    cells: list[str] = []
    for phase in (*PHASES, None):
        kept = [[r.value for r in own if phase in (None, r.phase)] for own in groups]
        values = [mean(own) for own in kept if own]
        cells.append(f"{mean(values):9.3f}" if values else f"{'-':>9}")
    return "".join(cells) + remark


def shares_of_reach(found: Sequence[Ratio]) -> dict[str, float]:
    """By point of the nine: what one plain kernel would need, as a share of our time."""
    wanted = {r.point: r.microseconds for r in found if r.nine and r.microseconds}
    return {p.name: reach(p) / wanted[p.name] for p in points(SETS["nine"]) if p.name in wanted}


def _reached(groups: Sequence[Sequence[Ratio]], share: Mapping[str, float]) -> str:
    if not share:
        return ""
    known = [[share[r.point] for r in own if r.point in share] for own in groups]
    values = [mean(own) for own in known if own]
    return f"{mean(values):8.2f}" if values else f"{'-':>8}"
