"""The tuner on the GPU: small operators end to end, a second run from the records, a pin that gives the same code."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

import cleave
from cleave.candidate import as_written, load_candidates, save_candidates
from cleave.cli import main
from cleave.records import Outcome, read
from cleave.runtime import device
from cleave.tune import bench, tune
from cleave.tune.bench import Shown, problem_of
from cleave.tune.plan import generated
from cleave.tune.tuner import Laboratory
from tests.null.tuning_lab import reads_beyond

pytest.importorskip("cupy")

CANDIDATES = Path(__file__).parents[2] / "experiments" / "e01_ablation" / "candidates"
ATTENTION = {"s": 128, "b": 1, "t": 512}
MATMUL = {"m": 256, "n": 512, "k": 384}


def candidates_of(name):
    if name == "matmul":
        return (as_written(cleave.nn.instantiate("matmul", MATMUL)[0]),), MATMUL
    return load_candidates(CANDIDATES / "mha_d64_prefill.json"), ATTENTION


@pytest.mark.parametrize("name", ["matmul", "attention"])
def test_an_operator_is_tuned_and_a_second_run_measures_nothing(name, tmp_path):
    candidates, dims = candidates_of(name)
    path = tmp_path / "records.jsonl"
    first = tune(candidates, bind=dims, budget=6, seconds=120, records=path)
    print(first.text())
    assert first.best is not None and first.passed, first.text()
    assert first.measured == len(first.rows) >= 4 and first.target == device.target()
    assert all(r.check["outcome"] == "passed" and r.samples >= 3 for r in first.rows)
    assert first.best.measured == min(r.measured for r in first.rows) and first.best.samples == 20
    began = time.monotonic()
    second = tune(candidates, bind=dims, budget=6, records=path)
    assert time.monotonic() - began < 5 and (second.measured, second.reused) == (0, len(first.rows))
    assert second.best.name == first.best.name and second.best.quantiles == first.best.quantiles
    assert len({r.details["key"] for r in read(path)}) == len(list(read(path))) == len(first.rows)

    second.pin(tmp_path / "pin")
    again = cleave.replay(tmp_path / "pin")
    assert again.source == first.executable.source
    assert [c.cubin for c in again.compiled] == [c.cubin for c in first.executable.compiled]
    problem = problem_of(candidates[0].origin, dims, 1)
    shown = Shown("pin", generated(first.best.schedule).source, first.target.arch)
    assert bench.check(problem, shown).outcome.value == "passed"


def test_an_illegal_address_is_a_row(tmp_path):
    candidates, dims = candidates_of("matmul")
    laboratory = Laboratory(device=replace(bench.GPU, executable=reads_beyond))
    found = tune(candidates, bind=dims, budget=2, seconds=120, records=tmp_path / "r", laboratory=laboratory)
    assert {r.outcome for r in found.rows} == {Outcome.CRASHED} and found.best is None, found.text()
    assert all("illegal address" in r.detail for r in found.rows), found.text()
    assert tune(candidates, bind=dims, budget=2, seconds=120, records=tmp_path / "other").passed


def test_the_command(tmp_path, capsys):
    candidates, dims = candidates_of("matmul")
    save_candidates(candidates, tmp_path / "matmul.json")
    words = ["tune", str(tmp_path / "matmul.json"), "--budget", "3", "--records", str(tmp_path / "r"), "--json"]
    words += [word for name, n in dims.items() for word in ("--bind", f"{name}={n}")]
    assert main([*words, "--pin", str(tmp_path / "pin")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["best"]["outcome"] == "ok" and found["measured"] == len(found["rows"])
    assert cleave.replay(tmp_path / "pin").resources
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["measured"] == 0
