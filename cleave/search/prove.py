"""Are two outputs of one graph equal under a rulebook? Both stand in one e-graph; equal means one class.

If they are not, ``Proof.left`` says what is left to show (the smallest pair of subterms whose equality would be
enough), and ``Proof.near()`` what stood in the way: a rule that is off, or a guard without which a rule would have
joined them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cleave.config import Config
from cleave.ir.graph import Graph
from cleave.ir.text import show_term
from cleave.rewrite.rulebook import Rulebook
from cleave.search.decode import Decoder
from cleave.search.egraph import EGraph, ENode
from cleave.search.encode import Encoding, encode
from cleave.search.engine import Round, Stop
from cleave.search.nearest import Near, nearest
from cleave.search.pieces import pieces_of
from cleave.search.reducibility import reducibility_table
from cleave.search.saturate import saturated
from cleave.search.select import selected
from cleave.search.small import small_form
from cleave.search.steps import Derived, make_explainer, term_names
from cleave.search.term import COMMUTATIVE, ETerm, walk

_DERIVATION_WORK = 200_000


@dataclass(frozen=True)
class _Open:
    """What a search for the nearest guard needs: the goals that were not met, and the rules that are on, and all."""

    encoding: Encoding
    goals: tuple[tuple[str, ETerm, ETerm], ...]
    book: Rulebook
    everything: Rulebook
    config: Config
    operators: frozenset[str] | None
    """Of the e-graph, if it is saturated."""


@dataclass(frozen=True)
class Proof:
    """``derived`` has the steps if every pair is equal; ``unproved`` names the first outputs of the others, ``left``
    what is left to show of each.
    """

    stop: Stop
    rounds: tuple[Round, ...]
    derived: Derived | None
    unproved: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    open: _Open | None = field(default=None, repr=False)

    def near(self) -> tuple[Near, ...]:
        """What stood nearest in the way: rules that are off, or guards; nothing if no single one did."""
        o = self.open
        return () if o is None else nearest(o.encoding, o.goals, o.book, o.everything, o.config, o.operators)


def prove(
    g: Graph,
    pairs: Sequence[tuple[str, str]],
    rules: Rulebook | None = None,
    config: Config | None = None,
    progress: Callable[[Round], None] | None = None,
    *,
    weights: Iterable[str] = (),
) -> Proof:
    """Whether outputs of a graph are equal, pair by pair, with the steps that lead from the first to the second.

    Errors: rules that egglog refuses (SearchError).
    """
    config = config or Config()
    book, notes = selected(rules, config)
    splittable = reducibility_table(g).worth_splitting if config.ablation.split else ()
    encoding = encode(g, splittable, book.signature, weights, pieces_of(g))
    terms = {o.name: encoding.sources[o.term] for o in g.outputs}
    goals = [(a, terms[a], terms[b]) for a, b in pairs]
    if all(a is b for _, a, b in goals):
        return Proof(Stop.EQUAL, (), Derived((), "exact", (), ()), notes=tuple(notes))
    state = saturated(encoding, book, config, progress, [(a, b) for _, a, b in goals])
    unproved = tuple(goal for goal in goals if state.graph.find(goal[1]) != state.graph.find(goal[2]))
    found = Proof(state.stop, tuple(state.rounds), None, notes=(*notes, *state.notes()))
    if not unproved:
        explainer = make_explainer(encoding, state.graph, book, small_form(g), _DERIVATION_WORK)
        return replace(found, derived=explainer.explain(goals))
    operators = frozenset(n.op for _, n in state.graph.nodes()) if state.complete else None
    return replace(
        found,
        unproved=tuple(name for name, _, _ in unproved),
        left=tuple(_left_to_show(encoding, state.graph, a, b) for _, a, b in unproved),
        open=_Open(encoding, unproved, book, (rules or Rulebook.installed()).everything(), config, operators),
    )


# ---- what is left


def _left_to_show(encoding: Encoding, g: EGraph, a: ETerm, b: ETerm) -> tuple[str, str]:
    """The smallest pair of subterms whose equality would make the two terms equal, as text."""
    first, second = g.find(a), g.find(b)
    assert first is not None and second is not None
    standing: dict[int, ETerm] = {}
    for t in walk(a, b):
        c = g.find(t)
        if c is not None:
            standing.setdefault(c, t)
    x, y = _smallest(g, first, second, standing, frozenset())
    decoder, names = Decoder(encoding), term_names(encoding)
    return show_term(decoder.term(standing[x]), names), show_term(decoder.term(standing[y]), names)


def _smallest(
    g: EGraph, a: int, b: int, standing: Mapping[int, ETerm], above: frozenset[tuple[int, int]]
) -> tuple[int, int]:
    """Down through e-nodes of the two classes that differ in one operand."""
    for x, y in itertools.product(g.classes[a], g.classes[b]):
        pair = _one_difference(x, y)
        if pair is not None and pair not in above and standing.keys() >= set(pair):
            return _smallest(g, *pair, standing, above | {pair})
    return a, b


def _one_difference(x: ENode, y: ENode) -> tuple[int, int] | None:
    if (x.op, x.plain, len(x.operands)) != (y.op, y.plain, len(y.operands)):
        return None
    mine, other = list(x.operands), list(y.operands)
    if x.op in COMMUTATIVE:
        for k in x.operands:
            if k in other:
                mine.remove(k)
                other.remove(k)
    pairs = [(m, o) for m, o in zip(mine, other, strict=True) if m != o]
    return pairs[0] if len(pairs) == 1 else None
