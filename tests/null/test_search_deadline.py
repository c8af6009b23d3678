"""What follows a saturation ends at a deadline; what it leaves out is said, and nothing unverified is offered.

Clocks are injected: each look at one is a second, so that a deadline falls between any two looks, on any machine.
"""

import itertools
import re
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from cleave import trace
from cleave.config import Config, SearchLimits
from cleave.frontend import ops
from cleave.frontend.tensor import Tensor
from cleave.ir.interp import contract
from cleave.pipeline.verification import verified
from cleave.rewrite import Rulebook
from cleave.search import Found, Stop, reducibility_table, run, saturate, search
from cleave.search.deadline import Deadline, OutOfTime
from cleave.search.decode import chosen_terms
from cleave.search.encode import Encoding, encode
from cleave.search.engine import Request, Snapshot
from cleave.search.engine import saturate as messages
from cleave.search.extract import Extraction, Limits, extract
from cleave.search.price import prices
from cleave.search.saturate import Saturated
from cleave.search.small import small_form
from cleave.search.steps import make_explainer, term_names
from tests.null.operators import ATTENTION
from tests.null.searched import QUICK, searched

GRAPH = dict(ATTENTION)["causal lse"]().graph


def ticks() -> Callable[[], float]:
    return map(float, itertools.count()).__next__


@cache
def encoding() -> Encoding:
    return encode(GRAPH, reducibility_table(GRAPH).worth_splitting, Rulebook.default().signature, ())


@cache
def grown() -> Saturated:
    return saturate.saturated(encoding(), Rulebook.default(), QUICK)


def request() -> Request:
    return saturate.request(encoding(), Rulebook.default(), QUICK.limits)


def unhurried() -> Found:
    return searched(GRAPH)


def hurried(monkeypatch: pytest.MonkeyPatch, looks: int) -> Found:
    """The search with a deadline after so many looks at the clock; it is saturated once for all."""
    unhurried(), grown()  # before anything is replaced
    monkeypatch.setattr(run, "saturated", lambda *_: grown())
    monkeypatch.setattr(run, "_deadline", lambda *_: Deadline.after(looks, ticks()))
    return search(GRAPH, config=QUICK)


# ---- the whole search


def test_with_time_enough_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = hurried(monkeypatch, 10**9)
    assert [(c.name, c.graph, c.steps, c.folds) for c in found.candidates] == [
        (c.name, c.graph, c.steps, c.folds) for c in unhurried().candidates
    ]
    assert not any("no time" in note for note in found.report.notes)


@pytest.mark.parametrize("looks", [0, 10, 60, 150, 400, 900, 1500, 4000])
def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
    found = hurried(monkeypatch, looks)
    known = {c.graph for c in unhurried().candidates}
    assert {c.graph for c in found.candidates} <= known and any(c.graph == GRAPH for c in found.candidates)
    said = "\n".join(found.report.notes)
    if len(found.candidates) < len(unhurried().candidates):
        assert "no time was left to extract all graphs" in said or "no time was left to decode" in said
    for c in found.candidates:
        whole = next(w for w in unhurried().candidates if w.graph == c.graph)
        if c.steps != whole.steps:
            assert re.search(rf"all steps of .*\b{c.name}\b", said)
            assert any("no time was left" in note or "time that was left" in note for note in c.notes)
        if len(c.folds) < len(whole.folds):
            assert "folds" in said or "extract" in said
    assert looks or [c.name for c in found.candidates] == ["as written"]


# ---- parts


def test_an_extraction_is_whole_or_says_that_it_was_late() -> None:
    graph, late = grown().graph, 0
    priced, splits = prices(graph, encoding()), frozenset(encoding().splits)

    def extracted(deadline: Deadline) -> Extraction:
        return extract(graph, priced, splits, splits, Limits(deadline=deadline))

    clock = ticks()
    whole = extracted(Deadline(1e9, clock))
    looks = int(clock())
    for most in range(0, looks + 10, 5):
        found = extracted(Deadline.after(most, ticks()))
        late += found.late
        assert found.late or found == whole
        assert not found.exact or found.choices[0] == whole.choices[0]
    assert looks > 20 and late > 3 and found == whole


def test_a_derivation_is_whole_or_there_is_none() -> None:
    book, graph = Rulebook.default(), grown().graph
    splits = frozenset(encoding().splits)
    choice = extract(graph, prices(graph, encoding()), splits, splits, Limits(wanted=1)).choices[0]
    target = chosen_terms(graph, choice, graph.roots)[graph.roots[0]]
    explainer = make_explainer(encoding(), graph, book, small_form(GRAPH))
    goal = ("O", encoding().roots[0], target)
    whole = explainer.explain([goal])
    assert whole.steps and not whole.late
    kinds: set[str] = set()
    for looks in range(1, 800, 5):
        explainer.derivations.found.clear()
        found = explainer.explain([goal], Deadline.after(looks, ticks()))
        if not found.late:
            assert found == whole
        elif found.steps:
            assert [(s.rule, s.before, s.after) for s in found.steps] == [
                (s.rule, s.before, s.after) for s in whole.steps
            ]
            assert any(s.check is None for s in found.steps)
            assert re.fullmatch(r"\d+ steps were not tried on small instances: no time was left", found.notes[-1])
        else:
            assert found.notes == ("no derivation of O was found in the time that was left",)
            assert found.exactness == "reassociates" and "finite" in found.assumptions
        kinds.add("whole" if not found.late else "untried" if found.steps else "none")
    assert kinds == {"whole", "untried", "none"}


def test_no_other_verification_is_begun_after_the_deadline_and_what_has_none_is_left_out() -> None:
    candidates = unhurried().candidates
    for looks in (0, 1, len(candidates)):
        found = verified(GRAPH, candidates, QUICK, None, Deadline.after(looks + 0.5, ticks()))
        assert [v.candidate for v in found.verdicts] == [c.name for c in candidates[:looks]] and found.passed
        late = [c.name for c in candidates[looks:] if c.name != "as written"]
        assert [c.name for c in found.candidates] == [c.name for c in candidates if c.name not in late]
        assert [n for n in found.notes if "left out" in n] == [
            f"left out, since no time was left to verify them: {', '.join(late)}"
        ] * bool(late)


def test_shares_of_a_time() -> None:
    deadline = Deadline.after(8.0, lambda: 0.0)
    assert deadline.share(0.25).left == 2.0 and deadline.next_of(5).left == 4.0 and deadline.next_of(1).left == 8.0
    assert not deadline.passed and Deadline().share(0.5) == Deadline()
    with pytest.raises(OutOfTime):
        Deadline(0.0, lambda: 0.0).check()


# ---- snapshots


def test_a_snapshot_that_is_too_large_to_be_read_is_not_sent_unless_the_goals_are_met() -> None:
    sizes = {m.round: len(m.graph) for m in messages(request(), isolate=False) if isinstance(m, Snapshot)}
    last = max(sizes)
    assert last > 3

    def sent(most: int, **changed: Any) -> list[int]:
        made = messages(msgspec.structs.replace(request(), snapshot=most, **changed), isolate=False)
        return [m.round for m in made if isinstance(m, Snapshot)]

    assert sent(1) == [] and sent(max(sizes.values())) == list(sizes)
    assert sent(-(-sizes[last] // 2))[-1] == last, "the last word of the rules may be twice as large"
    assert sent(sizes[1]) == [1]
    same = (encoding().bound[encoding().roots[0]],) * 2
    assert sent(1, goals=(same,)) == [1]


@pytest.mark.parametrize("kept", [0, 1])
def test_the_report_says_of_which_round_its_candidates_are(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    unhurried()  # before anything is replaced
    sizes = {m.round: len(m.graph) for m in messages(request(), isolate=False) if isinstance(m, Snapshot)}
    monkeypatch.setattr(saturate, "_READ", 1 if kept == 0 else sizes[kept] / QUICK.limits.seconds)
    found = search(GRAPH, config=QUICK)
    assert found.report.stop is Stop.SATURATED
    if kept:
        done = found.report.rounds[kept - 1]
        said = f"candidates are of the e-graph after round {kept} ({done.nodes} e-nodes, {done.classes} classes)"
        assert any(note.startswith(said) for note in found.report.notes)
    else:
        assert any(note.startswith("no e-graph was kept") for note in found.report.notes)
        assert [c.name for c in found.candidates] == ["as written"]
    assert found.egraph.node_count < unhurried().egraph.node_count
    assert not any("needs one over all chunks" in note for note in found.report.notes)


# ---- graphs of which something grows without bounds


def test_a_chain_of_softmaxes_ends_soon_after_twice_its_limit() -> None:
    """Its derivations double with each link: 28 s without a deadline."""

    def chain(x: Tensor, **weights: Tensor) -> Tensor:
        for n in range(8):
            x = ops.softmax(x, axis=f"k{n}") @ weights[f"w{n}"]
        return x

    g = trace(chain, dtype="float32", x="m k0", **{f"w{n}": f"k{n} k{n + 1}" for n in range(8)})
    began = time.perf_counter()
    found = search(g, config=Config(limits=SearchLimits(seconds=0.5)))
    assert time.perf_counter() - began < 8, "1.6 s on a quiet machine"
    assert any("all steps of" in note for note in found.report.notes)


def test_names_of_terms_in_chunks_do_not_double_with_each_axis() -> None:
    letters = "abcdefghijklmnopqrst"

    def total(x: Tensor) -> Tensor:
        for letter in letters:
            x = ops.sum(ops.exp(x), letter, keepdims=True)
        return x

    g = trace(total, x=" ".join(letters), dtype="float32")
    made = encode(g, reducibility_table(g).worth_splitting, Rulebook.default().signature, ())
    assert len(made.splits) == len(letters)
    assert len(term_names(made)) < 200 * len(letters)


def test_a_product_of_more_factors_than_numpy_takes_together(rng: np.random.Generator) -> None:
    factors = [rng.uniform(0.9, 1.1, (9, 1, 50) if n % 3 else (1, 11, 50)) for n in range(70)]
    wanted = np.multiply.reduce([np.broadcast_to(f, (9, 11, 50)) for f in factors]).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(contract(factors, 2), wanted, rtol=1e-10)
