"""The graphs that an e-graph is asked for: the best few of each configuration, decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleave.candidate import Split
from cleave.config import Config
from cleave.ir.graph import Graph
from cleave.search.deadline import Deadline
from cleave.search.decode import chosen_terms, decode
from cleave.search.egraph import EGraph, enode
from cleave.search.encode import Encoding
from cleave.search.extract import Extraction, Limits, configurations, extract
from cleave.search.form import form
from cleave.search.price import prices
from cleave.search.problem import Choice
from cleave.search.term import ETerm, walk

_CONFIGURATIONS = 16
_PER_CONFIGURATION = 3
_POPS = 160_000
"""Partial choices that all extractions may look at together, and one at most and at least."""
_MOST_POPS, _LEAST_POPS = 40_000, 5_000
_EXTRACTION = 0.7
"""Of the time; the rest is for decoding."""


@dataclass(frozen=True)
class Draft:
    """A candidate in the making: its graph and the terms of the rule language that it was decoded from."""

    name: str
    graph: Graph
    splits: tuple[Split, ...]
    roots: tuple[ETerm, ...]
    configuration: frozenset[str]


@dataclass
class Drafting:
    """From an e-graph to drafts, at most ``most``, until a deadline. What was left out goes to ``notes``. ``complete``:
    the e-graph is saturated.
    """

    encoding: Encoding
    graph: EGraph
    config: Config
    sizes: Mapping[str, int] | None
    most: int
    deadline: Deadline
    notes: list[str]
    complete: bool

    def drafts(self) -> list[Draft]:
        """The best few graphs of each configuration, every configuration's best before any second one."""
        splittable = sorted(self.encoding.splits)
        priced = prices(self.graph, self.encoding, self.sizes)
        configured, cut = configurations(splittable, _CONFIGURATIONS)
        if cut:
            self.notes.append(
                f"{len(splittable)} axes may be split: {len(configured)} of their combinations were tried"
            )
        written = form(self.graph, self._written())
        found: list[tuple[int, int, frozenset[str], Choice]] = []
        results: list[tuple[Extraction, Extraction]] = []
        pops = min(max(_POPS // len(configured), _LEAST_POPS), _MOST_POPS)
        wanted = max(_PER_CONFIGURATION, -(-self.most // len(configured)))
        extraction = self.deadline.share(_EXTRACTION)
        for order, split in enumerate(configured):
            ends = extraction.next_of(len(configured) - order)
            cheapest, fewest = self._extractions(priced, split, Limits(pops, wanted, ends))
            results.append((cheapest, fewest))
            choices = [*cheapest.choices[:1], *fewest.choices, *cheapest.choices[1:]]
            found += [(n, order, split, c) for n, c in enumerate(choices) if form(self.graph, c) != written]
        self._remark(results)
        found.sort(key=lambda entry: entry[:2])
        return self._decoded(found)

    def _extractions(
        self, priced: Sequence[Sequence[float]], split: frozenset[str], limits: Limits
    ) -> tuple[Extraction, Extraction]:
        """The cheapest graphs of a configuration, and the cheapest with the fewest passes over each axis."""
        names, local = frozenset(self.encoding.splits), self.config.ablation.reducibility
        first = Limits(limits.pops, limits.wanted, limits.deadline.share(2 / 3))
        few = Limits(limits.pops // 2, 1, limits.deadline)
        cheapest = extract(self.graph, priced, split, names, first, local=local)
        return cheapest, extract(self.graph, priced, split, names, few, local=local, fewest=True)

    def _remark(self, results: Sequence[tuple[Extraction, Extraction]]) -> None:
        late = [_words(r.split) for r, fewest in results if r.late or fewest.late]
        if late:
            self.notes.append(f"no time was left to extract all graphs {'; '.join(late)}")
        cut = [_words(r.split) for r, fewest in results if not (r.exact or r.late or fewest.late)]
        if cut:
            self.notes.append(
                f"extraction met its limit {'; '.join(cut)}: greedy choices stand in, the best may be missing"
            )
        none = [r.split for r, _ in results if r.exact and not r.choices and len(r.split) == 1]
        if self.complete:
            self.notes += [
                f"no candidate {_words(split)}: a reduction within a chunk needs one over all chunks" for split in none
            ]
        elif none:
            self.notes.append(f"the e-graph, as far as it was grown, has no candidate {'; '.join(map(_words, none))}")

    def _written(self) -> dict[int, int]:
        """The source terms as a choice of e-nodes."""
        choice: dict[int, int] = {}
        for t in walk(*self.encoding.roots):
            c = self.graph.find(t)
            assert c is not None
            node = enode(t.op, t.plain, [k for k in map(self.graph.find, t.operands) if k is not None])
            choice.setdefault(c, self.graph.classes[c].index(node))
        return choice

    def _decoded(self, found: Sequence[tuple[int, int, frozenset[str], Choice]]) -> list[Draft]:
        out: list[Draft] = []
        graphs = {self.encoding.graph}
        for number, (_, _, split, choice) in enumerate(found):
            if len(out) >= self.most - 1:
                break
            if out and self.deadline.passed:
                left = min(len(found) - number, self.most - 1 - len(out))
                self.notes.append(f"no time was left to decode up to {left} extracted graphs")
                break
            terms = chosen_terms(self.graph, choice, self.graph.roots)
            roots = tuple(terms[r] for r in self.graph.roots)
            decoded = decode(self.encoding, roots, self.encoding.graph.name)
            if decoded is not None and decoded[0] not in graphs:
                graphs.add(decoded[0])
                name = "split " + ", ".join(sorted(split)) if split else "unsplit"
                number = 1 + sum(d.configuration == split for d in out)
                out.append(Draft(f"{name} {number}" if number > 1 else name, *decoded, roots, split))
        return out


def _words(split: frozenset[str]) -> str:
    return f"with {', '.join(sorted(split))} split" if split else "without a split"
