"""The search itself: encode, saturate, extract in each configuration, decode, find folds, derive, rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cleave.candidate import Candidate, Fold, as_written
from cleave.config import Config
from cleave.cost.graph import Cost, graph_cost
from cleave.errors import SearchError
from cleave.ir.axis import Axis
from cleave.ir.check import check_nesting
from cleave.ir.dim import check_binding
from cleave.ir.graph import Graph
from cleave.rewrite.rulebook import Rulebook
from cleave.search.deadline import Deadline, OutOfTime
from cleave.search.drafts import Draft, Drafting
from cleave.search.encode import Encoding, encode
from cleave.search.engine import Round, Stop
from cleave.search.folds import Pattern, folds_of, patterns
from cleave.search.found import Found
from cleave.search.locality import after_saturation
from cleave.search.rank import Dropped, ranked, without_dominated
from cleave.search.reducibility import reducibility_table
from cleave.search.report import Report, Seconds
from cleave.search.saturate import Saturated, saturated, source_egraph
from cleave.search.select import selected
from cleave.search.small import Small, small_form
from cleave.search.steps import Derived, Explainer, make_explainer, unexplained

_LOOKED_AT = 2
"""Times as many candidates as are kept, where a user's cost chooses."""
_RANKED = 8
"""Candidates that are ranked at least, so that a few that are kept are the best of them."""
_EXTRACTION = 0.5
"""Of the time after saturation, what goes to extraction; folds and derivations have the rest."""
_AXES = 0.25
"""What the table of axes may take of it."""
_INTERRUPTED_SECONDS = 4.0
"""What someone who pressed Ctrl-C waits at most."""


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

    ``rules`` default to the installed rulebook without numerically unsafe rules. They are taken as they are: rules that
    did not come with cleave are tested by ``optimize``, ``explain``, ``equal`` and the command line, or by hand with
    ``cleave.testing.check_rule``; every step is tried here, and ``verify`` checks candidates. ``progress`` is called
    after each round of saturation. ``sizes`` are the representative dims for ranking. ``weights`` names inputs that are
    parameters. ``cost`` ranks candidates in place of our own cost: ``cost(candidate, estimate)``, see
    ``cleave.cost.graph``; more of them are looked at then, and none is dropped. Ctrl-C during the search ends it with
    what was found so far. Raises SearchError if egglog refuses the rules, or ``cost`` fails, GraphError for more than
    ``cleave.ir.check.MOST_NESTED`` operations in one another.
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
    state = Saturated(source_egraph(encoding), started=began, ended=began)
    if config.ablation.algebra:
        state = saturated(encoding, book, config, progress)
        notes += state.notes()
    deadline = _deadline(state, config.limits.seconds)
    if state.kept and local:
        table, left = after_saturation(table, encoding, state.graph, deadline.share(_AXES))
        if left:
            notes.append(f"no time was left to look for forms in chunks of {', '.join(a.name for a in left)}")
    elif not config.ablation.algebra:
        notes.append("algebra off: only the graph as written")
        book = book.only()
    grown = time.perf_counter()
    work = _Work(encoding, state, book, config, sizes, notes, deadline, cost)
    candidates = work.candidates()
    seconds = Seconds(grown - began, work.extracted - grown, time.perf_counter() - work.extracted)
    names = tuple(r.name for r in book.rules)
    remarks, dropped = tuple(dict.fromkeys(notes)), tuple(map(str, work.dropped))
    report = Report(state.stop, tuple(state.rounds), seconds, table, names, remarks, dropped)
    return Found(tuple(candidates), report, state.graph)


def _deadline(state: Saturated, seconds: float) -> Deadline:
    """What comes after a saturation ends twice the limit after that began; a saturation that nobody could end at its
    limit leaves as long as the limit.
    """
    if state.stop is Stop.INTERRUPTED:
        return Deadline(state.ended + _INTERRUPTED_SECONDS)
    return Deadline(max(state.started + 2 * seconds, state.ended + seconds))


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


@dataclass
class _Work:
    """From an e-graph to ranked candidates."""

    encoding: Encoding
    state: Saturated
    book: Rulebook
    config: Config
    sizes: Mapping[str, int] | None
    notes: list[str]
    deadline: Deadline
    cost: Cost | None = None
    extracted: float = 0.0
    dropped: list[Dropped] = field(default_factory=list[Dropped])

    def candidates(self) -> list[Candidate]:
        """Ranked candidates; Ctrl-C keeps those that are finished."""
        finished = [self._costed(as_written(self.encoding.graph))]
        try:
            self._fill(finished)
        except KeyboardInterrupt:
            self.state.stop = Stop.INTERRUPTED
            self.extracted = self.extracted or time.perf_counter()
        written, order = finished[0], ranked(finished, self.sizes, self.cost)
        if self.cost is None:
            order, self.dropped = without_dominated(order)
        kept = order[: self.config.limits.candidates]
        return kept if written in kept else [*kept[:-1], written]

    @property
    def _most(self) -> int:
        """Candidates that are looked at: what our own price puts further back may be first by a user's cost, or once
        folds are known.
        """
        return max(self.config.limits.candidates, _RANKED) * (1 if self.cost is None else _LOOKED_AT)

    def _fill(self, finished: list[Candidate]) -> None:
        extraction = self.deadline.share(_EXTRACTION)
        drafts = Drafting(
            self.encoding,
            self.state.graph,
            self.config,
            self.sizes,
            self._most,
            extraction,
            self.notes,
            complete=self.state.complete,
        ).drafts()
        small = small_form(self.encoding.graph)
        known = self._patterns(drafts, small)
        self.extracted = time.perf_counter()
        if self.config.ablation.algebra:
            finished[0] = replace(finished[0], folds=folds_of(self.encoding.graph, (), {}, known))
        offered = [d for d in drafts if self.config.ablation.split or not d.splits]
        folds = self._folds(offered, known)
        explainer = None if self.deadline.passed else make_explainer(self.encoding, self.state.graph, self.book, small)
        late: list[str] = []
        for number, (d, found) in enumerate(zip(offered, folds, strict=True)):
            derived = self._derived(d, explainer, self.deadline.next_of(len(offered) - number))
            late += [d.name] * derived.late
            finished.append(self._finished(d, found, derived))
        if late:
            self.notes.append(f"no time was left to find, or to try, all steps of {', '.join(late)}")

    def _patterns(self, drafts: Sequence[Draft], small: Small) -> list[Pattern]:
        if not small.instances:
            self.notes.append(
                "no small instance of the graph was found, so folds and steps could not be tried: none are given"
            )
        out: list[Pattern] = []
        for number, d in enumerate(drafts):
            try:
                out += patterns(d.graph, d.splits, self._bases(), small, self.deadline)
            except OutOfTime:
                self.notes.append(f"no time was left to look for folds in {', '.join(d.name for d in drafts[number:])}")
                break
        return out

    def _folds(self, drafts: Sequence[Draft], known: Sequence[Pattern]) -> list[tuple[Fold, ...]]:
        """Of each draft; derivations, of which one may take all the time, come later."""
        out: list[tuple[Fold, ...]] = []
        for number, d in enumerate(drafts):
            if known and self.deadline.passed:
                self.notes.append(f"no time was left to give folds to {', '.join(d.name for d in drafts[number:])}")
                return [*out, *[()] * (len(drafts) - number)]
            out.append(folds_of(d.graph, d.splits, self._bases(), known))
        return out

    def _derived(self, d: Draft, explainer: Explainer | None, deadline: Deadline) -> Derived:
        if explainer is None:
            return unexplained(self.book.rules, "no time was left to look for a derivation", late=True)
        names = [o.name for o in self.encoding.graph.outputs]
        return explainer.explain(list(zip(names, self.encoding.roots, d.roots, strict=True)), deadline)

    def _bases(self) -> dict[str, Axis]:
        return {s.count: s.axis for s in self.encoding.splits.values()}

    def _finished(self, d: Draft, folds: tuple[Fold, ...], derived: Derived) -> Candidate:
        made = Candidate(
            d.name,
            d.graph,
            self.encoding.graph,
            steps=derived.steps,
            folds=folds,
            splits=d.splits,
            exactness=derived.exactness,
            assumptions=derived.assumptions,
            notes=(*derived.notes, *self._ragged_notes(d)),
        )
        return self._costed(made)

    def _ragged_notes(self, d: Draft) -> list[str]:
        ragged = self._bases()
        stated = {s.count: str(p) for s in d.splits for p in d.graph.constraints if s.count in str(p)}
        return [
            f"{s.count} * {s.chunk} must reach the longest {ragged[s.count].extent}, which is no dim to constrain"
            for s in d.splits
            if s.count not in stated
        ]

    def _costed(self, c: Candidate) -> Candidate:
        return replace(c, cost=graph_cost(c.graph, c.splits, self.encoding.weights))
