"""One point: baselines and schedules are checked against float64, then timed in turn; one record a contender.

A few schedules and all baselines are tried briefly; the fastest schedule, the model's first choice and the baselines
that come near the best of them meet in a run of their own, and that schedule once more, launched in order: calls of
cleave begin while the one before them ends, calls of baselines do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from cleave.errors import CleaveError, LaunchError
from cleave.ir.graph import Graph
from cleave.ir.index import evaluate
from cleave.records import Outcome, Record
from cleave.runtime.timing import Contender, Timing, rotation, time_contenders
from cleave.tile.plan import Schedule
from cleave.tune.description import described, launches, microseconds, parts, row
from cleave.tune.plan import Made, Planned
from cleave.verify import Comparison, graph_tolerance
from experiments.e01_ablation.baseline import Function, Given
from experiments.e01_ablation.baselines import baselines
from experiments.e01_ablation.config import IN_ORDER, Point
from experiments.metric import compare, reference
from experiments.schedules import in_order
from experiments.tally import Checked

BASELINE_ERROR = 2e-3
"""Allowed relative Frobenius error of a baseline, which may round more between its kernels than the metric allows."""
NEAR = 1.5
"""Baselines up to this many times slower than the best of them are timed in full."""
TRIAL_SAMPLES = 3
SEED = 20

Mode = Literal["off", "default", "max-autotune"]
"""Of torch.compile: not at all, as it comes, with everything tried."""
_MODES: Mapping[Mode, str] = {"default": "default", "max-autotune": "max-autotune-no-cudagraphs"}

Call = Callable[[], object]
Times = Mapping[str, Timing]


def _on_gpu(made: Made) -> Any:
    from cleave.tune.executable import executable_from

    assert made.source is not None
    return executable_from(made.source, made.schedule.target.arch)


def _torch_compiled(run: Function, mode: Mode) -> Function:
    import torch

    def call(x: Given) -> Any:
        return run(x)

    return torch.compile(call, dynamic=False, fullgraph=True, mode=_MODES[mode])


@dataclass(frozen=True)
class Laboratory:
    """Where contenders run: a GPU, unless a test says otherwise."""

    device: str = "cuda"
    executable: Callable[[Made], Any] = _on_gpu
    time: Callable[..., Times] = time_contenders
    compiler: Callable[[Function, Mode], Function] = _torch_compiled
    in_order: Callable[[Any], Call] = in_order
    sets: int | None = None


@dataclass(frozen=True)
class Bench:
    """Sets of inputs of one point, which together are larger than the cache, and the values of two of the sets."""

    point: Point
    dims: Mapping[str, int]
    sets: Sequence[dict[str, Any]]
    wanted: Mapping[int, Mapping[str, tuple[Any, Any]]]

    def compared(self, number: int, found: Mapping[str, Any]) -> Comparison:
        """The worst of all outputs."""
        g = self.point.graph
        every = [compare(found[n], *self.wanted[number][n], graph_tolerance(g, n)) for n in (o.name for o in g.outputs)]
        return max(every, key=lambda c: (not c.passed, c.worst))


@dataclass
class Entrant:
    """A contender that passed: its calls, one a set of inputs, and what the check said."""

    name: str
    calls: Sequence[Call]
    check: Comparison
    made: Made | None = None


@dataclass
class Entered:
    """Contenders, and rows of those that were refused or wrong."""

    ours: list[Entrant] = field(default_factory=list[Entrant])
    theirs: list[Entrant] = field(default_factory=list[Entrant])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    records: list[Record] = field(default_factory=list[Record])


def time_point(point: Point, planned: Planned, mode: Mode) -> Checked:
    """Check and time on the GPU."""
    return timed(point, planned, mode, Laboratory())


def check_point(point: Point, planned: Planned, mode: Mode) -> Checked:
    """Only check, on the GPU, what the model ranks first."""
    return checked(point, planned, mode, Laboratory())


def checked(point: Point, planned: Planned, mode: Mode, lab: Laboratory) -> Checked:
    out = Checked()
    made = planned.tried[0]
    bench = prepared(point, lab, sets=1)
    entered = Entered()
    enter_ours(entered, bench, [made], lab)
    out.records += entered.records or [contender_record(bench, entered.ours[0], mode, planned)]
    out.records[-1].details["unfused"] = planned.unfused
    out.lines.append(
        f"{point.name:34} {out.records[-1].outcome} {_check_text(out.records[-1])} {shown(made.schedule)}"
        + (f" | {planned.unfused}" if planned.unfused else "")
    )
    return out


def timed(point: Point, planned: Planned, mode: Mode, lab: Laboratory) -> Checked:
    bench = prepared(point, lab)
    entered = Entered()
    _enter_theirs(entered, bench, mode, lab)
    enter_ours(entered, bench, planned.tried, lab)
    out = Checked(records=entered.records)
    if not entered.ours or not entered.theirs:
        missing = "schedule" if not entered.ours else "baseline"
        why = "; ".join([*planned.refused, *entered.refused.values()])
        out.records.append(_failed(bench, mode, f"no {missing} is right", why))
        out.lines.append(f"{point.name:34} no {missing} is right: {why}")
        return out
    trials = brief_times(entered, bench, lab)
    last = _finalists(entered, trials)
    alone = replace(last[0], name=IN_ORDER, calls=[*map(lab.in_order, last[0].calls)])
    times = lab.time([Contender(e.name, e.calls) for e in (*last, alone)])
    best = min((e for e in last if e.made is not None), key=lambda e: times[e.name].median)
    again = check_again(bench, best)
    entered.ours.append(alone)
    _write(out, bench, entered, {**trials, **times}, best, mode, planned, again)
    return out


# ---- inputs


def prepared(point: Point, lab: Laboratory, *, sets: int | None = None) -> Bench:
    """Inputs and reference values of the first and the last set."""
    import torch

    torch.cuda.empty_cache()  # what the last point left is asked of two allocators
    symbolic, dims = point.workload.build(point.number)
    every = {**dims, **{s.name: s.value for s in point.graph.symbols if s.value is not None}}
    count = sets or lab.sets or rotation(_bytes(point.graph, every))
    weights = point.workload.weights
    made = [drawn(point.graph, every, weights, lab.device, seed=SEED + n) for n in range(count)]
    known = {n: every[n] for n in (s.name for s in symbolic.symbols)}
    wanted = {n: reference(symbolic, known, made[n]) for n in sorted({0, count - 1})}
    return Bench(point, every, made, wanted)


def _bytes(g: Graph, dims: Mapping[str, int]) -> int:
    import torch

    shapes = [(b.dtype, _shape(b.shape, dims)) for b in (*g.inputs, *g.outputs)]
    return sum(getattr(torch, dtype).itemsize * _product(shape) for dtype, shape in shapes)


def _shape(extents: Iterable[Any], dims: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(evaluate(e, dims)) for e in extents)


def _product(numbers: Iterable[int]) -> int:
    out = 1
    for n in numbers:
        out *= n
    return out


def drawn(g: Graph, dims: Mapping[str, int], weights: Sequence[str], device: str, *, seed: int) -> dict[str, Any]:
    """Normal numbers; matrices of weights so small that products with them keep their size; tables of rotations."""
    import torch

    torch.manual_seed(seed)
    out: dict[str, Any] = {}
    for i in g.inputs:
        shape = _shape(i.shape, dims)
        if i.name in ("cos", "sin"):
            angles = torch.arange(shape[0])[:, None] * 1e4 ** -(torch.arange(shape[1]) / shape[1])
            x = angles.cos() if i.name == "cos" else angles.sin()
        else:
            x = torch.randn(shape, device=device)
            if i.name in weights and len(shape) > 1:
                x = x / max(shape) ** 0.5
        out[i.name] = x.to(device=device, dtype=getattr(torch, i.dtype))
    return out


def empty_outputs(bench: Bench, device: str) -> dict[str, Any]:
    """Outputs that hold NaN: what is not written shows."""
    import torch

    return {
        o.name: torch.full(_shape(o.shape, bench.dims), float("nan"), dtype=getattr(torch, o.dtype), device=device)
        for o in bench.point.graph.outputs
    }


# ---- contenders


def enter_ours(entered: Entered, bench: Bench, tried: Sequence[Made], lab: Laboratory) -> None:
    """Schedules that are right; what is wrong with one is a row. Those of one shape write into the same outputs."""
    outputs = [empty_outputs(bench, lab.device) for _ in bench.sets]
    for number, made in enumerate(tried):
        name = f"schedule {number}"
        if made.source is None:
            entered.records.append(bad_record(bench, made, Outcome.COMPILE_FAILED, {"error": made.error}))
            continue
        try:
            run = lab.executable(made)
            for x in outputs[0].values():
                x.fill_(float("nan"))
            run(**bench.sets[0], out=outputs[0])
            found = bench.compared(0, outputs[0])
        except CleaveError as error:
            entered.records.append(bad_record(bench, made, Outcome.REFUSED, {"error": str(error)}))
            continue
        if found.passed:
            calls = [partial(run, **x, out=out) for x, out in zip(bench.sets, outputs, strict=True)]
            entered.ours.append(Entrant(name, calls, found, made))
        else:
            entered.records.append(bad_record(bench, made, Outcome.WRONG, {"error": str(found)}))


def check_again(bench: Bench, best: Entrant) -> Comparison:
    """The check after timing, at another set: what many replays leave behind."""
    call = best.calls[-1]
    assert isinstance(call, partial)
    out = call.keywords["out"]
    for x in out.values():
        x.fill_(float("nan"))
    call()
    return bench.compared(len(bench.sets) - 1, out)


def _enter_theirs(entered: Entered, bench: Bench, mode: Mode, lab: Laboratory) -> None:
    """Baselines that torch can run and that are right, as they are and compiled."""
    workload = bench.point.workload
    forget_compiled()
    for name, baseline in baselines(workload.operator, workload.options, bench.dims).items():
        sets = [x if baseline.before is None else {**x, **baseline.before(x)} for x in bench.sets]
        enter(entered, bench, name, sets, baseline.run)
        if baseline.compiled and mode != "off":
            title = "compile" if mode == "default" else mode
            enter(entered, bench, f"{title}: {name}", sets, lab.compiler(baseline.run, mode))


def forget_compiled() -> None:
    """Functions of one text that were compiled for other shapes count against a limit of torch.compile."""
    import torch._dynamo

    torch._dynamo.reset()


def enter(entered: Entered, bench: Bench, name: str, sets: Sequence[Given], run: Function) -> None:
    names = [o.name for o in bench.point.graph.outputs]
    try:
        found = run(sets[0])
        outputs = dict(zip(names, found if isinstance(found, tuple) else (found,), strict=True))
    except Exception as error:  # of torch, which has many kinds; a baseline less is a row
        entered.refused[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        return
    check = bench.compared(0, outputs)
    if check.frobenius < BASELINE_ERROR:
        entered.theirs.append(Entrant(name, [partial(run, x) for x in sets], check))
    else:
        entered.refused[name] = f"is wrong: {check}"


def brief_times(entered: Entered, bench: Bench, lab: Laboratory) -> Times:
    """A few samples of all. What can't be captured in a graph is left out, as long as others are left."""
    while True:
        every = {e.name: e for e in (*entered.ours, *entered.theirs)}
        try:
            return lab.time([Contender(e.name, e.calls) for e in every.values()], samples=TRIAL_SAMPLES)
        except LaunchError as error:
            failed = every.get(error.location or "")
            same = entered.theirs if failed in entered.theirs else entered.ours
            if failed is None or len(same) == 1:
                raise
            same.remove(failed)
            if failed.made is None:
                entered.refused[failed.name] = error.message
            else:
                entered.records.append(bad_record(bench, failed.made, Outcome.REFUSED, {"error": error.message}))


def _finalists(entered: Entered, trials: Times) -> list[Entrant]:
    def median(e: Entrant) -> float:
        return trials[e.name].median

    least = min(map(median, entered.theirs))
    best = min(entered.ours, key=median)
    ours = [best] if best is entered.ours[0] else [best, entered.ours[0]]
    return [*ours, *(e for e in entered.theirs if median(e) <= NEAR * least)]


# ---- rows


def _write(
    out: Checked,
    bench: Bench,
    entered: Entered,
    times: Times,
    best: Entrant,
    mode: Mode,
    planned: Planned,
    again: Comparison,
) -> None:
    theirs = min(entered.theirs, key=lambda e: times[e.name].median)
    least = times[theirs.name].median
    for e in (*entered.ours, *entered.theirs):
        t = times[e.name]
        record = contender_record(bench, e, mode, planned, title="cleave" if e is best else e.name, timing=t)
        record.details.update(ratio=least / t.median, best_baseline=theirs.name, refused=dict(entered.refused))
        out.records.append(record)
    if not again.passed:
        out.records.append(bad_record(bench, best.made, Outcome.WRONG, {"error": f"after timing: {again}"}))
    ours, goal = times[best.name].median, bench.point.goal
    asked = "" if goal is None else f" (goal {goal:g}{'' if least / ours >= goal else ', missed'})"
    assert best.made is not None
    out.lines.append(
        f"{bench.point.name:34} cleave {1e6 * ours:8.2f} us, {theirs.name} {1e6 * least:8.2f} us"
        f" | ratio {least / ours:.3f}{asked} | {shown(best.made.schedule)}"
    )
    out.lines += [
        f"    {1e6 * times[e.name].median:9.2f} {e.name}{' ' + shown(e.made.schedule) if e.made else ''}"
        + (f" (modelled {microseconds(e.made.schedule):.1f})" if e.made else "")
        for e in sorted((*entered.ours, *entered.theirs), key=lambda e: times[e.name].median)
    ]
    out.lines += [f"    refused: {n}: {why}" for n, why in entered.refused.items()]


def contender_record(
    bench: Bench,
    e: Entrant,
    mode: Mode,
    planned: Planned | None,
    *,
    title: str = "cleave",
    timing: Timing | None = None,
) -> Record:
    details: dict[str, Any] = {} if timing is None else {"regime": timing.regime, "samples": len(timing.samples)}
    if e.made is not None:
        details |= {"kernels": len(parts(e.made.schedule)), "launches": launches(e.made.schedule)}
    if e.made is not None and planned is not None:
        details |= {"fewest_kernels": dict(planned.fewest), "refused_candidates": list(planned.refused)}
    return Record(
        workload={**bench.point.row, "contender": title, "compile": mode, "cold": True},
        outcome=Outcome.OK,
        candidate={} if e.made is None else {"name": e.made.schedule.candidate},
        schedule={} if e.made is None else {**row(e.made.schedule), "plan": shown(e.made.schedule)},
        check={"frobenius": e.check.frobenius, "worst": e.check.worst, "passed": e.check.passed},
        quantiles={} if timing is None else {q: 1e6 * v for q, v in timing.as_dict().items() if q.startswith("q")},
        details=details,
    )


def bad_record(bench: Bench, made: Made | None, outcome: Outcome, check: dict[str, Any]) -> Record:
    plan = "" if made is None else shown(made.schedule)
    return Record(workload={**bench.point.row, "schedule": plan}, outcome=outcome, check=check)


def _failed(bench: Bench, mode: Mode, what: str, why: str) -> Record:
    row = {**bench.point.row, "compile": mode}
    return Record(workload=row, outcome=Outcome.REFUSED, check={"error": f"{what}: {why}"})


def shown(s: Schedule) -> str:
    return f"{s.candidate}: {described(s)}"


def _check_text(r: Record) -> str:
    return f"{r.check['frobenius']:.1e}" if "frobenius" in r.check else str(r.check.get("error", ""))
