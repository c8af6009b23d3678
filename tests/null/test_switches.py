"""Switches of the algebra: without a family, a class of rules or reassociation other candidates are found."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

import cleave
from cleave import Config, Rulebook, nn, ops
from cleave.candidate import Candidate
from cleave.cli import main
from cleave.config import Ablation
from cleave.ir.graph import Graph, Map, walk
from cleave.search import search

QUICK = Config(isolate=False)


def silu_written_out() -> Graph:
    return cleave.trace(lambda a: a * (1 / (1 + ops.exp(-a))), name="gate", a="m n")


def bias_in_front() -> Graph:
    return cleave.trace(lambda x, b, w: (x + b) @ w, name="biased", x="m k", b="k", w="k n")


@dataclass(frozen=True)
class Switch:
    """A family, a graph that needs it, and what its candidates show only with it."""

    graph: Graph
    shows: str
    weights: tuple[str, ...] = ()


def shown(c: Candidate) -> str:
    """The graph, its splits and its operations, as text to look things up in."""
    used = {t.op for t in walk(*c.graph.terms) if isinstance(t, Map)}
    return f"{c.graph.text()} splits {[s.base for s in c.splits]} operations {sorted(used)}"


FAMILIES = {
    "products": Switch(nn.attention(d=64), "= (recip0("),
    "reductions": Switch(bias_in_front(), "sum(k, (b[k] * w[k, n]))", ("b", "w")),
    "split": Switch(nn.matmul(), "splits ['k']"),
    "shift": Switch(nn.attention(d=64), "splits ['t']"),
    "contract": Switch(nn.matmul_matmul(), "sum(t, (k[h, t, d] * v[h, t, e]))"),
    "gather": Switch(nn.lora(), "(w[k, n] + v0)", ("w", "a", "b")),
    "definitions": Switch(silu_written_out(), "'silu'"),
    "expand": Switch(nn.layernorm_linear(), "splits ['k']", ("gain", "shift", "w", "bias")),
}


def test_every_family_has_a_switch_here() -> None:
    assert set(FAMILIES) == set(Rulebook.installed().families)


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_family_other_candidates_are_found(family: str) -> None:
    switch, book = FAMILIES[family], Rulebook.installed()
    config = Config(isolate=False, unsafe=family == "expand")
    names = {r.name for r in book.rules if r.family == family}
    on = search(switch.graph, rules=book, config=config, weights=switch.weights).candidates
    off = search(switch.graph, rules=book.without(family), config=config, weights=switch.weights).candidates
    assert any(switch.shows in shown(c) and names & set(c.rules) for c in on)
    assert not any(switch.shows in shown(c) or names & set(c.rules) for c in off)


def test_without_one_rule_the_others_of_its_family_stay() -> None:
    found = search(nn.matmul_matmul(), rules=Rulebook.default().without("reassoc"), config=QUICK)
    used = {rule for c in found.candidates for rule in c.rules}
    assert "reassoc" not in used and "split-red" in used
    assert "exchange" in found.report.rules


@pytest.mark.parametrize("rule", ["reassoc", "exchange"])
def test_reassociation_off_is_every_rule_that_moves_reductions_past_one_another(rule: str) -> None:
    g = nn.matmul_matmul() if rule == "reassoc" else nn.matmul_rowsum()
    on = search(g, config=QUICK)
    off = search(g, config=Config(ablation=Ablation(reassociation=False), isolate=False))
    assert any(rule in c.rules for c in on.candidates)
    assert not any(rule in c.rules for c in off.candidates) and rule not in off.report.rules


def test_unsafe_rules_are_off_unless_asked_for() -> None:
    unsafe = {r.name for r in Rulebook.installed().rules} - {r.name for r in Rulebook.default().rules}
    assert unsafe == {r.name for r in Rulebook.installed().rules if r.exactness == "numerically-unsafe"}
    weights = FAMILIES["expand"].weights
    safe = search(nn.layernorm_linear(), config=QUICK, weights=weights)
    loose = search(nn.layernorm_linear(), config=Config(isolate=False, unsafe=True), weights=weights)
    assert {c.exactness for c in safe.candidates} <= {"exact", "reassociates"}
    assert "numerically-unsafe" in {c.exactness for c in loose.candidates}
    assert not any(c.splits for c in safe.candidates) and any(c.splits for c in loose.candidates)


# ---- the command line


def candidates(command: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(f"search {command} --json".split()) == 0
    return json.loads(capsys.readouterr().out)["candidates"]


@pytest.mark.parametrize(
    ("program", "switch", "rules"),
    [
        ("matmul_matmul", "--no-reassociation", {"reassoc"}),
        ("matmul", "--without split", {"split-red"}),
        ("matmul", "--without split-red", {"split-red"}),
        ("matmul", "--no-split", {"split-red"}),
    ],
)
def test_a_switch_of_the_command_line(
    program: str, switch: str, rules: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert any(rules & set(c["rules"]) for c in candidates(program, capsys))
    assert not any(rules & set(c["rules"]) for c in candidates(f"{program} {switch}", capsys))


def test_unsafe_rules_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    def classes(switch: str) -> set[str]:
        return {c["exactness"] for c in candidates(f"layernorm_linear{switch}", capsys)}

    assert "numerically-unsafe" not in classes("")
    assert "numerically-unsafe" in classes(" --unsafe")
