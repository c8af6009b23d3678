"""The experiment e03: what it is asked to measure, how it goes on where it stopped, its tables, its expected forms."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cleave import nn
from cleave.candidate import Candidate
from cleave.ir.graph import Graph
from cleave.ir.text import parse_graph
from cleave.nn.workloads import WORKLOADS
from cleave.records import Outcome, Record, append
from cleave.runtime.watchdog import Limited
from cleave.runtime.watchdog import Outcome as Ended
from cleave.verify import Outcome as Passed
from cleave.verify import References
from cleave.verify.forms import small_form
from experiments.e03_search import run
from experiments.e03_search.config import CASES, ENUMERATED, PARTS, README
from experiments.e03_search.forms import EXPECTED, IN_ORDER, expected_forms, splits_of
from experiments.e03_search.identity import identity, ranks
from experiments.e03_search.table import BEGIN, END, faults, latest, tables, with_tables
from experiments.tally import Tally

HERE = {"id": "a" * 40, "dirty": False}
THERE = {"id": "b" * 40, "dirty": False}


def searched(name: str = "matmul prefill", commit: dict[str, Any] = HERE, **changed: Any) -> Record:
    check = {"expected": {"split k": 2}, "found": True, "goal": 5.0, "within goal": True}
    details = {"e-nodes": 7, "rounds": 4, "stop": "saturated", "seconds": {"total": 0.61}, "candidates": ["a", "b"]}
    return Record(
        workload={"part": "search", "name": name},
        outcome=changed.pop("outcome", Outcome.OK),
        check={**check, **changed.pop("check", {})},
        details={**details, "load": 1.0, **changed},
        environment={"commit": commit, "cores": 2},
    )


# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--parts", "search,nonsense"], "allowed are search,"),
        (["--parts", ","], "allowed are search,"),
        (["--minutes", "0"], "a positive number of minutes is expected"),
        (["--minutes", "nan"], "a positive number of minutes is expected"),
        (["--minutes", "soon"], "a positive number of minutes is expected"),
    ],
)
def test_a_bad_argument_is_refused(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_every_part_of_every_workload_is_chosen_once() -> None:
    jobs = run.chosen(PARTS, (), set())
    names = {part: [c.name for p, c in jobs if p == part] for part in PARTS}
    assert all(names[part] == list(CASES) for part in PARTS if part != "enumeration")
    assert {CASES[name].kind for name in names["enumeration"]} == {
        c.kind for c in CASES.values() if c.ablation.reassociation
    }
    assert len(names["enumeration"]) == len(ENUMERATED) < len(CASES)
    assert {str(w) for w in WORKLOADS} <= set(CASES)


def test_words_choose_workloads() -> None:
    assert [c.name for _, c in run.chosen(["search"], ["swiglu", "lora"], set())] == [
        *("swiglu prefill", "swiglu decode"),
        *("lora prefill", "lora decode"),
    ]


# ---- going on


def test_what_is_recorded_for_the_commit_is_left_out() -> None:
    rows = [searched(), searched("swiglu prefill", THERE), searched("lora decode", {**HERE, "dirty": True})]
    done = run.recorded(rows, HERE)
    assert done == {("search", "matmul prefill")}
    assert ("search", "matmul prefill") not in [(p, c.name) for p, c in run.chosen(["search"], (), done)]


@pytest.mark.parametrize("commit", [None, {**HERE, "dirty": True}], ids=["no checkout", "changed"])
def test_a_changed_checkout_measures_everything_again(commit: dict[str, Any] | None) -> None:
    assert run.recorded([searched(), searched(commit={**HERE, "dirty": True})], commit) == set()


def test_a_run_measures_what_is_missing_and_a_failure_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time that a search may take is far too short here, so its row says so; the next run has nothing to do."""
    monkeypatch.setattr(run, "RECORDS", tmp_path)
    monkeypatch.setattr(run, "environment", lambda **_: {"commit": HERE, "cores": 2})
    monkeypatch.setattr(run, "seconds_for", lambda _part, _case: 0.05)
    arguments = ["--parts", "search", "--workloads", "swiglu decode"]
    assert run.main(arguments) == 1
    (made,) = run.records_of(tmp_path / run.FILE)
    assert (made.outcome, made.workload["name"]) == (Outcome.TIMEOUT, "swiglu decode")
    told = capsys.readouterr().out
    assert "BAD timeout" in told and "| swiglu decode | timeout: no answer" in told
    assert run.main(arguments) == 0
    assert len(run.records_of(tmp_path / run.FILE)) == 1
    assert "0 measurements, 1 are recorded for this commit" in capsys.readouterr().out


class Late:
    """A worker whose jobs never end in time."""

    def run(self, *_: object, seconds: float) -> Limited:
        return Limited(Ended.TIMEOUT, message="no answer within the time limit", seconds=seconds)


@pytest.mark.parametrize(("left", "rows", "left_out"), [(60.0, 1, 0), (20.0, 0, 1), (1.0, 0, 1)])
def test_a_job_that_the_end_of_the_run_cuts_short_is_left_out(
    tmp_path: Path, left: float, rows: int, left_out: int
) -> None:
    tally = Tally(tmp_path, None, "command", time.monotonic() + left)
    tally.run(Late(), "rows.jsonl", "matmul", searched, seconds=30.0, workload={"part": "search", "name": "matmul"})
    assert (tally.rows, tally.left_out) == (rows, left_out)
    assert len(run.records_of(tmp_path / "rows.jsonl")) == rows


# ---- tables


def test_the_last_row_of_the_last_commit_counts() -> None:
    rows = [searched(commit=THERE, rounds=1), searched(rounds=2), searched(rounds=3)]
    ((kept,),) = latest(rows).values()
    assert kept.details["rounds"] == 3


def test_table_text() -> None:
    text = tables([searched(), searched("swiglu prefill", check={"expected": {"split k": 5}, "within goal": False})])
    assert "| matmul prefill | 7 | 4 | saturated | 0.61 | 2 | split k: 2 | met |" in text
    assert "| swiglu prefill | 7 | 4 | saturated | 0.61 | 2 | split k: 5 | above 5 s; split k is number 5 |" in text
    assert "1 of 2 searches miss a goal: swiglu prefill (above 5 s, split k is number 5)." in text
    assert "Commit aaaaaaa" in text
    assert tables([]) == "Nothing is recorded yet.\n"


def other(part: str, outcome: Outcome, check: dict[str, Any], candidate: str = "", **details: Any) -> Record:
    return Record(
        workload={"part": part, "name": "matmul prefill"},
        outcome=outcome,
        check=check,
        candidate={"name": candidate},
        details={**details, "load": 2.0},
        environment={"commit": HERE, "cores": 2},
    )


def test_tables_of_the_other_parts() -> None:
    side = {"e-nodes": 7, "candidates": 2, "split": 1, "cut": False, "seconds": 0.5, "stop": "saturated"}
    wide = {"e-nodes": 9, "candidates": 100, "split": 98, "cut": True, "seconds": 3.25, "stop": "nodes"}
    found = {"split": "k", "nodes": 1, "complete": 7, "graphs": 4321, "seconds": 1.04, "stop": "complete"}
    found |= {"equal": 3, "verified": "3 of 3", "expected": {"split k": (True, 2)}}
    passed = {"small": "passed", "full": "passed"}
    text = tables(
        [
            other("reducibility", Outcome.TIMEOUT, {}, on=side, off=wide),
            other("enumeration", Outcome.OK, {}, "split k", **found),
            other("enumeration", Outcome.SKIPPED, {"error": "8 operators"}, "unsplit"),
            other("verification", Outcome.OK, passed, "split k", small=0.31, full=1.0),
            other("verification", Outcome.OK, {**passed, "detail": "at m=5, since"}, "unsplit", small=0.31, full=1.0),
        ]
    )
    assert "| matmul prefill | 7 | 9 | 2 | 100+ | 1 | 98+ | 0.50 | 3.25 (nodes) |" in text
    assert "| matmul prefill | k | 1 | 7 | 4,321 | 1.0 | 3 | 3 of 3 | split k (2 nodes): found |" in text
    assert "| matmul prefill | skipped: 8 operators |" in text
    assert "| matmul prefill | split k | passed | 0.31 | passed | 1.00 |" in text
    assert "| matmul prefill | unsplit | passed | 0.31 | passed: at m=5, since | 1.00 |" in text


def test_a_search_that_left_graphs_out_is_named() -> None:
    whole = searched(notes=["kept whole, since small and fixed: d"])
    assert "Extraction" not in tables([whole])
    text = tables([whole, searched("matmul decode", notes=["extraction met its limit without a split: greedy"])])
    assert "Extraction met a limit, so that a better graph may be missing: matmul decode." in text


def test_faults_name_what_is_missed() -> None:
    assert faults(searched()) == []
    limited = searched(outcome=Outcome.TIMEOUT, stop="nodes", check={"expected": {"split k": None}})
    assert faults(limited) == ["stopped: nodes", "split k is missing"]
    assert faults(searched(outcome=Outcome.CRASHED, check={"error": "ended by SIGKILL"})) == [
        "crashed: ended by SIGKILL"
    ]


def test_tables_go_between_the_marks_of_the_page(tmp_path: Path) -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert with_tables(page, "new\n") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    text = README.read_text(encoding="utf-8")
    assert with_tables(text, "") != text
    append(tmp_path / "rows.jsonl", searched())
    assert "matmul prefill" in tables(run.records_of(tmp_path / "rows.jsonl"))


# ---- expected forms


def test_identity_sees_through_the_order_of_operands_only() -> None:
    head = "graph g\ndims m, k\ninput a: float16[m, k]\ninput b: float16[m, k]\ninput c: float16[m, k]\n"
    head += "axis m: m\naxis k: k\n"

    def made(body: str) -> str:
        return identity(parse_graph(f"{head}output out: float16[m, k] @ [m, k] = {body}"))

    a, b, c = "a[m, k]", "b[m, k]", "c[m, k]"
    assert made(f"({a} * {b}) + {c}") == made(f"{c} + ({b} * {a})")
    assert made(f"({a} * {b}) * {c}") != made(f"{a} * ({b} * {c})")
    assert made(f"{a} - {b}") != made(f"{b} - {a}")


def test_places_of_forms() -> None:
    g, other = nn.matmul(), nn.swiglu()
    assert ranks({"here": (other, g), "nowhere": (nn.softmax(),)}, [other, g]) == {"here": 1, "nowhere": None}


def test_every_workload_but_whole_layers_has_expected_forms() -> None:
    for case in CASES.values():
        assert bool(forms_of(case.name)) == (case.group != "layers"), case.operator


FORMS = {**EXPECTED, **IN_ORDER}
ONE_A_FUNCTION = {FORMS[c.operator]: name for name, c in CASES.items() if c.operator in FORMS}


@pytest.mark.parametrize("name", ONE_A_FUNCTION.values())
def test_an_expected_form_equals_its_workload(name: str) -> None:
    for graphs in forms_of(name).values():
        for form in graphs:
            origin = CASES[name].build(None)[0]
            candidate = Candidate("expected", form, origin, splits=splits_of(form), assumptions=("finite",))
            check = small_form(candidate, References(origin), np.random.default_rng(0), bound=True).check
            assert check.outcome is Passed.PASSED, str(check)


def forms_of(name: str) -> dict[str, tuple[Graph, ...]]:
    return expected_forms(CASES[name].operator, CASES[name].build(None)[0])
