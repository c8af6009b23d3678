"""Schedules that are measured in a process of their own: whatever one of them does, the next one runs.

What runs there is planted. Some stand in for the whole measurement; some are the real one on a GPU made of host memory,
whose kernels fail as a real one would.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

import cleave
from cleave import Target
from cleave.config import Config
from cleave.ir.graph import Graph
from cleave.pipeline import optimizer, trial
from cleave.pipeline.result import Forced, Trial
from cleave.records import Outcome
from cleave.schedule import schedule
from cleave.search import search
from cleave.tile.plan import Schedule
from tests.null.planted import DIMS, measured_on_a_fake_gpu, planted


@pytest.fixture(scope="module")
def doubled() -> tuple[Graph, Schedule]:
    g = cleave.trace(lambda x: x * 2.0, x="m n")
    return g, schedule(search(g).pick(), Target("sm_80"), bind=DIMS)[0]


EXPECTED = {
    "illegal address": (Outcome.CRASHED, "illegal address: CUDARuntimeError: cudaErrorIllegalAddress"),
    "failed launch": (Outcome.CRASHED, "launch failed: CUDARuntimeError: CUDA_ERROR_LAUNCH_FAILED"),
    "out of memory": (Outcome.OUT_OF_MEMORY, "out of memory: CUDARuntimeError: cudaErrorMemoryAllocation"),
    "exception": (Outcome.CRASHED, "raised: ValueError: a fault of cleave itself"),
    "dead": (Outcome.CRASHED, "crashed: the process was ended by SIGSEGV"),
    "leaves": (Outcome.CRASHED, "crashed: the process ended with status 0"),
    "exits": (Outcome.CRASHED, "crashed: the process ended with status 1"),
    "leaves one behind": (Outcome.CRASHED, "crashed: the process was ended by SIGSEGV"),
    "returns twice": (Outcome.OK, ""),
    "floods": (Outcome.OK, ""),
    "prints": (Outcome.OK, ""),
    "unreadable": (Outcome.CRASHED, "crashed: its answer can't be read: ValueError"),
    "nonsense": (Outcome.CRASHED, "the child said str"),
}


def trials(s: Schedule, names: list[str]) -> list[Trial]:
    return [Trial(replace(s, candidate=name), Outcome.OK) for name in names]


def test_every_candidate_is_a_row_and_the_last_one_is_timed(
    doubled: tuple[Graph, Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    g, s = doubled
    monkeypatch.setattr(trial, "measure", planted)
    state = optimizer._State(g, Config(), Forced(), gpu="planted", trials=trials(s, [*EXPECTED, "good"]))
    optimizer._measure(state, DIMS, None)
    for t, (outcome, words) in zip(state.trials, [*EXPECTED.values(), (Outcome.OK, "")], strict=True):
        assert t.outcome is outcome, (t.schedule.candidate, t.detail)
        assert t.detail.startswith(words) and "\n" not in t.detail
        assert (t.measured is not None) == (outcome is Outcome.OK)


@pytest.mark.parametrize("name", ["hang", "stopped"])
def test_a_candidate_that_does_not_end_is_a_timeout(
    doubled: tuple[Graph, Schedule], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    g, s = doubled
    monkeypatch.setattr(trial, "measure", planted)
    monkeypatch.setattr(trial, "_LIMIT_SECONDS", 2.0)
    began = time.monotonic()
    found = trial.measured(trials(s, [name])[0], g, DIMS, Config())
    assert time.monotonic() - began < 20
    assert (found.outcome, found.detail) == (Outcome.TIMEOUT, "timeout: no answer within the time limit")
    monkeypatch.setattr(trial, "_LIMIT_SECONDS", 60.0)
    assert trial.measured(trials(s, ["good"])[0], g, DIMS, Config()).outcome is Outcome.OK


# ---- the real measurement on a fake GPU


@pytest.mark.parametrize(
    ("name", "outcome", "words"),
    [
        ("good", Outcome.OK, ""),
        ("wrong", Outcome.WRONG, ""),
        ("writes nothing", Outcome.WRONG, ""),
        ("illegal address", Outcome.CRASHED, "illegal address: LaunchError: "),
        ("bad configuration", Outcome.CRASHED, "launch failed: LaunchError: "),
    ],
)
def test_the_real_measurement_where_kernels_fail(
    doubled: tuple[Graph, Schedule], monkeypatch: pytest.MonkeyPatch, name: str, outcome: Outcome, words: str
) -> None:
    g, s = doubled
    monkeypatch.setattr(trial, "measure", measured_on_a_fake_gpu)
    found = trial.measured(trials(s, [name])[0], g, DIMS, Config())
    assert found.outcome is outcome, found.detail
    assert found.detail.startswith(words)
    assert (found.measured is not None) == (outcome is Outcome.OK)
