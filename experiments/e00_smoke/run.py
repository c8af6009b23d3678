"""Attention and matmul from graph to checked CUDA, at every shape, and against cuDNN."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from cleave.candidate import Candidate, as_written, load_candidates, save_candidates
from cleave.config import Ablation, Config
from cleave.errors import CleaveError
from cleave.records import Outcome, Record, append
from cleave.target import Target
from cleave.tile.plan import Schedule
from experiments.e00_smoke.config import CANDIDATES, OPERATORS, RECORDS, TARGET, TIMED, Operator

DRAWN = 20


# ---- search: no GPU


def search() -> int:
    """Search the graphs and write their candidates."""
    from cleave import nn
    from cleave.search import search as run_search

    CANDIDATES.mkdir(exist_ok=True)
    graphs = {
        "attention": nn.attention(lse=True),
        "attention_causal": nn.attention(causal=True, lse=True),
        "matmul": nn.matmul(),
    }
    for name, graph in graphs.items():
        found = run_search(graph)
        save_candidates(found.candidates, CANDIDATES / f"{name}.json")
        print(f"{name}: {found.report.stop}, {len(found.candidates)} candidates, {found.report.seconds.total:.2f} s")
    return 0


# ---- measure: a GPU


@dataclass
class Tally:
    """What was appended: rows by outcome, and the GPU that each is stamped with."""

    gpu: Mapping[str, Any]
    deadline: float
    rows: int = 0
    bad: int = 0
    stopped: bool = False

    def add(self, record: Record, line: str) -> None:
        append(RECORDS / "checks.jsonl", record, self.gpu)
        self.rows += 1
        if record.outcome is not Outcome.OK:
            self.bad += 1
            print(f"BAD {line}: {record.outcome}", flush=True)

    def out_of_time(self) -> bool:
        self.stopped = self.stopped or time.monotonic() > self.deadline
        return self.stopped


def candidate_of(op: Operator) -> Candidate:
    """The candidate that an operator asks for: the best with exactly its splits."""
    wanted = set(op.split)
    for c in load_candidates(CANDIDATES / f"{op.graph}.json"):
        if {s.base for s in c.splits} == wanted and c.steps:
            return c
        if not wanted and not c.splits and op.graph == "matmul":
            return c
    raise CleaveError(f"no candidate that splits {', '.join(wanted) or 'nothing'}", location=op.graph)


def schedule_of(op: Operator, candidate: Candidate, config: Config | None = None) -> Schedule:
    from cleave.schedule import schedule

    merge: Any = op.merge
    return schedule(candidate, Target(TARGET), op.bind, config, split=op.split, merge=merge)[0]


def measure(minutes: float) -> int:
    """Check every shape, then time; stops by itself before the limit."""
    from cleave.runtime.device import properties

    start = time.monotonic()
    tally = Tally(properties().as_dict(), start + 60 * minutes - 45)
    drawn = list(drawn_shapes())
    for op in OPERATORS:
        more = [shape for name, shape in drawn if name == op.name]
        check_operator(op, [*op.shapes, *more], len(op.shapes), tally)
    check_ablations(tally)
    timed = [] if tally.out_of_time() else list(time_prefill(tally))
    print(f"{tally.rows} rows, {tally.bad} bad, {time.monotonic() - start:.0f} s" + (", stopped early" * tally.stopped))
    for line in timed:
        print(line)
    return 1 if tally.bad or tally.stopped else 0


def drawn_shapes() -> Iterator[tuple[str, dict[str, int]]]:
    """20 (operator, shape) drawn from the hash of the commit."""
    from cleave.environment import commit

    stamp = commit()
    rng = np.random.default_rng(int(str((stamp or {"id": "0"})["id"])[:12], 16))
    for _ in range(DRAWN):
        op = OPERATORS[int(rng.integers(len(OPERATORS)))]
        if op.graph == "matmul":
            yield op.name, {n: int(rng.integers(1, 1500)) for n in ("m", "n", "k")}
        else:
            lengths = {n: int(rng.integers(1, 1500)) for n in ("s", "t")}
            yield op.name, {"b": int(rng.integers(1, 4)), "kv_heads": int(rng.integers(1, 4)), **lengths}


def check_operator(op: Operator, shapes: Sequence[Mapping[str, int]], fixed_count: int, tally: Tally) -> None:
    from cleave.pipeline import emit

    if tally.out_of_time():
        return
    candidate = candidate_of(op)
    plan = schedule_of(op, candidate)
    run = emit(plan)
    print(f"{op.name}: {'; '.join(map(str, run.resources))}", flush=True)
    compiles: int | None = None
    for number, shape in enumerate(shapes):
        if tally.out_of_time():
            return
        dims = {**op.bind, **shape}
        kind = "shape" if number < fixed_count else "drawn"
        check_row(op, candidate, plan, run, dims, kind, compiles or 0, tally)
        compiles = run.compiles if compiles is None else compiles


def check_row(
    op: Operator,
    candidate: Candidate,
    plan: Schedule,
    run: Any,
    dims: Mapping[str, int],
    kind: str,
    compiles_before: int,
    tally: Tally,
) -> None:
    """One call, compared; an exception is a row too."""
    from cleave.verify import check_executable

    def operator(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        run(**inputs, out=outputs)

    check: dict[str, Any] = {}
    outcome = Outcome.OK
    try:
        found = check_executable(operator, candidate.origin, None, known(candidate, dims), seed=tally.rows)
        check = found.as_dict()
        outcome = Outcome.WRONG if found.outcome.failed else Outcome.OK
    except CleaveError as error:
        outcome, check = Outcome.REFUSED, {"error": str(error)}
    except Exception as error:
        outcome, check = Outcome.CRASHED, {"error": f"{type(error).__name__}: {error}"}
    record = Record(
        workload={"operator": op.name, "kind": kind, **dims},
        outcome=outcome,
        candidate={"name": candidate.name, "rules": list(candidate.rules)},
        schedule={"target": TARGET, "merge": plan.merge, "bind": dict(plan.bind), "kernels": len(plan.kernels)},
        check=check,
        details={"compiles_after_first_call": run.compiles - compiles_before if compiles_before else 0},
    )
    tally.add(record, f"{op.name} {dict(dims)} {check.get('detail', '') or check.get('error', '')}")


def known(candidate: Candidate, dims: Mapping[str, int]) -> dict[str, int]:
    names = {s.name for s in candidate.origin.symbols}
    return {n: v for n, v in dims.items() if n in names}


# ---- ablations


ABLATIONS = {
    "full": Ablation(),
    "algebra off": Ablation(algebra=False),
    "iterative tiling off": Ablation(iterative_tiling=False),
}


def check_ablations(tally: Tally) -> None:
    """The programs differ, and every one is right."""
    from cleave.pipeline import emit

    base = next(op for op in OPERATORS if op.name == "gqa_causal_d64")
    shape = {"b": 1, "kv_heads": 2, "group": 4, "s": 200, "t": 333, "d": 64, "e": 64}
    texts: dict[str, str] = {}
    for name, ablation in ABLATIONS.items():
        if tally.out_of_time():
            return
        op = Operator(f"ablation: {name}", base.graph, shape)
        chosen = candidate_of(base)
        candidate = chosen if ablation.algebra else as_written(chosen.origin)
        try:
            plan = schedule_of(op, candidate, Config(ablation=ablation))
            run = emit(plan)
        except CleaveError as error:
            workload = {"operator": op.name, **shape}
            tally.add(
                Record(workload=workload, outcome=Outcome.REFUSED, check={"error": str(error)}), f"{op.name} {error}"
            )
            continue
        texts[name] = "\n".join(k.program.text() for k in plan.kernels)
        check_row(op, candidate, plan, run, shape, "ablation", 0, tally)
        loops = sum(text.lstrip().startswith("for ") for text in texts[name].splitlines())
        print(f"{op.name}: {len(plan.kernels)} kernels, {loops} loops", flush=True)
    print(f"ablations: {len(set(texts.values()))} different programs of {len(texts)}", flush=True)


# ---- time


def time_prefill(tally: Tally) -> Iterator[str]:
    """Prefill against torch's cuDNN attention: one interleaved run a shape."""
    from cleave.pipeline import emit
    from cleave.verify import check_executable

    for shape in TIMED:
        for causal in (False, True):
            graph = "attention_causal" if causal else "attention"
            op = Operator(f"prefill{' causal' * causal}", graph, {**shape, "d": 128, "e": 128})
            candidate = candidate_of(op)
            run = emit(schedule_of(op, candidate))
            dims = known(candidate, op.bind)
            call = partial(_call_with_outputs, run)
            found = check_executable(call, candidate.origin, None, dims, seed=tally.rows)
            if found.outcome.failed:
                workload = {"operator": op.name, **dims}
                tally.add(Record(workload=workload, outcome=Outcome.WRONG, check=found.as_dict()), f"{op.name} {found}")
                continue
            times = interleaved(run, dims, causal=causal)
            ratio = times["cudnn"].median / times["cleave"].median
            for name, t in times.items():
                record = Record(
                    workload={"operator": op.name, "contender": name, "cold": True, **dims},
                    outcome=Outcome.OK,
                    candidate={"name": candidate.name},
                    check=found.as_dict(),
                    quantiles={q: 1e6 * v for q, v in t.as_dict().items() if q.startswith("q")},
                    details={"regime": t.regime, "ratio_to_cudnn": times["cudnn"].median / t.median},
                )
                append(RECORDS / "times.jsonl", record, tally.gpu)
            heads = dims["b"] * dims["kv_heads"] * dims["group"]
            flops = 4 * heads * dims["s"] * dims["t"] * 128 * (0.5 if causal else 1.0)
            yield (
                f"{op.name:15} b{dims['b']} kv{dims['kv_heads']}: cleave {1e6 * times['cleave'].median:7.1f} us "
                f"({flops / times['cleave'].median / 1e12:.0f} TF/s), cuDNN {1e6 * times['cudnn'].median:7.1f} us, "
                f"FA2 {1e6 * times['fa2'].median:7.1f} us, ratio {ratio:.3f}"
            )


def _call_with_outputs(run: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    run(**inputs, out=outputs)


def interleaved(run: Any, dims: Mapping[str, int], *, causal: bool) -> dict[str, Any]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as attention

    from cleave.runtime.timing import Contender, rotation, time_contenders

    heads = dims["kv_heads"] * dims["group"]
    like: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}
    kv_shape = (dims["b"], dims["kv_heads"], dims["t"], 128)
    q_shape = (dims["b"], heads, dims["s"], 128)
    sets = rotation(2 * (2 * int(np.prod(kv_shape)) + 2 * int(np.prod(q_shape))))
    calls: dict[str, list[Any]] = {"cleave": [], "cudnn": [], "fa2": []}
    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}
    grouped = heads != dims["kv_heads"]
    worst = 0.0
    for _ in range(sets):
        q, k, v = torch.randn(q_shape, **like), torch.randn(kv_shape, **like), torch.randn(kv_shape, **like)
        out = {"out": torch.empty(q_shape, **like), "lse": torch.empty(q_shape[:3], device="cuda", dtype=torch.float32)}
        calls["cleave"].append(partial(run, q=q, k=k, v=v, out=out))

        def baseline(backend: Any, q: Any = q, k: Any = k, v: Any = v) -> Any:
            with sdpa_kernel([backend]):
                return attention(q, k, v, is_causal=causal, enable_gqa=grouped)

        for name, backend in backends.items():
            calls[name].append(partial(baseline, backend))
        run(q=q, k=k, v=v, out=out)
        reference = baseline(SDPBackend.CUDNN_ATTENTION)
        worst = max(worst, float((out["out"].float() - reference.float()).norm() / reference.float().norm()))
    if not worst < 2e-3:
        raise CleaveError(
            f"the output differs from cuDNN's by {worst:.2e}, allowed is 2e-3", location=f"prefill {dims}"
        )
    return time_contenders([Contender(n, c) for n, c in calls.items()])


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments run e00", description=__doc__)
    parser.add_argument("stage", choices=("search", "measure"))
    parser.add_argument("--minutes", type=float, default=9.0, help="measure stops by itself before this")
    options = parser.parse_args(argv)
    try:
        return search() if options.stage == "search" else measure(options.minutes)
    except CleaveError as error:
        print(f"e00: {error}", file=sys.stderr)
        return error.exit_code
