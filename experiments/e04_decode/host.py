"""Host time: what a call of a compiled operator costs the Python thread that makes it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from cleave.pipeline import emit
from cleave.records import Outcome, Record
from cleave.runtime import cuda
from cleave.runtime.executable import Executable
from cleave.schedule import schedule
from cleave.target import Target
from experiments.e04_decode.config import HOST_MICROSECONDS, TARGET, Timed
from experiments.e04_decode.search import candidate_of
from experiments.tally import Checked

ROUNDS, CALLS = 20, 50
"""Rounds on each core, calls in a round."""

_SETS = 4
_QUANTILES = (5, 25, 50, 75, 95)
_PIECE = "piece of Python that needs no library"
"""How quick the interpreter is."""


def time_host(point: Timed) -> Checked:
    """Calls with an output given, on torch's tensors and CuPy's, on other arrays each time, with allocation, prepared.

    The operator is the split one, merged in its only launch: what a decode step at this shape would call.
    """
    import cupy
    import torch

    best = schedule(candidate_of("attention", "t"), Target(TARGET), point.dims, merge="last-arriving")[0]
    run = emit(best)
    like: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}
    kv = (point.b, point.kv_heads, point.t, point.d)
    sets = [
        tuple(torch.randn(s, **like) for s in ((point.b, point.kv_heads * point.dims["group"], 1, point.d), kv, kv))
        for _ in range(_SETS)
    ]
    outs = [run(*arrays) for arrays in sets]
    (q, k, v), out = sets[0], outs[0]
    reference = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    error = float((out.float() - reference.float()).norm() / reference.float().norm())
    x, y, z, o = (cupy.from_dlpack(a) for a in (q, k, v, out))
    turns = cycle(zip(sets, outs, strict=True))
    forms: dict[str, Callable[[], object]] = {
        "call": lambda: run(q, k, v, out=out),
        "call by keywords": lambda: run(q=q, k=k, v=v, out=out),
        "call on other tensors than the last": lambda: _call(run, *next(turns)),
        "call on CuPy arrays": lambda: run(x, y, z, out=o),
        "call that allocates": lambda: run(q, k, v),
        "prepared call": run.prepare(q, k, v, out=out),
    }
    piece = list(range(16))
    measured = _host_microseconds({**forms, _PIECE: lambda: [n * 3 + 1 for n in piece if n % 7 != 3]})
    found = Checked()
    for form, rounds in measured.items():
        quantiles = {f"q{q:02d}": float(np.quantile([r.microseconds for r in rounds], q / 100)) for q in _QUANTILES}
        cores = {str(c): float(np.median([r.microseconds for r in rounds if r.core == c])) for c in _cores()}
        record = Record(
            workload={"operator": "host time", "form": form, **point.dims},
            outcome=Outcome.OK if error < 2e-3 else Outcome.WRONG,
            check={"error": error},
            quantiles=quantiles,
            details={"launches": len(run.kernels), "median by core": cores},
        )
        found.records.append(record)
        verdict = "" if form == _PIECE else f" (goal {HOST_MICROSECONDS:g}{_missed(quantiles['q50'])})"
        low, middle, high = (quantiles[q] for q in ("q05", "q50", "q95"))
        found.lines.append(f"host time of a {form}: {middle:.2f} us [{low:.2f}, {high:.2f}]{verdict}")
    return found


def _missed(microseconds: float) -> str:
    return "" if microseconds <= HOST_MICROSECONDS else ", missed"


def _call(run: Executable, inputs: Sequence[Any], out: Any) -> object:
    return run(*inputs, out=out)


# ---- rounds --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Round:
    """The mean of some calls in a row, and the core that they ran on."""

    core: int
    microseconds: float


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _host_microseconds(forms: Mapping[str, Callable[[], object]]) -> dict[str, list[_Round]]:
    """Rounds of each form, in turns, on one core after another: a core whose neighbour is busy is slower by half.

    Every round begins with an idle GPU, and is too short to fill its queue.
    """
    found: dict[str, list[_Round]] = {form: [] for form in forms}
    every = _cores()
    try:
        for core in every:
            os.sched_setaffinity(0, {core})
            for number in range(ROUNDS + 1):
                for form, call in forms.items():
                    microseconds = _round(call)
                    if number:  # the first one after a move is not kept
                        found[form].append(_Round(core, microseconds))
    finally:
        os.sched_setaffinity(0, every)
    return found


def _round(call: Callable[[], object]) -> float:
    call()
    cuda.synchronize()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    seconds = time.perf_counter() - began
    cuda.synchronize()
    return 1e6 * seconds / CALLS
