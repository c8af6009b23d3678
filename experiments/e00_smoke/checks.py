"""Correctness: one compiled operator, every shape; runs in a child process, so that a hang or a crash is a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cleave.candidate import Candidate, as_written
from cleave.config import Ablation, Config
from cleave.errors import CleaveError
from cleave.pipeline import emit
from cleave.records import Outcome, Record
from cleave.tile.plan import Schedule
from cleave.verify import check_executable
from experiments.e00_smoke.config import OPERATORS, TARGET, Operator
from experiments.e00_smoke.search import candidate_of, schedule_of, variants_of
from experiments.tally import Checked


def check_operator(name: str, shapes: Sequence[Mapping[str, int]], drawn: Sequence[Mapping[str, int]]) -> Checked:
    """Compile an operator once, call it at every shape, compare."""
    op = next(o for o in OPERATORS if o.name == name)
    candidate = candidate_of(op)
    plan = variants_of(op, candidate)
    run = emit(plan)
    out = Checked(lines=[f"{op.name} [{candidate.name}]: {'; '.join(map(str, run.resources))}"])
    compiles: int | None = None
    for number, shape in enumerate([*shapes, *drawn]):
        kind = "shape" if number < len(shapes) else "drawn"
        record = check_row(op, candidate, plan.schedules, run, {**op.bind, **shape}, kind, seed=number)
        compiles = run.compiles if compiles is None else compiles
        record.details["compiles_after_first_call"] = run.compiles - compiles
        out.records.append(record)
    return out


def check_row(
    op: Operator,
    candidate: Candidate,
    plans: Sequence[Schedule],
    run: Any,
    dims: Mapping[str, int],
    kind: str,
    *,
    seed: int,
) -> Record:
    """One call, compared. ``run``: some schedules, compiled as variants.

    A refusal is a row; a CUDA error ends the process, and the parent makes a row of it.
    """

    def operator(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        run(**inputs, out=outputs)

    names = {s.name for s in candidate.origin.symbols}
    try:
        found = check_executable(
            operator, candidate.origin, None, {n: v for n, v in dims.items() if n in names}, seed=seed
        )
        outcome, check = (Outcome.WRONG if found.outcome.failed else Outcome.OK), found.as_dict()
    except CleaveError as error:
        outcome, check = Outcome.REFUSED, {"error": str(error)}
    return Record(
        workload={"operator": op.name, "kind": kind, **dims},
        outcome=outcome,
        candidate={"name": candidate.name, "rules": list(candidate.rules)},
        schedule={
            "target": TARGET,
            "merge": plans[0].merge,
            "bind": dict(plans[0].bind),
            "kernels": len(plans[0].kernels),
            "variants": len(plans),
        },
        check=check,
        details={"resources": [str(r) for r in run.resources]},
    )


ABLATIONS = {
    "full": Ablation(),
    "algebra off": Ablation(algebra=False),
    "iterative tiling off": Ablation(iterative_tiling=False),
}
ABLATION_SHAPE = {"b": 1, "kv_heads": 2, "group": 4, "s": 200, "t": 333, "d": 64, "e": 64}


def check_ablations() -> Checked:
    """The programs differ, and every one is right."""
    out, texts = Checked(), dict[str, str]()
    for name, candidate, plan in ablation_plans():
        texts[name] = "\n".join(k.program.text() for k in plan.kernels)
        op = Operator(f"ablation: {name}", "attention_causal", ABLATION_SHAPE)
        out.records.append(check_row(op, candidate, (plan,), emit(plan), ABLATION_SHAPE, "ablation", seed=0))
        loops = sum(line.lstrip().startswith("for ") for line in texts[name].splitlines())
        out.lines.append(f"{op.name}: {len(plan.kernels)} kernels, {loops} loops")
    out.lines.append(f"ablations: {len(set(texts.values()))} different programs of {len(texts)}")
    return out


def ablation_plans() -> Iterator[tuple[str, Candidate, Schedule]]:
    op = Operator("ablation", "attention_causal", ABLATION_SHAPE)
    chosen = candidate_of(op)
    for name, ablation in ABLATIONS.items():
        candidate = chosen if ablation.algebra else as_written(chosen.origin)
        yield name, candidate, schedule_of(op, candidate, Config(ablation=ablation))
