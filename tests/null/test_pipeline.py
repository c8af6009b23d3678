"""The driver: everything that goes wrong is a row or one line, and what is saved comes back."""

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cleave import nn, ops
from cleave.config import Config
from cleave.errors import (
    CodegenError,
    GraphError,
    LaunchError,
    RuleError,
    ScheduleError,
    SearchError,
    ShapeError,
)
from cleave.ir.graph import Graph
from cleave.ir.interp import interpret
from cleave.pipeline import Forced, Result, emit, load, optimize, optimizer, rulebooks, trial
from cleave.pipeline.program import graph_of
from cleave.records import Outcome
from cleave.rewrite.rulebook import Rulebook
from cleave.runtime import device
from cleave.runtime.watchdog import Limited
from cleave.runtime.watchdog import Outcome as Ended
from cleave.search import search
from cleave.target import Target
from cleave.verify import Check, Step, verify
from cleave.verify import Outcome as Checked
from tests.null import host_device, optimized

WRONG = """(ruleset wrong)
; max-factor
;   max_k (a * b)  =  a * max_k b
; class:   exact
; assumes: nothing
; source:  none, it is wrong for negative a
; guards:  a does not depend on k
(rule ((= r (Red (MaxOf) k e)) (= e (Mul a b)) (= sa (axes a)) (set-not-contains sa k))
      ((union r (Mul a (Red (MaxOf) k b))))
      :ruleset wrong :name "max-factor")
"""

SOUND = """(ruleset own)
; neg-neg
;   -(-a)  =  a
; class:   exact
; assumes: nothing
; source:  sign change is an involution
; guards:  none
(rewrite (Neg (Neg a)) a :ruleset own :name "neg-neg")
"""


@pytest.fixture
def result() -> Result:
    return optimized.attention()


@pytest.fixture
def matmul() -> Callable[..., Result]:
    return optimized.matmul


@pytest.fixture
def rule_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    monkeypatch.setenv("CLEAVE_CACHE", str(tmp_path / "cache"))

    def write(name: str, text: str) -> Path:
        path = tmp_path / f"{name}.egg"
        path.write_text(text)
        return path

    return write


# ---- the main job


def test_attention_ends_with_a_checked_and_compiled_schedule(result: Result) -> None:
    assert result.passed and result.report.search["stop"] == "saturated"
    assert all(f"note: {note}" in result.report.search_text for note in result.report.search["notes"])
    assert all(v.passed for v in result.verdicts) and len(result.verdicts) == len(result.candidates)
    best = result.best
    assert best is not None and not best.spilled
    assert {b.arch for b in best.builds} == {"sm_90a"}  # its kernels have tensor maps
    assert best.tile is not None and best.tile.outcome is Checked.PASSED
    assert [t.outcome for t in result.trials] == [Outcome.OK] * len(result.trials)


def test_its_text_says_all_that_was_found(result: Result) -> None:
    text = result.text()
    for words in (
        "stop reason: saturated",
        "-- unsplit",
        "-- split t",
        "factor at out",
        "telescope at out",
        "fold over t_i, absorbing",
        "verification: passed: scope, small instantiations, finite field, folds, medium shapes, final test, graph half",
        "relative error in float32: ",
        "kernel attention",
        "0 spills",
        "compiled for sm_90a",
    ):
        assert words in text, words
    assert text.count("us modelled") >= 2
    if not device.available():
        assert "no GPU was used: times are the cost model's, not measured" in text
    json.dumps(result.as_dict(), allow_nan=False)


def test_the_same_seed_gives_the_same_result(matmul: Callable[..., Result]) -> None:
    first, second = matmul(), matmul()
    assert [v.as_dict() for v in first.verdicts] == [v.as_dict() for v in second.verdicts]
    assert [s.text() for s in first.schedules] == [s.text() for s in second.schedules]


def test_forced_choices_are_obeyed() -> None:
    graph, dims = nn.instantiate("matmul", {"m": 64, "n": 64, "k": 4096})
    forced = Forced(tile={"n": 32}, skeleton="cta-ring", merge="second-launch", split={"k": 4})
    found = optimize(graph, dims, Target("sm_80"), forced=forced)
    split = [t for t in found.trials if t.schedule.merge == "second-launch"]
    assert split and split[0].outcome is Outcome.OK
    assert 4 in split[0].schedule.bind.values() and "=4, merge second-launch" in split[0].name
    assert all("n 32" in t.schedule.text() for t in found.trials)


def test_who_forces_a_split_gets_one_even_if_it_is_slower() -> None:
    graph, dims = nn.instantiate("matmul", {"m": 512, "n": 512, "k": 256})
    assert optimize(graph, dims, Target("sm_90a")).best.schedule.merge == "none"
    for forced in (Forced(merge="last-arriving"), Forced(split={"k": 4})):
        found = optimize(graph, dims, Target("sm_90a"), forced=forced)
        assert found.trials and all(t.schedule.merge != "none" for t in found.trials), forced


def test_a_split_that_no_candidate_can_have_is_an_error() -> None:
    graph, dims = nn.instantiate("matmul", {"m": 64, "n": 64, "k": 4096})
    with pytest.raises(ScheduleError, match="split count 9 in a cluster: allowed is at most 8 on sm_90a"):
        optimize(graph, dims, Target("sm_90a"), forced=Forced(merge="cluster", split={"k": 9}))


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ({"m": 4, "n": 4}, "dim k has no value"),
        ({"m": 4, "n": 4, "k": 4, "q": 1}, "no dim 'q': the graph has k, m, n"),
    ],
)
def test_a_bad_binding_is_an_error_before_anything_runs(bind: dict[str, int], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        optimize(nn.matmul(), bind)


def test_progress_is_told_each_phase(matmul: Callable[..., Result]) -> None:
    told: list[str] = []
    matmul(progress=told.append)
    assert list(dict.fromkeys(told))[:4] == ["search", "verify", "schedule", "tile program and compile"]


# ---- what goes wrong is a row


def test_a_wrong_rule_is_caught_by_verification(rule_file: Callable[[str, str], Path]) -> None:
    """The rule fires, the candidates that it gives are found, and they fail."""
    book = Rulebook.default().with_files(rule_file("wrong", WRONG))
    graph = graph_of(_row_maximum)
    found = search(graph, book, Config(isolate=False))
    wrong = [c for c in found.candidates if "max-factor" in c.rules]
    assert wrong
    for c in found.candidates:
        assert verify(c).passed == ("max-factor" not in c.rules), c.name


def _row_maximum(x: "m n", y: "m") -> Any:  # noqa: F722, F821
    return ops.max(x * y[:, None], axis="n")


def test_a_wrong_rule_is_refused_before_the_search(rule_file: Callable[[str, str], Path]) -> None:
    book = Rulebook.default().with_files(rule_file("wrong", WRONG))
    with pytest.raises(RuleError, match=r"wrong\.egg:\d+: max-factor: counterexample"):
        optimize(_row_maximum, {"m": 5, "n": 7}, rules=book)


def test_candidates_of_a_wrong_rule_are_dropped(
    rule_file: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    book = Rulebook.default().with_files(rule_file("wrong", WRONG))
    monkeypatch.setattr(optimizer, "check_rulebook", lambda book: ())
    found = optimize(_row_maximum, {"m": 5, "n": 70}, Target("sm_80"), rules=book)
    failed = {v.candidate for v in found.verdicts if not v.passed}
    assert failed and not found.passed
    assert not failed & {t.schedule.candidate for t in found.trials}
    assert "verification: small instantiations: wrong value" in found.text()


SELF = """(ruleset self)
; expdiff-self
;   exp(a - a)  =  1
; class:   exact
; assumes: finite
; source:  exp 0 = 1
; guards:  none
(rewrite (ExpDiff a a) (Const 1.0) :ruleset self :name "expdiff-self")
"""


def test_a_rule_that_assumes_finite_values_is_named_and_refused_where_a_mask_makes_infinite_ones(
    rule_file: Callable[[str, str], Path],
) -> None:
    """It is right for numbers; softmax over one element is 0 where that element is hidden."""

    def plain(x: "m=1 n", y: "n k") -> Any:  # noqa: F722
        return ops.softmax(x, 0) @ y

    def masked(x: "m=1 n", y: "n k") -> Any:  # noqa: F722
        return ops.softmax(ops.where(ops.position("n") > 1, x, -np.inf), 0) @ y

    book = Rulebook.default().with_files(rule_file("self", SELF))
    for program, right in ((plain, True), (masked, False)):
        found = search(graph_of(program), book, Config(isolate=False))
        changed = [c for c in found.candidates if "expdiff-self" in c.rules]
        assert changed and all("assumes finite" in c.promise for c in changed)
        assert ", assumes finite; " in found.text()
        assert [verify(c).passed for c in changed] == [right] * len(changed)
        assert all(right is not any(s.rule == "expdiff-self" for s in c.false_steps) for c in changed)


def test_a_rulebook_is_tested_once_for_its_content_and_that_of_the_tests(
    rule_file: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    book = Rulebook.default().with_files(rule_file("own", SOUND))
    assert rulebooks.check_rulebook(book) == ("rule neg-neg: no counterexample found",)
    assert "tested before" in rulebooks.check_rulebook(book)[0]
    assert rulebooks.check_rulebook(Rulebook.default()) == ()
    monkeypatch.setattr(rulebooks, "tests_hash", lambda: "better ones")
    assert rulebooks.check_rulebook(book) == ("rule neg-neg: no counterexample found",)
    assert rulebooks.forget() == 2


def test_a_wrong_tile_program_is_never_chosen(matmul: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    import cleave.tile.interp as interp

    right = interp.run_schedule

    def off_by_one(*arguments: Any, **named: Any) -> dict[str, Any]:
        return {n: np.roll(v, 1, axis=-1) for n, v in right(*arguments, **named).items()}

    monkeypatch.setattr(interp, "run_schedule", off_by_one)
    found = matmul()
    assert found.trials and {t.outcome for t in found.trials} == {Outcome.WRONG}
    assert found.best is None and not found.passed and found.executable is None
    assert "no schedule passed" in found.text()
    with pytest.raises(LaunchError, match="no schedule passed"):
        found(1)


def test_cuda_that_does_not_compile_is_a_row(matmul: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    from cleave.codegen.compile import Failed
    from cleave.pipeline import emission

    monkeypatch.setattr(
        emission, "compile_many", lambda jobs: [Failed(k.entry, a, "error: expected a ;", "") for k, a in jobs]
    )
    found = matmul()
    assert {t.outcome for t in found.trials} == {Outcome.COMPILE_FAILED}
    assert "error: expected a ;" in found.text()


def test_without_a_compiler_everything_else_is_done(
    matmul: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from cleave.codegen import nvrtc

    def absent() -> None:
        raise CodegenError("libnvrtc not found", location="NVRTC")

    nvrtc.version.cache_clear()
    monkeypatch.setattr(nvrtc, "_library", absent)
    found = matmul(save=tmp_path / "saved")
    nvrtc.version.cache_clear()
    assert {t.outcome for t in found.trials} == {Outcome.COMPILE_FAILED} and not found.report.faults
    assert all(t.tile is not None and t.tile.outcome is Checked.PASSED for t in found.trials)
    assert "NVRTC: libnvrtc not found" in found.text() and list((tmp_path / "saved").glob("*.cu"))


def test_a_candidate_that_can_not_be_scheduled_is_a_note(
    matmul: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise ScheduleError("no kernel can run it")

    monkeypatch.setattr(optimizer, "forced_schedules", refuse)
    found = matmul()
    assert not found.trials and not found.passed
    assert any(note.startswith("candidate as written was not scheduled") for note in found.report.notes)


@pytest.mark.parametrize(
    ("forced", "message"),
    [
        (Forced(tile={"m": 48}), "axis m: tile 48: allowed in cta-ring are 16, 32, 64, 128"),
        (Forced(tile={"m": 0}), "tile of m: 0 elements: allowed is >= 1"),
        (Forced(tile={"z": 16}), "tile for 'z': allowed are k, m, n"),
        (Forced(skeleton="none"), "skeleton 'none': allowed are cta-ring"),
        (Forced(feed="tma"), "feed 'tma' on sm_80: allowed are cp.async"),
        (Forced(split={"k": 0}), "split of k: 0 chunks: allowed is >= 1"),
        (Forced(split={"k": 2}), "split of k: no candidate splits it; candidates split no axis"),
        (Forced(merge="second-launch"), "merge second-launch: no candidate has a split"),
    ],
)
def test_a_choice_that_no_candidate_can_meet_is_an_error(
    matmul: Callable[..., Result], tmp_path: Path, forced: Forced, message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        matmul(forced=forced, save=tmp_path / "saved")
    assert not any(tmp_path.iterdir())


def test_more_chunks_than_elements_are_refused(matmul: Callable[..., Result]) -> None:
    with pytest.raises(ScheduleError, match="split of k: 131 chunks of 130 elements: allowed is 1 to 130"):
        matmul(forced=Forced(split={"k": 131}), config=Config(isolate=False))


@pytest.mark.parametrize("at", ["forced_schedules", "make_trial"])
def test_a_fault_of_cleave_costs_one_candidate_and_is_told(
    matmul: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    done, calls = getattr(optimizer, at), list[object]()

    def broken(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyError("a missing\naxis")
        return done(*arguments, **named)

    monkeypatch.setattr(optimizer, at, broken)
    found = matmul(config=Config(isolate=False))
    assert found.best is not None and not found.passed
    assert len(found.report.faults) == 1 and "KeyError: 'a missing\\naxis' (test_pipeline.py:" in found.report.faults[0]
    assert "fault: " in found.text()


@pytest.mark.parametrize("at", ["verify", "make_trial"])
def test_an_interrupt_ends_with_what_was_found(at: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = getattr(optimizer, at)
    calls: list[object] = []

    def interrupted(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return done(*arguments, **named)

    monkeypatch.setattr(optimizer, at, interrupted)
    found = optimize(nn.matmul(), {"m": 64, "n": 64, "k": 4096}, Target("sm_80"), save=tmp_path / "saved")
    assert found.report.interrupted and len(found.candidates) > 1
    assert len(found.verdicts if at == "verify" else found.trials) == 1
    assert found.text().endswith("interrupted: this is what was found until then\n")
    assert load(tmp_path / "saved").report.interrupted


# ---- on a GPU, as far as that can be told without one


@pytest.mark.parametrize(
    ("ended", "outcome", "words"),
    [
        (Limited(Ended.TIMEOUT, message="no answer within the time limit"), Outcome.TIMEOUT, "timeout: no answer"),
        (Limited(Ended.ILLEGAL_ADDRESS, message="an access"), Outcome.CRASHED, "illegal address: an access"),
        (Limited(Ended.OUT_OF_MEMORY, message="16 GB"), Outcome.OUT_OF_MEMORY, "out of memory: 16 GB"),
    ],
)
def test_a_hang_or_a_crash_is_an_outcome(
    result: Result, monkeypatch: pytest.MonkeyPatch, ended: Limited, outcome: Outcome, words: str
) -> None:
    monkeypatch.setattr("cleave.runtime.watchdog.run_limited", lambda *a, **k: ended)
    found = trial.measured(result.trials[0], result.input, {}, result.config)
    assert found.outcome is outcome and words in found.detail and found.measured is None


def test_a_kernel_that_fails_its_check_is_not_timed(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Check(Step.KERNEL_HALF, Checked.WRONG_VALUE, 3, 40.0, "output out at (0, 0, 0, 0)")
    answer = Limited(Ended.OK, trial.OnDevice(bad, {}))
    monkeypatch.setattr("cleave.runtime.watchdog.run_limited", lambda *a, **k: answer)
    found = trial.measured(result.trials[0], result.input, {}, result.config)
    assert found.outcome is Outcome.WRONG and "kernel on the GPU: wrong value" in "\n".join(found.lines())


def test_a_child_process_gets_the_same_schedule(result: Result) -> None:
    for s in result.schedules:
        assert pickle.loads(pickle.dumps(s)).text() == s.text()


def test_the_childs_side_checks_before_it_times(result: Result) -> None:
    """With the interpreter in the place of a kernel."""
    schedule, timed = result.schedules[0], []
    dims = trial.reduced_dims(schedule, result.input)

    def kernel(schedule: Any) -> Callable[..., None]:
        def call(out: Any, **arrays: Any) -> None:
            for name, value in interpret(result.input, arrays).items():
                out[name][...] = value * factor

        return call

    def clock(contenders: Any, **more: Any) -> Any:
        timed.append(contenders)
        return host_device.all_alike(contenders, **more)

    host = replace(host_device.HOST, executable=kernel, time=clock)
    factor = 1.0
    found = trial.measure(schedule, result.input, dims, 0, host)
    assert found.check.outcome is Checked.PASSED and found.times["q50"] == host_device.SECONDS
    factor = 1.1
    found = trial.measure(schedule, result.input, dims, 0, host)
    assert found.check.outcome is Checked.WRONG_VALUE and found.times == {} and len(timed) == 1


def test_measured_times_come_before_modelled_ones(result: Result) -> None:
    first, second = result.trials[0], replace(result.trials[-1], times={"q50": 5e-6})
    assert optimizer._rank(second) < optimizer._rank(first)
    assert second.time == "5.0 us measured" and first.time.endswith("us modelled")


def test_without_a_gpu_a_call_says_why(result: Result) -> None:
    if device.available():
        pytest.skip("there is a GPU")
    f = emit(result.schedules[0])
    assert f.resources and "__global__" in f.source
    arrays = [np.zeros((1, 4, 200, 64), np.float16), *np.zeros((2, 1, 2, 300, 64), np.float16)]
    with pytest.raises(LaunchError, match="CuPy"):
        f(*arrays)


def test_reduced_sizes_fit_an_interpreter(result: Result) -> None:
    for s in result.schedules:
        dims = trial.reduced_dims(s, result.input)
        assert dims["b"] <= 2 and dims["t"] < 300 and dims["d"] == 64 and dims["group"] == 2


# ---- programs


def test_programs_are_graphs_builders_or_annotated_functions() -> None:
    def build() -> Graph:
        return nn.matmul()

    def scaled(x: "m n=8") -> Any:  # noqa: F722
        return x * 2.0

    assert graph_of(build) == nn.matmul() == graph_of(nn.matmul())
    assert [str(e) for e in graph_of(scaled, dtype="float32").inputs[0].shape] == ["m", "n"]


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(GraphError, match=r'parameter q has no axes: annotate it, such as q: "b t d=64"'):
        graph_of(lambda q: q)
    with pytest.raises(GraphError, match="returns int, a function without parameters returns a Graph"):
        graph_of(lambda: 3)
    with pytest.raises(GraphError, match="is int, no graph and no function"):
        graph_of(3)  # type: ignore[arg-type]

    def several(*q: "m") -> Any:  # noqa: F821
        return q[0]

    async def later(q: "m") -> Any:  # noqa: F821
        return q

    with pytest.raises(GraphError, match=r"several: parameter \*q.*: inputs have names of their own"):
        graph_of(several)
    with pytest.raises(GraphError, match="later: is a coroutine function"):
        graph_of(later)


def test_a_candidate_is_found_by_name(result: Result) -> None:
    assert result.candidate("unsplit").name == "unsplit"
    with pytest.raises(SearchError, match="no candidate 'none'; there are unsplit"):
        result.candidate("none")
