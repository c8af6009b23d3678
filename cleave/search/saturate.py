"""Saturation of an encoded graph: what is asked of the engine, and what its last snapshot holds."""

from __future__ import annotations

import math
import time
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


_READ = 3 << 20
"""Bytes of a snapshot for each second of the limit: what is larger leaves no time for extraction and derivations."""


@dataclass
class Saturated:
    """``kept`` is the round after which the e-graph was what ``graph`` holds: not the last one, where a limit was met
    before there was a snapshot of it, or that was too large to be read in time. 0: the graph as written. ``started``
    and ``ended``: when, by ``time.perf_counter``.
    """

    graph: EGraph
    rounds: list[Round] = field(default_factory=list[Round])
    stop: Stop = Stop.SATURATED
    kept: int = 0
    started: float = 0.0
    ended: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether the e-graph holds all that the rules can reach."""
        return self.stop is Stop.SATURATED and not self.notes()

    def notes(self) -> list[str]:
        """What the sizes of the last round do not say."""
        last = self.rounds[-1].number if self.rounds else 0
        if self.kept == last:
            return []  # without a round, too, the report says it
        why = f"that after round {last} was too large to be read in the time, or the saturation ended before it was"
        if not self.kept:
            return [f"no e-graph was kept, only the graph as written: {why}"]
        size = next(f"{r.nodes} e-nodes, {r.classes} classes" for r in self.rounds if r.number == self.kept)
        return [f"candidates are of the e-graph after round {self.kept} ({size}): {why}"]


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
    state = Saturated(source_egraph(encoding), stop=Stop.INTERRUPTED, started=time.perf_counter())
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
                    state.started = time.perf_counter()
    except KeyboardInterrupt:
        state.stop = Stop.INTERRUPTED
    finally:
        messages.close()
    state.ended = time.perf_counter()
    if latest is not None:
        state.kept = latest.round
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
        snapshot=math.ceil(_READ * limits.seconds),
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
