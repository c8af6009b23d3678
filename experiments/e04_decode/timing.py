"""Time: decode against torch's cuDNN and FlashAttention-2 backends, few rows against cuBLAS; interleaved, cold.

At each shape a few schedules are compiled, checked and timed; the fastest meets the baselines in a run of its own,
beside the model's first choice, the best schedule without splits, and itself launched in order: calls of cleave begin
while the one before them ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cleave.errors import CleaveError
from cleave.pipeline import emit
from cleave.records import Outcome, Record
from cleave.runtime.timing import Contender, Timing, rotation, time_contenders
from cleave.tile.plan import Schedule
from cleave.tune.description import described, row
from experiments.e04_decode.config import IN_ORDER, Shape, Timed
from experiments.e04_decode.plans import Planned
from experiments.schedules import in_order
from experiments.tally import Checked

WHOLE_ERROR = 2e-3
"""Allowed distance of whole outputs from a baseline's: both are FP16 results."""
TRIAL_SAMPLES = 3

Baseline = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Baselines:
    """Sets of inputs by name, the baselines as functions of one, and the outputs of the first of them.

    refused     why torch has no kernel, by name of the baseline
    """

    sets: Sequence[Mapping[str, Any]]
    functions: Mapping[str, Baseline]
    references: Sequence[Any]
    refused: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Ours:
    """A compiled schedule with a call for each set of inputs."""

    plan: Schedule
    calls: Sequence[partial[Any]]
    error: float


def time_decode(point: Timed, planned: Planned) -> Checked:
    return _timed(point.name, point.dims, planned, decode_baselines(point), point.goal)


def time_matmul(dims: Shape, planned: Planned) -> Checked:
    name = f"matmul m{dims['m']} n{dims['n']} k{dims['k']}"
    return _timed(name, dims, planned, matmul_baselines(dims), 1.0)


# ---- baselines


def decode_baselines(p: Timed) -> Baselines:
    """Both backends, heads as they are and with a group's heads folded into the queries of its key head."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as attention

    like: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}
    heads, kv = p.kv_heads * p.dims["group"], (p.b, p.kv_heads, p.t, p.d)
    bytes_a_set = 4 * p.b * p.kv_heads * p.t * p.d + 4 * p.b * heads * p.queries * p.d
    sets = [
        {
            "q": torch.randn((p.b, heads, p.queries, p.d), **like),
            "k": torch.randn(kv, **like),
            "v": torch.randn(kv, **like),
        }
        for _ in range(rotation(bytes_a_set))
    ]

    def run(backend: Any, given: Mapping[str, Any]) -> Any:
        with sdpa_kernel([backend]):
            return attention(given["q"], given["k"], given["v"], enable_gqa=heads != p.kv_heads)

    def folded(backend: Any, given: Mapping[str, Any]) -> Any:
        q = given["q"].view(p.b, p.kv_heads, -1, p.d)
        with sdpa_kernel([backend]):
            return attention(q, given["k"], given["v"]).view(p.b, heads, p.queries, p.d)

    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}
    functions = {name: partial(run, backend) for name, backend in backends.items()}
    if heads != p.kv_heads:
        functions |= {f"{name} folded": partial(folded, backend) for name, backend in backends.items()}
    return usable(sets, functions)


def usable(sets: Sequence[Mapping[str, Any]], functions: Mapping[str, Baseline]) -> Baselines:
    """The baselines that torch can run, each checked against the first of them. Errors: none, or they differ."""
    working: dict[str, Baseline] = {}
    refused: dict[str, str] = {}
    reference: Any = None
    for name, f in functions.items():
        try:
            found = f(sets[0])
        except RuntimeError as error:
            refused[name] = str(error).splitlines()[0]
            continue
        reference = found if reference is None else reference
        if not distance(found, reference) < WHOLE_ERROR:
            raise CleaveError(f"differs from {next(iter(working))}: {distance(found, reference):.2e}", location=name)
        working[name] = f
    if not working:
        raise CleaveError("torch has none: " + "; ".join(f"{n}: {why}" for n, why in refused.items()), location="e04")
    first = next(iter(working.values()))
    return Baselines(sets, working, [first(s).clone() for s in sets], refused)


def distance(found: Any, wanted: Any) -> float:
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def matmul_baselines(dims: Shape) -> Baselines:
    import torch

    like: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}
    m, n, k = dims["m"], dims["n"], dims["k"]
    sets = [
        {"a": torch.randn((m, k), **like), "b": torch.randn((k, n), **like)}
        for _ in range(rotation(2 * (m * k + k * n + m * n)))
    ]

    def run(given: Mapping[str, Any]) -> Any:
        return torch.matmul(given["a"], given["b"])

    return usable(sets, {"cublas": run})


# ---- one shape


def _timed(name: str, dims: Shape, planned: Planned, baselines: Baselines, goal: float | None) -> Checked:
    out = Checked()
    made = {id(plan): kept(name, plan, dims, baselines, out) for plan in (*planned.plans, planned.split_off)}
    ours = [o for o in made.values() if o is not None]
    if not ours:
        return out
    trials = time_contenders([Contender(str(n), o.calls) for n, o in enumerate(ours)], samples=TRIAL_SAMPLES)
    best = ours[min(range(len(ours)), key=lambda n: trials[str(n)].median)]
    named = {"cleave": best, "model's first": made[id(planned.plans[0])], "split off": made[id(planned.split_off)]}
    chosen = {label: o for label, o in named.items() if o is not None}
    calls: dict[str, Sequence[Callable[[], object]]] = {label: o.calls for label, o in chosen.items()}
    calls[IN_ORDER] = [*map(in_order, best.calls)]
    calls |= {n: [partial(f, s) for s in baselines.sets] for n, f in baselines.functions.items()}
    times = time_contenders([Contender(n, c) for n, c in calls.items()])
    least = min(times[n].median for n in baselines.functions)
    for contender, t in times.items():
        out.records.append(_record(name, dims, contender, t, least, chosen.get(contender)))
        out.records[-1].details["baselines without a kernel"] = dict(baselines.refused)
    out.lines.append(_line(name, times, least / times["cleave"].median, goal, described(best.plan)))
    shown = [f"{1e6 * trials[str(n)].median:7.2f} {described(o.plan)}" for n, o in enumerate(ours)]
    out.lines += [f"    {line}" for line in sorted(shown)]
    out.lines += [f"    no kernel of {baseline}: {why}" for baseline, why in baselines.refused.items()]
    return out


def kept(name: str, plan: Schedule, dims: Shape, baselines: Baselines, out: Checked) -> Ours | None:
    """A schedule ready to be timed; what is wrong with it is a row."""
    try:
        return _made(plan, baselines)
    except CleaveError as error:
        bad = {"operator": name, **dims, "schedule": described(plan)}
        out.records.append(Record(workload=bad, outcome=Outcome.WRONG, check={"error": str(error)}))
        return None


def _made(plan: Schedule, baselines: Baselines) -> Ours:
    """Compile, call with every set of inputs, compare whole outputs with the first baseline's."""
    import torch

    run = emit(plan)
    (name,) = [o.name for o in plan.graph.outputs]
    worst = 0.0
    calls: list[partial[Any]] = []
    for given, wanted in zip(baselines.sets, baselines.references, strict=True):
        out = {name: torch.full_like(wanted, float("nan"))}
        run(**given, out=out)
        found = distance(out[name], wanted)
        worst = found if found != found else max(worst, found)
        if not worst < WHOLE_ERROR:
            raise CleaveError(f"the output differs from the baseline's by {worst:.2e}", location="decode")
        calls.append(partial(run, **given, out=out))
    return Ours(plan, calls, worst)


def _record(name: str, dims: Shape, contender: str, t: Timing, least: float, ours: Ours | None) -> Record:
    return Record(
        workload={"operator": name, "contender": contender, "cold": True, **dims},
        outcome=Outcome.OK,
        candidate={"name": ours.plan.candidate} if ours is not None else {},
        schedule={} if ours is None else row(ours.plan),
        check={"distance": ours.error} if ours is not None else {},
        quantiles={q: 1e6 * v for q, v in t.as_dict().items() if q.startswith("q")},
        details={"regime": t.regime, "ratio": least / t.median},
    )


def _line(name: str, times: Mapping[str, Timing], ratio: float, goal: float | None, plan: str) -> str:
    columns = " ".join(f"{n} {1e6 * t.median:8.2f}" for n, t in times.items())
    asked = "" if goal is None else f" (goal {goal:.1f}{'' if ratio >= goal else ', missed'})"
    return f"{name:26} {columns} us | ratio {ratio:.3f}{asked} | {plan}"
