"""Candidates: what the algebraic search hands to the scheduler, and the file that lies between them.

A *fold* makes dependent reductions over one axis iterable. Its state is a tuple of reductions; ``carry[k]`` restates
member k of one state relative to a joint state. With refs ``old0, old1, ..`` (a state) and ``new0, new1, ..`` (the
joint state):

    joining two states X, Y:   new_k = monoid_k(carry_k(old := X), carry_k(old := Y)), in the order of members
    a loop, absorbing form:    new_k = monoid_k(carry_k(old := running), reduction_k over this tile, members u := new_u)

For softmax attention, members (m, l, acc): carry = (old0, exp_diff(old0, new0) * old1, exp_diff(old0, new0) * old2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from math import inf, isfinite
from pathlib import Path
from typing import Any

import msgspec

from cleave.errors import SavedFileError
from cleave.ir.axis import Axis
from cleave.ir.dim import Dim
from cleave.ir.graph import Graph, Reduce, Ref, Term, walk
from cleave.ir.index import spell
from cleave.ir.instance import CHUNKS, Instance, chunked, greatest_extent
from cleave.ir.numerics import Numerics, numerics
from cleave.ir.text import parse_graph, parse_index, parse_term, term_text
from cleave.saved import Saved, read_saved, write_saved

FORM = ("cleave-candidates", 1)


@dataclass(frozen=True)
class Fold:
    """How reductions over ``axis`` that depend on one another run as one loop, or are merged from parts.

    ``members`` are reductions of the candidate's graph in dependency order; ``carry[k]`` is a term over
    ``Ref("old<j>")`` and ``Ref("new<j>")``. ``absorbing`` says that a tile may be computed relative to the joint state
    (telescoping).
    """

    axis: Axis
    members: tuple[Reduce, ...]
    carry: tuple[Term, ...]
    absorbing: bool


@dataclass(frozen=True)
class Split:
    """An axis split with a symbolic count: its name in the input graph, its two pieces, count and chunk length."""

    base: str
    outer: Axis
    inner: Axis
    count: str
    chunk: str


@dataclass(frozen=True)
class StepCheck:
    """Both sides of a step in float64 on small instances: on how many, and their greatest relative difference.

    ``failure`` says where they differ, and is empty if they nowhere do.
    """

    instances: int
    difference: float
    failure: str = ""

    def __str__(self) -> str:
        if self.failure:
            return f"FALSE {self.failure}"
        spelt = f"{self.difference:.0e}" if self.difference else "0"
        return f"holds on {self.instances} instance{'s' * (self.instances != 1)}, difference {spelt}"


@dataclass(frozen=True)
class Step:
    """One rewrite: which rule, where (words such as ``O / mul.0 / sum[t]``), the terms before and after, as text.

    ``check`` is None where no instance was found on which both sides have values that the rule assumes, or no time was
    left to try it: then the candidate's notes say so.
    """

    rule: str
    place: str
    before: str
    after: str
    backward: bool = False
    check: StepCheck | None = None

    @property
    def is_false(self) -> bool:
        return self.check is not None and bool(self.check.failure)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class GraphCost:
    """Symbolic cost of a graph as a DAG: multiply-adds and the like, transcendentals, elements moved; passes, the most
    over one axis; ``over``: passes over each axis by its name; ``live``: the most values held at once.
    """

    work: Dim
    transcendental: Dim
    traffic: Dim
    passes: int
    over: tuple[tuple[str, int], ...] = ()
    live: int = 0

    def __str__(self) -> str:
        parts = (f"work {self.work}", f"transcendental {self.transcendental}", f"traffic {self.traffic}")
        several = [f"{axis} {count}" for axis, count in self.over if count > 1]
        over = f" ({', '.join(several)})" if several else ""
        return ", ".join(parts) + f", {self.passes} passes{over}, {self.live} live"


def promise(exactness: str, assumptions: Sequence[str]) -> str:
    return f"{exactness}, assumes {', '.join(assumptions)}" if assumptions else exactness


@dataclass(frozen=True)
class Candidate:
    """An equivalent graph with its derivation, its folds, its splits and what it rests on.

    ``exactness`` is the weakest class among the rules used: exact, reassociates, numerically-unsafe.
    """

    name: str
    graph: Graph
    origin: Graph
    steps: tuple[Step, ...] = ()
    folds: tuple[Fold, ...] = ()
    splits: tuple[Split, ...] = ()
    cost: GraphCost | None = None
    exactness: str = "exact"
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the rules used, in order of first use."""
        return tuple(dict.fromkeys(s.rule for s in self.steps))

    @property
    def promise(self) -> str:
        """Exactness and what is assumed, in words."""
        return promise(self.exactness, self.assumptions)

    @property
    def false_steps(self) -> tuple[Step, ...]:
        """Steps whose sides differ on an instance: a rule is wrong."""
        return tuple(s for s in self.steps if s.is_false)

    @cached_property
    def numerics(self) -> Numerics | None:
        """What rounding does to this graph and to the graph as written; None where no small instance has a value."""
        return numerics(self.graph, self.origin, partial(split_dims, self.splits))

    def fold_over(self, axis: Axis, members: Iterable[Reduce]) -> Fold | None:
        """The fold over an axis whose state contains all of some reductions, if the candidate brings one."""
        wanted = set(members)
        return next((f for f in self.folds if f.axis is axis and wanted <= set(f.members)), None)

    def text(self) -> str:
        lines = [f"candidate {self.name}: {', '.join(self.rules) or 'as written'}", self.graph.text().rstrip()]
        for f in self.folds:
            lines.append(f"fold over {f.axis}" + (", absorbing" if f.absorbing else ""))
            lines += [f"  {m.op}: {c}" for m, c in zip(f.members, f.carry, strict=True)]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Candidate({self.name!r}, {len(self.steps)} steps, {self.exactness})"

    def _repr_html_(self) -> str:
        from cleave.display import preformatted

        return f"{self.graph.svg()}<details><summary>text</summary>{preformatted(self.text())}</details>"


def split_dims(splits: Iterable[Split], at: Instance, count: int = CHUNKS) -> dict[str, int]:
    """The dims of an instance with every split in ``count`` chunks (1: the whole axis in one)."""
    dims = dict(at.dims)
    for s in splits:
        # The inner piece has the extent of the axis that was split if there is but one chunk, and room for anything.
        longest = greatest_extent(s.inner, {**at.dims, s.count: 1, s.chunk: 1 << 20}, at.inputs)
        dims |= chunked(s.count, s.chunk, longest, count)
    return dims


def as_written(g: Graph) -> Candidate:
    """The input graph as a candidate of its own: no rule, no fold."""
    return Candidate("as written", g, g)


# ---- saving and loading


class _SavedFold(msgspec.Struct, forbid_unknown_fields=True):
    axis: str
    members: list[str]
    carry: list[str]
    absorbing: bool


class _SavedSplit(msgspec.Struct, forbid_unknown_fields=True):
    base: str
    outer: str
    inner: str
    count: str
    chunk: str


class _SavedCheck(msgspec.Struct, forbid_unknown_fields=True):
    instances: int
    difference: float | None  # None: infinite, which JSON has no word for
    failure: str = ""


class _SavedStep(msgspec.Struct, forbid_unknown_fields=True):
    rule: str
    place: str
    before: str
    after: str
    backward: bool = False
    check: _SavedCheck | None = None


class _SavedCost(msgspec.Struct, forbid_unknown_fields=True):
    work: str
    transcendental: str
    traffic: str
    passes: int
    over: list[tuple[str, int]] = []
    live: int = 0


class _SavedCandidate(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    graph: str
    steps: list[_SavedStep]
    folds: list[_SavedFold]
    splits: list[_SavedSplit]
    cost: _SavedCost | None
    exactness: str
    assumptions: list[str]
    notes: list[str]


class _SavedFile(Saved):
    origin: str
    candidates: list[_SavedCandidate]


def save_candidates(candidates: Sequence[Candidate], path: str | Path) -> None:
    """Write candidates of one input graph as JSON, atomically."""
    if not candidates:
        raise SavedFileError("no candidates to save", location=str(path))
    write_saved(_SavedFile(*FORM, candidates[0].origin.text(), [_saved(c) for c in candidates]), path)


def load_candidates(path: str | Path) -> tuple[Candidate, ...]:
    """Read what ``save_candidates`` wrote; anything else is a ``SavedFileError`` that says what is wrong."""
    where = Path(path).name
    saved = read_saved(path, _SavedFile, FORM)
    origin = parse_graph(saved.origin, where)
    return tuple(_loaded(c, origin, where) for c in saved.candidates)


def _saved(c: Candidate) -> _SavedCandidate:
    def text(t: Term) -> str:
        return term_text(c.graph, t)

    cost = c.cost
    return _SavedCandidate(
        c.name,
        c.graph.text(),
        [_saved_step(s) for s in c.steps],
        [
            _SavedFold(f.axis.name, [text(m) for m in f.members], [text(t) for t in f.carry], f.absorbing)
            for f in c.folds
        ],
        [_SavedSplit(s.base, s.outer.name, s.inner.name, s.count, s.chunk) for s in c.splits],
        None if cost is None else _saved_cost(cost),
        c.exactness,
        list(c.assumptions),
        list(c.notes),
    )


def _saved_step(s: Step) -> _SavedStep:
    c = s.check
    check = c and _SavedCheck(c.instances, c.difference if isfinite(c.difference) else None, c.failure)
    return _SavedStep(s.rule, s.place, s.before, s.after, s.backward, check)


def _loaded_step(s: _SavedStep) -> Step:
    c = s.check
    check = c and StepCheck(c.instances, inf if c.difference is None else c.difference, c.failure)
    return Step(s.rule, s.place, s.before, s.after, s.backward, check)


def _saved_cost(c: GraphCost) -> _SavedCost:
    work, transcendental, traffic = map(spell, (c.work, c.transcendental, c.traffic))
    return _SavedCost(work, transcendental, traffic, c.passes, list(c.over), c.live)


def _loaded(saved: _SavedCandidate, origin: Graph, where: str) -> Candidate:
    g = parse_graph(saved.graph, where)
    return Candidate(
        saved.name,
        g,
        origin,
        tuple(_loaded_step(s) for s in saved.steps),
        tuple(_loaded_fold(f, g, where) for f in saved.folds),
        tuple(
            Split(s.base, _axis(g, s.outer, where), _axis(g, s.inner, where), s.count, s.chunk) for s in saved.splits
        ),
        None if saved.cost is None else _loaded_cost(saved.cost, g, where),
        saved.exactness,
        tuple(saved.assumptions),
        tuple(saved.notes),
    )


def _loaded_fold(saved: _SavedFold, g: Graph, where: str) -> Fold:
    members: list[Reduce] = []
    for text in saved.members:
        member = parse_term(g, text, where)
        if not isinstance(member, Reduce):
            raise SavedFileError(f"fold member {text!r} is no reduction", location=where)
        members.append(member)
    carry = tuple(parse_term(g, text, where) for text in saved.carry)
    known = {f"{side}{k}" for side in ("old", "new") for k in range(len(members))}
    unknown = sorted(t.name for t in walk(*carry) if isinstance(t, Ref) and t.name not in known)
    if len(carry) != len(members) or unknown:
        said = f"carried by {len(carry)} terms" + "".join(f", one of {name}" for name in unknown[:1])
        raise SavedFileError(f"a fold of {len(members)} members is {said}", location=where)
    return Fold(_axis(g, saved.axis, where), tuple(members), carry, saved.absorbing)


def _loaded_cost(saved: _SavedCost, g: Graph, where: str) -> GraphCost:

    work, transcendental, traffic = (
        parse_index(g, t, where) for t in (saved.work, saved.transcendental, saved.traffic)
    )
    return GraphCost(work, transcendental, traffic, saved.passes, tuple(saved.over), saved.live)


def _axis(g: Graph, name: str, where: str) -> Axis:
    found = next((a for a in g.axes if a.name == name), None)
    if found is None:
        raise SavedFileError(f"axis {name!r} is not in the graph", location=where)
    return found
