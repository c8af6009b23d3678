"""The experiment e01 without a GPU: its candidates are current, its baselines right, its points checked and counted."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import experiments.e01_ablation.run as runner
from cleave.errors import CleaveError, LaunchError
from cleave.ir.interp import interpret
from cleave.nn.workloads import EXTENSION, NINE, Workload
from cleave.records import Outcome, Record, append, read
from cleave.runtime.timing import Contender, Timing
from cleave.tune.description import described
from cleave.tune.plan import Made, Planned
from cleave.tune.rank import ranks, spearman
from experiments.e01_ablation import attention
from experiments.e01_ablation.baselines import baselines
from experiments.e01_ablation.config import GOALS, IN_ORDER, SETS, Point, file_of, points
from experiments.e01_ablation.plans import plan
from experiments.e01_ablation.point import checked, drawn, timed
from experiments.e01_ablation.rank import orders, rank_table
from experiments.e01_ablation.reach import reach, read_microseconds
from experiments.e01_ablation.summary import Ratio, in_order_lines, mean, measured_points, ratios, table
from tests.null.e01_laboratory import RIGHT, Inline, clock, laboratory, machine, on_the_interpreter, planned

torch = pytest.importorskip("torch")

__all__ = ["machine"]  # a fixture

ROOT = Path(__file__).parents[2]

# ---- points


def test_there_are_111_points_of_nine_subgraphs() -> None:
    nine = points(NINE)
    assert len(nine) == 111 and len({p.subgraph for p in nine}) == 9
    every = points(SETS["all"])
    assert len({p.name for p in every}) == len(every)
    assert len({file_of(w) for w in SETS["all"]}) == len(SETS["all"])


def test_every_goal_is_of_a_point() -> None:
    names = {name for p in points(SETS["all"]) for name in (p.name, str(p.workload))}
    assert set(GOALS) <= names
    with_goal = {p.subgraph for p in points(EXTENSION) if p.goal}
    assert {"soft cap", "window 1024", "softmax", "softmax_matmul", "lora", "rmsnorm_linear"} <= with_goal


def test_names_say_what_differs() -> None:
    names = [p.name for p in points(SETS["all"])]
    assert {"matmul prefill m256", "mha d64 decode s16", "mla decode t1024", "lora prefill m4096"} <= set(names)


@pytest.mark.parametrize("w", SETS["all"], ids=str)
def test_candidates_are_those_of_the_graph(w: Workload) -> None:
    assert json.loads(file_of(w).read_text())["origin"] == w.graph().text()


def test_extents_of_a_model_are_literal() -> None:
    matmul, mla = NINE[0], NINE[-1]
    assert matmul.dims(0) == {"m": 256} and mla.dims(0) == {"b": 128, "t": 1024}
    assert {s.name: s.value for s in mla.graph().symbols if s.value} == {"h": 128, "r": 512, "p": 64}


# ---- baselines

SMALL: Mapping[str, Mapping[str, int]] = {
    "matmul": {"m": 3, "k": 5, "n": 4},
    "matmul_matmul": {"h": 2, "s": 3, "t": 5, "d": 4, "e": 4},
    "matmul_rowsum": {"m": 3, "k": 5, "n": 4},
    "swiglu": {"m": 3, "k": 5, "n": 4},
    "rmsnorm_matmul": {"m": 3, "k": 5, "n": 4},
    "mha": {"b": 2, "h": 3, "s": 5, "t": 5, "d": 4},
    "gqa": {"b": 2, "h": 6, "kv_heads": 2, "s": 3, "t": 5, "d": 4},
    "mqa": {"b": 2, "h": 3, "s": 2, "t": 5, "d": 4},
    "mla": {"b": 1, "h": 3, "s": 2, "t": 5, "d": 6, "e": 4},
    "mla_decode": {"b": 2, "h": 3, "t": 5, "r": 6, "p": 4},
    "qk_norm_attention": {"b": 2, "h": 4, "kv_heads": 2, "s": 5, "t": 5, "d": 4},
    "rope_attention": {"b": 2, "h": 4, "kv_heads": 2, "s": 5, "t": 5, "d": 4},
    "qkv_attention": {"h": 3, "s": 2, "t": 5, "m": 7, "d": 4},
    "lora": {"m": 3, "k": 5, "n": 4, "r": 2},
    "norm_residual_norm": {"m": 3, "n": 5},
    "residual_rmsnorm": {"m": 3, "n": 5},
    "quantised_matmul": {"m": 3, "k": 5, "n": 4},
    "mla_projected": {"b": 2, "h": 3, "d": 4, "t": 5, "r": 6, "p": 2},
    "softmax": {"m": 3, "n": 5},
    "softmax_matmul": {"m": 3, "k": 5, "n": 4},
    "layernorm_linear": {"m": 3, "k": 5, "n": 4},
    "linear_attention": {"h": 2, "s": 3, "t": 5, "d": 4, "e": 4},
}
OPERATORS = list({(w.operator, str(dict(w.options))): w for w in SETS["all"] if w.operator in SMALL}.values())


def small(w: Workload) -> Point:
    options = {**w.options, **({"window": 3} if "window" in w.options else {})}
    return Point(replace(w, sizes=(SMALL[w.operator],), options=options), 0)


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a CPU has."""
    from torch.nn.attention.flex_attention import flex_attention

    monkeypatch.setattr(attention, "BACKENDS", {"math": "MATH"})
    monkeypatch.setattr(attention, "compiled_flex", lambda: flex_attention)


@pytest.mark.usefixtures("backends")
@pytest.mark.parametrize("w", OPERATORS, ids=lambda w: f"{w.operator} {dict(w.options)}")
def test_baselines_are_the_operator(w: Workload) -> None:
    p = small(w)
    g = p.graph
    every = {**p.dims, **{s.name: s.value for s in g.symbols if s.value is not None}}
    x = {n: t.float() for n, t in drawn(g, every, w.weights, "cpu", seed=3).items()}
    expected = interpret(g, {n: t.double().numpy() for n, t in x.items()}, every)
    found = baselines(w.operator, p.workload.options, every)
    assert "eager" in found or w.operator == "matmul"
    for name, baseline in found.items():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*flex_attention called without torch.compile.*")
            outputs = baseline.run(x if baseline.before is None else {**x, **baseline.before(x)})
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        for o, y in zip(g.outputs, outputs, strict=True):
            np.testing.assert_allclose(y.numpy(), expected[o.name], rtol=2e-5, atol=2e-5, err_msg=name)


def test_every_operator_but_routing_has_a_baseline() -> None:
    assert {w.operator for w in SETS["all"]} - set(SMALL) == {"moe_routing"}


def test_an_option_without_a_baseline_is_refused() -> None:
    with pytest.raises(CleaveError, match=r"^mha: no baseline has the option 'alibi'$"):
        baselines("mha", {"alibi": True}, {})


# ---- a point


def test_a_point_is_checked_and_timed() -> None:
    point = Point(RIGHT, 0)
    lab = laboratory({"schedule 0": 3e-6, "schedule 1": 2e-6, "eager": 5e-6, "reassociated": 4e-6})
    out = timed(point, planned(point), "default", lab)
    assert all(r.outcome is Outcome.OK for r in out.records)
    times = {r.workload["contender"]: r for r in out.records}
    assert set(times) == {
        *("cleave", IN_ORDER, "schedule 0", "eager", "reassociated"),
        *("compile: eager", "compile: reassociated"),
    }
    ours = times["cleave"]
    assert ours.details["ratio"] == pytest.approx(2.0) and ours.details["best_baseline"] == "reassociated"
    assert ours.check["passed"] and ours.quantiles["q50"] == pytest.approx(2.0) and ours.schedule["skeleton"]
    assert times["compile: eager"].details["samples"] == 3 and times["eager"].details["samples"] == 20
    assert "ratio 2.000" in out.lines[0] and "reassociated" in out.lines[0]


def test_a_wrong_schedule_is_a_row_and_not_timed() -> None:
    point = Point(RIGHT, 0)

    def executable(made: Made) -> Any:
        run = on_the_interpreter(made)

        def wrong(out: Mapping[str, Any], **inputs: Any) -> None:
            run(out, **inputs)
            out["out"][-1, -1] = float("nan")  # not written

        return wrong

    out = timed(point, planned(point), "off", laboratory({}, executable=executable))
    assert [r.outcome for r in out.records] == [Outcome.WRONG, Outcome.WRONG, Outcome.REFUSED]
    assert "no schedule is right" in out.lines[0]


def test_a_schedule_that_replays_spoil_is_a_row() -> None:
    point, calls = Point(RIGHT, 0), [0]

    def executable(made: Made) -> Any:
        run = on_the_interpreter(made)

        def spoilt(out: Mapping[str, Any], **inputs: Any) -> None:
            run(out, **inputs)
            calls[0] += 1
            if calls[0] > 5:
                out["out"][0, 0] += 1.0

        return spoilt

    out = timed(point, planned(point, 1), "off", laboratory({}, executable=executable))
    assert out.records[-1].outcome is Outcome.WRONG and out.records[-1].check["error"].startswith("after timing: ")


def test_a_baseline_that_torch_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiler(run: Any, mode: str) -> Any:
        def fails(x: Any) -> Any:
            raise RuntimeError("no such backend\nand more")

        return fails

    point = Point(RIGHT, 0)
    out = timed(point, planned(point, 1), "max-autotune", laboratory({}, compiler=compiler))
    (ours,) = (r for r in out.records if r.workload["contender"] == "cleave")
    assert ours.details["refused"]["max-autotune: eager"] == "RuntimeError: no such backend"


@pytest.mark.parametrize("name", ["eager", "schedule 0"])
def test_what_no_graph_can_hold_is_left_out(name: str) -> None:
    def time_contenders(contenders: Sequence[Contender], *, samples: int = 20) -> dict[str, Timing]:
        if any(c.name == name for c in contenders):
            raise LaunchError("can't be captured as a graph: it waits", location=name)
        return clock({})(contenders, samples=samples)

    point = Point(RIGHT, 0)
    out = timed(point, planned(point), "off", laboratory({}, time=time_contenders))
    (ours,) = (r for r in out.records if r.workload.get("contender") == "cleave")
    wrong = [r for r in out.records if r.outcome is not Outcome.OK]
    if name == "eager":
        assert ours.details["refused"] == {"eager": "can't be captured as a graph: it waits"} and not wrong
    else:
        assert [r.outcome for r in wrong] == [Outcome.REFUSED]


def test_a_check_says_what_is_not_fused() -> None:
    point = Point(RIGHT, 0)
    plans = planned(point)
    out = checked(point, plans, "off", laboratory({}))
    assert [r.outcome for r in out.records] == [Outcome.OK] and not out.records[0].details["unfused"]
    out = checked(point, replace(plans, fewest={"as written": 0}), "off", laboratory({}))
    assert out.lines[0].endswith("1 kernels of 'as written', a schedule of the same candidate has 0")
    assert out.records[0].details["unfused"] == out.lines[0].split(" | ")[1]
    other = replace(plans, fewest={"as written": 1, "split k": 0}).unfused
    assert other == "1 kernels of 'as written', a schedule of 'split k' has 0"


# ---- plans


def test_plans_are_of_every_candidate_and_few_of_a_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleave.tune.plan.compile_many", lambda jobs, processes: [])
    point = next(p for p in points(NINE) if p.name == "matmul decode m16")
    (found,) = plan(Inline(), [point], 6)
    assert len(found.tried) == 6 and all(m.source is not None for m in found.tried)
    modelled = [m.schedule.modelled.microseconds for m in found.tried if m.schedule.modelled]
    assert modelled == sorted(modelled) and set(found.fewest.values()) == {1} and not found.unfused
    assert len({described(m.schedule) for m in found.tried}) == 6


def test_what_no_candidate_can_do_says_why() -> None:
    point = next(p for p in points(EXTENSION) if p.workload.operator == "moe_routing")
    (found,) = plan(Inline(), [point], 2)
    assert not found.tried and found.unfused.startswith("no schedule: ") and found.refused[0] in found.unfused


# ---- the run


def row(point: str, value: float, *, mode: str = "off", subgraph: str = "a", **more: Any) -> Record:
    workload = {"point": point, "subgraph": subgraph, "phase": "prefill", "nine": True, "compile": mode}
    return Record(
        workload={**workload, "contender": "cleave", **more},
        outcome=Outcome.OK,
        quantiles={"q50": 1.0},
        details={"ratio": value},
        environment={"commit": {"id": "1", "dirty": False}},
    )


def test_means_are_over_subgraphs_of_means_over_points() -> None:
    commit = {"id": "1", "dirty": False}
    records = [row("a1", 1.0), row("a2", 4.0), row("a2", 9.0, contender="eager"), row("b1", 8.0, subgraph="b")]
    found = ratios([*records, row("b1", 2.0, subgraph="b", mode="default")], commit)
    assert {r.point: r.value for r in found} == {"a1": 1.0, "a2": 4.0, "b1": 2.0}
    assert not ratios(records, {"id": "2", "dirty": False})
    lines = table([*found, Ratio("b2", "b", "decode", True, 8.0)])
    assert lines[2].split() == ["a", "2.000", "-", "2.000"]
    assert lines[3].split() == ["b", "2.000", "8.000", "4.000"]
    assert lines[4].split()[:5] == ["over", "subgraphs", "2.000", "8.000", f"{mean([2.0, 4.0]):.3f}"]
    assert lines[4].endswith("(goal 1.6)")


def test_what_is_launched_in_order_has_means_of_its_own() -> None:
    commit = {"id": "1", "dirty": False}
    records = [row("a1", 4.0), row("a1", 2.0, contender=IN_ORDER), row("b1", 8.0, subgraph="b", contender=IN_ORDER)]
    found = ratios(records, commit, IN_ORDER)
    assert {r.point: r.value for r in found} == {"a1": 2.0, "b1": 8.0}
    (line,) = in_order_lines(found)
    assert line.split() == ["launched", "in", "order", "4.000", "-", "4.000"]
    assert in_order_lines(ratios(records[:1], commit, IN_ORDER)) == []


def test_a_mean_below_one_is_missed() -> None:
    (*_, own, whole) = table([Ratio("a1", "a", "prefill", True, 0.9)])
    assert own.endswith(", missed") and whole.endswith("(goal 1.6, missed)")


def test_goals_of_points_that_are_missed_are_listed() -> None:
    found = [Ratio(f"mla decode t{t}", "mla", "decode", True, value, 50.0) for t, value in ((1024, 1.7), (4096, 1.9))]
    *lines, missed = table(found)
    assert missed == "missed: mla decode t1024: 1.700, goal 1.8" and not any(
        line.startswith("missed") for line in lines
    )


def test_tables_say_what_share_of_reach_is_reached() -> None:
    """One plain kernel needs 47.4 us for the matmuls of MLA in decode at 1024 keys: 36.5 GFLOP."""
    lines = table([Ratio("mla decode t1024", "mla", "decode", True, 2.0, 94.8)])
    assert lines[1].split() == ["prefill", "decode", "all", "reach"]
    assert lines[2].split() == ["mla", "-", "2.000", "2.000", "0.50"] and lines[3].split()[5] == "0.50"


@pytest.mark.parametrize(
    ("name", "microseconds"),
    [
        ("matmul prefill m4096", 178.3),
        ("matmul_matmul prefill s1024", 11.4),  # reassociated: its bytes
        ("matmul_rowsum decode m16", 2.2),
        ("swiglu decode m16", 53.3),
        ("gqa d128 decode s128", 11.1),
        ("mla prefill s256", 111.4),
        ("mla decode t4096", 189.4),
    ],
)
def test_reach_is_of_bytes_or_of_matmuls(name: str, microseconds: float) -> None:
    assert reach(next(p for p in points(NINE) if p.name == name)) == pytest.approx(microseconds, abs=0.1)


def test_reads_beyond_what_was_measured_go_on_as_before() -> None:
    assert [read_microseconds(mb) for mb in (0.0, 2.0, 806.0)] == pytest.approx([2.15, 2.5, 119 + 58.6])


# ---- order


def test_ranks_of_equal_values_are_shared() -> None:
    assert list(ranks([3.0, 1.0, 3.0, 2.0])) == [2.5, 0.0, 2.5, 1.0]
    assert spearman([1, 2, 3, 4], [10, 20, 40, 30]) == pytest.approx(0.8)
    assert spearman([1, 2], [5, 5]) is None and spearman([1, 2, 3], [9, 4, 1]) == pytest.approx(-1)


def test_an_order_is_of_the_schedules_of_a_point() -> None:
    commit = {"id": "1", "dirty": False}

    def schedule_row(plan: str, modelled: float, measured: float, point: str = "matmul decode m16") -> Record:
        r = row(point, 1.0)
        return msgspec.structs.replace(r, schedule={"plan": plan, "modelled_us": modelled}, quantiles={"q50": measured})

    times = enumerate([9.0, 8.0, 7.0, 6.0, 5.0, 1.0, 4.0])
    records = [schedule_row("a", 9.0, 1.0), *(schedule_row("abcdefg"[n], n + 1.0, t) for n, t in times)]
    records.append(schedule_row("a", 1.0, 1.0, "matmul decode m32"))  # alone
    last = schedule_row("a", 1.0, 99.0)
    records.append(msgspec.structs.replace(last, workload={**last.workload, "contender": IN_ORDER}))
    (found,) = orders(records, commit)
    assert found.workload == "matmul decode" and found.modelled == (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    assert found.place == 5 and found.correlation == pytest.approx(-27 / 28)
    lines = rank_table([found])
    assert lines[2].split() == ["matmul", "decode", "1", "7.0", "-0.96", "0", "of", "1"]
    fewer = replace(found, modelled=found.modelled[-5:], measured=found.measured[-5:])
    assert rank_table([fewer])[-1].endswith("no more than 5 were tried")
    assert rank_table([]) == [] and orders(records, None) == []


def test_points_are_resumed_by_commit_and_mode() -> None:
    commit = {"id": "1", "dirty": False}
    records = [row("a1", 1.0), row("a2", 1.0, mode="default")]
    assert measured_points(records, commit, "off") == {"a1"}
    assert measured_points(records, {"id": "1", "dirty": True}, "off") == set()


def names(path: Path) -> list[str]:
    return [r.workload["point"] for r in read(path)]


def test_measure_writes_records_and_goes_on_where_it_stopped(
    machine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["measure", "--points", "^matmul prefill", "--compile", "default", "--resume"]
    assert runner.main(given) == 1  # one crashed
    said = capsys.readouterr().out
    assert "7 rows, 1 bad; 0 points left out" in said and "nine: 5 points" in said and "    more" in said
    assert said.rstrip().splitlines()[-1].startswith("over subgraphs")
    rows = list(read(machine / "times.jsonl"))
    assert rows[0].details["command"].endswith("run e01 measure --points ^matmul prefill --compile default --resume")
    sizes = {
        m: [r for r in rows if r.workload["point"] == f"matmul prefill m{m}"] for m in (256, 512, 1024, 2048, 4096)
    }
    assert [len(found) for found in sizes.values()] == [1, 3, 1, 1, 1]
    kinds = [(r.outcome, r.workload["compile"], r.workload.get("schedule")) for r in sizes[512]]
    assert kinds == [(Outcome.CRASHED, "default", None), (Outcome.OK, "default", None), (Outcome.OK, "off", None)]
    assert runner.main(given) == 0
    assert len(names(machine / "times.jsonl")) == 7
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    assert runner.main([*given[:3], "--compile", "max-autotune", "--resume", "--minutes", "0.1"]) == 1
    assert len(names(machine / "times.jsonl")) == 7
    assert "5 points left out" in capsys.readouterr().out


@pytest.mark.parametrize(("tried", "rows"), [(("sound", "crashes"), 4), (("crashes",), 2)])
def test_a_schedule_that_crashes_leaves_the_others(
    machine: Path, monkeypatch: pytest.MonkeyPatch, tried: tuple[str, ...], rows: int
) -> None:
    import experiments.e01_ablation.loop as loop

    monkeypatch.setattr(loop, "plan", lambda pool, batch, count: [Planned(tried, {}) for _ in batch])  # type: ignore[arg-type]
    assert runner.main(["measure", "--points", "^mla decode t1024", "--compile", "off"]) == 1
    found = list(read(machine / "times.jsonl"))
    assert len(found) == rows  # all together, each alone, those that are left together
    assert [r.workload["schedule"] for r in found if r.outcome is Outcome.CRASHED and "schedule" in r.workload] == [
        tried.index("crashes")
    ]
    assert (found[-1].outcome is Outcome.OK) == ("sound" in tried)


def test_a_report_is_of_the_commit_that_was_measured_last(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["report"]) == 2
    assert capsys.readouterr().err.startswith("e01: no records: ")
    append(machine / "times.jsonl", row("a1", 4.0))
    append(machine / "times.jsonl", replace_commit(row("a2", 2.0), "2"))
    assert runner.main(["report"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "times of commit 2" and said[1].startswith("nine: 1 points")


def replace_commit(r: Record, name: str) -> Record:
    return msgspec.structs.replace(r, environment={"commit": {"id": name, "dirty": False}})


def test_a_measurement_needs_no_search() -> None:
    """The machine with the GPU has no egglog."""
    modules = ", ".join(f"experiments.e01_ablation.{name}" for name in ("run", "loop", "point", "plans", "ablation"))
    code = f"import sys; sys.modules['egglog'] = None; import {modules}; print('found')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "found", done.stderr


def test_checks_end_with_what_is_not_fused(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["measure", "--points", "^mla decode", "--parts", "checks"]) == 0
    assert len(names(machine / "checks.jsonl")) == 3
    assert capsys.readouterr().out.rstrip().splitlines()[-1] == "not fused: mla decode t4096: two kernels"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["measure", "--points", "("], "e01: --points '(': "),
        (["measure", "--points", "nothing"], "e01: --points 'nothing': no point's name has it; one is 'matmul prefill"),
        (["measure", "--parts", "all"], "e01: parts 'all': allowed are times, checks, ablations"),
        (["measure", "--tried", "0"], "e01: tried 0: allowed is >= 1"),
    ],
)
def test_bad_options_are_one_line(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(argv) == 2
    assert capsys.readouterr().err.startswith(said)


def test_a_set_is_one_of_three() -> None:
    assert isinstance(runner.parser(), argparse.ArgumentParser) and set(SETS) == {"nine", "extension", "all"}
