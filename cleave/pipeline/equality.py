"""Are two graphs equal? By the rules, with the derivation; or not, with a counterexample; or nobody knows.

1. float64 on small instances: a difference ends it                     different, with the counterexample
2. both graphs in one e-graph under the rulebook                        equal, with the steps from one to the other
3. float64 on medium instances and at the edges that predicates state   different, or unknown, with what is left to
                                                                        show and what stood nearest in the way
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cleave.config import Config
from cleave.ir.graph import Graph
from cleave.ir.unify import unify
from cleave.pipeline.program import Program, graph_of
from cleave.pipeline.rulebooks import check_rulebook
from cleave.rewrite.rulebook import Rulebook

if TYPE_CHECKING:
    from cleave.candidate import Step
    from cleave.search.engine import Round
    from cleave.search.nearest import Near
    from cleave.search.prove import Proof
    from cleave.search.steps import Derived
    from cleave.verify.counterexample import Counterexample


class Verdict(StrEnum):
    EQUAL = "equal"
    DIFFERENT = "different"
    UNKNOWN = "unknown"
    """No instance tells the graphs apart, and no derivation was found."""


@dataclass(frozen=True)
class Equality:
    """What was found. ``bool`` of it: whether the graphs are equal.

    ``graph`` is both graphs in one, the outputs of the second called ``NAME__other``: its text names the terms that the
    steps mention. ``instances`` is how many small instances agreed; ``left`` what is left to show, a pair of terms for
    each output that was not found equal; ``near`` the rules and guards that stood nearest; ``beyond`` an instance that
    does not count, since a value inside is not finite, and at which they differ: what "assumes finite" leaves out.
    """

    verdict: Verdict
    names: tuple[str, str]
    graph: Graph
    instances: int
    steps: tuple[Step, ...] = ()
    exactness: str = "exact"
    assumptions: tuple[str, ...] = ()
    counterexample: Counterexample | None = None
    beyond: Counterexample | None = None
    stop: str = ""
    size: str = ""
    left: tuple[tuple[str, str], ...] = ()
    near: tuple[Near, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __bool__(self) -> bool:
        return self.verdict is Verdict.EQUAL

    def text(self) -> str:
        from cleave.pipeline.show import show_equality

        return show_equality(self)

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": str(self.verdict),
            "graph": self.graph.text(),
            "instances": self.instances,
            "steps": [s.as_dict() for s in self.steps],
            "exactness": self.exactness,
            "assumptions": list(self.assumptions),
            "counterexample": self.counterexample and self.counterexample.as_dict(),
            "beyond": self.beyond and self.beyond.as_dict(),
            "stop": self.stop,
            "left": [list(pair) for pair in self.left],
            "near": [
                {"kind": n.kind, "rule": n.rule, "why": n.why, "step": n.step and n.step.as_dict(), "holds": n.holds}
                for n in self.near
            ],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Equality({self.verdict}, {len(self.steps)} steps)"

    def _repr_html_(self) -> str:
        from cleave.display import preformatted

        return preformatted(self.text())


def equal(
    a: Program,
    b: Program,
    *,
    rules: Rulebook | None = None,
    config: Config | None = None,
    weights: Iterable[str] = (),
    names: tuple[str, str] = ("a", "b"),
    progress: Callable[[Round], None] | None = None,
) -> Equality:
    """Whether two graphs have the same outputs for all inputs, under a rulebook.

    ``a`` and ``b`` are graphs, or functions as ``optimize`` takes them; inputs, dims and outputs correspond by name.
    ``config.assume`` says what holds of the values: with "finite" an instance with NaN or infinities inside tells
    nothing. ``weights`` names inputs that are parameters, ``names`` is what messages call the two.

    Errors: graphs that do not correspond (GraphError, ShapeError); a rulebook with a wrong rule (RuleError).
    """
    from cleave.search.prove import prove
    from cleave.verify.counterexample import find_counterexample

    config, weights = config or Config(), tuple(weights)
    book = rules or (Rulebook.installed() if config.unsafe else Rulebook.default())
    joint = unify(graph_of(a), graph_of(b), names)
    for name in weights:
        joint.graph.input(name)
    notes = (*joint.notes, *check_rulebook(book))
    pairs = [(x.name, y.name) for x, y in map(joint.pair, joint.outputs)]
    tried = find_counterexample(joint.graph, pairs, config)
    found = Equality(Verdict.UNKNOWN, names, joint.graph, tried.instances, notes=notes)
    if tried.counterexample is not None:
        return replace(found, verdict=Verdict.DIFFERENT, counterexample=tried.counterexample)
    proof = prove(joint.graph, pairs, book, config, progress, weights=weights)
    found = replace(found, stop=str(proof.stop), size=_size(proof), notes=(*notes, *proof.notes))
    if proof.derived is not None:
        return _proved(replace(found, beyond=tried.beyond), proof.derived)
    more = find_counterexample(joint.graph, pairs, config, thorough=True)
    found = replace(found, instances=tried.instances + more.instances, beyond=tried.beyond or more.beyond)
    if more.counterexample is not None:
        return replace(found, verdict=Verdict.DIFFERENT, counterexample=more.counterexample)
    interrupted = found.stop == "interrupted"
    return replace(found, left=proof.left, near=() if interrupted else proof.near())


def _proved(found: Equality, derived: Derived) -> Equality:
    return replace(
        found,
        verdict=Verdict.EQUAL,
        steps=derived.steps,
        exactness=derived.exactness,
        assumptions=derived.assumptions,
        notes=(*found.notes, *derived.notes),
    )


def _size(proof: Proof) -> str:
    last = proof.rounds[-1] if proof.rounds else None
    return f"{last.nodes} e-nodes, {last.number} rounds" if last is not None else "no round ran"
