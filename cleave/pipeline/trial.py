"""What becomes of one schedule: tile program against graph, compile, and on a GPU the kernel's check and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cleave.codegen.generate import generate
from cleave.config import Config
from cleave.errors import CleaveError, LaunchError
from cleave.ir.graph import Graph
from cleave.ir.index import symbols_of
from cleave.kernel import OperatorSource
from cleave.pipeline.emission import architectures, build
from cleave.pipeline.result import Trial
from cleave.records import Outcome
from cleave.tile.plan import Schedule
from cleave.verify import Check, Step, check_executable
from cleave.verify import Outcome as Checked

if TYPE_CHECKING:
    from cleave.tune.bench import Device

Array = NDArray[Any]

_LIMIT_SECONDS = 180.0
_BATCH = 2
_PAST_A_TILE = (13, 29, 7, 19, 11)
"""Added to a tile, one after another, so that no two axes have one extent and nothing divides."""


def make_trial(schedule: Schedule, origin: Graph, config: Config) -> Trial:
    """Run the tile program on the interpreter and compile; everything that goes wrong is an outcome."""
    tile = check_tile_program(schedule, origin, seed=config.seed)
    if tile.outcome.failed:
        return Trial(schedule, Outcome.WRONG, "the tile program differs from the graph", tile)
    return compiled(Trial(schedule, Outcome.OK, tile=tile))


def compiled(trial: Trial) -> Trial:
    """The trial with its CUDA text, compiled for every architecture that its skeleton declares."""
    try:
        source: OperatorSource = generate(trial.schedule)
    except CleaveError as error:
        return replace(trial, outcome=Outcome.REFUSED, detail=str(error))
    made = replace(trial, source=source)
    try:
        builds = build(source, architectures(source))
    except CleaveError as error:  # there is no compiler
        return replace(made, outcome=Outcome.COMPILE_FAILED, detail=str(error))
    failed = [b for b in builds if b.resources is None]
    made = replace(made, builds=builds)
    return replace(made, outcome=Outcome.COMPILE_FAILED, detail=str(failed[0])) if failed else made


# ---- the tile program


def check_tile_program(
    schedule: Schedule, origin: Graph, bind: Mapping[str, int] | None = None, *, seed: int = 0
) -> Check:
    """Outputs of the tile program, operands rounded to their storage types, against the graph, at a reduced size.

    ``bind``: sizes that the caller wants in the place of reduced ones.
    """
    dims = {**reduced_dims(schedule, origin), **(bind or {})}

    def operator(inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        from cleave.tile.interp import run_schedule

        found = run_schedule(schedule, inputs, dims, rounding="storage")
        for name, array in outputs.items():
            array[...] = found[name]

    try:
        return check_executable(operator, origin, dims=dims, seed=seed)
    except CleaveError as error:
        return Check(Step.KERNEL_HALF, Checked.NOT_EVALUABLE, detail=str(error))


def reduced_dims(schedule: Schedule, origin: Graph) -> dict[str, int]:
    """Sizes for an interpreter: a tile and a bit along tiled axes, two along others; what is compiled in stays."""
    wanted = {n: v for n, v in schedule.shape.items() if n in {s.name for s in origin.symbols}}
    longest = _tiled_symbols(schedule)
    out: dict[str, int] = {}
    for number, symbol in enumerate(origin.symbols):
        name = symbol.name
        if symbol.value is not None or name in schedule.bind:
            out[name] = schedule.bind.get(name, symbol.value or 0)
            continue
        most = longest[name] + _PAST_A_TILE[number % len(_PAST_A_TILE)] if name in longest else _BATCH
        size = max(min(wanted.get(name, most), most), symbol.minimum)
        multiple = schedule.multiples.get(name, symbol.multiple)
        out[name] = size - size % multiple or multiple
    return out


def _tiled_symbols(schedule: Schedule) -> dict[str, int]:
    """Dims whose axes are cut into tiles -> the longest tile."""
    out: dict[str, int] = {}
    for kernel in schedule.kernels:
        for a, tile in kernel.binding.tiles.items():
            for symbol in symbols_of(a.extent):
                if tile > 1:
                    out[symbol.name] = max(out.get(symbol.name, 0), tile)
    return out


# ---- on a GPU


@dataclass(frozen=True)
class OnDevice:
    """What a child process says of one schedule."""

    check: Check
    times: Mapping[str, Any]


def measured(trial: Trial, origin: Graph, dims: Mapping[str, int], config: Config) -> Trial:
    """Check the kernel on whole rows and time it, in a child process: a hang or an illegal address is an outcome."""
    from cleave.runtime.watchdog import Outcome as Ended
    from cleave.runtime.watchdog import run_limited
    from cleave.tune.database import recorded

    ended = run_limited(measure, trial.schedule, origin, dict(dims), config.seed, seconds=_LIMIT_SECONDS)
    if ended.outcome is Ended.OK and not isinstance(ended.value, OnDevice):
        return replace(trial, outcome=Outcome.CRASHED, detail=f"the child said {type(ended.value).__name__}")
    if ended.outcome is not Ended.OK:
        return replace(trial, outcome=recorded(ended), detail=f"{ended.outcome.value}: {ended.message}")
    found: OnDevice = ended.value
    outcome = Outcome.WRONG if found.check.outcome.failed else Outcome.OK
    return replace(trial, outcome=outcome, kernel=found.check, times=found.times)


def measure(
    schedule: Schedule, origin: Graph, dims: Mapping[str, int], seed: int, device: Device | None = None
) -> OnDevice:
    """The child's side of ``measured``. Nothing is timed before it passes. ``device``: as in ``cleave.tune.bench``."""
    from cleave.tune.bench import GPU, Shown, check, problem_of, race

    problem, device = problem_of(origin, dims, seed), device or GPU
    shown = Shown(schedule.candidate, generate(schedule), schedule.target.arch)
    found = check(problem, shown, device)
    if found.outcome.failed:
        return OnDevice(found, {})
    raced = race(problem, [shown], device)[shown.name]
    if raced.timing is None or raced.check is None:
        raise LaunchError(raced.refused, location=shown.name)
    return OnDevice(raced.check, {} if raced.check.outcome.failed else raced.timing.as_dict())
