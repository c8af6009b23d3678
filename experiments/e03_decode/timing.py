"""Time: decode against torch's cuDNN and FlashAttention-2 backends, few rows against cuBLAS; interleaved, cold.

At each shape a few schedules are compiled, checked and timed; the fastest meets the baselines in a run of its own,
beside the model's first choice and the best schedule without splits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cleave.codegen.compile import compile_many
from cleave.codegen.generate import generate
from cleave.config import Ablation, Config
from cleave.errors import CleaveError
from cleave.pipeline import emit
from cleave.records import Outcome, Record
from cleave.runtime.timing import Contender, Timing, rotation, time_contenders
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Schedule
from experiments.e03_decode.config import TARGET, Timed
from experiments.e03_decode.search import candidate_of, contenders, described
from experiments.tally import Checked

WHOLE_ERROR = 2e-3
"""Allowed distance of whole outputs from a baseline's: both are FP16 results."""
TRIAL_SAMPLES = 5


@dataclass(frozen=True)
class Baselines:
    """Sets of inputs by name, the baselines as functions of one, and the outputs of the first of them."""

    sets: Sequence[Mapping[str, Any]]
    functions: Mapping[str, Callable[[Mapping[str, Any]], Any]]
    references: Sequence[Any]


@dataclass(frozen=True)
class Ours:
    """A compiled schedule with a prepared call for each set of inputs."""

    plan: Schedule
    calls: Sequence[Callable[[], object]]
    error: float


def time_decode(point: Timed, tried: int) -> Checked:
    unsplit = candidate_of("attention")
    off = schedule(unsplit, Target(TARGET), point.dims, Config(ablation=Ablation(split=False)))[0]
    plans = contenders("attention", "t", point.dims, tried)
    name = f"b{point.b} kv{point.kv_heads} d{point.d} t{point.t}"
    return _timed(name, point.dims, [*plans, off], decode_baselines(point), point.goal)


def time_matmul(dims: Mapping[str, int], tried: int) -> Checked:
    off = schedule(candidate_of("matmul"), Target(TARGET), dims, Config(ablation=Ablation(split=False)))[0]
    plans = contenders("matmul", "k", dims, tried)
    return _timed(f"matmul m{dims['m']} n{dims['n']} k{dims['k']}", dims, [*plans, off], matmul_baselines(dims), 1.0)


def decode_baselines(p: Timed) -> Baselines:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as attention

    like: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}
    heads, kv = p.kv_heads * p.dims["group"], (p.b, p.kv_heads, p.t, p.d)
    bytes_a_set = 4 * p.b * p.kv_heads * p.t * p.d + 4 * p.b * heads * p.d
    sets = [
        {"q": torch.randn((p.b, heads, 1, p.d), **like), "k": torch.randn(kv, **like), "v": torch.randn(kv, **like)}
        for _ in range(rotation(bytes_a_set))
    ]

    def run(backend: Any, given: Mapping[str, Any]) -> Any:
        with sdpa_kernel([backend]):
            return attention(given["q"], given["k"], given["v"], enable_gqa=heads != p.kv_heads)

    functions = {
        "cudnn": partial(run, SDPBackend.CUDNN_ATTENTION),
        "fa2": partial(run, SDPBackend.FLASH_ATTENTION),
    }
    return Baselines(sets, functions, [functions["cudnn"](s).clone() for s in sets])


def matmul_baselines(dims: Mapping[str, int]) -> Baselines:
    import torch

    like: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}
    m, n, k = dims["m"], dims["n"], dims["k"]
    sets = [
        {"a": torch.randn((m, k), **like), "b": torch.randn((k, n), **like)}
        for _ in range(rotation(2 * (m * k + k * n + m * n)))
    ]

    def run(given: Mapping[str, Any]) -> Any:
        return torch.matmul(given["a"], given["b"])

    return Baselines(sets, {"cublas": run}, [run(s) for s in sets])


def _timed(
    name: str, dims: Mapping[str, int], plans: Sequence[Schedule], baselines: Baselines, goal: float | None
) -> Checked:
    out = Checked()
    compile_many([(k, TARGET) for plan in plans for k in generate(plan).kernels])  # in parallel, into the cache
    made: list[Ours] = []
    for plan in plans:
        try:
            made.append(_made(plan, baselines))
        except CleaveError as error:
            row = {"operator": name, **dims, "schedule": described(plan, dims)}
            out.records.append(Record(workload=row, outcome=Outcome.WRONG, check={"error": str(error)}))
    if not made:
        return out
    trials = time_contenders([Contender(str(n), o.calls) for n, o in enumerate(made)], samples=TRIAL_SAMPLES)
    best = min(range(len(made)), key=lambda n: trials[str(n)].median)
    calls = {"cleave": made[best].calls, "model's first": made[0].calls, "split off": made[-1].calls}
    calls |= {n: [partial(f, s) for s in baselines.sets] for n, f in baselines.functions.items()}
    times = time_contenders([Contender(n, c) for n, c in calls.items()])
    chosen = {"cleave": made[best], "model's first": made[0], "split off": made[-1]}
    least = min(times[n].median for n in baselines.functions)
    for contender, t in times.items():
        out.records.append(_record(name, dims, contender, t, least, chosen.get(contender)))
    out.lines.append(_line(name, times, least / times["cleave"].median, goal, described(made[best].plan, dims)))
    shown = [f"{1e6 * trials[str(n)].median:7.2f} {described(o.plan, dims)}" for n, o in enumerate(made)]
    out.lines += [f"    {line}" for line in sorted(shown)]
    return out


def _made(plan: Schedule, baselines: Baselines) -> Ours:
    """Compile, call with every set of inputs, compare whole outputs with the first baseline's."""
    import torch

    run = emit(plan)
    (name,) = [o.name for o in plan.graph.outputs]
    worst = 0.0
    calls: list[Callable[[], object]] = []
    for given, wanted in zip(baselines.sets, baselines.references, strict=True):
        out = {name: torch.full_like(wanted, float("nan"))}
        run(**given, out=out)
        found = float((out[name].float() - wanted.float()).norm() / wanted.float().norm())
        worst = found if found != found else max(worst, found)
        if not worst < WHOLE_ERROR:
            raise CleaveError(f"the output differs from the baseline's by {worst:.2e}", location="decode")
        calls.append(partial(run, **given, out=out))
    return Ours(plan, calls, worst)


def _record(name: str, dims: Mapping[str, int], contender: str, t: Timing, least: float, ours: Ours | None) -> Record:
    plan: dict[str, Any] = {}
    if ours is not None:
        k = ours.plan.kernels[0]
        plan = {
            "skeleton": k.skeleton,
            "merge": ours.plan.merge,
            "bind": dict(ours.plan.bind),
            "tiles": {a.name: n for a, n in k.binding.tiles.items()},
            "warps": k.binding.warps,
            "teams": k.binding.teams,
            "stages": k.binding.stages,
            "modelled_us": ours.plan.modelled.microseconds if ours.plan.modelled else None,
        }
    return Record(
        workload={"operator": name, "contender": contender, "cold": True, **dims},
        outcome=Outcome.OK,
        candidate={"name": ours.plan.candidate} if ours is not None else {},
        schedule=plan,
        check={"distance": ours.error} if ours is not None else {},
        quantiles={q: 1e6 * v for q, v in t.as_dict().items() if q.startswith("q")},
        details={"regime": t.regime, "ratio": least / t.median},
    )


def _line(name: str, times: Mapping[str, Timing], ratio: float, goal: float | None, plan: str) -> str:
    columns = " ".join(f"{n} {1e6 * t.median:8.2f}" for n, t in times.items())
    asked = "" if goal is None else f" (goal {goal:.1f}{'' if ratio >= goal else ', missed'})"
    return f"{name:26} {columns} us | ratio {ratio:.3f}{asked} | {plan}"
