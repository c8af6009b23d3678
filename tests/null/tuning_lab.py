"""A tuner's laboratory in host memory: kernels that double their input, or do what a test planted for their text.

What is planted, seconds of each kernel and the log of what was called go through the environment, which the worker
processes inherit.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import cleave
from cleave.candidate import as_written
from cleave.errors import ArgumentError
from cleave.runtime.timing import Contender, Leave, Timing, in_turns
from cleave.runtime.watchdog import Limited, Outcome, Worker, classify
from cleave.tune.bench import Shown
from cleave.tune.database import source_hash
from cleave.tune.tuner import Laboratory
from tests.null.host_device import HOST
from tests.null.planted import DEEDS

BIND = {"m": 20, "n": 33}
VARIABLE = "CLEAVE_TEST_TUNING"
GRAPH = cleave.trace(lambda x: x * 2.0, x="m n")
CANDIDATES = (as_written(GRAPH),)


def gpu() -> Mapping[str, Any]:
    return {"name": "host memory", "multiprocessors": 1, "driver_cuda": 13000}


def planted() -> dict[str, Any]:
    return json.loads(os.environ.get(VARIABLE, "{}"))


def log(word: str) -> None:
    if "log" in planted():
        with Path(planted()["log"]).open("a", encoding="utf-8") as stream:
            stream.write(f"{word}\n")


class Doubling:
    """What stands in for a kernel; ``calls`` counts them, since some deeds come late."""

    def __init__(self, shown: Shown) -> None:
        self.mark = source_hash(shown.source)[:12]
        self.calls = 0

    @property
    def deed(self) -> str:
        return planted().get("deeds", {}).get(self.mark, "")

    @property
    def seconds(self) -> float:
        return planted().get("times", {}).get(self.mark, 9e-6)

    def __call__(self, out: Mapping[str, Any], **inputs: Any) -> None:
        self.calls += 1
        (result,) = out.values()
        result[...] = 2.0 * inputs["x"]
        match self.deed:
            case "wrong":
                result[-1, -1] += 1
            case "writes nothing":
                result[...] = np.nan
            case "wrong later" if self.calls > 2:
                result[0, 0] += 1
            case name if name in DEEDS:
                DEEDS[name]()
            case _:
                pass


def executable(shown: Shown) -> Doubling:
    made = Doubling(shown)
    log(f"executable {made.mark}")
    if made.deed == "refused":
        raise ArgumentError("no such launch", location=shown.name)
    return made


def clock(contenders: Sequence[Contender], *, samples: int, leave: Leave | None) -> Mapping[str, Timing]:
    """Every call once; the seconds that were planted, a percent more at every other sample."""
    runs: dict[str, Any] = {c.name: c.calls[0].func for c in contenders}  # type: ignore[attr-defined]
    for c in contenders:
        for call in c.calls:
            call()
    log(f"race {' '.join(sorted(run.mark for run in runs.values()))}")
    if "crash together" in planted() and len(contenders) > 1:
        os._exit(3)
    time.sleep(planted().get("race takes", 0.0))
    turns: dict[str, int] = dict.fromkeys(runs, 0)

    def timed(name: str) -> float:
        turns[name] += 1
        return runs[name].seconds * (1.0 + 0.01 * (turns[name] % 2))

    found = in_turns(timed, list(runs), samples, leave)
    return {name: Timing(name, "burst", 1, tuple(s)) for name, s in found.items()}


def reads_beyond(shown: Shown) -> Any:
    """On a GPU: the kernel itself, and behind it one that writes far beyond its array."""
    from cleave.tune.bench import executable_of

    run = executable_of(shown)

    def call(out: Mapping[str, Any], **inputs: Any) -> None:
        import cupy

        run(**inputs, out=out)
        text = 'extern "C" __global__ void beyond(float* x) { x[1ll << 40] = 1.0f; }'
        cupy.RawKernel(text, "beyond")((1,), (1,), (next(iter(out.values())),))

    return call


class Inline(Worker):
    """Calls in this process: quick, where nothing hangs or dies."""

    def run(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Limited:
        try:
            return Limited(Outcome.OK, function(*arguments))
        except Exception as error:
            return Limited(classify(error), message=f"{type(error).__name__}: {error}")


LABORATORY = Laboratory(gpu, replace(HOST, executable=executable, time=clock), Inline, 1)
ISOLATED = replace(LABORATORY, worker=Worker)
