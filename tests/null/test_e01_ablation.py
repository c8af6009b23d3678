"""The ablation of e01 without a GPU: candidates of every configuration, shared programs, records, means, resumption."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import experiments.e01_ablation.loop as loop
import experiments.e01_ablation.run as runner
from cleave.candidate import Candidate
from cleave.config import Ablation
from cleave.nn.workloads import NINE, Workload
from cleave.records import Outcome, Record, read
from cleave.runtime.timing import Contender, Timing
from cleave.tune.description import launches
from cleave.tune.plan import Planned
from experiments.e01_ablation import plans
from experiments.e01_ablation.ablation import Ablated, ablated, groups, merged, plan_ablations, workspace_bytes
from experiments.e01_ablation.ablation_summary import Share, ablation_table, over_subgraphs, shares
from experiments.e01_ablation.config import Point, file_of, is_ablated, points
from experiments.e01_ablation.configurations import CONFIGURATIONS, FULL, SEARCHED, Configuration
from experiments.e01_ablation.plans import candidates_of, plan
from experiments.e01_ablation.point import prepared
from experiments.e01_ablation.summary import mean
from tests.null.e01_laboratory import Inline, laboratory, machine, on_the_interpreter
from tests.null.searched import searched

torch = pytest.importorskip("torch")

__all__ = ["machine"]  # a fixture

NAMES = [c.name for c in CONFIGURATIONS]
NINE_POINTS = points(NINE)
SMALL = Workload("mha", "prefill", "mha", ({"b": 1, "h": 2, "s": 20, "t": 300, "d": 16, "e": 16},))
POINT = Point(SMALL, 0)


# ---- points and candidates


def test_configurations_are_compared_at_62_points_of_all_subgraphs() -> None:
    chosen = [p for p in NINE_POINTS if is_ablated(p)]
    assert len(chosen) == 62 and len({p.subgraph for p in chosen}) == 9
    names = {p.name for p in chosen}
    assert {f"matmul prefill m{m}" for m in (256, 1024, 4096)} < names and "matmul prefill m512" not in names
    assert {f"gqa d64 decode s{m}" for m in (16, 128)} < names and "gqa d64 decode s32" not in names
    assert {"mla decode t1024", "mla decode t4096"} < names and "mla decode t2048" not in names


def test_each_configuration_switches_off_what_it_says() -> None:
    off = {c.name: {f.name for f in fields(Ablation) if not getattr(c.ablation, f.name)} for c in CONFIGURATIONS}
    assert off.pop("neither") == {"algebra", "iterative_tiling"} and off.pop("full") == set()
    assert all({name.removeprefix("no ").replace(" ", "_")} == switches for name, switches in off.items())
    assert [c.paper for c in CONFIGURATIONS] == [None, -0.44, -0.4, -0.47, -0.06, None, None]


@pytest.mark.parametrize("w", NINE, ids=str)
def test_candidates_of_every_configuration_are_there(w: Workload) -> None:
    """Without egglog: what a machine with a GPU reads."""
    for c in CONFIGURATIONS:
        assert json.loads(file_of(w, c).read_text())["origin"] == w.graph().text()
        assert file_of(w, c) == file_of(w) or c in SEARCHED
        found = candidates_of(Point(w, 0, c))
        assert found and all(not k.splits for k in found) >= (not c.ablation.split)
        if not c.ablation.algebra:
            assert [k.graph for k in found] == [w.graph()]
        if not c.ablation.reassociation:
            assert not {"reassoc", "exchange"} & {rule for k in found for rule in k.rules}


# ---- plans


@pytest.fixture(scope="module")
def planned() -> Ablated:
    """Of a small attention, nothing compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cleave.tune.plan.compile_many", lambda jobs, processes: [])
        patch.setattr(plans, "candidates", small_candidates)
        (found,) = plan_ablations(Inline(), [POINT], 2)
    return found


def small_candidates(path: Path) -> tuple[Candidate, ...]:
    found = searched(POINT.graph).candidates
    return tuple(c for c in found if "no_split" not in path.parts or not c.splits)


def test_a_program_of_two_configurations_is_tried_once(planned: Ablated) -> None:
    assert list(planned.chosen) == NAMES and not planned.reasons
    assert planned.chosen["full"] == planned.chosen["no reassociation"] == (0, 1)
    assert not set(planned.chosen["full"]) & set(planned.chosen["no algebra"])
    assert len(planned.tried) < sum(map(len, planned.chosen.values()))
    started = {name: launches(planned.tried[own[0]].schedule) for name, own in planned.chosen.items()}
    assert started["full"] == 1 and started["neither"] > started["no iterative tiling"] > 1


def test_a_matmul_that_nothing_is_cut_from_is_the_full_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the name of its kernel differs."""
    monkeypatch.setattr("cleave.tune.plan.compile_many", lambda jobs, processes: [])
    point = next(p for p in NINE_POINTS if p.name == "matmul prefill m256")
    found = {c.name: plan(Inline(), [replace(point, configuration=c)], 1)[0] for c in CONFIGURATIONS[:4]}
    assert merged(found).chosen == dict.fromkeys(NAMES[:4], (0,))


def test_programs_that_crash_are_left_out(planned: Ablated) -> None:
    lost = planned.chosen["no algebra"]
    left = planned.only([n for n in range(len(planned.tried)) if n not in lost])
    assert "no algebra" not in left.chosen and left.reasons == {"no algebra": "every program crashed"}
    for name, own in left.chosen.items():
        assert [left.tried[n] for n in own] == [planned.tried[n] for n in planned.chosen[name] if n not in lost]
    assert planned.alone(lost[0]).tried == (planned.tried[lost[0]],)


def test_a_configuration_without_a_schedule_says_why() -> None:
    found = merged({"full": Planned((), {}, ("no skeleton",))})
    assert not found.tried and found.unfused == "no schedule: no schedule: no skeleton"


def test_programs_with_large_temporaries_are_tried_apart(planned: Ablated, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = prepared(POINT, laboratory({}), sets=1)
    assert list(groups(planned, bench)) == [list(range(len(planned.tried)))]
    cut = planned.tried[planned.chosen["neither"][0]]
    assert cut.source is not None
    stored = workspace_bytes(cut.source, bench.dims)
    assert stored >= 4 * 2 * 20 * 300  # scores in FP32
    monkeypatch.setattr("experiments.e01_ablation.ablation.WORKSPACE_BYTES", stored)
    assert len(list(groups(planned, bench))) > 1


# ---- a point


def timed(planned: Ablated, **more: Any) -> tuple[dict[str, Record], list[str], list[Record]]:
    """Records by configuration; programs take as long as they have kernels."""

    def time_contenders(contenders: list[Contender], *, samples: int = 20) -> dict[str, Timing]:
        for c in contenders:
            for call in c.calls:
                call()
        made = {c.name: getattr(c.calls[0], "func", None) for c in contenders}
        kernels = {name: len(getattr(run, "kernels", ())) or 8 for name, run in made.items()}
        return {name: Timing(name, "burst", 1, (1e-6 * n,) * samples) for name, n in kernels.items()}

    def executable(made: Any) -> Any:
        run = on_the_interpreter(made)
        run.kernels = made.schedule.kernels  # type: ignore[attr-defined]
        return run

    out = ablated(POINT, planned, laboratory({}, **{"time": time_contenders, "executable": executable, **more}))
    by_name = {r.workload["configuration"]: r for r in out.records if "configuration" in r.workload}
    return by_name, out.lines, [r for r in out.records if "configuration" not in r.workload]


def test_a_point_gives_a_record_a_configuration(planned: Ablated) -> None:
    found, lines, bad = timed(planned)
    assert list(found) == [*NAMES, "eager"] and not bad
    assert all(r.outcome is Outcome.OK and r.check["passed"] and r.quantiles["q50"] > 0 for r in found.values())
    full, neither = found["full"], found["neither"]
    assert full.details["relative"] == 1.0 and "same_program_as" not in full.details
    assert found["no reassociation"].details["same_program_as"] == "full"
    programs = min(len(planned.tried[n].schedule.kernels) for n in planned.chosen["full"])
    assert neither.details["relative"] == pytest.approx(programs / neither.details["kernels"])
    assert full.schedule["modelled_us"] > 0 and full.workload["contender"] == "cleave"
    assert "no reassociation 1.000 =" in lines[0] and f"eager {programs / 8:.3f}" in lines[0]


def test_a_configuration_whose_programs_are_wrong_has_a_record(planned: Ablated) -> None:
    lost = {id(planned.tried[n]) for n in planned.chosen["neither"]}

    def executable(made: Any) -> Any:
        run = on_the_interpreter(made)

        def wrong(out: Mapping[str, Any], **inputs: Any) -> None:
            run(out, **inputs)
            if id(made) in lost:
                out["out"][-1, -1, -1, -1] = float("nan")

        return wrong

    found, lines, bad = timed(planned, executable=executable)
    assert found["neither"].outcome is Outcome.SKIPPED and found["neither"].check == {"error": "no program is right"}
    assert {r.outcome for r in bad} == {Outcome.WRONG} and len(bad) == len(lost)
    assert "neither none" in lines[0] and found["no algebra"].outcome is Outcome.OK


def test_without_the_full_system_nothing_is_relative(planned: Ablated) -> None:
    without = replace(planned, chosen={k: v for k, v in planned.chosen.items() if k != "full"})
    found, lines, _ = timed(without)
    assert found["full"].outcome is Outcome.SKIPPED and found["neither"].details["relative"] is None
    assert "no full system" in lines[0]


# ---- what it adds up to


def share(point: str, subgraph: str, configuration: str, value: float | None, phase: str = "prefill") -> Share:
    return Share(point, subgraph, phase, configuration, value, reason="" if value else "too wide")


def test_means_are_over_subgraphs_and_leave_out_what_is_not_there() -> None:
    found = [
        *(share(p, s, "full", 1.0) for p, s in (("a1", "a"), ("a2", "a"), ("b1", "b"))),
        share("a1", "a", "neither", 0.25),
        share("a2", "a", "neither", None),
        share("b1", "b", "neither", 1.0, phase="decode"),
    ]
    assert over_subgraphs(found, "neither") == pytest.approx(mean([0.25, 1.0]))
    assert over_subgraphs(found, "neither", "decode") == 1.0 and over_subgraphs(found, "no split") is None
    lines = ablation_table(found)
    row = next(line for line in lines if line.startswith("neither"))
    assert row.split() == ["neither", "0.250", "1.000", "0.500", "-50", "%", "-47", "%", "2", "of", "3"]
    assert lines[-1] == "none: a2, neither: too wide"
    assert ablation_table([]) == ["no record of the ablation of this commit"]


class Ablations:
    """Plans that are none, and the records of a point."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.planned: list[str] = []
        monkeypatch.setattr(loop, "plan_ablations", self.plan)
        monkeypatch.setattr(loop, "time_ablations", time_ablations)

    def plan(self, pool: object, batch: list[Point], tried: int) -> list[Ablated]:
        self.planned += [p.name for p in batch]
        return [Ablated(("sound",), {"full": (0,)}, {}) for _ in batch]  # type: ignore[arg-type]


def time_ablations() -> None: ...


def test_measure_resumes_at_whole_points(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Ablations(monkeypatch)
    given = ["measure", "--parts", "ablations", "--points", "^matmul (prefill|decode)", "--resume"]
    assert runner.main(given) == 0
    names = [r.workload["point"] for r in read(machine / "ablations.jsonl")]
    assert names == [f"matmul prefill m{m}" for m in (256, 1024, 4096)] + ["matmul decode m16", "matmul decode m128"]
    assert {r.workload["compile"] for r in read(machine / "ablations.jsonl")} == {"off"} and made.planned == names
    assert runner.main(given) == 0 and made.planned == names
    assert runner.main(["measure", "--parts", "ablations", "--points", "m512"]) == 2
    assert "no chosen point is one of those" in capsys.readouterr().err


def test_shares_are_the_newest_of_a_commit() -> None:
    commit = {"id": "1", "dirty": False}

    def row(value: float, name: str = "1", **more: Any) -> Record:
        workload = {"point": "a1", "subgraph": "a", "phase": "prefill", "configuration": "neither"}
        environment = {"commit": {"id": name, "dirty": False}}
        return Record(
            workload=workload, outcome=Outcome.OK, quantiles={"q50": 1.0}, environment=environment, details=more
        )

    records = [row(1.0, relative=0.5), row(1.0, relative=0.4, same_program_as="no algebra"), row(1.0, "2", relative=9)]
    (found,) = shares(records, commit)
    assert found.value == 0.4 and found.same == "no algebra" and not found.reason


def test_plans_of_one_point_differ_by_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the nine's own files: reassociation makes q (k' v) of (q k') v."""
    monkeypatch.setattr("cleave.tune.plan.compile_many", lambda jobs, processes: [])
    point = next(p for p in NINE_POINTS if p.name == "matmul_rowsum decode m16")
    off = Configuration("no reassociation", Ablation(reassociation=False))
    full, without = plan(Inline(), [replace(point, configuration=c) for c in (FULL, off)], 1)
    assert full.tried[0].schedule.modelled != without.tried[0].schedule.modelled
