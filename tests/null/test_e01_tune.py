"""`python -m experiments run e01 tune` without a GPU: each operator is tuned twice, a row says if goals are met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import experiments.e01_ablation.run as runner
from cleave.records import Outcome, Record, append, read
from cleave.runtime.device import Properties
from cleave.tune.tuned import Row, Tuned
from experiments.e01_ablation import tune as stage
from experiments.e01_ablation.config import TARGET
from tests.null import tuning_lab

SEEN = "measured"


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[dict[str, int], int]]:
    """Stands in for the tuner: measures one schedule, unless the records hold something. What it was asked for."""
    asked: list[tuple[dict[str, int], int]] = []
    s = tuning_lab.cleave.schedule(tuning_lab.CANDIDATES[0], stage.Target(TARGET), tuning_lab.BIND)[0]

    def tune(candidates: Any, target: Any, bind: Any, *, budget: int, seconds: float, records: Path) -> Tuned:
        asked.append((dict(bind), budget))
        row = Row("key", s, Outcome.OK, quantiles={"q50": 5.0}, samples=20, reused=records.exists())
        if not records.exists():
            append(records, Record(workload={"what": SEEN}, outcome=Outcome.OK))
        return Tuned(candidates[0].origin, target, bind, "host", (row,), records, {"race": 0.1, "all": 0.1})

    monkeypatch.setattr(stage, "tune", tune)
    monkeypatch.setattr(stage, "properties", lambda: Properties("host", "90", 1, 1, 1, 1, 1, 1))
    monkeypatch.setattr(stage, "RECORDS", tmp_path)
    return asked


def rows(tmp_path: Path) -> list[Record]:
    return list(read(tmp_path / "tuner.jsonl"))


def test_each_operator_is_tuned_twice_at_one_size(
    tuner: list[tuple[dict[str, int], int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner.main(["tune", "--points", "^matmul_matmul"]) == 0
    assert [
        (r.workload["point"], r.details["met"], r.details["measured"], r.details["measured_again"])
        for r in rows(tmp_path)
    ] == [
        ("matmul_matmul prefill s1024", True, 1, 0),
        ("matmul_matmul decode s64", True, 1, 0),
    ]
    assert [budget for _, budget in tuner] == [12] * 4
    assert [r.workload["what"] for r in read(tmp_path / "tune.jsonl")] == [SEEN] * 2
    assert "0 missed a goal; 0 operators left out" in capsys.readouterr().out
    assert runner.main(["tune", "--points", "^matmul_matmul", "--resume", "--tried", "3"]) == 0
    assert len(rows(tmp_path)) == 2 and len(tuner) == 4


def test_a_goal_that_is_missed_is_an_exit_code(
    tuner: list[tuple[dict[str, int], int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(stage, "AGAIN_SECONDS", 0.0)
    assert runner.main(["tune", "--points", "^matmul_matmul decode s64", "--tried", "3"]) == 1
    assert not rows(tmp_path)[0].details["met"] and tuner[0][1] == 3
    assert "MISSED" in capsys.readouterr().out


def test_it_ends_before_its_time(
    tuner: list[tuple[dict[str, int], int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner.main(["tune", "--points", "^matmul_matmul", "--minutes", "0.5"]) == 1
    assert not tuner and not (tmp_path / "tuner.jsonl").exists()
    assert "2 operators left out for want of time" in capsys.readouterr().out
