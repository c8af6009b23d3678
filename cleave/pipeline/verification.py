"""Candidates of a search verified one after another, best first, until a deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleave.candidate import Candidate
from cleave.config import Config
from cleave.ir.graph import Graph
from cleave.pipeline.show import numerics_notes
from cleave.search.deadline import Deadline
from cleave.verify import References, Verdict, verify


@dataclass(frozen=True)
class Verified:
    """Candidates that have a verdict, with the graph as written, which needs none; ``notes`` name those left out for
    want of time. An interrupted verification leaves out none: who interrupts sees which verdicts are missing.
    """

    candidates: tuple[Candidate, ...]
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def passed(self) -> bool:
        return all(v.passed for v in self.verdicts)


def verified(
    origin: Graph, candidates: Sequence[Candidate], config: Config, bind: Mapping[str, int] | None, deadline: Deadline
) -> Verified:
    """Verdicts of candidates of a graph, warnings where rounding harms one; after the deadline no other is begun."""
    references = References(origin, config.seed)
    kept: list[Candidate] = []
    late: list[str] = []
    verdicts: list[Verdict] = []
    notes: list[str] = []
    try:
        for c in candidates:
            if not deadline.passed:
                verdicts.append(verify(c, config, bind=bind, references=references))
                notes += numerics_notes([c]) if verdicts[-1].passed else []
            elif c.graph != origin:
                late.append(c.name)
                continue
            kept.append(c)
    except KeyboardInterrupt:
        return Verified(tuple(candidates), tuple(verdicts), tuple(notes), interrupted=True)
    if late:
        notes.append(f"left out, since no time was left to verify them: {', '.join(late)}")
    return Verified(tuple(kept), tuple(verdicts), tuple(notes))
