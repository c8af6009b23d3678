"""Every e-node of the e-graph of every workload has the value of its class, under the rules as they are searched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cleave.config import ASSUMPTIONS, Ablation, Config, SearchLimits
from cleave.ir.graph import Graph
from cleave.nn.workloads import LAYERS, WORKLOADS, Workload
from cleave.rewrite import Rulebook
from cleave.testing import examine_graph, graph_check

QUICK = Config(isolate=False)
EVERYTHING = Config(isolate=False, unsafe=True, assume=frozenset(ASSUMPTIONS), ablation=Ablation(reducibility=False))
DISTINCT = tuple({(w.build()[0], tuple(w.weights)): w for w in reversed(WORKLOADS)}.values())[::-1]
"""The first of those that are one graph: prefill and decode differ in sizes, of which an e-graph has none."""


@pytest.mark.parametrize("workload", DISTINCT, ids=str)
def test_every_e_node_of_a_workload_has_the_value_of_its_class(workload: Workload) -> None:
    graph, _ = workload.build()
    report = examine_graph(graph, config=QUICK, weights=workload.weights)
    assert report.is_right and report.compared == report.nodes and len(report.instances) == 2, report
    assert report.stop == "saturated", report


@pytest.mark.parametrize("workload", [w for w in DISTINCT if w not in LAYERS], ids=str)
def test_so_it_is_under_all_rules_and_with_all_splits(workload: Workload) -> None:
    graph, _ = workload.build()
    report = examine_graph(graph, config=EVERYTHING, weights=workload.weights)
    assert report.is_right and report.compared == report.nodes and len(report.instances) == 2, report


# ---- what it must find


def attention() -> Graph:
    (causal,) = [w for w in WORKLOADS if w.name == "causal"]
    return causal.build()[0]


def wrong(folder: Path, left: str, right: str) -> Rulebook:
    path = folder / "user.egg"
    path.write_text(
        "(ruleset user)\n\n; user\n;   x  =  y\n"
        "; class:   exact\n; assumes: nothing\n; source:  none\n; guards:  none\n"
        f'(rewrite {left} {right} :ruleset user :name "user")\n'
    )
    return Rulebook.default().with_files(path)


# left, right of a rule that is wrong in this graph
WRONG = {
    "a maximum within a chunk for that of all": ("(ExpDiff s (Red (MaxOf) k s))", "(ExpDiff s s)"),
    "a sum taken for its summand": ("(Red (Sum) k (Mul a b))", "(Mul a b)"),
    "a difference the wrong way round": ("(ExpDiff a b)", "(ExpDiff b a)"),
}


@pytest.mark.parametrize("title", WRONG)
def test_a_wrong_rule_leaves_wrong_e_nodes(title: str, tmp_path: Path) -> None:
    short = replace(QUICK, limits=SearchLimits(rounds=2))  # wrong rules need not come to an end
    report = examine_graph(attention(), wrong(tmp_path, *WRONG[title]), short)
    assert not report.is_right and "times" in str(report), report


def test_a_wrong_analysis_shows_in_the_axes_of_classes(tmp_path: Path) -> None:
    old, new = (
        "(axes x)) (= t (axes y))) ((set (axes e) (set-union s t)))",
        "(axes x)) (= t (axes y))) ((set (axes e) s))",
    )
    paths = [tmp_path / file.path.name for file in Rulebook.installed().files]
    for path, file in zip(paths, Rulebook.installed().files, strict=True):
        assert file.family != "analysis" or old in file.text
        path.write_text(file.text.replace(old, new) if file.family == "analysis" else file.text)
    report = examine_graph(attention(), Rulebook.from_files(paths), QUICK)
    assert not report.is_right and "the analysis says it does not" in str(report), report


def test_a_large_e_graph_is_sampled_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_check, "MOST_NODES", 5)
    report = examine_graph(attention(), config=QUICK)
    assert report.is_right and report.classes <= report.compared < report.nodes
    assert f"{report.compared} of {report.nodes} e-nodes" in str(report)


def test_values_that_are_too_large_are_left_out_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_check, "MOST_ELEMENTS", 60)
    report = examine_graph(attention(), config=QUICK)
    assert report.is_right and report.compared < report.nodes, report
    monkeypatch.setattr(graph_check, "MOST_ELEMENTS", 0)
    report = examine_graph(attention(), config=QUICK)
    assert not report.is_right and "nothing could be evaluated" in str(report)
