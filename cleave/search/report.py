"""What a search did: why it stopped, sizes after each round, matches of each rule, where its time went, what each
axis allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from cleave.search.engine import Round, Stop
from cleave.search.reducibility import ReducibilityTable


@dataclass(frozen=True)
class Seconds:
    """Wall time of the parts: ``saturation`` includes starting the child and loading the rules."""

    saturation: float = 0.0
    extraction: float = 0.0
    derivation: float = 0.0

    @property
    def total(self) -> float:
        return self.saturation + self.extraction + self.derivation


@dataclass(frozen=True)
class Report:
    """``notes`` say what was cut, switched off, or could not be done, empty if nothing was; ``dropped``, which
    candidates were left out and why.
    """

    stop: Stop
    rounds: tuple[Round, ...]
    seconds: Seconds
    reducibility: ReducibilityTable
    rules: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())
    dropped: tuple[str, ...] = field(default=())

    @property
    def matches(self) -> Mapping[str, int]:
        """Matches of each rule that was on, over all rounds; 0 where a rule never fired."""
        total: Counter[str] = Counter(dict.fromkeys(self.rules, 0))
        for r in self.rounds:
            total.update(r.matches)
        return dict(total)

    def text(self) -> str:
        last = self.rounds[-1] if self.rounds else None
        size = f"{last.nodes} e-nodes, {last.classes} classes, {last.number} rounds" if last else "no round ran"
        lines = [f"stop reason: {self.stop} ({size})"]
        s = self.seconds
        lines.append(
            f"seconds: {s.total:.2f} (saturation {s.saturation:.2f}, extraction {s.extraction:.2f}, "
            f"derivation {s.derivation:.2f})"
        )
        fired = [f"{name} {count}" for name, count in self.matches.items() if count]
        lines.append("matches: " + (", ".join(fired) or "none"))
        silent = [name for name, count in self.matches.items() if not count]
        lines += [f"never fired: {', '.join(silent)}"] * bool(silent)
        lines += ["axes:", *(f"  {line}" for line in self.reducibility.text().splitlines())]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"dropped: {line}" for line in self.dropped]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from cleave.display import preformatted

        return preformatted(self.text())
