"""`cleave tune` and pins: what a command prints and writes, and a schedule that is made again from its pin."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cleave
from cleave.candidate import as_written, save_candidates
from cleave.errors import CleaveWarning, SavedFileError
from cleave.pipeline import Forced
from cleave.pipeline.tuning import source_of
from cleave.target import Target
from cleave.tile.plan import Schedule
from cleave.tune import pin, tuner
from tests.null import tuning_lab
from tests.null.command import Run, runner
from tests.null.test_tune import folder as folder
from tests.null.tuning_lab import BIND, CANDIDATES, LABORATORY


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[[str], Run]:
    return runner(capsys)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of host memory, which doubles."""
    monkeypatch.setattr(tuner, "Laboratory", lambda: LABORATORY)
    monkeypatch.setattr(tuner.devices, "target", lambda: Target("sm_90a"))
    monkeypatch.delenv(tuning_lab.VARIABLE, raising=False)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, folder: Any) -> Path:
    path = tmp_path_factory.mktemp("saved") / "doubled"
    result = cleave.optimize(tuning_lab.GRAPH, BIND, "sm_90a", save=path)
    assert result.passed
    return path


# ---- the command


@pytest.mark.usefixtures("gpu")
def test_tune_prints_a_table_and_pins(command: Callable[[str], Run], saved: Path, tmp_path: Path) -> None:
    asked = f"tune {saved} --records {tmp_path / 'r'} --budget 12 --pin {tmp_path / 'pin'}"
    first = command(asked)
    assert first.code == 0 and first.err == ""
    head, columns, *rows = [line for line in first.out.splitlines() if line]
    assert head.endswith(" on host memory (sm_90a): m=20, n=33")
    assert columns.split()[:4] == ["modelled", "us", "measured", "us"]
    assert len([r for r in rows if " ok " in r]) == 6 and "6 measured, 0 of" in first.out
    second = command(f"{asked} --json").json
    assert (second["measured"], second["reused"], len(second["rows"])) == (0, 6, 6)
    assert second["dims"] == BIND and second["best"]["outcome"] == "ok" and second["records"] == str(tmp_path / "r")
    run = command(f"run {saved} --pin {tmp_path / 'pin'} --json").json
    assert run["outcome"] == "ok" and run["candidate"] == second["best"]["candidate"]


@pytest.mark.usefixtures("gpu")
def test_candidates_of_a_search_are_tuned_at_the_dims_that_are_bound(
    command: Callable[[str], Run], tmp_path: Path, folder: Any
) -> None:
    save_candidates(CANDIDATES, tmp_path / "found.json")
    asked = f"tune {tmp_path / 'found.json'} --records {tmp_path / 'r'} --budget 1"
    assert command(f"{asked} --bind m=5 --bind n=33").code == 0
    missing = command(f"{asked} --bind m=5")
    assert missing.code == 2 and "n" in missing.err and missing.out == ""


def test_tune_needs_a_gpu(command: Callable[[str], Run], saved: Path) -> None:
    if cleave.runtime.device.available():
        pytest.skip("there is a GPU")
    found = command(f"tune {saved}")
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("cleave: tune: CuPy") and "`cleave optimize` chooses by the cost model" in found.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nowhere", "cleave: nowhere: is no saved result: there is no such file or folder"),
        ("{saved} --budget 0", "argument --budget: 0: a whole number from 1"),
        ("{saved} --seconds -1", "argument --seconds: -1"),
        ("{saved} --pin {here}", "exists and is no cleave-pin file; nothing was written"),
        ("{saved} --records {here}", "exists and is no file of records; nothing was written"),
        ("{saved} --records {saved}", "is no file that can be written"),
        ("{saved} --records {here}/r", "is no file that can be written"),
        ("{saved} --bind m=0.5", "--bind m=0.5: NAME=NUMBER is expected"),
    ],
)
@pytest.mark.usefixtures("gpu")
def test_mistakes_are_one_line(
    command: Callable[[str], Run], saved: Path, tmp_path: Path, words: str, message: str
) -> None:
    (tmp_path / "here").write_text("mine")
    found = command(f"tune {words.format(saved=saved, here=tmp_path / 'here')}")
    assert (found.code, found.out) == (2, "") and message in found.err and found.err.count("\n") == 1
    assert (tmp_path / "here").read_text() == "mine"


def test_a_source_is_what_was_saved(saved: Path, tmp_path: Path) -> None:
    source = source_of(saved)
    assert source.dims == BIND and [c.name for c in source.candidates] and source.forced == Forced()
    save_candidates(CANDIDATES, tmp_path / "found.json")
    assert source_of(tmp_path / "found.json").dims == {}


@pytest.mark.usefixtures("gpu")
def test_a_result_tunes_itself(saved: Path, tmp_path: Path) -> None:
    result = cleave.load(saved)
    found = result.tune(budget=2, records=tmp_path / "r")
    assert found.measured == 2 and found.dims == BIND and "Tuned(" in repr(found) and "<table>" in found._repr_html_()
    other = result.tune({"n": 64}, budget=1, records=tmp_path / "r")
    assert other.dims == {"m": 20, "n": 64} and other.measured == 1


# ---- pins


SIZES = {"m": 100, "n": 72, "k": 130}
MATMUL = cleave.nn.instantiate("matmul", SIZES)[0]


@pytest.fixture(scope="module")
def schedules(folder: Any) -> tuple[Schedule, ...]:
    return cleave.schedule(as_written(MATMUL), Target("sm_80"), SIZES)


@pytest.fixture
def pinned(schedules: tuple[Schedule, ...], tmp_path: Path) -> Path:
    """Not the schedule that is chosen."""
    pin.write_pin(tmp_path / "pin", schedules[3], MATMUL, SIZES)
    return tmp_path / "pin"


def test_a_pin_gives_the_same_machine_code(schedules: tuple[Schedule, ...], pinned: Path) -> None:
    found = pin.read_pin(pinned, MATMUL)
    assert found.schedule.text() == schedules[3].text() and found.dims == SIZES
    f, before = cleave.replay(pinned), cleave.emit(schedules[3])
    assert f.source == before.source != cleave.emit(schedules[0]).source
    assert [c.cubin for c in f.compiled] == [c.cubin for c in before.compiled]
    assert pinned.stat().st_size < 20_000


def test_a_pin_of_other_text_names_the_kernel(pinned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = pin.generate

    def changed(s: Any) -> Any:
        made = write(s)
        return replace(made, kernels=tuple(replace(k, text=k.text + "\n") for k in made.kernels))

    monkeypatch.setattr(pin, "generate", changed)
    with pytest.raises(SavedFileError, match=r"^pin: kernel \w+: its text has the hash .*; tune again$"):
        cleave.replay(pinned)


def test_a_pin_of_another_launch_is_refused(pinned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = pin.generate

    def changed(s: Any) -> Any:
        made = write(s)
        return replace(made, kernels=tuple(replace(k, shared_bytes=k.shared_bytes + 16) for k in made.kernels))

    monkeypatch.setattr(pin, "generate", changed)
    with pytest.raises(SavedFileError, match="its text has the hash"):
        cleave.replay(pinned)


def test_a_pin_of_another_graph_is_refused(pinned: Path, command: Callable[[str], Run], saved: Path) -> None:
    with pytest.raises(SavedFileError, match=r"^pin: pins a schedule of another graph than "):
        pin.read_pin(pinned, tuning_lab.GRAPH)
    found = command(f"run {saved} --pin {pinned}")
    assert found.code == 2 and "pins a schedule of another graph" in found.err
    both = command(f"run {saved} --pin {pinned} --candidate 0")
    assert both.code == 2 and "--pin and --candidate: one of them is expected" in both.err


def test_other_machine_code_of_the_same_text_is_a_warning(pinned: Path) -> None:
    written = json.loads(pinned.read_text())
    written["compiler"], written["kernels"][0]["cubin"] = "nvrtc 12.9", "0" * 64
    pinned.write_text(json.dumps(written))
    with pytest.warns(CleaveWarning, match=r"gives other machine code: pinned with nvrtc 12\.9, here is nvrtc"):
        cleave.replay(pinned)


@pytest.mark.parametrize("text", ["", "{", '{"format": "cleave-schedules", "version": 1}', "{}"])
def test_what_is_no_pin_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "pin").write_text(text)
    with warnings.catch_warnings(), pytest.raises(SavedFileError, match=r"^pin: "):
        warnings.simplefilter("error")
        cleave.replay(tmp_path / "pin")
