"""Saturation of an encoded graph: what is asked of the engine, and what its last snapshot holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cleave.config import Config, SearchLimits
from cleave.rewrite.rulebook import Rulebook
from cleave.search import engine
from cleave.search.egraph import EGraph, ENode, enode, read_snapshot
from cleave.search.encode import Encoding
from cleave.search.engine import Round, Stop
from cleave.search.term import AxisRef, ETerm, walk

Goals = Sequence[tuple[ETerm, ETerm]]
"""Pairs of encoded terms; a saturation may end when both terms of each are one class."""


@dataclass
class Saturated:
    graph: EGraph
    rounds: list[Round] = field(default_factory=list[Round])
    stop: Stop = Stop.SATURATED


def saturated(
    encoding: Encoding,
    book: Rulebook,
    config: Config,
    progress: Callable[[Round], None] | None = None,
    goals: Goals = (),
) -> Saturated:
    """The e-graph under the limits of a configuration; Ctrl-C keeps the last snapshot.

    Raises SearchError if egglog refuses the rules.
    """
    state = Saturated(source_egraph(encoding), stop=Stop.INTERRUPTED)
    latest: engine.Snapshot | None = None
    messages = engine.saturate(request(encoding, book, config.limits, goals), isolate=config.isolate)
    try:
        for message in messages:
            match message:
                case engine.Round():
                    state.rounds.append(message)
                    if progress is not None:
                        progress(message)
                case engine.Snapshot():
                    latest = message
                case engine.Ended(stop):
                    state.stop = stop
                case engine.Failed(text):
                    raise engine.refused(text)
                case engine.Started():
                    pass
    except KeyboardInterrupt:
        state.stop = Stop.INTERRUPTED
    finally:
        messages.close()
    if latest is not None:
        state.graph = read_snapshot(latest.graph, book.signature, encoding.roots)
    return state


def request(encoding: Encoding, book: Rulebook, limits: SearchLimits, goals: Goals = ()) -> engine.Request:
    return engine.Request(
        rules=book.instrumented_text(),
        program=encoding.program,
        families=book.families,
        constructors=tuple(c for c, (sort, _) in book.signature.items() if sort == "E"),
        dating=tuple(book.tick_text(number + 1) for number in range(limits.rounds)),
        rounds=limits.rounds,
        nodes=limits.nodes,
        seconds=limits.seconds,
        memory=limits.memory,
        goals=tuple((encoding.bound[a], encoding.bound[b]) for a, b in goals),
    )


def source_egraph(encoding: Encoding) -> EGraph:
    """The input graph as an e-graph of its own: what is left when nothing was found."""
    number: dict[ETerm, int] = {}
    classes: list[tuple[ENode, ...]] = []
    for t in walk(*encoding.roots):
        number[t] = len(classes)
        classes.append((enode(t.op, t.plain, [number[k] for k in t.operands]),))
    no_axes = frozenset[AxisRef]()
    return EGraph(tuple(classes), (no_axes,) * len(classes), tuple(number[r] for r in encoding.roots))
