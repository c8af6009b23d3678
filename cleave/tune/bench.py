"""The side of a measurement that has the GPU: inputs, what is expected of them, one check, one race.

Called in a worker process, which keeps the bench of the last problem from call to call: ``Problem`` -> ``Bench``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave.errors import LaunchError
from cleave.ir.bind import bind_dims
from cleave.ir.graph import Graph
from cleave.ir.index import symbols_of
from cleave.kernel import OperatorSource
from cleave.runtime.timing import Contender, Leave, Timing, rotation, time_contenders
from cleave.tune.executable import executable_from
from cleave.tune.halving import SAMPLES, leaving
from cleave.verify import Check, check_outputs, draw_rounded, expected_rows, poisoned
from cleave.verify.kernel_half import Expected

Array = NDArray[Any]


@dataclass(frozen=True)
class Problem:
    """A graph at one shape, every dim bound, with the seed of its inputs."""

    origin: Graph
    dims: tuple[tuple[str, int], ...]
    seed: int = 0

    @property
    def unshaped(self) -> dict[str, int]:
        """Dims that no input shape mentions: a call gives them by name."""
        shaped = {s.name for i in self.origin.inputs for extent in i.shape for s in symbols_of(extent)}
        free = {s.name for s in self.origin.symbols if s.name not in shaped}
        return {n: v for n, v in self.dims if n in free}


def problem_of(origin: Graph, bind: Mapping[str, int], seed: int) -> Problem:
    return Problem(origin, tuple(sorted(bind_dims(origin, {}, bind).items())), seed)


@dataclass(frozen=True)
class Shown:
    """A schedule's kernels, which a worker compiles or finds in the cache, under the name of its row."""

    name: str
    source: OperatorSource
    arch: str


def storage(dtype: str) -> np.dtype[Any]:
    """NumPy's type for what lies in memory."""
    from cleave.runtime.arrays import numpy_dtype

    return numpy_dtype(dtype)


def upload(array: Array) -> Any:
    """A copy on the device."""
    from cleave.runtime import cuda

    copy = cuda.empty(array.shape, array.dtype.name)
    copy.set(np.ascontiguousarray(array))
    return copy


def download(array: Any) -> Array:
    """Waits for the kernels that write it; what they did wrong is an error here."""
    from cleave.runtime import cuda

    cuda.synchronize()
    return array.get()


def refill(array: Any, values: Array) -> None:
    array.set(values)


def executable_of(shown: Shown) -> Any:
    return executable_from(shown.source, shown.arch)


@dataclass(frozen=True)
class Device:
    """Where schedules run: the GPU, unless a test says otherwise. Functions of modules: a worker gets their names."""

    upload: Callable[[Array], Any] = upload
    download: Callable[[Any], Array] = download
    refill: Callable[[Any, Array], None] = refill
    executable: Callable[[Shown], Any] = executable_of
    time: Callable[..., Mapping[str, Timing]] = time_contenders
    sets: int | None = None


GPU = Device()


@dataclass(frozen=True)
class Bench:
    """Sets of inputs on the device, together larger than the cache, and rows of the outputs that all of them give."""

    problem: Problem
    device: Device
    sets: Sequence[dict[str, Any]]
    outputs: Sequence[dict[str, Any]]
    empty: Mapping[str, Array]
    expected: Expected

    def check(self, run: Callable[..., Any]) -> Check:
        """One call into outputs that hold NaN. Errors of the call pass through."""
        written = self.outputs[0]
        for name, array in self.empty.items():
            self.device.refill(written[name], array)
        run(**self.sets[0], **self.problem.unshaped, out=written)
        return check_outputs(self.expected, {n: self.device.download(a) for n, a in written.items()})

    def calls(self, run: Callable[..., Any]) -> list[Callable[[], object]]:
        given = self.problem.unshaped
        return [partial(run, **x, **given, out=out) for x, out in zip(self.sets, self.outputs, strict=True)]


_latest: list[Bench] = []


def prepare(problem: Problem, device: Device = GPU) -> None:
    """Make the bench of a problem, unless this process has it."""
    bench_of(problem, device)


def bench_of(problem: Problem, device: Device = GPU) -> Bench:
    if not _latest or (_latest[0].problem, _latest[0].device) != (problem, device):
        _latest.clear()  # memory for the next one
        _latest.append(_made(problem, device))
    return _latest[0]


def _made(problem: Problem, device: Device) -> Bench:
    g, dims = problem.origin, dict(problem.dims)
    rng = np.random.default_rng(problem.seed)
    inputs = draw_rounded(g, dims, rng)
    expected = expected_rows(g, inputs, dims, rng=rng)
    stored = {i.name: np.asarray(inputs[i.name]).astype(storage(i.dtype)) for i in g.inputs}
    empty = {o.name: a.astype(storage(o.dtype)) for o, a in zip(g.outputs, poisoned(g, dims).values(), strict=True)}
    size = sum(a.nbytes for a in (*stored.values(), *empty.values()))
    count = device.sets or rotation(size)
    # the value of an input without axes is an argument of the launch: on the device it would have to be waited for
    sets = [{n: device.upload(a) if a.shape else a for n, a in stored.items()} for _ in range(count)]
    outputs = [{n: device.upload(a) for n, a in empty.items()} for _ in range(count)]
    return Bench(problem, device, sets, outputs, empty, expected)


def check(problem: Problem, shown: Shown, device: Device = GPU) -> Check:
    """Whether a schedule is right at the shape of the problem. Errors: a call that is refused, a kernel that fails."""
    return bench_of(problem, device).check(device.executable(shown))


@dataclass(frozen=True)
class Raced:
    """What a race says of one schedule: its times, and whether it is right still; or why it could not take part."""

    timing: Timing | None
    check: Check | None
    refused: str = ""


def race(
    problem: Problem, entered: Sequence[Shown], device: Device = GPU, *, samples: int = SAMPLES, leave: Leave = leaving
) -> dict[str, Raced]:
    """All schedules in turn, checked again afterwards; who can't be captured as a graph is left out."""
    bench = bench_of(problem, device)
    runs = {s.name: device.executable(s) for s in entered}
    out: dict[str, Raced] = {}
    times: Mapping[str, Timing] = {}
    while runs and not times:
        try:
            times = device.time([Contender(n, bench.calls(r)) for n, r in runs.items()], samples=samples, leave=leave)
        except LaunchError as error:
            if error.location not in runs:
                raise
            out[error.location] = Raced(None, None, error.message)
            del runs[error.location]
    return {**out, **{n: Raced(times[n], bench.check(run)) for n, run in runs.items()}}
