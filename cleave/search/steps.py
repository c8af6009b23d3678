"""Derivations as steps of a candidate: equations as text under the names of the input graph, each of them tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleave.candidate import Step
from cleave.ir.graph import Term, free, substitute_axes
from cleave.ir.text import shared_names, show_term
from cleave.rewrite.rule import Exactness, Rule
from cleave.rewrite.rulebook import Rulebook
from cleave.search.check import Checker
from cleave.search.decode import Decoder
from cleave.search.egraph import EGraph
from cleave.search.encode import Encoding
from cleave.search.explain import WORK, Derivations, NoDerivation, Rewrite, equations, replays
from cleave.search.small import Small
from cleave.search.term import ETerm

_WEAKEST = (Exactness.EXACT, Exactness.REASSOCIATES, Exactness.UNSAFE)


@dataclass(frozen=True)
class Derived:
    """The steps of a candidate and what they rest on. ``notes`` say if a step is false or none were found."""

    steps: tuple[Step, ...]
    exactness: str
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass
class Explainer:
    """Derives, prints and checks candidates of one search; keeps what it has found between them."""

    derivations: Derivations
    decoder: Decoder
    checker: Checker
    names: Mapping[Term, str]

    def explain(self, goals: Sequence[tuple[str, ETerm, ETerm]]) -> Derived:
        """Steps from one term to another for each output: (name, source, target)."""
        steps: dict[tuple[str, frozenset[str]], Step] = {}
        used: dict[str, None] = {}
        notes: list[str] = []
        for output, source, target in goals:
            try:
                rewrites = self.derivations.derive(source, target)
            except NoDerivation:
                return self._unexplained(output)
            if not replays(source, target, rewrites):
                return self._unexplained(output)
            used |= dict.fromkeys(r.rule for r in rewrites)
            for place, r in equations(source, rewrites):
                step = self._step(output, place, r)
                steps.setdefault((step.rule, frozenset((step.before, step.after))), step)
                if step.is_false:
                    notes.append(f"a step is false on a small instance: {step.rule} at {step.place}")
        # operands are sorted when an e-graph is read, so a derivation may commute where the rule is off
        rules = [self.derivations.rules.by_name[name] for name in used if name in self.derivations.rules.by_name]
        return Derived(tuple(steps.values()), weakest(rules), assumptions(rules), tuple(dict.fromkeys(notes)))

    def _unexplained(self, output: str) -> Derived:
        """Without a derivation a candidate may rest on every rule that is on."""
        rules = tuple(self.derivations.rules.by_name.values())
        return Derived((), weakest(rules), assumptions(rules), (f"no derivation of {output} was found",))

    def _step(self, output: str, place: str, r: Rewrite) -> Step:
        before, after = (self._show(t) for t in (r.before, r.after))
        check = self.checker.check(r, self.derivations.rules.by_name[r.rule])
        return Step(r.rule, f"{output} / {place}" if place else output, before, after, r.backward, check)

    def _show(self, t: ETerm) -> str:
        return show_term(self.decoder.term(t), self.names)


def make_explainer(encoding: Encoding, graph: EGraph, book: Rulebook, small: Small, work: int = WORK) -> Explainer:
    """Of the matches that an e-graph recorded under a rulebook; ``work`` bounds the search for one derivation."""
    sources = list(encoding.sources.values())
    derivations = Derivations(graph, book.rules, book.signature, sources, work)
    decoder = Decoder(encoding)
    return Explainer(derivations, decoder, Checker(decoder, small), term_names(encoding))


def term_names(encoding: Encoding) -> dict[Term, str]:
    """Names of the input graph's terms, also where they are read at a position within a chunk: ``v1[t_o, t_i]``."""
    names = shared_names(encoding.graph)
    out = dict(names)
    for split in encoding.splits.values():
        for t, name in list(out.items()):
            if split.axis in free(t):
                piece = f"{split.pieces.outer}, {split.pieces.inner}"
                shown = f"{name[:-1]}, {piece}]" if name.endswith("]") else f"{name}[{piece}]"
                out.setdefault(substitute_axes(t, {split.axis: split.pieces.position}), shown)
    return out


def weakest(rules: Sequence[Rule]) -> str:
    """The class that makes the fewest promises."""
    return str(max((r.exactness for r in rules), key=_WEAKEST.index, default=Exactness.EXACT))


def assumptions(rules: Sequence[Rule]) -> tuple[str, ...]:
    return tuple(sorted({word for r in rules for word in r.assumes}))
