"""The search itself: encode, saturate, extract in each configuration, decode, find folds, derive, rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cleave.candidate import Candidate, Split, as_written
from cleave.config import Config
from cleave.cost.graph import Cost, graph_cost
from cleave.errors import SearchError
from cleave.ir.axis import Axis
from cleave.ir.check import check_nesting
from cleave.ir.dim import check_binding
from cleave.ir.graph import Graph
from cleave.rewrite.rulebook import Rulebook
from cleave.search.decode import chosen_terms, decode
from cleave.search.egraph import EGraph, enode
from cleave.search.encode import Encoding, encode
from cleave.search.engine import Round, Stop
from cleave.search.extract import Extraction, Limits, configurations, extract
from cleave.search.folds import Pattern, folds_of, patterns
from cleave.search.form import form
from cleave.search.found import Found
from cleave.search.locality import after_saturation
from cleave.search.price import prices
from cleave.search.problem import Choice
from cleave.search.rank import Dropped, ranked, without_dominated
from cleave.search.reducibility import reducibility_table
from cleave.search.report import Report, Seconds
from cleave.search.saturate import Saturated, saturated, source_egraph
from cleave.search.select import selected
from cleave.search.small import Small, small_form
from cleave.search.steps import Explainer, make_explainer
from cleave.search.term import ETerm, walk

_CONFIGURATIONS = 16
_PER_CONFIGURATION = 3
_POPS = 160_000
"""Partial choices that all extractions may look at together, and one at most and at least."""
_MOST_POPS, _LEAST_POPS = 40_000, 5_000
_LOOKED_AT = 2
"""Times as many candidates as are kept, where a user's cost chooses."""
_EXTRACTION_SECONDS = 20.0
"""A safety for slow machines: where it ends an extraction, results may differ from those of a fast one."""
_INTERRUPTED_SECONDS = 2.0
"""What someone who pressed Ctrl-C waits for extractions."""


def search(
    graph: Graph,
    rules: Rulebook | None = None,
    config: Config | None = None,
    progress: Callable[[Round], None] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    weights: Iterable[str] = (),
    cost: Cost | None = None,
) -> Found:
    """Equivalent graphs of a graph, best first, with derivations and folds.

    ``rules`` default to the installed rulebook without numerically unsafe rules. ``progress`` is called after each
    round of saturation. ``sizes`` are the representative dims for ranking. ``weights`` names inputs that are
    parameters. ``cost`` ranks candidates in place of our own cost: ``cost(candidate, estimate)``, see
    ``cleave.cost.graph``; more of them are looked at then, and none is dropped. Ctrl-C during the search ends it with
    what was found so far. Raises SearchError if egglog refuses the rules, or ``cost`` fails.
    """
    weights = tuple(weights)
    _check_input(graph, sizes or {}, weights)
    config = config or Config()
    began = time.perf_counter()
    book, notes = selected(rules, config)
    table = reducibility_table(graph)
    local = config.ablation.reducibility
    encoding = encode(graph, table.worth_splitting if local else table.reduced, book.signature, weights)
    whole = [a.name for a in table.splittable if a not in table.worth_splitting]
    if not local:
        notes.append("reducibility off: any reduction may be split by itself")
    elif whole:
        notes.append(f"kept whole, since small and fixed: {', '.join(whole)}")
    state = Saturated(source_egraph(encoding))
    if config.ablation.algebra:
        state = saturated(encoding, book, config, progress)
        table = after_saturation(table, encoding, state.graph) if local else table
    else:
        notes.append("algebra off: only the graph as written")
        book = book.only()
    grown = time.perf_counter()
    work = _Work(encoding, state.graph, book, config, sizes, notes, state.stop, cost)
    candidates = work.candidates()
    seconds = Seconds(grown - began, work.extracted - grown, time.perf_counter() - work.extracted)
    names = tuple(r.name for r in book.rules)
    remarks, dropped = tuple(dict.fromkeys(notes)), tuple(map(str, work.dropped))
    report = Report(work.stop, tuple(state.rounds), seconds, table, names, remarks, dropped)
    return Found(tuple(candidates), report, state.graph)


def _check_input(g: Graph, sizes: Mapping[str, int], weights: Sequence[str]) -> None:
    if not isinstance(g, Graph):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SearchError(f"{type(g).__name__} is no graph: cleave.trace makes one of a function")
    check_nesting(g.name, g.outputs)
    symbols, inputs = {s.name: s for s in g.symbols}, [i.name for i in g.inputs]
    for name, value in sizes.items():
        if name not in symbols:
            raise SearchError(f"no dim {name!r}: there are {', '.join(symbols)}", location=g.name)
        check_binding(symbols[name], value)
    for name in weights:
        if name not in inputs:
            raise SearchError(f"no input {name!r}: there are {', '.join(inputs)}", location=g.name)


# ---- candidates


@dataclass(frozen=True)
class _Draft:
    """A candidate in the making: its graph and the terms of the rule language that it was decoded from."""

    name: str
    graph: Graph
    splits: tuple[Split, ...]
    roots: tuple[ETerm, ...]
    configuration: frozenset[str]


@dataclass
class _Work:
    """From an e-graph to ranked candidates."""

    encoding: Encoding
    graph: EGraph
    book: Rulebook
    config: Config
    sizes: Mapping[str, int] | None
    notes: list[str]
    stop: Stop
    cost: Cost | None = None
    extracted: float = 0.0
    dropped: list[Dropped] = field(default_factory=list[Dropped])

    def candidates(self) -> list[Candidate]:
        """Ranked candidates; Ctrl-C keeps those that are finished."""
        finished = [self._costed(as_written(self.encoding.graph))]
        try:
            self._fill(finished)
        except KeyboardInterrupt:
            self.stop = Stop.INTERRUPTED
            self.extracted = self.extracted or time.perf_counter()
        written, order = finished[0], ranked(finished, self.sizes, self.cost)
        if self.cost is None:
            order, self.dropped = without_dominated(order)
        kept = order[: self.config.limits.candidates]
        return kept if written in kept else [*kept[:-1], written]

    @property
    def _most(self) -> int:
        """Candidates that are looked at: what our own price puts further back may be first by a user's cost."""
        return self.config.limits.candidates * (1 if self.cost is None else _LOOKED_AT)

    def _fill(self, finished: list[Candidate]) -> None:
        drafts = self._drafts()
        small = small_form(self.encoding.graph)
        known = self._patterns(drafts, small)
        self.extracted = time.perf_counter()
        if self.config.ablation.algebra:
            finished[0] = replace(finished[0], folds=folds_of(self.encoding.graph, (), {}, known))
        explainer = make_explainer(self.encoding, self.graph, self.book, small)
        for draft in drafts:
            if self.config.ablation.split or not draft.splits:
                finished.append(self._finished(draft, known, explainer))

    def _drafts(self) -> list[_Draft]:
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
        results: list[Extraction] = []
        interrupted = self.stop is Stop.INTERRUPTED
        deadline = time.perf_counter() + (_INTERRUPTED_SECONDS if interrupted else _EXTRACTION_SECONDS)
        pops = min(max(_POPS // len(configured), _LEAST_POPS), _MOST_POPS)
        wanted = max(_PER_CONFIGURATION, -(-self._most // len(configured)))
        for order, split in enumerate(configured):
            left = deadline - time.perf_counter()
            if left <= 0:
                self.notes.append(f"no time was left to extract {'; '.join(map(_words, configured[order:]))}")
                break
            limits = Limits(pops, left / (len(configured) - order), wanted)
            cheapest, fewest = self._extractions(priced, split, limits)
            results.append(cheapest)
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
        cheapest = extract(self.graph, priced, split, names, limits, local=local)
        few = Limits(limits.pops // 2, limits.seconds, 1)
        return cheapest, extract(self.graph, priced, split, names, few, local=local, fewest=True)

    def _remark(self, results: Sequence[Extraction]) -> None:
        cut = [_words(r.split) for r in results if not r.exact]
        if cut:
            self.notes.append(
                f"extraction met its limit {'; '.join(cut)}: greedy choices stand in, the best may be missing"
            )
        for r in results:
            if r.exact and not r.choices and len(r.split) == 1:
                self.notes.append(
                    f"no candidate {_words(r.split)}: a reduction within a chunk needs one over all chunks"
                )

    def _written(self) -> dict[int, int]:
        """The source terms as a choice of e-nodes."""
        choice: dict[int, int] = {}
        for t in walk(*self.encoding.roots):
            c = self.graph.find(t)
            assert c is not None
            node = enode(t.op, t.plain, [k for k in map(self.graph.find, t.operands) if k is not None])
            choice.setdefault(c, self.graph.classes[c].index(node))
        return choice

    def _decoded(self, found: Sequence[tuple[int, int, frozenset[str], Choice]]) -> list[_Draft]:
        out: list[_Draft] = []
        graphs = {self.encoding.graph}
        for _, _, split, choice in found:
            if len(out) >= self._most - 1:
                break
            terms = chosen_terms(self.graph, choice, self.graph.roots)
            roots = tuple(terms[r] for r in self.graph.roots)
            decoded = decode(self.encoding, roots, self.encoding.graph.name)
            if decoded is not None and decoded[0] not in graphs:
                graphs.add(decoded[0])
                name = "split " + ", ".join(sorted(split)) if split else "unsplit"
                number = 1 + sum(d.configuration == split for d in out)
                out.append(_Draft(f"{name} {number}" if number > 1 else name, *decoded, roots, split))
        return out

    def _patterns(self, drafts: Sequence[_Draft], small: Small) -> list[Pattern]:
        if not small.instances:
            self.notes.append(
                "no small instance of the graph was found, so folds and steps could not be tried: none are given"
            )
        return [p for d in drafts for p in patterns(d.graph, d.splits, self._bases(), small)]

    def _bases(self) -> dict[str, Axis]:
        return {s.count: s.axis for s in self.encoding.splits.values()}

    def _finished(self, d: _Draft, known: Sequence[Pattern], explainer: Explainer) -> Candidate:
        names = [o.name for o in self.encoding.graph.outputs]
        derived = explainer.explain(list(zip(names, self.encoding.roots, d.roots, strict=True)))
        made = Candidate(
            d.name,
            d.graph,
            self.encoding.graph,
            steps=derived.steps,
            folds=folds_of(d.graph, d.splits, self._bases(), known),
            splits=d.splits,
            exactness=derived.exactness,
            assumptions=derived.assumptions,
            notes=(*derived.notes, *self._ragged_notes(d)),
        )
        return self._costed(made)

    def _ragged_notes(self, d: _Draft) -> list[str]:
        ragged = self._bases()
        stated = {s.count: str(p) for s in d.splits for p in d.graph.constraints if s.count in str(p)}
        return [
            f"{s.count} * {s.chunk} must reach the longest {ragged[s.count].extent}, which is no dim to constrain"
            for s in d.splits
            if s.count not in stated
        ]

    def _costed(self, c: Candidate) -> Candidate:
        return replace(c, cost=graph_cost(c.graph, c.splits, self.encoding.weights))


def _words(split: frozenset[str]) -> str:
    return f"with {', '.join(sorted(split))} split" if split else "without a split"
