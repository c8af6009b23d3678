"""The part of e02 that FlashInfer-Bench judges, without a GPU: its files, the order of jobs, what becomes of a verdict.

What asks its own code runs where ``flashinfer_bench`` and torch are installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cleave
import experiments.e02_dynamic.evaluator as part
from cleave import nn
from cleave.candidate import as_written
from cleave.environment import PACKAGES
from cleave.errors import CleaveError, LaunchError
from cleave.ir.hash import graph_hash
from cleave.records import Outcome
from cleave.runtime.watchdog import Outcome as Ended
from cleave.runtime.watchdog import classify
from cleave.tune import plan as tune_plan
from cleave.tune.plan import Chosen, Made
from experiments.e02_dynamic import dataset
from experiments.e02_dynamic.bench import Laboratory
from experiments.e02_dynamic.config import graph_of
from experiments.e02_dynamic.plans import Tried
from experiments.e02_dynamic.search import middle, sampled
from experiments.e02_dynamic.workloads import Point, operators, points
from tests.null.e02_laboratory import SMALL, small_point
from tests.null.paged_references import REFERENCES

POINTS = points()
OPERATORS = operators(POINTS)
PREFILL = {**SMALL["gqa_paged_prefill"], "head_dim": 16}
CPU = Laboratory("cpu")
LOST = (Ended.ILLEGAL_ADDRESS, Ended.LAUNCH_FAILED)
"""After which a worker starts another process."""


@pytest.mark.parametrize("name", OPERATORS)
def test_a_definition_is_the_graph_of_its_operator(name: str) -> None:
    given = dataset.definition(name, OPERATORS[name])
    assert graph_hash(nn.from_definition(given)) == graph_hash(graph_of(OPERATORS[name]))
    compile(given["reference"], name, "exec")


def arrays(p: Point, rng: np.random.Generator) -> dict[str, Any]:
    """What FlashInfer-Bench would make of a workload, in float64."""
    given, held = dataset.definition(p.operator, p.const), dataset.workload(p)["workload"]
    sizes = {n: a.get("value", held["axes"].get(n)) for n, a in given["axes"].items()}
    x: dict[str, Any] = {**dataset.tables(p), "sm_scale": np.asarray(p.scale)}
    for name, spec in given["inputs"].items():
        if held["inputs"][name]["type"] == "random":
            x[name] = rng.standard_normal([sizes[a] for a in spec["shape"]]).astype(np.float32).astype(np.float64)
        elif spec["shape"]:
            assert list(x[name].shape) == [sizes[a] for a in spec["shape"]]
    return {n: x[n] for n in given["inputs"]}


@pytest.mark.parametrize("most", [dataset.MOST_SCORES, 40])
@pytest.mark.parametrize("kind", SMALL)
def test_the_reference_of_a_definition(
    kind: str, most: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(dataset, "MOST_SCORES", most)
    module: dict[str, Any] = {}
    p = small_point(kind)
    exec(dataset.definition(kind, p.const)["reference"], module)
    x = arrays(p, rng)
    tensors = {n: torch.from_numpy(v) for n, v in x.items() if v.ndim}
    given = [v.float() if v.is_floating_point() else v for v in tensors.values()] + [p.scale]
    output, lse = module["run"](*given)
    expected = REFERENCES[kind.removeprefix("gqa_")](x, **({"causal": True} if "prefill" in kind else {}))
    assert output.dtype == torch.bfloat16 and lse.dtype == torch.float32
    np.testing.assert_allclose(output.float().numpy(), expected["out"], rtol=2**-7, atol=1e-5)
    np.testing.assert_allclose(lse.numpy(), expected["lse"], rtol=1e-5, atol=1e-5)
    assert part.dead_rows(p) == np.isneginf(expected["lse"]).all(axis=1).sum() > 0


def test_every_point_is_judged_those_with_samples_first() -> None:
    for name in OPERATORS:
        found, first = part.evaluated(POINTS, name), sampled(POINTS, name)
        assert found[: len(first)] == first and len(found) == len({p.uuid for p in found})
        assert {p.uuid for p in found} == {p.uuid for p in POINTS if p.operator == name}
    assert sum(any(part.dead_rows(p) for p in POINTS if p.operator == name) for name in OPERATORS) >= 2
    assert any(part.empty(p) for p in POINTS)


def test_a_cache_has_as_many_pages_as_the_table_names() -> None:
    for p in (p for name in OPERATORS for p in part.evaluated(POINTS, name) if p.pages):
        axes = dataset.workload(p)["workload"]["axes"]
        assert axes["num_pages"] == dataset.tables(p)["kv_indices"].max() + 1 <= sum(p.keys) + 2
        assert axes["num_kv_indices"] == sum(p.keys)
    none = small_point("gqa_paged_decode", (0, 0))
    assert dataset.workload(none)["workload"]["axes"]["num_pages"] == 1


def test_every_operator_has_its_turn() -> None:
    plans = [Tried(name, ()) for name in OPERATORS]
    jobs = part.in_rounds(plans, POINTS)
    assert [t.operator for _, t in jobs[:9]] == list(OPERATORS)
    assert [p for p, _ in jobs[:9]] == [middle(POINTS, name) for name in OPERATORS]
    assert len(jobs) == len(POINTS) == 303
    few = [p for p in POINTS if p.requests > 30]
    assert {p.uuid for p, _ in part.in_rounds(plans, few)} == {p.uuid for p in few}
    assert all(p.operator == t.operator for p, t in jobs)


class Here:
    def submit(self, function: Any, *arguments: Any) -> Any:
        done: Future[Any] = Future()
        done.set_result(function(*arguments))
        return done


def test_the_schedule_that_the_model_likes_best_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def chosen_of(pool: Any, requests: Any) -> list[Chosen]:
        asked.extend(requests)
        return [Chosen((), {}, ("refused",)), *(Chosen((f"of {r.dims}",), {}) for r in requests[1:])]  # type: ignore[arg-type]

    monkeypatch.setattr(tune_plan, "chosen_of", chosen_of)
    monkeypatch.setattr(tune_plan, "prepared", lambda s: s)
    monkeypatch.setattr(part, "find_spec", lambda name: object())
    found = part.plan(Here(), list(OPERATORS))  # type: ignore[arg-type]
    assert [r.dims for r in asked] == [middle(POINTS, name).dims for name in OPERATORS]
    assert {r.count for r in asked} == {1} and all(r.candidates for r in asked)
    assert [t.operator for t in found] == list(OPERATORS)
    assert found[0].made == () and found[0].refused == ("refused",)
    assert all(len(t.made) == 1 for t in found[1:])
    monkeypatch.setattr(part, "find_spec", lambda name: None)
    with pytest.raises(CleaveError, match=r"flashinfer_bench is not installed: pip install flashinfer-bench==0\.1\.2"):
        part.plan(Here(), [])  # type: ignore[arg-type]


def test_the_version_of_the_evaluator_is_recorded() -> None:
    assert part.PACKAGE.split("==")[0] in PACKAGES


# ---- records


@pytest.fixture(scope="module")
def scheduled() -> Tried:
    p = prefill()
    schedule = cleave.schedule(as_written(graph_of(PREFILL)), cleave.Target("sm_90a"), p.dims)[0]
    return Tried(p.operator, (Made(schedule, SimpleNamespace()),))  # type: ignore[arg-type]


def prefill() -> Point:
    return replace(small_point("gqa_paged_prefill"), const=PREFILL)


def verdict(status: str, *errors: float) -> Any:
    names = ("max_absolute_error", "max_relative_error")
    return SimpleNamespace(
        status=SimpleNamespace(value=status),
        correctness=SimpleNamespace(**dict(zip(names, errors, strict=True))) if errors else None,
        environment=SimpleNamespace(hardware="a GPU", libs={"torch": "2"}),
    )


@pytest.mark.parametrize(
    ("found", "outcome", "check"),
    [
        (
            verdict("PASSED", 1e-3, 2e-2),
            Outcome.OK,
            {"max_absolute_error": 1e-3, "max_relative_error": 2e-2},
        ),
        (
            verdict("PASSED", float("inf"), float("nan")),
            Outcome.OK,
            {"max_absolute_error": "inf", "max_relative_error": "nan"},
        ),
        (
            verdict("INCORRECT_NUMERICAL", 3.0, 2.0),
            Outcome.WRONG,
            {"max_absolute_error": 3.0, "max_relative_error": 2.0},
        ),
        (verdict("INCORRECT_SHAPE"), Outcome.WRONG, {}),
        (verdict("INCORRECT_DTYPE"), Outcome.WRONG, {}),
        (verdict("COMPILE_ERROR"), Outcome.COMPILE_FAILED, {}),
        (verdict("TIMEOUT"), Outcome.TIMEOUT, {}),
        (verdict("RUNTIME_ERROR"), Outcome.CRASHED, {"error": "ValueError: what went wrong"}),
    ],
)
def test_a_verdict_is_a_record(
    found: Any, outcome: Outcome, check: dict[str, Any], scheduled: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(p: Point, solution: Any, device: str) -> Any:
        import sys

        assert solution["definition"] == p.operator and device == "cpu"
        print("Traceback ..\nValueError: what went wrong", file=sys.stderr)
        return found

    monkeypatch.setattr(part, "_evaluation", judged)
    (record,) = part.evaluate(prefill(), scheduled, CPU).records
    assert record.outcome is outcome and record.check == {"status": found.status.value, **check}
    assert (
        record.workload["dead_rows"] == 2 + 2
        and record.workload["pages"] == max(dataset.tables(prefill())["kv_indices"]) + 1
    )
    assert (
        record.workload["contender"] == "cleave"
        and record.workload["empty"] == 1
        and record.schedule["plan"].startswith("as written: ")
    )
    assert record.details == {"hardware": "a GPU", "libs": {"torch": "2"}} and not record.quantiles


@pytest.mark.parametrize(
    "message",
    [
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "cleave.errors.LaunchError: attention: CUDA_ERROR_ILLEGAL_ADDRESS",
        "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access",
    ],
)
def test_a_lost_context_ends_the_process(message: str, scheduled: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the Solution lost it, or the reference found it lost."""

    def judged(p: Point, solution: Any, device: str) -> Any:
        import sys

        print(message, file=sys.stderr)
        return verdict("RUNTIME_ERROR")

    def raised(p: Point, solution: Any, device: str) -> Any:
        raise RuntimeError(message)

    for evaluation in (judged, raised):
        monkeypatch.setattr(part, "_evaluation", evaluation)
        with pytest.raises(LaunchError) as caught:
            part.evaluate(prefill(), scheduled, CPU)
        assert f"CUDA_ERROR: {message}" in str(caught.value) and classify(caught.value) in LOST

    def refused(p: Point, solution: Any, device: str) -> Any:
        raise ValueError("kv_indptr: no such file")

    monkeypatch.setattr(part, "_evaluation", refused)
    with pytest.raises(ValueError, match="kv_indptr: no such file"):
        part.evaluate(prefill(), scheduled, CPU)


def test_an_operator_without_a_schedule_is_a_row(scheduled: Tried) -> None:
    (record,) = part.evaluate(prefill(), Tried("gqa_paged_prefill", (), ("no tile fits",)), CPU).records
    assert record.outcome is Outcome.REFUSED and record.check == {"error": "no tile fits"}
    broken = replace(scheduled.made[0], source=None, error="ptxas says no", outcome=Outcome.COMPILE_FAILED)
    (record,) = part.evaluate(prefill(), replace(scheduled, made=(broken,)), CPU).records
    assert record.outcome is Outcome.COMPILE_FAILED and record.check == {"error": "ptxas says no"}


# ---- FlashInfer-Bench's own code


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its evaluator on a CPU: nothing to wait for, nothing is timed."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("flashinfer_bench")
    import flashinfer_bench.bench.evaluators.default as default

    monkeypatch.setenv("FIB_CACHE_PATH", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(default, "time_runnable", lambda *_: 0.25)


@pytest.mark.usefixtures("theirs")
def test_datasets_are_read_by_its_schemas(tmp_path: Path) -> None:
    from flashinfer_bench.bench.utils import load_safetensors
    from flashinfer_bench.data import TraceSet

    solution = {"author": "x", "spec": {"language": "python", "target_hardware": ["cuda"], "entry_point": "m.py::run"}}
    for name in OPERATORS:
        for p in part.evaluated(POINTS, name)[:7]:
            root = tmp_path / p.operator / p.uuid
            named = {"name": name, "definition": name, "sources": [{"path": "m.py", "content": "def run(): ..."}]}
            dataset.write(root, p, {**solution, **named})
            held = TraceSet.from_path(str(root))
            (trace,), d = held.workloads[name], held.definitions[name]
            shapes = dict(zip(d.inputs, d.get_input_shapes(trace.workload.axes), strict=True))
            assert d.get_axes_values(shapes.values()) == trace.workload.axes
            tables = load_safetensors(d, trace.workload, root)
            assert {n: t.tolist() for n, t in tables.items()} == {n: t.tolist() for n, t in dataset.tables(p).items()}


def run_by(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Any, Any], object]) -> None:
    """Solutions that are the reference, but for what is done to their outputs."""

    def emit(schedule: Any) -> Callable[..., None]:
        module: dict[str, Any] = {}
        exec(dataset.definition("gqa_paged_prefill", PREFILL)["reference"], module)

        def call(*inputs: Any, out: tuple[Any, ...]) -> None:
            assert len(inputs) == len(schedule.graph.inputs)
            for buffer, value in zip(out, module["run"](*inputs), strict=True):
                buffer.copy_(value)
            spoil(*out)

        return call

    monkeypatch.setattr(cleave, "emit", emit)


def raising(out: Any, lse: Any) -> None:
    raise CleaveError("out: no such extent")


@pytest.mark.usefixtures("theirs")
@pytest.mark.parametrize(
    ("spoil", "outcome", "status"),
    [
        (lambda out, lse: None, Outcome.OK, "PASSED"),
        (lambda out, lse: out[0].add_(0.1), Outcome.WRONG, "INCORRECT_NUMERICAL"),
        (lambda out, lse: lse[-1].fill_(float("nan")), Outcome.WRONG, "INCORRECT_NUMERICAL"),
        (lambda out, lse: lse[:2].sub_(1), Outcome.WRONG, "INCORRECT_NUMERICAL"),
        (raising, Outcome.CRASHED, "RUNTIME_ERROR"),
    ],
)
def test_its_evaluator_tells_right_from_wrong(
    spoil: Any, outcome: Outcome, status: str, scheduled: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flashinfer_bench.compile import BuilderRegistry

    BuilderRegistry.get_instance().cleanup()
    run_by(monkeypatch, spoil)
    (record,) = part.evaluate(prefill(), scheduled, CPU).records
    assert (record.outcome, record.check["status"]) == (outcome, status), record.check
    assert json.dumps(record.check)
    if outcome is Outcome.OK:
        assert record.check["max_absolute_error"] == "inf"
    if outcome is Outcome.CRASHED:
        assert "out: no such extent" in record.check["error"]
