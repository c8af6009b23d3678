"""Results on disk: what is saved comes back, and whatever is damaged is refused in one line."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cleave import Target, nn, schedule, search
from cleave.errors import CleaveError, LaunchError, SavedFileError
from cleave.pipeline import Result, load
from cleave.tile.saved import load_schedules, save_schedules
from tests.null import optimized


@pytest.fixture
def result() -> Result:
    return optimized.attention()


def test_a_saved_result_comes_back(result: Result, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    result.save(folder)
    names = {p.name for p in folder.iterdir()}
    assert {"graph.txt", "candidates.json", "schedule.json", "report.json"} <= names
    assert {p.suffix for p in folder.iterdir()} == {".txt", ".json", ".cu", ".cubin"}
    again = load(folder)
    assert again.input == result.input and again.candidates == result.candidates and again.verdicts == result.verdicts
    assert [s.text() for s in again.schedules] == [s.text() for s in result.schedules]
    assert again.as_dict() == result.as_dict() and again.text() == result.text()
    assert again.executable is not None
    assert {k.text for k in again.executable.kernels} <= {p.read_text() for p in folder.glob("*.cu")}
    assert [p.name for p in tmp_path.iterdir()] == ["saved"]
    again.save(folder)
    assert load(folder).as_dict() == result.as_dict()


def test_nothing_is_overwritten_that_is_no_saved_result(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    with pytest.raises(SavedFileError, match="thesis: exists and is no saved result; nothing was written"):
        optimized.matmul(save=tmp_path / "thesis")
    assert [p.name for p in (tmp_path / "thesis").iterdir()] == ["chapter.tex"]


def test_a_result_among_other_files_is_not_replaced(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result.save(tmp_path / "saved")
    (tmp_path / "saved" / "notes.txt").write_text("mine")
    with pytest.raises(SavedFileError, match="saved: exists and is no saved result; nothing was written"):
        result.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "notes.txt").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(SavedFileError, match="is the working directory; name a folder in it"):
        result.save(".")
    with pytest.raises(SavedFileError, match="can't be written: File name too long"):
        result.save("long" * 100)


def test_a_link_to_a_folder_stays_a_link(result: Result, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for _ in range(2):
        result.save(tmp_path / "link")
        assert {p.name for p in tmp_path.iterdir()} == {"link", "real"} and (tmp_path / "link").is_symlink()
    assert load(tmp_path / "real").as_dict() == result.as_dict()


def test_an_interrupt_while_the_old_result_is_replaced_keeps_it(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result.save(tmp_path / "saved")
    rename = Path.rename

    def interrupted(source: Path, target: Path) -> Path:
        if (source / "report.json").exists() and target == tmp_path / "saved" and source.name != "replaced":
            raise KeyboardInterrupt
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        result.save(tmp_path / "saved")
    assert [p.name for p in tmp_path.iterdir()] == ["saved"]
    assert load(tmp_path / "saved").as_dict() == result.as_dict()


def test_a_save_that_fails_leaves_nothing_and_keeps_the_old(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cleave.pipeline import saved

    result.save(tmp_path / "saved")
    before = {p.name: p.read_bytes() for p in (tmp_path / "saved").iterdir()}

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saved, "write_saved", full)
    for name in ("saved", "new"):
        with pytest.raises(SavedFileError, match=f"{name}: can't be written: No space left on device"):
            result.save(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["saved"]
    assert {p.name: p.read_bytes() for p in (tmp_path / "saved").iterdir()} == before


def _without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _cut(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:200])


def _other_carry(change: Callable[[list[str]], object]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        saved = json.loads((folder / "candidates.json").read_bytes())
        change(next(f["carry"] for c in saved["candidates"] for f in c["folds"]))
        (folder / "candidates.json").write_text(json.dumps(saved))

    return spoil


def _spoil_one(kind: str, content: bytes | None) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        file = next(folder.glob(kind))
        file.unlink() if content is None else file.write_bytes(content)

    return spoil


def _no_schedules(folder: Path) -> None:
    save_schedules([], folder / "schedule.json")


def _of_another_search(folder: Path) -> None:
    found = load_schedules(folder / "schedule.json")
    save_schedules([replace(s, candidate="another") for s in found], folder / "schedule.json")


def _changed(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (shutil.rmtree, "is no saved result: there is no such file or folder"),
        (_without("graph.txt"), "no saved result: graph.txt: No such file or directory"),
        (_without("report.json"), r"report\.json: can't be read: No such file or directory"),
        (_cut("report.json"), r"report\.json: is no saved result"),
        (_cut("candidates.json"), r"candidates\.json: is no saved result"),
        (_cut("schedule.json"), r"schedule\.json: is no saved schedule"),
        (_cut("graph.txt"), r"graph\.txt"),
        (
            _changed("report.json", '"version": 2', '"version": 9'),
            r"report\.json: is cleave-result version 9, expected cleave-result version 2",
        ),
        (_changed("graph.txt", "float16", "float32"), r"candidates\.json: belongs to another graph than graph\.txt"),
        (_changed("schedule.json", "warps", "warts"), r"schedule\.json: is not what was saved: its checksum differs"),
        (_changed("schedule.json", '["Schedule",', '["Program",'), r"schedule\.json: is damaged: "),
        (_without("schedule.json"), r"schedule\.json: can't be read: No such file or directory"),
        (_no_schedules, r"report\.json: \d+ trials, 0 schedules in schedule\.json"),
        (_of_another_search, r"schedule\.json: candidate '.*' is not in candidates\.json"),
        (_changed("report.json", '"trials"', '"tribes"'), r"report\.json: has no list of trials"),
        (_changed("report.json", '"outcome": "passed"', '"outcome": "fine"'), r"report\.json: is no saved result"),
        (_changed("report.json", '"search_text": "', '"search_text": 3, "x": "'), r"report\.json: is no saved result"),
        (_changed("report.json", '"measured_s": {', '"measured_s": 3, "x": {'), r"report\.json: is no saved result"),
        (
            _changed("report.json", '"seed": 0', '"seed": -1'),
            r"report\.json: is no saved result: Config: seed = -1",
        ),
        (_other_carry(list[str].pop), r"candidates\.json: a fold of 3 members is carried by 2 terms"),
        (
            _other_carry(lambda carry: carry.append(carry.pop().replace("old2", "old7"))),
            r"candidates\.json: a fold of 3 members is carried by 3 terms, one of old7",
        ),
        (_spoil_one("graph.txt", b""), r"graph\.txt: is no graph: "),
        (_spoil_one("*.cubin", b"short"), r"\.cubin: is not what was saved: its checksum differs"),
        (_spoil_one("*.cu", b"// mine"), r"\.cu: is not what was saved: its checksum differs"),
        (_spoil_one("*.cubin", None), r"\.cubin: can't be read: No such file or directory"),
    ],
)
def test_a_damaged_result_is_refused_in_one_line(
    result: Result, tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    result.save(tmp_path / "saved")
    spoil(tmp_path / "saved")
    with pytest.raises(CleaveError, match=message) as caught:
        load(tmp_path / "saved")
    assert "\n" not in str(caught.value)


# ---- what a search saved


def test_candidates_of_a_search_are_a_result_without_trials(tmp_path: Path) -> None:
    found = search(nn.matmul())
    found.save(tmp_path / "c.json")
    result = load(tmp_path / "c.json")
    assert result.candidates == found.candidates and result.input == found.candidates[0].origin
    assert not result.verdicts and not result.trials and result.best is None and not result.passed
    assert "note: c.json holds candidates of a search: none was verified or scheduled" in result.text()
    assert "not verified" in result.text() and "seconds" not in result.text().splitlines()[-1]
    assert schedule(result.candidate(found.candidates[0].name), Target("sm_80"), {"m": 64, "n": 64, "k": 64})
    with pytest.raises(LaunchError, match="no schedule passed, so there is nothing to run"):
        result()
    result.save(tmp_path / "folder")
    assert load(tmp_path / "folder").as_dict() == result.as_dict()


def test_the_candidates_of_a_folder_are_what_a_search_saves(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "saved")
    assert load(tmp_path / "saved" / "candidates.json").candidates == result.candidates


def test_the_schedules_of_a_folder_are_what_a_schedule_saves(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "saved")
    found = load_schedules(tmp_path / "saved" / "schedule.json")
    assert [s.text() for s in found] == [s.text() for s in result.schedules]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("schedule.json", "schedule.json: holds schedules: cleave.tile.saved.load_schedules reads them"),
        ("report.json", "report.json: is part of a saved result: load its folder"),
        ("graph.txt", "graph.txt: is no saved result: "),
        ("absent", "absent: is no saved result: there is no such file or folder"),
    ],
)
def test_other_files_are_refused_by_what_they_hold(result: Result, tmp_path: Path, name: str, message: str) -> None:
    result.save(tmp_path / "saved")
    with pytest.raises(SavedFileError) as caught:
        load(tmp_path / "saved" / name)
    assert message in str(caught.value) and "\n" not in str(caught.value)
