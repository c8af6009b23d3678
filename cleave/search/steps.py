"""Derivations as steps of a candidate: equations as text under the names of the input graph, each of them tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cleave.candidate import Step
from cleave.ir.graph import Term, free, substitute_axes
from cleave.ir.text import shared_names, show_term
from cleave.rewrite.rule import Exactness, Rule
from cleave.rewrite.rulebook import Rulebook
from cleave.search.check import Checker
from cleave.search.deadline import NEVER, Deadline, OutOfTime
from cleave.search.decode import Decoder
from cleave.search.egraph import EGraph
from cleave.search.encode import Encoding
from cleave.search.explain import WORK, Derivations, NoDerivation, Rewrite, equations, replays
from cleave.search.small import Small
from cleave.search.term import ETerm

_TOGETHER = 2
"""Axes that a candidate splits at once; all their subsets would be names without number."""
_WEAKEST = (Exactness.EXACT, Exactness.REASSOCIATES, Exactness.UNSAFE)


@dataclass(frozen=True)
class Derived:
    """The steps of a candidate and what they rest on. ``notes`` say if a step is false or none were found, and what was
    left out if the time ended first (``late``).
    """

    steps: tuple[Step, ...]
    exactness: str
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    late: bool = False


@dataclass
class Explainer:
    """Derives, prints and checks candidates of one search; keeps what it has found between them."""

    derivations: Derivations
    decoder: Decoder
    checker: Checker
    names: Mapping[Term, str]

    def explain(self, goals: Sequence[tuple[str, ETerm, ETerm]], deadline: Deadline = NEVER) -> Derived:
        """Steps from one term to another for each output: (name, source, target).

        After the deadline no derivation is looked for, and no step is tried: the notes say so.
        """
        steps: dict[tuple[str, frozenset[str]], Step] = {}
        used: dict[str, None] = {}
        notes: dict[str, None] = {}
        late = 0
        for output, source, target in goals:
            try:
                rewrites = self.derivations.derive(source, target, deadline)
                if not replays(source, target, rewrites, deadline):
                    raise NoDerivation
                found = [self._step(output, *e, deadline) for e in equations(source, rewrites, deadline)]
            except NoDerivation:
                return self._unexplained(f"no derivation of {output} was found")
            except OutOfTime:
                return self._unexplained(f"no derivation of {output} was found in the time that was left", late=True)
            used |= dict.fromkeys(r.rule for r in rewrites)
            for r, untried in found:
                step = untried if deadline.passed else self._tried(untried, r)
                late += step is untried
                steps.setdefault((step.rule, frozenset((step.before, step.after))), step)
                if step.is_false:
                    notes[f"a step is false on a small instance: {step.rule} at {step.place}"] = None
        if late:
            notes[f"{late} steps were not tried on small instances: no time was left"] = None
        # operands are sorted when an e-graph is read, so a derivation may commute where the rule is off
        rules = [self.derivations.rules.by_name[name] for name in used if name in self.derivations.rules.by_name]
        return Derived(tuple(steps.values()), weakest(rules), assumptions(rules), tuple(notes), late > 0)

    def _unexplained(self, why: str, *, late: bool = False) -> Derived:
        return unexplained(tuple(self.derivations.rules.by_name.values()), why, late=late)

    def _step(self, output: str, place: str, r: Rewrite, deadline: Deadline) -> tuple[Rewrite, Step]:
        deadline.check()
        before, after = (self._show(t) for t in (r.before, r.after))
        return r, Step(r.rule, f"{output} / {place}" if place else output, before, after, r.backward)

    def _tried(self, step: Step, r: Rewrite) -> Step:
        return replace(step, check=self.checker.check(r, self.derivations.rules.by_name[r.rule]))

    def _show(self, t: ETerm) -> str:
        return show_term(self.decoder.term(t), self.names)


def unexplained(rules: Sequence[Rule], why: str, *, late: bool = False) -> Derived:
    """Without a derivation a candidate may rest on every rule that is on."""
    return Derived((), weakest(rules), assumptions(rules), (why,), late)


def make_explainer(encoding: Encoding, graph: EGraph, book: Rulebook, small: Small, work: int = WORK) -> Explainer:
    """Of the matches that an e-graph recorded under a rulebook; ``work`` bounds the search for one derivation."""
    sources = list(encoding.sources.values())
    derivations = Derivations(graph, book.rules, book.signature, sources, work)
    decoder = Decoder(encoding)
    return Explainer(derivations, decoder, Checker(decoder, small), term_names(encoding))


def term_names(encoding: Encoding) -> dict[Term, str]:
    """Names of the input graph's terms, also where they are read at positions within chunks of one or two axes:
    ``v1[t_o, t_i]``.
    """
    out = dict(shared_names(encoding.graph))
    split_axes = dict.fromkeys(out, 0)
    for split in encoding.splits.values():
        for t, name in list(out.items()):
            if split_axes[t] < _TOGETHER and split.axis in free(t):
                piece = f"{split.pieces.outer}, {split.pieces.inner}"
                shown = f"{name[:-1]}, {piece}]" if name.endswith("]") else f"{name}[{piece}]"
                read = substitute_axes(t, {split.axis: split.pieces.position})
                out.setdefault(read, shown)
                split_axes.setdefault(read, split_axes[t] + 1)
    return out


def weakest(rules: Sequence[Rule]) -> str:
    """The class that makes the fewest promises."""
    return str(max((r.exactness for r in rules), key=_WEAKEST.index, default=Exactness.EXACT))


def assumptions(rules: Sequence[Rule]) -> tuple[str, ...]:
    return tuple(sorted({word for r in rules for word in r.assumes}))
