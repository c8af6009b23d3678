"""Host time: what a call of a compiled operator costs the Python thread that makes it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from cleave.pipeline import emit
from cleave.records import Outcome, Record
from cleave.runtime import cuda
from cleave.runtime.executable import Executable
from cleave.schedule import schedule
from cleave.target import Target
from experiments.e03_decode.config import HOST_MICROSECONDS, TARGET, Timed
from experiments.e03_decode.search import candidate_of
from experiments.tally import Checked

ROUNDS, CALLS = 200, 50
_SETS = 4


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
        "prepared": run.prepare(q, k, v, out=out),
    }
    found = Checked()
    for form, call in forms.items():
        microseconds = _host_microseconds(call)
        workload = {"operator": "host time", "form": form, **point.dims}
        outcome = Outcome.OK if error < 2e-3 else Outcome.WRONG
        check = {"error": error}
        details = {"launches": len(run.kernels)}
        found.records.append(
            Record(workload=workload, outcome=outcome, check=check, quantiles={"q50": microseconds}, details=details)
        )
        verdict = "" if microseconds <= HOST_MICROSECONDS else ", missed"
        found.lines.append(f"host time of a {form}: {microseconds:.2f} us (goal {HOST_MICROSECONDS:g}{verdict})")
    return found


def _call(run: Executable, inputs: Sequence[Any], out: Any) -> object:
    return run(*inputs, out=out)


def _host_microseconds(call: Callable[[], object]) -> float:
    """Median over rounds; every round begins with an idle GPU, and is too short to fill its queue."""
    found: list[float] = []
    for _ in range(ROUNDS):
        cuda.synchronize()
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        found.append((time.perf_counter() - began) / CALLS)
    cuda.synchronize()
    return 1e6 * statistics.median(found)
