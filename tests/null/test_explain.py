"""Derivations: they replay exactly, each step is true, and a wrong rule is named."""

import re
from pathlib import Path

import pytest

from cleave.candidate import Step, load_candidates
from cleave.config import Config, SearchLimits
from cleave.rewrite import Rulebook
from cleave.search import reducibility_table, search
from cleave.search.deadline import Deadline
from cleave.search.decode import chosen_terms
from cleave.search.egraph import EGraph, read_snapshot
from cleave.search.encode import Encoding, encode
from cleave.search.engine import Request, Snapshot, saturate
from cleave.search.explain import Derivations, equations, replays
from cleave.search.extract import Limits, configurations, extract
from cleave.search.price import prices
from cleave.search.small import small_form
from cleave.search.steps import make_explainer
from tests.null import operators
from tests.null.operators import ATTENTION, OTHERS
from tests.null.searched import found


def saturated(g: object, book: Rulebook) -> tuple[Encoding, EGraph]:
    from cleave.ir.graph import Graph

    assert isinstance(g, Graph)
    encoding = encode(g, reducibility_table(g).splittable, book.signature)
    constructors = tuple(c for c, (sort, _) in book.signature.items() if sort == "E")
    dating = tuple(book.tick_text(n + 1) for n in range(40))
    request = Request(
        book.instrumented_text(),
        encoding.program,
        book.families,
        constructors,
        dating,
        rounds=40,
        nodes=10**5,
        seconds=20.0,
    )
    last = [m for m in saturate(request, isolate=False) if isinstance(m, Snapshot)][-1]
    return encoding, read_snapshot(last.graph, book.signature, encoding.roots)


@pytest.mark.parametrize("name", [name for name, _ in (*ATTENTION, *OTHERS)])
def test_every_candidate_has_a_derivation(name: str) -> None:
    for c in found(name).candidates:
        assert bool(c.steps) == (c.name != "as written")
        assert not [note for note in c.notes if "false" in note or "no derivation" in note]
        assert all(s.rule and s.before != s.after for s in c.steps)
        assert all(s.check is not None and s.check.instances >= 2 and not s.is_false for s in c.steps)


def test_flash_decoding_is_derived_in_a_few_different_equations() -> None:
    split = found("causal lse").pick(split="t")
    assert set(split.rules) == {"split-red", "telescope", "factor", "bring-out"}
    assert len(split.steps) <= 14
    keys = [(s.rule, frozenset((s.before, s.after))) for s in split.steps]
    assert len(keys) == len(set(keys))
    assert not any(s.rule.startswith("comm") for s in split.steps)
    telescoped = next(s for s in split.steps if s.rule == "telescope")
    assert telescoped.place.startswith("O / ") and "sum[t_o] / sum[t_i]" in telescoped.place
    assert telescoped.before.startswith("exp_diff(v1, ") and " * " in telescoped.after


def test_division_moves_in_two_equations() -> None:
    whole = found("causal lse").pick()
    assert [s.rule for s in whole.steps] == ["bring-out", "factor"]
    assert [s.place for s in whole.steps] == ["O / sum[t]", "O"]
    assert whole.exactness == "reassociates" and whole.assumptions == ("finite",)
    assert found("causal lse").candidates[-1].exactness == "exact"


@pytest.mark.parametrize("name", ["causal lse", "qk norm", "rms norm and matmul", "chain"])
def test_all_that_can_be_extracted_replays(name: str) -> None:
    """Not only the few that are kept: a hundred graphs of each configuration."""
    book = Rulebook.default()
    encoding, graph = saturated(found(name).candidates[0].origin, book)
    derivations = Derivations(graph, book.rules, book.signature, list(encoding.sources.values()))
    priced = prices(graph, encoding)
    names = sorted(encoding.splits)
    count = 0
    for split in configurations(names, 8)[0]:
        limits = Limits(wanted=100, deadline=Deadline.after(1.0))
        for choice in extract(graph, priced, split, frozenset(names), limits).choices:
            terms = chosen_terms(graph, choice, graph.roots)
            for root, source in zip(graph.roots, encoding.roots, strict=True):
                steps = derivations.derive(source, terms[root])
                assert replays(source, terms[root], steps)
                assert len(equations(source, steps)) <= len(steps)
                count += 1
    assert count >= 4


def test_a_wrong_rule_is_named_and_its_candidates_come_last(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.egg"
    wrong.write_text(
        "(ruleset wrong)\n\n"
        "; forgotten-rescale\n;   exp_diff(s, m)  =  exp_diff(s, p)      p = max_i s, m = max_o p\n"
        "; class:   exact\n; assumes: nothing\n; source:  a mistake\n; guards:  none\n"
        "(rule ((= e (ExpDiff s m)) (= m (Red (MaxOf) (Outer k S) p)) (= p (Red (MaxOf) (Inner k S) s)))\n"
        '      ((union e (ExpDiff s p))) :ruleset wrong :name "forgotten-rescale")\n'
    )
    f = search(
        dict(ATTENTION)["causal"]().graph,
        rules=Rulebook.default().with_files(wrong),
        config=Config(isolate=False, limits=SearchLimits(nodes=2000, seconds=5.0)),
    )
    guilty = [c for c in f.candidates if "forgotten-rescale" in c.rules]
    assert guilty
    assert all(any("false on a small instance: forgotten-rescale" in note for note in c.notes) for c in guilty)
    assert not any("false" in note for c in f.candidates if c not in guilty for note in c.notes)
    assert f.candidates[0] not in guilty
    for c in guilty:
        assert {s.rule for s in c.false_steps} == {"forgotten-rescale"}
        said = [failure(s) for s in c.false_steps]
        assert all(re.fullmatch(r"at .*t_o = \d.* where .*C_t = \d.*: \S+ before, \S+ after", text) for text in said)
    f.save(tmp_path / "found.json")
    assert [c.steps for c in load_candidates(tmp_path / "found.json")] == [c.steps for c in f.candidates]


def failure(s: Step) -> str:
    assert s.check is not None
    return s.check.failure


def test_a_derivation_that_takes_too_long_is_said() -> None:
    book = Rulebook.default()
    encoding, graph = saturated(found("causal lse").candidates[0].origin, book)
    sources = list(encoding.sources.values())
    assert Derivations(graph, book.rules, book.signature, sources).derive(encoding.roots[0], encoding.roots[0]) == ()
    explainer = make_explainer(encoding, graph, book, small_form(encoding.graph), work=1)
    other = next(t for t in encoding.sources.values() if t is not encoding.roots[0])
    derived = explainer.explain([("O", encoding.roots[0], other)])
    assert derived.notes == ("no derivation of O was found",) and not derived.steps


def test_a_search_that_was_cut_still_explains_what_it_has() -> None:
    f = search(operators.chain(7).graph, config=Config(isolate=False, limits=SearchLimits(rounds=3, candidates=4)))
    assert f.report.stop == "rounds"
    assert all(c.steps or c.name == "as written" for c in f.candidates)
