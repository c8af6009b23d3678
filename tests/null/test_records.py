"""Records: no line is lost between processes, a line that was cut off is closed and named."""

import subprocess
import sys
from pathlib import Path

import pytest

from cleave.errors import CleaveWarning, SavedFileError
from cleave.records import Outcome, Record, append, append_all, mend, read

_WRITER = """
import sys
from cleave.records import Outcome, Record, append
for number in range(int(sys.argv[3])):
    append(sys.argv[1], Record(workload={"who": sys.argv[2], "number": number, "padding": "x" * 3000},
                               outcome=Outcome.OK, environment={"python": "3"}))
"""


def _record(number: int) -> Record:
    return Record(workload={"operator": "matmul", "number": number}, outcome=Outcome.OK, quantiles={"p50": 12.5})


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "records" / "e00.jsonl"
    append(path, _record(1), gpu={"name": "a GPU"})
    append(path, Record(workload={"operator": "matmul"}, outcome=Outcome.TIMEOUT, check={"worst": float("nan")}))
    first, second = read(path)
    assert first.workload == {"operator": "matmul", "number": 1} and first.quantiles == {"p50": 12.5}
    assert first.environment["gpu"] == {"name": "a GPU"} and first.environment["packages"]["numpy"]
    assert first.time.endswith("+00:00")
    assert second.outcome is Outcome.TIMEOUT and second.check == {"worst": None}
    assert path.read_bytes().count(b"\n") == 2


def test_processes_lose_no_line(tmp_path: Path) -> None:
    path, each = tmp_path / "shared.jsonl", 40
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, path, who, str(each)]) for who in "abc"]
    assert [w.wait(60) for w in writers] == [0, 0, 0]
    found = [(r.workload["who"], r.workload["number"]) for r in read(path)]
    assert sorted(found) == [(who, number) for who in "abc" for number in range(each)]


def test_a_cut_off_line_is_closed_and_named(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append(path, _record(1))
    append(path, _record(2))
    path.write_bytes(path.read_bytes()[:-20])
    append(path, _record(3))
    with pytest.warns(CleaveWarning, match=r"records\.jsonl:2: no record, left out"):
        assert [r.workload["number"] for r in read(path)] == [1, 3]


def test_a_cut_off_line_is_removed_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    mend(path)
    assert not path.exists()
    append_all(path, [_record(1), _record(2)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.warns(CleaveWarning, match=r"records\.jsonl:2: no record, left out"):
        mend(path)
    assert [r.workload["number"] for r in read(path)] == [1] and whole.startswith(path.read_bytes())
    path.write_bytes(whole[:-1])  # a record without the end of its line is whole
    mend(path)
    append(path, _record(3))
    assert [r.workload["number"] for r in read(path)] == [1, 2, 3]
    path.write_bytes(whole[:8])
    with pytest.warns(CleaveWarning, match=r"records\.jsonl:1: no record, left out"):
        mend(path)
    assert path.read_bytes() == b""


def test_what_is_no_file_of_records_is_not_mended(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine\nwithout an end")
    with pytest.raises(SavedFileError, match="exists and is no file of records; nothing was written"):
        mend(path)
    assert path.read_text() == "mine\nwithout an end"


def test_what_is_no_file_of_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SavedFileError, match=r"absent\.jsonl: can't be read: No such file"):
        list(read(tmp_path / "absent.jsonl"))
    path = tmp_path / "later.jsonl"
    path.write_text('{"workload": {}, "outcome": "ok", "version": 99}\n')
    with pytest.raises(SavedFileError, match=r"later\.jsonl:1: is a record of version 99, expected 1"):
        list(read(path))
