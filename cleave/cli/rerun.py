"""``cleave run DIR``: a saved candidate once more, on the GPU if there is one, otherwise on the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from cleave.errors import SearchError
from cleave.ir.bind import bind_dims
from cleave.ir.graph import Graph
from cleave.ir.index import evaluate
from cleave.pipeline import Result, Trial, load
from cleave.pipeline.phases import forced_schedules
from cleave.pipeline.result import MODELLED
from cleave.pipeline.trial import check_tile_program, compiled, measured, reduced_dims
from cleave.records import Outcome
from cleave.runtime import device
from cleave.tune.pin import read_pin

_MOST_ELEMENTS = 2**26
"""Of one array on the interpreter: half a GB."""


def rerun(
    folder: str, number: int | None, bind: dict[str, int], pin: str | None = None
) -> tuple[Trial, dict[str, int]]:
    """The trial with fresh checks (and times, on a GPU), and the sizes that were run. ``pin``: a file that holds one.

    Errors: as ``load``; a pin of another graph, or of other text than is generated now.
    """
    result = load(folder)
    chosen = _chosen(result, number) if pin is None else _pinned(result, pin)
    trial = compiled(replace(chosen, outcome=Outcome.OK, detail=""))
    if trial.outcome is not Outcome.OK:
        return trial, {}
    if device.available():
        dims = bind_dims(result.input, {}, {**trial.schedule.shape, **_fixed(result, trial), **bind})
        return measured(replace(trial, tile=None), result.input, dims, result.config), dims
    dims = bind_dims(result.input, {}, {**reduced_dims(trial.schedule, result.input), **bind})
    _check_fits(result.input, dims)
    check = check_tile_program(trial.schedule, result.input, bind, seed=result.config.seed)
    outcome = Outcome.WRONG if check.outcome.failed else Outcome.OK
    reason = f"{device.why_not_available()}; {MODELLED}"
    found = replace(trial, tile=check, outcome=outcome, detail=reason)
    return found, dims


def _check_fits(g: Graph, dims: Mapping[str, int]) -> None:
    """The interpreter makes whole arrays of float64, and several of them."""
    shapes = [(b.name, [int(evaluate(e, dims)) for e in b.shape]) for b in (*g.inputs, *g.outputs)]
    for name, shape in shapes:
        if prod(shape) > _MOST_ELEMENTS:
            raise SearchError(
                f"{name} has {prod(shape)} elements, the interpreter takes {_MOST_ELEMENTS}", location="--bind"
            )


def _fixed(result: Result, trial: Trial) -> dict[str, int]:
    known = {s.name for s in result.input.symbols}
    return {n: v for n, v in trial.schedule.bind.items() if n in known}


def _pinned(result: Result, pin: str) -> Trial:
    return Trial(read_pin(pin, result.input).schedule, Outcome.OK)


def _chosen(result: Result, number: int | None) -> Trial:
    """The best trial, or the best of one candidate; a candidate that was not tried is scheduled now."""
    if not result.trials:
        raise SearchError("nothing was scheduled, so there is nothing to run", location=result.input.name)
    if number is None:
        if result.best is None:
            raise SearchError("no schedule passed, so there is nothing to run", location=result.input.name)
        return result.best
    if not 0 <= number < len(result.candidates):
        raise SearchError(f"candidate {number}: there are {len(result.candidates)}, numbered from 0")
    candidate = result.candidates[number]
    for trial in result.trials:
        if trial.schedule.candidate == candidate.name:
            return trial
    like = result.trials[0].schedule
    bind = {**like.shape, **_fixed(result, result.trials[0])}
    return Trial(forced_schedules(candidate, like.target, bind, result.config, result.forced)[0], Outcome.OK)
