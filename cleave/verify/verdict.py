"""What verification found: a closed set of outcomes, one check a step, one verdict a candidate.

    Verdict ::= candidate, Check ..
    Check   ::= step, outcome, instances, worst, detail

A verdict is passed when no step failed and the small instantiations ran; its text names the steps that ran, and why
others did not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    WRONG_VALUE = "wrong value"
    WRONG_NON_FINITE = "wrong non-finite set"
    """A value is infinite or NaN where the reference is not, or the reverse."""
    WRONG_FOLD = "wrong fold"
    OUT_OF_SCOPE = "out of scope"
    """Other inputs or outputs than the input graph's, or a free axis that no output has."""
    NOT_EVALUABLE = "not evaluable"
    """The reference has no value on any instance, or an instance could not be drawn."""
    UNDECIDED = "undecided"
    """A step function follows a reduction, and everything that was compared lies at its jumps: either side is right."""
    SKIPPED = "skipped"

    @property
    def failed(self) -> bool:
        return self not in (Outcome.PASSED, Outcome.SKIPPED)


class Step(StrEnum):
    """The steps, in the order in which they run."""

    SCOPE = "scope"
    SMALL = "small instantiations"
    FIELD = "finite field"
    MEDIUM = "medium shapes"
    FOLDS = "folds"
    GRAPH_HALF = "final test, graph half"
    KERNEL_HALF = "final test, kernel half"


@dataclass(frozen=True, slots=True)
class Check:
    """One step. ``worst``: greatest error over its bound; ``detail``: the counterexample, or why it was skipped."""

    step: Step
    outcome: Outcome
    instances: int = 0
    worst: float = 0.0
    detail: str = ""

    def __str__(self) -> str:
        count = f" ({self.instances} instance{'s' * (self.instances != 1)})" if self.instances else ""
        return f"{self.step}: {self.outcome}{count}" + (f": {self.detail}" if self.detail else "")

    def as_dict(self) -> dict[str, Any]:
        return {
            "step": str(self.step),
            "outcome": str(self.outcome),
            "instances": self.instances,
            "worst": self.worst,
            "detail": self.detail,
        }


def _named(c: Check) -> str:
    """A step that passed; of the final test, at which sizes if not at the user's."""
    return f"{c.step} {c.detail}".rstrip() if c.step is Step.GRAPH_HALF else str(c.step)


@dataclass(frozen=True, slots=True)
class Verdict:
    """All checks of one candidate."""

    candidate: str
    checks: tuple[Check, ...]

    @property
    def outcome(self) -> Outcome:
        """The first failure; passed if there is none and the small instantiations ran."""
        failed = [c.outcome for c in self.checks if c.outcome.failed]
        if failed:
            return failed[0]
        ran = any(c.step is Step.SMALL and c.outcome is Outcome.PASSED for c in self.checks)
        return Outcome.PASSED if ran else Outcome.SKIPPED

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    def with_check(self, check: Check) -> Verdict:
        """The same verdict with one step replaced or added (the kernel half comes later than the rest)."""
        return Verdict(self.candidate, (*(c for c in self.checks if c.step is not check.step), check))

    def summary(self) -> str:
        """One line: the outcome, what ran, and what did not, with the reason."""
        if not self.passed:
            first = next((c for c in self.checks if c.outcome.failed), None)
            return str(first or next((c for c in self.checks if c.step is Step.SMALL), self.outcome))
        ran = ", ".join(_named(c) for c in self.checks if c.outcome is Outcome.PASSED)
        skipped = "; ".join(f"{c.step} skipped: {c.detail}" for c in self.checks if c.outcome is Outcome.SKIPPED)
        return f"passed: {ran}" + (f" ({skipped})" if skipped else "")

    def text(self) -> str:
        return "\n".join([f"verdict on {self.candidate}: {self.outcome}", *(f"  {c}" for c in self.checks)]) + "\n"

    def as_dict(self) -> dict[str, Any]:
        return {
            "candidate": self.candidate,
            "outcome": str(self.outcome),
            "checks": [c.as_dict() for c in self.checks],
        }

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from cleave.display import preformatted

        return preformatted(self.text())
