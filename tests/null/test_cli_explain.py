"""`cleave explain` and `cleave equal`: formats, exit codes, and what a user can get wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.null.command import Run, runner


@pytest.fixture
def cleave(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    return runner(capsys)


@pytest.fixture
def saved(cleave: Callable[..., Run], tmp_path: Path) -> Path:
    """Candidates of matmul as a search saves them."""
    assert cleave(f"search matmul --save {tmp_path / 'matmul.json'}").code == 0
    return tmp_path / "matmul.json"


def test_explain_a_program_and_a_saved_result(cleave: Callable[..., Run], saved: Path) -> None:
    found = cleave("explain attention --causal")
    assert found.code == 0 and found.err == ""
    assert re.search(r"^t +yes +yes +max x1, sum x2$", found.out, re.MULTILINE)
    assert re.search(r"^s +no +no +output out stores it: tile it$", found.out, re.MULTILINE)
    assert re.search(r"^telescope +exp_diff\(s, m\) += .* proved ", found.out, re.MULTILINE)
    assert "telescope at out" in found.out and "exactness: reassociates" in found.out
    assert re.search(r"^relative error in float32: \d\.\de-\d\d, as written \d\.\de-\d\d$", found.out, re.MULTILINE)
    tried = re.findall(r"^ +holds on \d instances, difference (?:0|\de-\d\d)$", found.out, re.MULTILINE)
    assert len(tried) == len(re.findall(r"^ +-> ", found.out, re.MULTILINE)) > 10
    found = cleave(f"explain {saved} --candidate 0")
    assert found.code == 0 and found.out.count("\n== candidate 0: ") == found.out.count("\n== ") == 1
    rows = cleave(f"explain {saved} --json").json
    assert {row["axis"] for row in rows["axes"]} == {"m", "n", "k"}
    assert all(0 < c["numerics"]["graph"]["float32"] < 1e-5 for c in rows["candidates"])


def test_explain_in_other_formats(cleave: Callable[..., Run], saved: Path) -> None:
    found = cleave(f"explain {saved} --format markdown")
    assert found.code == 0 and found.out.startswith("# matmul\n\n```text\ngraph matmul\n")
    assert "| axis | reducible | splittable | why |\n| --- | --- | --- | --- |\n" in found.out
    assert "1. **split-red** at out\n\n   ```text\n" in found.out
    found = cleave(f"explain {saved} --format html")
    assert found.code == 0 and found.out.startswith("<!doctype html>") and "<svg" in found.out
    found = cleave(f"explain {saved} --format markdown --json")
    assert found.code == 2 and found.err == "cleave: --json and --format markdown: one of them is expected\n"


def test_explain_says_the_same_in_another_process() -> None:
    program = "import sys; from cleave.cli import main; sys.exit(main(['explain', 'attention', '--lse']))"
    said = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1] and said[0]


def test_a_false_step_is_an_error(cleave: Callable[..., Run], tmp_path: Path) -> None:
    assert cleave(f"search matmul --save {tmp_path / 'c.json'}").code == 0
    made = json.loads((tmp_path / "c.json").read_text())
    number = next(n for n, c in enumerate(made["candidates"]) if c["steps"])
    failure = "at k = 1 where k = 3: 2 before, 5 after"
    made["candidates"][number]["steps"][0]["check"] = {"instances": 3, "difference": None, "failure": failure}
    (tmp_path / "c.json").write_text(json.dumps(made))
    found = cleave(f"explain {tmp_path / 'c.json'}")
    line = f"error: candidate {number}, step 1: split-red at out is FALSE {failure}"
    assert found.code == 1 and found.err == f"cleave: {line}\n" and f"\n{line}\n" in found.out
    assert cleave(f"explain {tmp_path / 'c.json'} --json").json["errors"] == [line.removeprefix("error: ")]


def test_equal_has_an_exit_code_for_each_answer(cleave: Callable[..., Run], tmp_path: Path) -> None:
    assert cleave(f"search matmul --save {tmp_path / 'c.json'}").code == 0
    found = json.loads((tmp_path / "c.json").read_text())["candidates"]
    text = next(c["graph"] for c in found if c["splits"])
    (tmp_path / "split.txt").write_text(text)
    found = cleave(f"equal matmul {tmp_path / 'split.txt'}")
    assert (
        found.code == 0
        and found.out.startswith("equal: 1 equation leads from matmul to ")
        and "1 split-red at out" in found.out
    )
    (tmp_path / "wrong.txt").write_text(text.replace("a[m, ", "1.5 * a[m, "))
    found = cleave(f"equal matmul {tmp_path / 'wrong.txt'} --json")
    assert found.code == 1 and found.json["verdict"] == "different"
    assert found.json["counterexample"]["values"][0] != found.json["counterexample"]["values"][1]
    found = cleave(f"equal matmul {tmp_path / 'split.txt'} --without split-red")
    assert found.code == 3 and found.err == "" and "nearest: rule split-red is off (switched off)" in found.out
