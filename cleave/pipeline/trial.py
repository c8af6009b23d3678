"""What becomes of one schedule: tile program against graph, compile, and on a GPU the kernel's check and time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.config import Config
from cleave.errors import CleaveError
from cleave.ir.graph import Graph
from cleave.ir.index import symbols_of
from cleave.kernel import OperatorSource
from cleave.pipeline.emission import architectures, build, emit
from cleave.pipeline.result import Trial
from cleave.records import Outcome
from cleave.runtime.executable import Executable
from cleave.tile.plan import Schedule
from cleave.verify import Check, Step, check_executable
from cleave.verify import Outcome as Checked

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
    from cleave.codegen.generate import generate

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

    ended = run_limited(measure, trial.schedule, origin, dict(dims), config.seed, seconds=_LIMIT_SECONDS)
    if ended.outcome is Ended.OK and not isinstance(ended.value, OnDevice):
        return replace(trial, outcome=Outcome.CRASHED, detail=f"the child said {type(ended.value).__name__}")
    if ended.outcome is not Ended.OK:
        outcome = {Ended.TIMEOUT: Outcome.TIMEOUT, Ended.OUT_OF_MEMORY: Outcome.OUT_OF_MEMORY}.get(ended.outcome)
        return replace(trial, outcome=outcome or Outcome.CRASHED, detail=f"{ended.outcome.value}: {ended.message}")
    found: OnDevice = ended.value
    outcome = Outcome.WRONG if found.check.outcome.failed else Outcome.OK
    return replace(trial, outcome=outcome, kernel=found.check, times=found.times)


def measure(schedule: Schedule, origin: Graph, dims: Mapping[str, int], seed: int) -> OnDevice:
    """The child's side of ``measured``. Nothing is timed before it passes."""
    from cleave.verify import draw_rounded

    run = emit(schedule)
    inputs = draw_rounded(origin, dims, np.random.default_rng(seed))
    given = {n: v for n, v in dims.items() if n in _unshaped(origin)}
    check = check_executable(as_operator(run, origin, dims), origin, inputs, dims, seed=seed)
    if check.outcome.failed:
        return OnDevice(check, {})
    return OnDevice(check, time_call(run, _stored(origin, inputs), given))


def as_operator(
    run: Executable, origin: Graph, dims: Mapping[str, int]
) -> Callable[[Mapping[str, Array], Mapping[str, Array]], None]:
    """A compiled operator as ``check_executable`` calls one: arrays of NumPy, each in the storage type of its name."""
    given = {n: v for n, v in dims.items() if n in _unshaped(origin)}

    def operator(arrays: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        stored = {o.name: outputs[o.name].astype(_storage(o.dtype)) for o in origin.outputs}
        run(**_stored(origin, arrays), **given, out=stored)
        for name, array in outputs.items():
            array[...] = stored[name]

    return operator


def _stored(g: Graph, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays in the storage types of their inputs; the verifier's bfloat16 travels as float32."""
    return {i.name: np.asarray(arrays[i.name]).astype(_storage(i.dtype)) for i in g.inputs}


def _storage(dtype: str) -> np.dtype[Any]:
    from cleave.runtime.arrays import numpy_dtype

    return numpy_dtype(dtype)


def time_call(run: Any, inputs: Mapping[str, Array], given: Mapping[str, int]) -> dict[str, Any]:
    """Quantiles of one call on device arrays that together are larger than the cache."""
    from cleave.runtime import cuda
    from cleave.runtime.timing import Contender, rotation, time_contenders

    sets = rotation(sum(a.nbytes for a in inputs.values()))
    calls: list[Any] = []
    for _ in range(sets):
        arrays = {n: _on_device(a) for n, a in inputs.items()}
        out = run(**arrays, **given)
        calls.append(partial(run, **arrays, **given, out=out))
    found = time_contenders([Contender("cleave", calls)])["cleave"].as_dict()
    cuda.synchronize()
    return found


def _on_device(array: Array) -> Any:
    from cleave.runtime import cuda

    copy = cuda.empty(array.shape, array.dtype.name)
    copy.set(np.ascontiguousarray(array))
    return copy


def _unshaped(g: Graph) -> frozenset[str]:
    """Dims that no input shape mentions: a call gives them by name."""
    shaped = {s.name for i in g.inputs for extent in i.shape for s in symbols_of(extent)}
    return frozenset(s.name for s in g.symbols if s.name not in shaped)
