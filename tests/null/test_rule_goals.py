"""What the rules must reach: known fusions, each as the term that the search has to find; and saturation ends."""

from __future__ import annotations

import pytest

from cleave.config import ASSUMPTIONS, Config
from cleave.rewrite import Rulebook
from cleave.rewrite.parser import Session
from cleave.search import Stop, search
from tests.null.identities import IDENTITIES, PAIRS
from tests.null.rule_goals import ATTENTION, FACTS, GOALS

ROUNDS = 30


@pytest.mark.parametrize("title", GOALS)
@pytest.mark.parametrize("everything", [False, True], ids=["its families", "all families"])
def test_a_goal_is_reached_and_the_rules_come_to_an_end(title: str, *, everything: bool) -> None:
    goal, installed = GOALS[title], Rulebook.installed()
    book = installed if everything else installed.only(*goal.families)
    with Session(book.text() + FACTS) as session:
        session.push(f"(let $root {goal.source})")
        assert saturates(session, book.families)
        assert session.equal("$root", goal.target)
        assert not session.equal("$root", "(NegInf)")


@pytest.mark.parametrize("missing", ["split", "shift", "products"])
def test_flash_decoding_needs_its_families(missing: str) -> None:
    goal, book = GOALS["attention: flash decoding"], Rulebook.default().without(missing)
    with Session(book.text() + FACTS) as session:
        session.push(f"(let $root {goal.source})")
        assert saturates(session, book.families)
        assert not session.equal("$root", goal.target)


def test_attention_stays_small() -> None:
    book = Rulebook.default()
    with Session(book.text() + FACTS) as session:
        session.push(f"(let $root {ATTENTION})")
        assert saturates(session, book.families)
        terms = [n for n in session.nodes().values() if book.signature.get(n["op"], ("",))[0] == "E"]
        assert len(terms) <= 100, len(terms)


def saturates(session: Session, families: tuple[str, ...]) -> bool:
    """Run rounds until one adds no node."""
    schedule = f"(seq (saturate (run analysis)) {' '.join(f'(run {f})' for f in families)} (saturate (run analysis)))"
    before = -1
    for _ in range(ROUNDS):
        session.run(schedule)
        now = len(session.nodes())
        if now == before:
            return True
        before = now
    return False


# ---- every identity


@pytest.mark.parametrize("title", PAIRS)
def test_two_ways_to_write_one_thing_are_one(title: str) -> None:
    pair = PAIRS[title]
    graph = pair.graph()
    left, right = graph.terms
    if not pair.families:
        assert left is right
        return
    assert left is not right
    book = Rulebook.installed().only(*pair.families)
    config = Config(assume=frozenset(ASSUMPTIONS), unsafe=True, isolate=False)
    found = search(graph, rules=book, config=config, weights=pair.weights)
    assert found.report.stop is Stop.SATURATED
    assert len(set(found.egraph.roots)) == 1


def test_every_identity_is_shown_or_says_why_it_needs_no_rule() -> None:
    assert list(IDENTITIES) == list(range(1, 55))
    assert all(i.shown_by or i.why for i in IDENTITIES.values())
    known = {*PAIRS, *GOALS}
    shown = {title for i in IDENTITIES.values() for title in i.shown_by}
    assert shown <= known
    assert known - shown == {"the absolute value of a product"}  # serves "a norm before a quantisation"
