"""The fit of the cost model's constants: samples from records, and times that another set of constants made up."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest

from cleave.cost.constants import H200, Constants
from cleave.records import Outcome, Record
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tune.description import described
from experiments.e01_ablation.calibrate import Group, Sample, fit, loss, samples, times_of
from experiments.e01_ablation.config import SETS, TARGET, points
from experiments.e01_ablation.plans import candidates_of

POINT = next(p for p in points(SETS["nine"]) if p.name == "matmul decode m16")
OTHERS = replace(H200, wave_seconds=5e-6, cluster_seconds=0.7e-6, trip_cycles=800)


@pytest.fixture(scope="module")
def group() -> Group:
    """Schedules of one point, with the times that ``OTHERS`` give."""
    split = candidates_of(POINT)[-1]
    plans = [f"{s.candidate}: {described(s)}" for s in schedule(split, Target(TARGET), POINT.dims, keep=16)]
    found = samples(POINT, {**dict.fromkeys(plans, 1.0), "no candidate: row": 1.0})
    assert len(found) == len(set(plans))
    return Group(POINT, tuple(replace(s, measured=_microseconds(s, OTHERS)) for s in found))


def _microseconds(s: Sample, constants: Constants) -> float:
    return s.measured * exp(s.error(constants))


def test_a_fit_finds_what_made_the_times(group: Group) -> None:
    assert len(group.samples) > 5 and loss([group], OTHERS) == pytest.approx(0.0, abs=1e-12)
    fitted = fit([group])
    assert loss([group], fitted) < 0.3 * loss([group], H200)
    now, then = group.correlation(H200), group.correlation(fitted)
    assert now is not None and then is not None and then >= now


def test_constants_that_change_nothing_stay(group: Group) -> None:
    """Nothing of this point meets in memory or shares rows by threads."""
    right = Group(POINT, tuple(replace(s, measured=_microseconds(s, H200)) for s in group.samples))
    assert fit([right]) == H200


def test_times_are_those_of_plans_that_were_right() -> None:
    workload = {"point": POINT.name}
    rows = [
        Record(workload=workload, outcome=Outcome.OK, schedule={"plan": "a: row"}, quantiles={"q50": 8.0}),
        Record(workload=workload, outcome=Outcome.OK, schedule={"plan": "a: row"}, quantiles={"q50": 7.0}),
        Record(workload=workload, outcome=Outcome.WRONG, schedule={"plan": "b: row"}),
        Record(workload=workload, outcome=Outcome.OK, quantiles={"q50": 3.0}),
    ]
    assert times_of(rows) == {POINT.name: {"a: row": 7.0}}
