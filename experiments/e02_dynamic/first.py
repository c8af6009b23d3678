"""What the first call of an operator costs: compilation into an empty cache, then loading and the call itself."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

from cleave.codegen.cache import FOLDER_VARIABLE
from cleave.records import Outcome, Record
from experiments.e02_dynamic import baselines
from experiments.e02_dynamic.batch import drawn
from experiments.e02_dynamic.bench import SEED, Laboratory, bench_of
from experiments.e02_dynamic.plans import OURS, Chosen
from experiments.e02_dynamic.point import GPU
from experiments.e02_dynamic.workloads import Point
from experiments.tally import Checked


def first_calls(p: Point, chosen: Chosen, lab: Laboratory = GPU) -> Checked:
    """One record a contender, with seconds. FlashInfer's kernels were compiled before: its first call loads, plans and
    runs; operators of one head size share them, so that only the first of those loads."""
    bench, out = bench_of(p.operator, lab), Checked()
    batch = drawn(p, bench.pools, lab.device, seed=SEED)
    with _empty_cache():
        run = lab.executable(chosen[OURS])
        compiled = _seconds(lambda: run.compiled, lab)
    called = _seconds(partial(run, **batch.inputs, out=dict(batch.outputs)), lab)
    record = Record(
        workload={**p.row, "contender": OURS},
        outcome=Outcome.OK,
        schedule={"plan": chosen[OURS].text},
        details={"compile_seconds": compiled, "first_call_seconds": called, "kernels": run.compiles},
    )
    out.records.append(record)
    wrappers = lab.flashinfer(lab.device)
    for name in baselines.names(p.const["kind"]):
        seconds = _seconds(partial(_planned_and_run, wrappers, name, batch), lab)
        workload = {**p.row, "contender": name}
        out.records.append(Record(workload=workload, outcome=Outcome.OK, details={"first_call_seconds": seconds}))
    theirs = ", ".join(f"{r.workload['contender']} {r.details['first_call_seconds']:.3f} s" for r in out.records[1:])
    out.lines.append(
        f"{p.operator}: {run.compiles} kernels compiled in {compiled:.2f} s, first call {called:.3f} s; {theirs}"
    )
    return out


def _planned_and_run(wrappers: baselines.FlashInfer, name: str, batch: baselines.Batch) -> None:
    made = wrappers.baseline(name, batch)
    made.plan()
    made.run()


def _seconds(call: Callable[[], object], lab: Laboratory) -> float:
    lab.synchronize()
    began = time.perf_counter()
    call()
    lab.synchronize()
    return time.perf_counter() - began


@contextmanager
def _empty_cache() -> Generator[None]:
    """Machine code is looked for, and kept, in a folder that is new."""
    before = os.environ.get(FOLDER_VARIABLE)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER_VARIABLE] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[FOLDER_VARIABLE]
            else:
                os.environ[FOLDER_VARIABLE] = before
