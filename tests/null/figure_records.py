"""Records as experiments write them, of invented times: enough for every figure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cleave.records import Outcome, Record
from experiments.e01_ablation.config import SETS, Point, is_ablated, points
from experiments.e01_ablation.configurations import CONFIGURATIONS
from experiments.e02_dynamic.workloads import operators
from experiments.e02_dynamic.workloads import points as points_of_e02
from experiments.e04_decode.config import COUNTS, SWEPT

ENVIRONMENT = {"commit": {"id": "0123456789abcdef", "dirty": False}, "gpu": {"name": "a GPU"}}


def record(workload: dict[str, Any], microseconds: float, **more: Any) -> Record:
    quantiles = {"q50": microseconds}
    return Record(workload=workload, outcome=Outcome.OK, quantiles=quantiles, environment=ENVIRONMENT, **more)


def row(p: Point) -> dict[str, Any]:
    """Of ``p.row`` what figures read."""
    return {"point": p.name, "subgraph": p.subgraph, "phase": p.workload.phase, "nine": True, "contender": "cleave"}


def times() -> Iterator[Record]:
    """Speed-ups of all points: some below 1."""
    for n, p in enumerate(points(SETS["nine"])):
        ratio = 0.8 * 2 ** (len(p.subgraph) % 4 * 0.7 + n % 5 / 10) * (1.5 if p.workload.phase == "decode" else 1)
        yield record({**row(p), "compile": "off"}, 100.0 / ratio, details={"ratio": ratio, "best_baseline": "eager"})


def ablations() -> Iterator[Record]:
    """No layout propagation has nothing at one point; no split is the full system everywhere in prefill."""
    for p in (p for p in points(SETS["nine"]) if is_ablated(p)):
        for n, c in enumerate(CONFIGURATIONS):
            same = c.name == "no split" and p.workload.phase == "prefill"
            relative = 1.0 if same else 0.9**n
            made = record({**row(p), "configuration": c.name}, 100.0 / relative)
            made.details.update({"relative": relative} | ({"same_program_as": "full"} if same else {}))
            if c.name == "no layout propagation" and p.name == "mla decode t1024":
                made = msgspec.structs.replace(made, outcome=Outcome.SKIPPED, quantiles={}, check={"error": "none"})
                made.details["relative"] = None
            yield made


def sweep() -> Iterator[Record]:
    for p in SWEPT:
        for count in (1, *COUNTS):
            for merge in ("none",) if count == 1 else ("last-arriving", "second-launch", *["cluster"] * (count <= 8)):
                workload = {"operator": p.name, "contender": f"{merge} x {count}", "splits": count, **p.dims}
                schedule = {"merge": merge, "modelled_us": 10.0 + abs(count - 7)}
                yield record(workload, 30 / count + count / 4 + 3 * (merge == "second-launch"), schedule=schedule)
        yield record({"operator": p.name, "contender": "cudnn", **p.dims}, 12.0)


def decode() -> Iterator[Record]:
    for n, contender in enumerate(("cleave", "model's first", "split off", "cudnn", "fa2")):
        yield record({"operator": SWEPT[0].name, "contender": contender, **SWEPT[0].dims}, 5.0 + n)


def dynamic() -> Iterator[Record]:
    """Three points an operator, two of them of exact lengths; FA3 is wrong in paged prefill."""
    every = points_of_e02()
    for o, operator in enumerate(operators(every)):
        for n, p in enumerate([p for p in every if p.operator == operator][:3]):
            times = {"cleave": 10.0, "split off": 12.0, "fa2": 8.0 + 3 * o + n, "fa3": 30.0 - 2 * o - n}
            refused = {"fa3": "is wrong"} if "gqa_paged_prefill" in operator else {}
            for contender, microseconds in times.items():
                if contender not in refused:
                    made = record({**p.row, "contender": contender}, microseconds)
                    made.details.update({"plan_us": 5.0, "refused": refused})
                    yield made


FILES = {
    "e01_ablation/times.jsonl": times,
    "e01_ablation/ablations.jsonl": ablations,
    "e04_decode/sweep.jsonl": sweep,
    "e04_decode/times.jsonl": decode,
    "e02_dynamic/times.jsonl": dynamic,
}


def write_records(folder: Path) -> None:
    for name, made in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in made()))
