"""What the records of the ablation add up to: speed of each configuration as a share of the full system's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cleave.records import Record
from experiments.e01_ablation.configurations import CONFIGURATIONS, FULL, Configuration
from experiments.e01_ablation.summary import PHASES, is_of, mean


@dataclass(frozen=True)
class Share:
    """The full system's time over a configuration's at one point; None where the configuration has no program, whose
    ``reason`` is then given. ``same``: the configuration whose program it is as well, or empty."""

    point: str
    subgraph: str
    phase: str
    configuration: str
    value: float | None
    same: str = ""
    reason: str = ""


def shares(records: Iterable[Record], commit: Mapping[str, object] | None) -> list[Share]:
    """One a point and configuration, the newest."""
    found: dict[tuple[str, str], Share] = {}
    for r in records:
        w = r.workload
        if "configuration" in w and is_of(r, commit):
            value, same = r.details.get("relative"), r.details.get("same_program_as", "")
            reason = "" if r.quantiles else str(r.check.get("error", ""))
            key = w["point"], w["configuration"]
            found[key] = Share(w["point"], w["subgraph"], w["phase"], w["configuration"], value, same, reason)
    return list(found.values())


def over_subgraphs(found: Sequence[Share], configuration: str, phase: str | None = None) -> float | None:
    """Geometric mean over subgraphs of those over a subgraph's points; points without a program are left out."""
    own: dict[str, list[float]] = {}
    for s in found:
        if s.configuration == configuration and s.value is not None and phase in (None, s.phase):
            own.setdefault(s.subgraph, []).append(s.value)
    return mean(mean(values) for values in own.values()) if own else None


def of_subgraph(found: Sequence[Share], configuration: str, subgraph: str) -> float | None:
    return over_subgraphs([s for s in found if s.subgraph == subgraph], configuration)


def ablation_table(found: Sequence[Share]) -> list[str]:
    """Each configuration over all subgraphs, beside the paper's, and for each subgraph."""
    if not found:
        return ["no record of the ablation of this commit"]
    count = len({s.point for s in found})
    lines = [f"ablation: {count} points; time of the full system / time of the configuration, geometric means"]
    lines.append(f"{'':24}" + "".join(f"{p:>9}" for p in (*PHASES, "all")) + f"{'change':>9}{'paper':>7}  programs")
    lines += [_line(found, c) for c in CONFIGURATIONS]
    names = list(dict.fromkeys(s.subgraph for s in found))
    others = [c for c in CONFIGURATIONS if c is not FULL]
    lines.append(f"{'':24}" + "".join(f"{c.name:>23}" for c in others))
    for name in names:
        values = [of_subgraph(found, c.name, name) for c in others]
        lines.append(f"{name:24}" + "".join(f"{'none' if v is None else f'{v:.3f}':>23}" for v in values))
    return [*lines, *_without(found)]


def _line(found: Sequence[Share], c: Configuration) -> str:
    whole = over_subgraphs(found, c.name)
    cells = [over_subgraphs(found, c.name, phase) for phase in PHASES]
    columns = "".join(f"{'-' if v is None else f'{v:.3f}':>9}" for v in (*cells, whole))
    change = "" if whole is None or c is FULL else percent(whole - 1)
    paper = "" if c.paper is None else percent(c.paper)
    own = [s for s in found if s.configuration == c.name]
    alike = sum(s.same == FULL.name for s in own)
    timed = sum(s.value is not None for s in own)
    remark = f"  {timed} of {len(own)}" + (f", {alike} are the full system's" if alike else "")
    return f"{c.name:24}{columns}{change:>9}{paper:>7}{remark}"


def percent(change: float) -> str:
    return f"{100 * change:+.0f} %"


def _without(found: Sequence[Share]) -> list[str]:
    """Points at which a configuration has nothing; the means leave them out."""
    return [f"none: {s.point}, {s.configuration}: {s.reason}" for s in found if s.reason]
