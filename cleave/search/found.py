"""What a search found: candidates, best first, the report, and the e-graph they came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cleave.candidate import Candidate, save_candidates
from cleave.errors import SearchError
from cleave.search.egraph import EGraph
from cleave.search.report import Report


@dataclass(frozen=True)
class Found:
    """Candidates of one input graph, best first; the graph as written is always among them."""

    candidates: tuple[Candidate, ...]
    report: Report
    egraph: EGraph

    def pick(self, split: str | None = None, *, index: int | None = None) -> Candidate:
        """The best candidate that splits an axis, or without arguments the best unsplit one; or one by its number.

        Raises SearchError with what there is.
        """
        if index is not None:
            if split is not None:
                raise SearchError("pick takes a split axis or an index, not both")
            if not 0 <= index < len(self.candidates):
                raise SearchError(f"candidate {index}: there are {len(self.candidates)}, numbered from 0")
            return self.candidates[index]
        wanted = frozenset[str]() if split is None else frozenset({split})
        exactly = [c for c in self.candidates if _split_axes(c) == wanted]
        also = [c for c in self.candidates if split is not None and split in _split_axes(c)]
        if not (exactly or also):
            found = sorted(frozenset[str]().union(*map(_split_axes, self.candidates)))
            what = "no unsplit candidate" if split is None else f"no candidate splits {split!r}"
            raise SearchError(f"{what}; axes that candidates split: {', '.join(found) or 'none'}")
        return (exactly or also)[0]

    def save(self, path: str | Path) -> None:
        """Write the candidates; ``cleave.candidate.load_candidates`` reads them."""
        save_candidates(self.candidates, path)

    def text(self) -> str:
        lines = [self.report.text().rstrip(), "candidates:"]
        for number, c in enumerate(self.candidates):
            folds = f"; folds over {', '.join(str(f.axis) for f in c.folds)}" if c.folds else ""
            rules = ", ".join(c.rules) or "no rule"
            lines.append(f"  {number} {c.name}: {rules}; {c.promise}{folds}; {c.cost}")
            lines += [f"      {note}" for note in c.notes]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Found({len(self.candidates)} candidates, {self.report.stop})"

    def _repr_html_(self) -> str:
        from cleave.display import preformatted

        drawn = f"<details><summary>{self.egraph}</summary>{self.egraph.svg()}</details>"
        return preformatted(self.text()) + drawn


def _split_axes(c: Candidate) -> frozenset[str]:
    return frozenset(s.base for s in c.splits)
