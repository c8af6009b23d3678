"""Calls that depend on one another, back to back: each begins while the one before it ends, and reads what it wrote."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cleave.candidate import load_candidates
from cleave.pipeline import emit
from cleave.runtime import cuda, device
from cleave.runtime.executable import Executable
from cleave.schedule import schedule

cupy = pytest.importorskip("cupy")

MATMUL = Path(__file__).parents[2] / "experiments" / "e04_decode" / "candidates" / "matmul.json"
N, CALLS = 4096, 48
FORCED: dict[str, dict[str, Any]] = {
    "rings": {"skeleton": "cta-ring", "feed": "cp.async"},
    "boxes for teams": {"skeleton": "warp-ring", "mma": "mma.sync"},
    "tiles from a counter": {"skeleton": "specialised"},
    "a cluster": {"merge": "cluster", "split": {"k": 4}, "tile": {"n": 64}},
    "a full cluster": {"merge": "cluster", "split": {"k": 2}, "skeleton": "specialised", "tile": {"n": 128}},
    "who comes last": {"merge": "last-arriving", "split": {"k": 3}},
    "a second launch": {"merge": "second-launch", "split": {"k": 3}},
}


@cache
def made(name: str, m: int) -> Executable:
    forced = FORCED[name]
    c = next(c for c in load_candidates(MATMUL) if bool(c.splits) == ("split" in forced))
    return emit(schedule(c, device.target(), {"m": m}, **forced)[0])


class Chain:
    """x[i + 1 mod 3] = x[i mod 3] w[i mod 4]: every call reads what the last one wrote, and writes over what others
    have read."""

    def __init__(self, f: Executable, m: int, rng: np.random.Generator) -> None:
        normal = cupy.random.default_rng(int(rng.integers(2**31))).standard_normal
        self.first = normal((m, N), dtype=cupy.float32).astype(cupy.float16)
        self.weights = [(normal((N, N), dtype=cupy.float32) / N**0.5).astype(cupy.float16) for _ in range(4)]
        self.x = [cupy.empty((m, N), cupy.float16) for _ in range(3)]
        self.f = f

    def call(self, n: int) -> dict[str, Any]:
        return {"a": self.x[n % 3], "b": self.weights[n % 4], "out": self.x[(n + 1) % 3]}

    def run(self, between: Callable[[int], None] = lambda n: None) -> None:
        self.x[0][...] = self.first
        for n in range(CALLS):
            self.f(**self.call(n))
            between(n)

    def wanted(self, between: Callable[[int], None] = lambda n: None) -> Any:
        """Each call after everything before it is over."""
        self.x[0][...] = self.first
        for n in range(CALLS):
            cuda.synchronize()
            self.f.prepare(**self.call(n), early=False)()
            cuda.synchronize()
            between(n)
        return self.x[CALLS % 3].copy()


@pytest.mark.parametrize("m", [16, 100, 700])
@pytest.mark.parametrize("name", FORCED)
def test_a_chain_of_calls_is_what_it_is_one_by_one(name: str, m: int, rng: np.random.Generator) -> None:
    chain = Chain(made(name, m), m, rng)
    wanted = chain.wanted()
    assert cupy.isfinite(wanted).all() and float(abs(wanted).max()) > 0.1
    for _ in range(5):
        for x in chain.x:
            x.fill(cupy.nan)
        chain.run()
        cuda.synchronize()
        assert (chain.x[CALLS % 3] == wanted).all()


@pytest.mark.parametrize("name", ["tiles from a counter", "a cluster", "a second launch"])
def test_kernels_of_others_and_copies_between_calls_keep_their_place(name: str, rng: np.random.Generator) -> None:
    """A foreign kernel, a fill and a copy: what follows waits for them, and they for what is before them."""
    chain = Chain(made(name, 100), 100, rng)

    def between(n: int) -> None:
        x = chain.x[(n + 1) % 3]
        if n % 3 == 0:
            x *= -1
        elif n % 3 == 1:
            chain.x[(n + 2) % 3].data.memset_async(0xFF, x.nbytes)  # NaN where the next call writes
        else:
            chain.weights[(n + 1) % 4][...] = chain.weights[n % 4]

    kept = [w.copy() for w in chain.weights]
    wanted = chain.wanted(between)
    stream = cuda.new_stream()
    cuda.synchronize()
    with cuda.on_stream(int(stream.ptr)):
        for captured in (False, True):
            chain.run()  # loads kernels for this stream
            cuda.synchronize()
            again = cuda.capture(lambda: chain.run(between), int(stream.ptr)) if captured else None
            for _ in range(3):
                for w, k in zip(chain.weights, kept, strict=True):
                    w[...] = k
                (again or (lambda: chain.run(between)))()
                cuda.synchronize()
                assert (chain.x[CALLS % 3] == wanted).all()


def test_streams_that_wait_for_one_another(rng: np.random.Generator) -> None:
    """Every other call is on another stream, and an event orders them."""
    chain = Chain(made("a cluster", 100), 100, rng)
    wanted = chain.wanted()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    for _ in range(3):
        chain.x[0][...] = chain.first
        cuda.synchronize()
        for n in range(CALLS):
            here, other = streams[n % 2], streams[(n + 1) % 2]
            chain.f(**chain.call(n), stream=here.ptr)
            other.wait_event(here.record())
        cuda.synchronize()
        assert (chain.x[CALLS % 3] == wanted).all()
