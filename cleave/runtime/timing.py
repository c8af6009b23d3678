"""Timing on the GPU: graphs, contenders interleaved, cold caches, the whole distribution.

    timings = time_contenders([Contender("ours", calls), Contender("theirs", calls)])
    timings["ours"].median

A contender brings one call for each of several sets of inputs, together larger than the cache (``rotation``); its
calls run in turn inside one captured graph. Contenders take turns, each after the same pause: a chip at its power limit
is 10 to 16 % slower than one that has rested, and whoever is timed after a pause that the others did not have wins
falsely. So there are two regimes, and a figure belongs to one: "burst" (a pause before each sample) and "sustained"
(none). Both begin with a warm-up.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cleave.errors import LaunchError
from cleave.runtime import cuda

COLD_BYTES = 300_000_000
"""Inputs of one rotation: several times the largest cache (H200: 60 MB)."""

Regime = Literal["burst", "sustained"]

_MOST_SETS = 128
_SAMPLE_SECONDS = 2e-3
_MOST_CALLS = 512
_PAUSE_SECONDS = 5e-3
_BEFORE = "before every call"
_WARM_UP_SECONDS: dict[Regime, float] = {"burst": 0.1, "sustained": 0.3}


@dataclass(frozen=True, slots=True)
class Contender:
    """Something to time: one call for each set of inputs. Calls write into memory that outlives them (``out=``)."""

    name: str
    calls: Sequence[Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call: every sample is the mean over the calls of one replay."""

    name: str
    regime: Regime
    calls_per_sample: int
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    def quantile(self, q: float) -> float:
        """Linear between samples."""
        return float(np.quantile(self.samples, q))

    def as_dict(self) -> dict[str, Any]:
        """Quantiles for records, seconds."""
        quantiles = {f"q{round(100 * q):02d}": self.quantile(q) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}
        return {
            "regime": self.regime,
            "calls_per_sample": self.calls_per_sample,
            "count": len(self.samples),
            **quantiles,
        }

    def __str__(self) -> str:
        low, middle, high = (1e6 * self.quantile(q) for q in (0.25, 0.5, 0.75))
        return f"{self.name}: {middle:.2f} us [{low:.2f}, {high:.2f}] ({self.regime}, {len(self.samples)} samples)"


def rotation(bytes_per_set: int, *, memory_bytes: int | None = None) -> int:
    """How many sets of inputs make the caches cold: at least ``COLD_BYTES``, at most a quarter of the memory."""
    wanted = -(-COLD_BYTES // max(bytes_per_set, 1))
    fits = _MOST_SETS if memory_bytes is None else max(1, memory_bytes // 4 // max(bytes_per_set, 1))
    return max(1, min(wanted, fits, _MOST_SETS))


def calls_per_sample(seconds: float, sets: int) -> int:
    """Calls in one graph: about ``_SAMPLE_SECONDS``, every set equally often."""
    rounds = max(1, round(_SAMPLE_SECONDS / max(seconds, 1e-7) / sets))
    return sets * max(1, min(rounds, _MOST_CALLS // sets))


Leave = Callable[[Mapping[str, Sequence[float]]], Collection[str]]
"""From the samples of those that are left to those of them that drop out, asked after each round."""


def time_contenders(
    contenders: Sequence[Contender],
    *,
    samples: int = 20,
    regime: Regime = "burst",
    leave: Leave | None = None,
    before: Callable[[], object] | None = None,
) -> dict[str, Timing]:
    """Time contenders against each other; the order rotates from sample to sample.

    Each is called once before its graph is captured, so that what it compiles or allocates is done. ``leave``: who has
    no more turns, and so fewer samples. ``before`` is called before every call, in the same graph, and not counted: a
    graph of it alone has a turn in every round, and what that takes is subtracted. It empties caches that inputs are
    too few to fill. Errors: no GPU; a call that can't be captured, or goes to another stream than the current one.
    """
    cuda.require("timing")
    # A handle outlives neither its stream nor the captured graphs: the object stays here until the end.
    stream = cuda.new_stream()
    with _on(int(stream.ptr)) as handle:
        replays = {c.name: _captured(c, handle) for c in _with(before, contenders)}
        _warm_up(list(replays.values()), handle, _WARM_UP_SECONDS[regime])
        found = in_turns(lambda name: _timed(replays[name], handle, regime), list(replays), samples, leave)
    found = without(found.pop(_BEFORE), found) if before is not None else found
    return {name: Timing(name, regime, replays[name].calls, tuple(taken)) for name, taken in found.items()}


def _with(before: Callable[[], object] | None, contenders: Sequence[Contender]) -> Sequence[Contender]:
    if before is None:
        return contenders

    def after(call: Callable[[], object]) -> Callable[[], object]:
        def both() -> None:
            before()
            call()

        return both

    return [Contender(_BEFORE, [before]), *(Contender(c.name, [*map(after, c.calls)]) for c in contenders)]


def without(own: Sequence[float], found: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Samples less those of the same rounds of what is not counted."""
    return {name: [max(s - o, 0.0) for s, o in zip(samples, own, strict=False)] for name, samples in found.items()}


def in_turns(
    timed: Callable[[str], float], names: Sequence[str], samples: int, leave: Leave | None = None
) -> dict[str, list[float]]:
    """Samples of each; whoever is first in a round is last in the next. A round before them is not counted."""
    found: dict[str, list[float]] = {name: [] for name in names}
    left = list(names)
    for sample in range(-1, samples):
        for turn in range(len(left)):
            name = left[(sample + turn) % len(left)]
            seconds = timed(name)
            if sample >= 0:
                found[name].append(seconds)
        if leave is not None and sample >= 0:
            gone = set(leave({name: found[name] for name in left if name != _BEFORE}))
            left = [name for name in left if name not in gone]
    return found


@dataclass(frozen=True, slots=True)
class _Replay:
    launch: Callable[[], None]
    calls: int


def _captured(contender: Contender, handle: int) -> _Replay:
    """A graph of about ``_SAMPLE_SECONDS``. What a call takes is measured on a graph of one round: the host, which may
    be slower than the GPU, would make the graph short, and its start would weigh on few calls."""
    for call in contender.calls:
        call()
    cuda.synchronize_stream(handle)
    sets = len(contender.calls)
    once = _graph_of(contender, sets, handle)
    count = calls_per_sample(min(_seconds(once, handle) for _ in range(2)), sets)
    return once if count == sets else _graph_of(contender, count, handle)


def _graph_of(contender: Contender, count: int, handle: int) -> _Replay:
    def work() -> None:
        for number in range(count):
            contender.calls[number % len(contender.calls)]()

    try:
        replay = _Replay(_capture(work, handle), count)
    except Exception as error:
        raise LaunchError(
            f"can't be captured as a graph: {str(error).splitlines()[0]}", location=contender.name
        ) from error
    replay.launch()
    cuda.synchronize_stream(handle)
    return replay


def _timed(replay: _Replay, handle: int, regime: Regime) -> float:
    if regime == "burst":
        cuda.synchronize_stream(handle)
        time.sleep(_PAUSE_SECONDS)
    return _seconds(replay, handle)


def _seconds(replay: _Replay, handle: int) -> float:
    """Of one call, as one replay shows it."""
    watch = cuda.Stopwatch()
    watch.start(handle)
    replay.launch()
    watch.stop(handle)
    return watch.seconds() / replay.calls


def _warm_up(replays: Sequence[_Replay], handle: int, seconds: float) -> None:
    """A chip that has idled runs at a lower clock, which short kernels feel most."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for replay in replays:
            replay.launch()
        cuda.synchronize_stream(handle)


# ---- torch ---------------------------------------------------------------------------------------------------------
# A contender may be a call of torch. Its allocator must know of a capture, or memory that a graph writes to is given to
# others; so where torch is loaded, its own graph records the calls, CuPy's launches included.


@contextlib.contextmanager
def _on(handle: int) -> Generator[int]:
    """The stream is current in CuPy, and in torch if that is loaded."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        with cuda.on_stream(handle):
            yield handle
        return
    with torch.cuda.stream(torch.cuda.ExternalStream(handle)), cuda.on_stream(handle):
        yield handle


def _capture(work: Callable[[], object], handle: int) -> Callable[[], None]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return cuda.capture(work, handle)
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The CUDA Graph is empty")  # a call that goes to another stream
        with torch.cuda.graph(graph, stream=torch.cuda.ExternalStream(handle), capture_error_mode="relaxed"):
            work()
    return graph.replay
