"""The experiment runner finds, lists and runs experiments, and refuses a name that it does not know."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import experiments.__main__ as runner
from cleave.codegen.generate import generate
from cleave.ir.index import evaluate_pred
from cleave.tune.variants import variants_of as variants
from experiments.e00_smoke import run as smoke
from experiments.e00_smoke.config import OPERATORS, Operator
from experiments.e00_smoke.search import candidate_of, variants_of
from experiments.schedules import in_order


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two experiments in a folder of their own, importable as experiments.e.._name."""
    for name, returned in (("e98_first", "None"), ("e99_second", "len(argv)")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.py").write_text(f'"""What {name} asks."""\n\ndef main(argv):\n    return {returned}\n')
    (tmp_path / "e97_no_run").mkdir()
    monkeypatch.setattr(runner, "FOLDER", tmp_path)
    monkeypatch.setattr(sys.modules["experiments"], "__path__", [str(tmp_path)])
    return tmp_path


def test_list_prints_one_line_an_experiment(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["list"]) == 0
    assert capsys.readouterr().out == "e98_first   What e98_first asks.\ne99_second  What e99_second asks.\n"


@pytest.mark.parametrize("name", ["e99", "e99_second"])
def test_run_passes_the_options_on(folder: Path, name: str) -> None:
    assert runner.main(["run", name, "--shapes", "7", "--list"]) == 3
    assert runner.main(["run", "e98"]) == 0


@pytest.mark.parametrize("name", ["e97_no_run", "e9", "second", ""])
def test_unknown_name_is_one_line_and_exit_code_2(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["run", name]) == 2
    assert capsys.readouterr().err == f"experiments: no experiment {name!r}; there are: e98_first, e99_second\n"


def test_a_call_in_order_is_prepared_once_for_the_stream_that_times_it() -> None:
    asked: list[object] = []
    stream = ["where it was made"]

    class Run:
        def __call__(self) -> None: ...

        def prepare(self, *inputs: object, early: bool, **named: object) -> Callable[[], object]:
            asked.append((inputs, named, early, stream[0]))
            return lambda: asked.append("launched")

    call = in_order(partial(Run(), 1, out=2))
    stream[0] = "where it is timed"
    call()
    call()
    assert asked == [((1,), {"out": 2}, False, "where it is timed"), "launched", "launched"]


@pytest.mark.parametrize("op", [o for o in OPERATORS if o.graph == "matmul"], ids=lambda o: o.name)
def test_a_matmul_of_any_size_has_a_kernel(op: Operator) -> None:
    plans = variants_of(op, candidate_of(op))
    found = variants([generate(s) for s in plans.schedules], plans.when)
    for shape in op.shapes:
        assert any(all(evaluate_pred(p, shape) for p in v.when) for v in found), shape


@pytest.mark.parametrize(
    ("pattern", "why"),
    [("(", "missing ), unterminated subpattern"), ("nothing", "no operator's name has it; one is 'mha_d64'")],
)
def test_operators_that_do_not_exist_are_no_measurement(
    pattern: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert smoke.main(["measure", "--operators", pattern]) == 2
    assert capsys.readouterr().err.startswith(f"e00: --operators {pattern!r}: {why}")
