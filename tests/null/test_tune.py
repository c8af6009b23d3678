"""The tuner without a GPU: what fails is a row, what was measured is not measured again, nothing is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cleave
from cleave.candidate import as_written
from cleave.errors import CleaveError, CleaveWarning, LaunchError
from cleave.records import Outcome, read
from cleave.runtime.timing import in_turns
from cleave.target import Target
from cleave.tune import Tuned, tune
from cleave.tune.crew import Crew, LostError
from cleave.tune.database import source_hash
from cleave.tune.halving import leaving
from cleave.tune.plan import Request, generated
from cleave.tune.rank import spearman
from cleave.tune.remembered import forget, recall
from cleave.tune.tuner import Laboratory
from tests.null import tuning_lab
from tests.null.planted import DEEDS
from tests.null.tuning_lab import BIND, CANDIDATES, ISOLATED, LABORATORY, VARIABLE

ROOT = Path(__file__).parents[2]
ARCH = Target("sm_90a")
KERNELS = 6
"""Texts of the nine schedules of the graph: some differ in what the text does not say."""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Kernels and plans of these tests only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLEAVE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tuned]:
    """A tuner with what is planted; ``log``: what its workers called."""

    def tuned(laboratory: Any = LABORATORY, budget: int = 12, seconds: float = 60.0, **planted: Any) -> Tuned:
        monkeypatch.setenv(VARIABLE, json.dumps({"log": str(tmp_path / "log"), **planted}))
        return tune(
            CANDIDATES, ARCH, BIND, budget=budget, seconds=seconds, records=tmp_path / "r", laboratory=laboratory
        )

    return tuned


def called(tmp_path: Path) -> list[str]:
    return (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []


def mark(row: Any) -> str:
    source = generated(row.schedule).source
    assert source is not None
    return source_hash(source)[:12]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory, folder: Any) -> list[str]:
    """Marks of the kernels, in the order of modelled time."""
    path = tmp_path_factory.mktemp("known") / "r"
    return [mark(r) for r in tune(CANDIDATES, ARCH, BIND, budget=12, records=path, laboratory=LABORATORY).rows]


# ---- what is measured


def test_the_fastest_is_chosen_and_a_second_run_measures_nothing(
    run: Callable[..., Tuned], kernels: list[str], tmp_path: Path
) -> None:
    assert len(kernels) == KERNELS
    times = {k: 1e-6 * (10 - n) for n, k in enumerate(kernels)}
    first = run(times=times)
    assert first.passed and (first.measured, first.reused) == (KERNELS, 0)
    assert first.best is not None and mark(first.best) == kernels[-1]
    assert first.best.measured == pytest.approx(5.025) and first.rank_correlation == pytest.approx(-1.0)
    lines = (tmp_path / "r").read_bytes()
    assert lines.count(b"\n") == KERNELS
    before, began = called(tmp_path), time.monotonic()
    second = run(times=times)
    assert time.monotonic() - began < 5 and called(tmp_path) == before
    assert (second.measured, second.reused) == (0, KERNELS) and (tmp_path / "r").read_bytes() == lines
    assert [(r.name, r.quantiles, r.samples) for r in second.rows] == [
        (r.name, r.quantiles, r.samples) for r in first.rows
    ]
    assert f"0 measured, {KERNELS} of" in second.text() and "rank correlation of model and measurement: -1.00" in str(
        second
    )
    assert json.loads(json.dumps(second.as_dict()))["best"]["measured_us"]["q50"] == pytest.approx(5.025)


def test_a_larger_budget_measures_what_is_new(run: Callable[..., Tuned], tmp_path: Path) -> None:
    first = run(budget=1)
    assert (first.measured, len(first.rows)) == (1, 1)
    second = run()
    assert (second.measured, second.reused, len(second.rows)) == (KERNELS - 1, 1, KERNELS)
    assert max(Counter(r.details["key"] for r in read(tmp_path / "r")).values()) == 1


DEEDS_AND_OUTCOMES = {
    "hang": (Outcome.TIMEOUT, "timeout: no answer within the time limit"),
    "illegal address": (Outcome.CRASHED, "illegal address: CUDARuntimeError: cudaErrorIllegalAddress"),
    "failed launch": (Outcome.CRASHED, "launch failed: CUDARuntimeError: CUDA_ERROR_LAUNCH_FAILED"),
    "dead": (Outcome.CRASHED, "crashed: the process was ended by SIGSEGV"),
    "refused": (Outcome.REFUSED, "raised: ArgumentError: "),
    "wrong": (Outcome.WRONG, "output out at (19, 32)"),
    "writes nothing": (Outcome.WRONG, "output out at (0, 0)"),
    "wrong later": (Outcome.WRONG, "after timing: output out at (0, 0)"),
}


@pytest.mark.parametrize(
    ("laboratory", "names"),
    [
        (replace(ISOLATED, check_seconds=1.5), ("hang", "illegal address", "dead")),
        (LABORATORY, ("failed launch", "refused", "wrong")),
        (LABORATORY, ("writes nothing", "wrong later")),
    ],
)
def test_what_fails_is_a_row_and_the_next_one_runs(
    run: Callable[..., Tuned], kernels: list[str], laboratory: Laboratory, names: tuple[str, ...], tmp_path: Path
) -> None:
    deeds = dict(zip(kernels, names, strict=False))
    assert set(names) <= {*DEEDS, "refused", "wrong", "writes nothing", "wrong later"}
    found = run(laboratory, deeds=deeds)
    rows = {mark(r): r for r in found.rows}
    for kernel in kernels:
        outcome, words = DEEDS_AND_OUTCOMES.get(deeds.get(kernel, ""), (Outcome.OK, ""))
        assert rows[kernel].outcome is outcome, rows[kernel]
        assert rows[kernel].detail.startswith(words) and (rows[kernel].measured is not None) == (outcome is Outcome.OK)
    assert found.best is not None and mark(found.best) not in deeds and not found.passed
    assert {mark(r) for r in found.rows} == set(kernels)
    before = called(tmp_path)
    again = run(deeds=deeds)
    assert called(tmp_path) == before
    assert [(r.outcome, r.detail) for r in again.rows] == [(r.outcome, r.detail) for r in found.rows]


def test_what_is_no_fault_of_a_schedule_is_tried_again(run: Callable[..., Tuned], kernels: list[str]) -> None:
    found = run(deeds={kernels[0]: "out of memory", kernels[1]: "exception"})
    rows = {mark(r): r for r in found.rows}
    assert rows[kernels[0]].outcome is Outcome.OUT_OF_MEMORY
    assert rows[kernels[1]].outcome is Outcome.CRASHED and "ValueError: a fault of cleave" in rows[kernels[1]].detail
    again = run()
    assert (again.measured, again.reused) == (2, KERNELS - 2) and again.passed


def test_where_everything_failed_before_it_says_so(run: Callable[..., Tuned], kernels: list[str]) -> None:
    assert run(deeds=dict.fromkeys(kernels, "wrong")).notes == ()
    (note,) = run().notes
    assert note.startswith("all of them failed before; without their lines in ")


def test_a_race_that_crashes_is_run_one_by_one(run: Callable[..., Tuned], tmp_path: Path) -> None:
    found = run(ISOLATED, budget=2, **{"crash together": True})
    assert found.passed and found.measured == 2
    assert found.notes == ("schedules were timed one by one: together they failed",)
    assert sum(1 for line in called(tmp_path) if line.startswith("race ")) >= 4


def test_what_no_graph_can_hold_is_a_row() -> None:
    from cleave.tune.bench import Shown, problem_of, race

    def clock(contenders: Any, **_: Any) -> Any:
        if any(c.name == "waits" for c in contenders):
            raise LaunchError("can't be captured as a graph: it waits", location="waits")
        return tuning_lab.clock(contenders, samples=3, leave=None)

    device = replace(LABORATORY.device, time=clock)
    source = generated(cleave.schedule(CANDIDATES[0], ARCH, BIND)[0]).source
    assert source is not None
    problem = problem_of(tuning_lab.GRAPH, BIND, 0)
    found = race(problem, [Shown(n, source, "sm_90a") for n in ("waits", "runs")], device)
    assert found["waits"].refused == "can't be captured as a graph: it waits" and found["waits"].timing is None
    assert found["runs"].timing is not None and len(found["runs"].timing.samples) == 3


# ---- limits


def test_a_run_ends_in_its_time_and_the_next_one_goes_on(
    run: Callable[..., Tuned], kernels: list[str], tmp_path: Path
) -> None:
    began = time.monotonic()
    found = run(ISOLATED, seconds=3.0, deeds={kernels[1]: "hang"})
    assert time.monotonic() - began < 7
    outcomes = {mark(r): r.outcome for r in found.rows}
    assert outcomes.pop(kernels[0]) in (Outcome.OK, Outcome.SKIPPED)  # if there was time for the race
    assert set(outcomes.values()) == {Outcome.SKIPPED} and found.measured <= 1
    assert run().measured == KERNELS - found.measured


def test_a_run_without_time_says_that_nothing_passed(run: Callable[..., Tuned], tmp_path: Path) -> None:
    found = run(seconds=1e-3)
    assert found.best is None and not found.passed and found.measured == 0 and not (tmp_path / "r").exists()
    assert "no schedule passed" in found.text() and "Tuned(" in repr(found)
    with pytest.raises(LaunchError, match="no schedule passed"):
        found.pin(tmp_path / "pin")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"budget": 0}, "tune: budget 0: allowed is >= 1"),
        ({"seconds": 0.0}, "tune: seconds 0.0: a positive number is expected"),
        ({"seconds": float("nan")}, "tune: seconds nan: a positive number is expected"),
    ],
)
def test_limits_that_make_no_sense_are_refused(asked: dict[str, Any], message: str, run: Callable[..., Tuned]) -> None:
    with pytest.raises(CleaveError) as caught:
        run(**asked)
    assert str(caught.value) == message


def test_candidates_of_one_graph_are_expected(tmp_path: Path) -> None:
    with pytest.raises(CleaveError, match="there are no candidates to tune"):
        tune([], ARCH, BIND, laboratory=LABORATORY)
    other = as_written(cleave.trace(lambda x: x * 3.0, x="m n"))
    with pytest.raises(CleaveError, match="these are of several"):
        tune([*CANDIDATES, other], ARCH, BIND, laboratory=LABORATORY)
    with pytest.raises(CleaveError, match="dim n"):
        tune(CANDIDATES, ARCH, {"m": 5}, laboratory=LABORATORY, records=tmp_path / "r")


def test_without_a_gpu_it_says_what_would_work() -> None:
    if cleave.runtime.device.available():
        pytest.skip("there is a GPU")
    with pytest.raises(LaunchError, match=r"^tune: .*; tuning measures.* `cleave optimize` chooses by the cost model"):
        tune(CANDIDATES, ARCH, BIND)


def test_whoever_is_clearly_slower_drops_out() -> None:
    seconds = {"a": 1.0, "b": 1.02, "c": 1.5, "d": 2.0, "e": 3.0, "f": 3.5, "g": 4.0, "h": 8.0}
    turns = Counter[str]()

    def timed(name: str) -> float:
        turns[name] += 1
        return seconds[name] * (1.0 if turns[name] % 2 else 0.99)

    found = in_turns(timed, list(seconds), 20, leaving)
    assert {n: len(s) for n, s in found.items()} == {
        **{"a": 20, "b": 20},
        **{"c": 6, "d": 6},
        **dict.fromkeys("efgh", 3),
    }
    assert leaving({"a": [1.0, 1.0, 1.0], "b": [1.1, 1.1, 0.9], "c": [1.2, 1.2, 0.95], "d": [1.3, 1.3, 1.0]}) == set()
    assert leaving({"a": [1.0, 1.0], "b": [9.0, 9.0], "c": [9.0, 9.0]}) == set()
    assert all(len(s) == 4 for s in in_turns(timed, list(seconds), 4).values())


# ---- records


def test_another_text_is_another_configuration(
    run: Callable[..., Tuned], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from cleave.tune import plan

    assert run().measured == KERNELS
    write = plan.generate

    def changed(s: Any) -> Any:
        made = write(s)
        return replace(made, kernels=tuple(replace(k, text=k.text + "\n// another version\n") for k in made.kernels))

    monkeypatch.setattr(plan, "generate", changed)
    found = run()
    assert (found.measured, found.reused) == (KERNELS, 0)
    monkeypatch.setattr(plan, "generate", write)
    assert run().reused == KERNELS
    assert (tmp_path / "r").read_bytes().count(b"\n") == 2 * KERNELS


@pytest.mark.parametrize("fact", ["name", "driver_cuda"])
def test_another_machine_is_another_configuration(run: Callable[..., Tuned], fact: str, tmp_path: Path) -> None:
    assert run(budget=1).measured == 1
    assert run(replace(LABORATORY, gpu=lambda: {**tuning_lab.gpu(), fact: "another"}), budget=1).measured == 1
    assert run(budget=1).reused == 1


def test_a_line_that_was_cut_off_is_mended_and_measured_again(run: Callable[..., Tuned], tmp_path: Path) -> None:
    run()
    whole = (tmp_path / "r").read_bytes()
    (tmp_path / "r").write_bytes(whole[:-40])
    with pytest.warns(CleaveWarning, match=rf"^r:{KERNELS}: no record, left out"):
        found = run()
    assert (found.measured, found.reused) == (1, KERNELS - 1)
    assert len(list(read(tmp_path / "r"))) == KERNELS  # a warning would be an error here
    assert run().measured == 0


APPENDING = """
import sys
from pathlib import Path
from cleave.records import Outcome, Record
from cleave.tune.database import Database
database = Database(Path(sys.argv[1]), {})
for number in range(10_000):
    key = f"{sys.argv[2]} {number}"
    padding = {"padding": "x" * 2000}
    database.add([(key, Record(workload=padding, outcome=Outcome.OK))])
    print(key, flush=True)
"""


def test_two_processes_that_append_and_are_killed_lose_no_line(tmp_path: Path) -> None:
    path, started = tmp_path / "r", []
    for name in "ab":
        command = [sys.executable, "-c", APPENDING, str(path), name]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT))
    told: list[str] = []
    for number, process in enumerate(started):
        assert process.stdout is not None
        told += [process.stdout.readline().strip() for _ in range(60 + 20 * number)]
        process.send_signal(signal.SIGKILL)
        told += process.stdout.read().splitlines()
        process.wait()
        process.stdout.close()
    with cleave_warnings() as caught:
        from cleave.records import mend

        mend(path)
        found = [r.details["key"] for r in read(path)]
    assert len(caught) <= 1
    assert set(t for t in told if len(t.split()) == 2) <= set(found) and len(found) == len(set(found))


def cleave_warnings() -> Any:
    import warnings

    return warnings.catch_warnings(record=True)


TUNING = """
import sys
from pathlib import Path
from cleave.target import Target
from cleave.tune import tune
from tests.null.tuning_lab import BIND, CANDIDATES, ISOLATED
tune(CANDIDATES, Target("sm_90a"), BIND, budget=12, records=Path(sys.argv[1]), laboratory=ISOLATED)
"""


def test_a_run_that_is_killed_loses_no_record_and_repeats_none(
    run: Callable[..., Tuned], kernels: list[str], tmp_path: Path
) -> None:
    """Killed in the race, when what was wrong is recorded."""
    planted = {"log": str(tmp_path / "log"), "race takes": 60.0, "deeds": {kernels[1]: "wrong"}}
    environment = {**__import__("os").environ, VARIABLE: json.dumps(planted), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", TUNING, str(tmp_path / "r")], env=environment, cwd=ROOT)
    until = time.monotonic() + 60
    while not any(line.startswith("race ") for line in called(tmp_path)) and time.monotonic() < until:
        time.sleep(0.05)
    process.kill()
    process.wait()
    (before,) = read(tmp_path / "r")
    assert before.outcome is Outcome.WRONG
    executables = Counter(called(tmp_path))
    found = run(deeds=planted["deeds"])
    assert (found.measured, found.reused) == (KERNELS - 1, 1)
    keys = [r.details["key"] for r in read(tmp_path / "r")]
    assert keys[0] == before.details["key"] and len(keys) == len(set(keys)) == KERNELS
    wrong = f"executable {kernels[1]}"
    assert Counter(called(tmp_path))[wrong] == executables[wrong]


# ---- plans


def test_a_plan_is_remembered_until_something_changes(
    run: Callable[..., Tuned], monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    asked = Request(CANDIDATES, ARCH, BIND, 12)
    kept = recall(asked)
    assert kept is not None and len(kept.schedules) == 9
    for other in (
        replace(asked, count=11),
        replace(asked, dims={**BIND, "n": 40}),
        replace(asked, target=Target("sm_80")),
        replace(asked, config=cleave.Config(ablation=cleave.config.Ablation(layout_propagation=False))),
        replace(asked, forced=replace(asked.forced, skeleton="row")),
        replace(asked, candidates=(as_written(cleave.trace(lambda x: x * 3.0, x="m n")),)),
    ):
        assert recall(other) is None
    monkeypatch.setattr("cleave.tune.remembered.code_hash", lambda: "another version")
    assert recall(asked) is None
    monkeypatch.undo()
    assert forget() >= 0


def test_a_plan_that_is_damaged_is_made_again(run: Callable[..., Tuned], folder: Any) -> None:
    from cleave.codegen import cache

    run(budget=2)
    for path in cache.folder().glob("*.plan"):
        path.write_text("{")
    assert run(budget=2).reused == 2


def test_a_crew_ends_by_its_deadline() -> None:
    began = time.monotonic()
    with Crew(2) as crew:
        crew.deadline = began + 2.0
        hangs, dies, adds = crew.submit(time.sleep, 60), crew.submit(sys.exit, 1), crew.submit(sum, (1, 2))
        with pytest.raises(LostError, match=r"crashed: the process ended with status 1"):
            dies.result()
        assert adds.result() == 3
        with pytest.raises(LostError, match="no time was left"):
            hangs.result()
        with pytest.raises(LostError, match="no time was left"):
            crew.submit(sum, (1, 2)).result()
    assert time.monotonic() - began < 10


def test_a_crew_that_is_left_ends_what_runs() -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Crew(1) as crew:
        crew.submit(time.sleep, 60)
        time.sleep(0.5)
        raise KeyboardInterrupt
    assert time.monotonic() - began < 15


# ---- rank correlation


def test_rank_correlation() -> None:
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]) == pytest.approx(0.8207826817)  # with a tie
    assert spearman([], []) is None and spearman([1, 1, 1], [1, 2, 3]) is None
