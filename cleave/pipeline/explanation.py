"""How candidates follow from a graph, for people: as text, Markdown, HTML, or in a notebook.

    the graph as written; which axes may be reduced in pieces, and why; the rules that were used
    for each candidate: numbered steps (rule, place, before, after, whether it held when it was tried), then its graph
    where every dim has a value: why the scheduler chose what it chose (``scheduling.py``)

A step that is false when it is tried is an error: it stands at the top, and ``Explanation.errors`` holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from cleave import document
from cleave.candidate import Candidate, Step
from cleave.config import Config, meanings
from cleave.document import Block, Code, Heading, Item, Lines, Numbered, Picture, Table
from cleave.errors import SearchError
from cleave.ir.bind import bind_dims
from cleave.ir.graph import Graph
from cleave.pipeline.program import Program, graph_of
from cleave.pipeline.rulebooks import check_rulebook
from cleave.pipeline.scheduling import Scheduling, explain_schedules
from cleave.rewrite import table
from cleave.rewrite.rule import Rule
from cleave.rewrite.rulebook import Rulebook
from cleave.search import Found, ReducibilityTable, reducibility_table
from cleave.target import Target

if TYPE_CHECKING:
    from cleave.search.egraph import EGraph

_COLUMNS = ("rule", "says", "class", "assumes", "proof", "source")
"""What is shown of a rule."""

_UNTRIED = "not tried: no small instance has values that the rule assumes, or no time was left"

UNKNOWN = "unknown"
"""The stop reason of a search that nobody remembers."""


@dataclass(frozen=True)
class Explanation:
    """Of candidates of one graph, by the numbers that they have in the search; ``text``, ``markdown`` and ``html`` say
    the same.

    ``rules`` are those that were used; ``egraph`` is None for saved candidates; ``dropped`` says which candidates were
    left out and why; ``schedules`` is None where some dim has no value.
    """

    candidates: tuple[tuple[int, Candidate], ...]
    axes: ReducibilityTable
    rules: tuple[Rule, ...]
    stop: str = UNKNOWN
    egraph: EGraph | None = None
    notes: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    schedules: Scheduling | None = None

    @property
    def origin(self) -> Graph:
        return self.candidates[0][1].origin

    @property
    def errors(self) -> tuple[str, ...]:
        """A line for each step that is false."""
        return tuple(
            f"candidate {number}, step {k}: {s.rule} at {s.place} is {s.check}"
            for number, c in self.candidates
            for k, s in enumerate(c.steps, 1)
            if s.is_false
        )

    def text(self) -> str:
        return document.text(self._blocks())

    def markdown(self) -> str:
        return document.markdown(self._blocks())

    def html(self) -> str:
        """A page of its own, with drawings of the graph, the candidates and the e-graph."""
        return document.page(f"cleave: {self.origin.name}", self._blocks())

    def as_dict(self) -> dict[str, Any]:
        rows = [{**candidate_dict(c), "number": number, "numerics": _numerics(c)} for number, c in self.candidates]
        return {
            "graph": self.origin.text(),
            "stop": self.stop,
            "errors": list(self.errors),
            "axes": self.axes.as_dicts(),
            "rules": [dict(zip(table.HEADINGS, table.row(r), strict=True)) for r in self.rules],
            "candidates": rows,
            "notes": list(self.notes),
            "dropped": list(self.dropped),
            "schedules": None if self.schedules is None else self.schedules.as_dict(),
        }

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Explanation({self.origin.name}, {len(self.candidates)} candidates, {len(self.errors)} errors)"

    def _repr_html_(self) -> str:
        return document.html(self._blocks())

    def _blocks(self) -> Iterator[Block]:
        yield Heading(self.origin.name)
        if self.errors:
            yield Lines(tuple(f"error: {line}" for line in self.errors))
        yield Code(self.origin.text())
        yield Picture("graph", self.origin.svg(), open=True)
        said = [*(f"note: {note}" for note in self.notes), *(f"dropped: {line}" for line in self.dropped)]
        yield Lines((f"stop reason: {self.stop}", *said))
        if self.egraph is not None:
            yield Picture(str(self.egraph), self.egraph.svg())
        yield Heading("axes", 2)
        yield self.axes.block()
        if self.rules:
            yield Heading("rules used", 2)
            yield Table(_COLUMNS, tuple(map(_rule_cells, self.rules)))
        for number, c in self.candidates:
            yield from _candidate_blocks(number, c)
        if self.schedules is not None:
            yield from self.schedules.blocks()


def _rule_cells(rule: Rule) -> tuple[str, ...]:
    cells = dict(zip(table.HEADINGS, table.row(rule), strict=True))
    return tuple(cells[column] for column in _COLUMNS)


def _candidate_blocks(number: int, c: Candidate) -> Iterator[Block]:
    yield Heading(f"candidate {number}: {c.name}")
    lines = [f"exactness: {c.promise}", *meanings(c.assumptions)]
    lines += [f"cost: {c.cost}"] * (c.cost is not None)
    lines += str(c.numerics or "no instance to measure errors on").splitlines()
    yield Lines((*lines, *(f"note: {note}" for note in c.notes)))
    yield Heading("derivation", 2)
    if c.steps:
        yield Numbered(tuple(map(_item, c.steps)))
    else:
        yield Lines(("none, the graph as written",) if c.graph == c.origin else ("none was found",))
    yield Heading("graph", 2)
    yield Code(c.graph.text())
    yield Picture("graph", c.graph.svg())
    parts = [*split_lines(c), *fold_lines(c)]
    if parts:
        yield Code("\n".join(parts))


def _item(s: Step) -> Item:
    way = " (backward)" if s.backward else ""
    tried = str(s.check) if s.check is not None else _UNTRIED
    return Item(s.rule + way, f"at {s.place}", f"   {s.before}\n-> {s.after}", tried)


def split_lines(c: Candidate) -> list[str]:
    return [f"split: {s.base} into {s.count} chunks of {s.chunk} ({s.outer}, {s.inner})" for s in c.splits]


def fold_lines(c: Candidate) -> list[str]:
    lines: list[str] = []
    for f in c.folds:
        lines.append(f"fold over {f.axis}" + (", absorbing:" if f.absorbing else ":"))
        lines += [f"  {m.op} restated as {carry}" for m, carry in zip(f.members, f.carry, strict=True)]
    return lines


def candidate_dict(c: Candidate) -> dict[str, Any]:
    """A candidate with its derivation, for JSON."""
    return {
        "name": c.name,
        "rules": list(c.rules),
        "exactness": c.exactness,
        "assumptions": list(c.assumptions),
        "graph": c.graph.text(),
        "steps": [s.as_dict() for s in c.steps],
        "splits": [s.base for s in c.splits],
        "folds": [{"axis": f.axis.name, "absorbing": f.absorbing, "carry": [str(t) for t in f.carry]} for f in c.folds],
    }


def _numerics(c: Candidate) -> dict[str, Any] | None:
    return c.numerics and c.numerics.as_dict()


# ---- from what


def explain(
    source: Program | Found | Candidate | Sequence[Candidate],
    *,
    rules: Rulebook | None = None,
    config: Config | None = None,
    candidate: int | None = None,
    bind: Mapping[str, int] | None = None,
    target: Target | str = "sm_90a",
) -> Explanation:
    """How candidates follow from the graph as it was written, and with ``bind`` why their schedules are what they are.

    ``source`` is what a search found, one or several of its candidates, or a program, which is searched now.
    ``candidate`` is the number of the only one that is wanted. ``rules`` is the rulebook of the search, the installed
    one unless it is given; a rule that it lacks is left out of the table of rules. ``bind``: the shape that schedules
    for ``target`` are chosen for, a value for every dim.

    Errors: a number that no candidate has, or no candidates (SearchError); a dim without a value.
    """
    made = _derived(source, rules=rules, config=config, candidate=candidate)
    if bind is None:
        return made
    where = Target(target) if isinstance(target, str) else target
    dims = bind_dims(made.origin, {}, bind)
    return replace(made, schedules=explain_schedules(made.candidates, where, dims, config))


def _derived(
    source: Program | Found | Candidate | Sequence[Candidate],
    *,
    rules: Rulebook | None,
    config: Config | None,
    candidate: int | None,
) -> Explanation:
    book = rules or Rulebook.installed()
    if isinstance(source, Candidate):
        return explain_saved((source,), candidate=candidate, book=book)
    if isinstance(source, Sequence):
        return explain_saved(cast("Sequence[Candidate]", source), candidate=candidate, book=book)
    if not isinstance(source, Found):
        check_rulebook(rules or Rulebook.default())
        from cleave.search import search

        source = search(graph_of(source), rules, config)
    chosen, report = _chosen(source.candidates, candidate), source.report
    last = report.rounds[-1] if report.rounds else None
    size = f" ({last.nodes} e-nodes, {last.classes} classes, {last.number} rounds)" if last else ""
    used = _used(book, chosen)
    stop = f"{report.stop}{size}"
    return Explanation(chosen, report.reducibility, used, stop, source.egraph, report.notes, report.dropped)


def explain_saved(
    candidates: Sequence[Candidate],
    stop: str = UNKNOWN,
    *,
    candidate: int | None = None,
    book: Rulebook | None = None,
    notes: Iterable[str] = (),
    dropped: Iterable[str] = (),
) -> Explanation:
    """Of candidates alone: without the e-graph the table of axes is what can be read off the graph."""
    if not candidates:
        raise SearchError("no candidates to explain")
    chosen = _chosen(candidates, candidate)
    axes = reducibility_table(candidates[0].origin)
    used = _used(book or Rulebook.installed(), chosen)
    return Explanation(chosen, axes, used, stop, notes=tuple(notes), dropped=tuple(dropped))


def _chosen(candidates: Sequence[Candidate], number: int | None) -> tuple[tuple[int, Candidate], ...]:
    if number is None:
        return tuple(enumerate(candidates))
    if not 0 <= number < len(candidates):
        raise SearchError(f"candidate {number}: there are {len(candidates)}, numbered from 0")
    return ((number, candidates[number]),)


def _used(book: Rulebook, candidates: Iterable[tuple[int, Candidate]]) -> tuple[Rule, ...]:
    used = {name for _, c in candidates for name in c.rules}
    return tuple(rule for rule in book.everything().rules if rule.name in used)
