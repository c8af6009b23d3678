"""A laboratory for e01 without a GPU: contenders run on the interpreter, a table says how long they take; and a
machine without a GPU that says that it has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import experiments.e01_ablation.run as runner
from cleave.candidate import as_written
from cleave.nn.workloads import Workload
from cleave.records import Outcome, Record
from cleave.runtime.timing import Contender, Timing
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.interp import run_schedule
from cleave.tune.description import parts
from cleave.tune.distinct import best
from cleave.tune.plan import Made, Planned
from experiments.e01_ablation.config import Point
from experiments.e01_ablation.point import Laboratory
from experiments.tally import Checked

ROWS = tuple({"m": m, "k": 48, "n": 24} for m in (20, 5))
RIGHT = Workload("softmax_matmul", "decode", "softmax_matmul", ROWS)


def planned(point: Point, count: int = 2) -> Planned:
    found = best(schedule(as_written(point.graph), Target("sm_90a"), point.dims), count)
    return Planned(tuple(Made(s, SimpleNamespace()) for s in found), {"as written": min(len(parts(s)) for s in found)})  # type: ignore[arg-type]


def on_the_interpreter(made: Made) -> Callable[..., None]:
    def run(out: Mapping[str, Any], **inputs: Any) -> None:
        import torch

        s = made.schedule
        dims = {**{i.name: i.value for i in s.graph.symbols if i.value is not None}, **s.shape}
        found = run_schedule(s, {n: x.numpy() for n, x in inputs.items()}, dims, rounding="storage")
        for name, x in out.items():
            x.copy_(torch.from_numpy(found[name]))

    return run


def clock(seconds: Mapping[str, float]) -> Callable[..., dict[str, Timing]]:
    def time_contenders(contenders: Sequence[Contender], *, samples: int = 20) -> dict[str, Timing]:
        for c in contenders:
            for call in c.calls:
                call()
        return {c.name: Timing(c.name, "burst", 1, (seconds.get(c.name, 9e-6),) * samples) for c in contenders}

    return time_contenders


def laboratory(seconds: Mapping[str, float], **more: Any) -> Laboratory:
    more = {"in_order": lambda call: call, **more}
    return replace(Laboratory("cpu", on_the_interpreter, clock(seconds), lambda run, mode: run, sets=2), **more)


class Inline(Executor):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class FakeWorker:
    """Every job gives one record of its point, but for a schedule that crashes, and torch.compile at one point."""

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, job: Any, point: Point, plans: Planned, mode: str, *, seconds: float) -> Any:
        from cleave.runtime.watchdog import Limited
        from cleave.runtime.watchdog import Outcome as Ended

        hangs = point.name.endswith("m512") and mode == "default" and job.__name__ == "time_point"
        if hangs or "crashes" in plans.tried:
            return Limited(Ended.CRASHED, message="a signal")
        made = Record(
            workload={**point.row, "compile": mode, "contender": "cleave"},
            outcome=Outcome.OK,
            quantiles={"q50": 1.0},
            details={"ratio": 2.0},
        )
        return Limited(Ended.OK, Checked([made], [f"{point.name} ratio 2.000", "    more"]), seconds=1.0)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a GPU that says that it has one."""
    import cleave.runtime.device
    import cleave.runtime.watchdog
    import experiments.e01_ablation.loop as loop

    properties = SimpleNamespace(as_dict=lambda: {"name": "a GPU"})
    monkeypatch.setattr(cleave.runtime.device, "properties", lambda: properties)
    monkeypatch.setattr(cleave.runtime.watchdog, "Worker", FakeWorker)
    monkeypatch.setattr(loop, "plan", lambda pool, batch, tried: [Planned(("sound",), {}) for _ in batch])  # type: ignore[arg-type]
    monkeypatch.setattr(Planned, "unfused", property(lambda _: "two kernels"))
    monkeypatch.setattr(runner, "ProcessPoolExecutor", lambda mp_context: FakeWorker())
    monkeypatch.setattr(runner, "RECORDS", tmp_path)
    monkeypatch.setattr(runner.kept, "relative", lambda path: "records")
    return tmp_path
