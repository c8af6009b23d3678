"""The experiment e04 without a GPU: its candidates are current, and it finds a plan for everything that it measures."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from cleave import nn
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.ir.graph import Graph
from cleave.ir.hash import graph_hash
from cleave.records import Outcome
from cleave.runtime.timing import Timing
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.plan import Merge, Schedule
from experiments.e04_decode.config import (
    COUNTS,
    LENGTHS,
    PAPER,
    REPLAYED,
    SWEPT_MATMULS,
    TIMED,
    WAYS,
    Operator,
    operators,
)
from experiments.e04_decode.plans import contenders, plan_operator
from experiments.e04_decode.search import attention_by_length, candidate_of
from experiments.e04_decode.sweep import count_of, plan_sweep, swept
from experiments.e04_decode.timing import usable
from tests.cases.lengths import expected, inputs


@pytest.mark.parametrize(
    ("name", "graph"),
    [
        ("attention", nn.attention()),
        ("attention_lse", nn.attention(lse=True)),
        ("attention_by_length", attention_by_length()),
        ("matmul", nn.matmul(n=4096, k=4096)),
    ],
)
def test_candidates_are_those_of_the_graphs(name: str, graph: Graph) -> None:
    for splits in ((), ("k",) if name == "matmul" else ("t",)):
        assert graph_hash(candidate_of(name, *splits).origin) == graph_hash(graph)


def test_the_grid_has_every_merge_and_counts_that_do_not_divide() -> None:
    assert {merge for merge, _ in WAYS} == set(get_args(Merge))
    for merge in set(get_args(Merge)) - {"none"}:
        assert any(8192 % count and 5003 % count for way, count in WAYS if way == merge)
    assert all(len(lengths) == REPLAYED["b"] and max(lengths) <= REPLAYED["t"] for lengths in LENGTHS)


def test_goals_are_those_of_the_issue() -> None:
    assert [(p.queries, p.kv_heads, p.d, p.goal) for p in PAPER if p.goal] == [
        (16, 32, 128, 1.4),
        (16, 32, 64, 1.4),
        (16, 8, 128, 2.0),
        (16, 8, 64, 2.0),
        (16, 1, 128, 3.0),
        (16, 1, 64, 3.0),
    ]
    assert {(p.queries, p.t) for p in PAPER if p.goal is None} == {(128, 4096)}
    assert PAPER[4].dims == {"b": 1, "kv_heads": 1, "group": 32, "s": 16, "d": 128, "e": 128, "t": 4096}


@pytest.mark.parametrize("op", operators(8, 128), ids=lambda op: op.name)
@pytest.mark.parametrize("graph", ["attention_lse", "attention_by_length"])
def test_every_way_has_a_plan(op: Operator, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.e04_decode.plans.compiled", lambda plans: None)
    plan = plan_operator(op, graph)
    assert not isinstance(plan, str), plan
    assert plan.merge == op.merge and (op.splits == 1 or op.splits in plan.bind.values())
    assert generate(plan).kernels


def test_contenders_are_of_both_skeletons_and_several_merges() -> None:
    found = contenders("attention", "t", TIMED[0].dims, 32)
    first = schedule(candidate_of("attention", "t"), Target("sm_90a"), TIMED[0].dims)[0]
    assert found[0].modelled == first.modelled
    assert len({(s.kernels[0].skeleton, s.merge) for s in found}) >= 3 and len(found) == 32
    assert len({s.bind["S_t"] for s in found}) >= 3


def test_a_sweep_has_every_count_and_its_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.e04_decode.sweep.compiled", lambda plans: None)
    monkeypatch.setattr("experiments.e04_decode.sweep.COUNTS", (4, 16))
    plans = plan_sweep("matmul", "k", SWEPT_MATMULS[0])
    assert not isinstance(plans, str) and [count_of(s) for s in plans][:2] == [1, 4]
    assert {count_of(s) for s in plans} == {1, 4, 16} and COUNTS[0] == 2 and COUNTS[-1] == 64
    assert {s.merge for s in plans if count_of(s) == 4} == {"second-launch", "last-arriving", "cluster"}
    assert {s.merge for s in plans if count_of(s) == 16} == {"second-launch", "last-arriving"}


def test_a_sweep_is_a_record_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    dims = {"m": 16, "n": 4096, "k": 4096}
    plans = [
        schedule(candidate_of("matmul"), Target("sm_90a"), dims)[0],
        schedule(candidate_of("matmul", "k"), Target("sm_90a"), dims, split={"k": 4}, merge="cluster")[0],
        schedule(candidate_of("matmul", "k"), Target("sm_90a"), dims, split={"k": 4}, merge="second-launch")[0],
    ]
    wrong = plans[2]

    def emitted(plan: Schedule) -> Any:
        def run(a: Any, b: Any, out: Any) -> None:
            out["out"].copy_(a @ b + (plan is wrong))

        return run

    def timed(contenders: Any) -> dict[str, Timing]:
        return {c.name: Timing(c.name, "burst", 1, (1e-6 * (n + 1),)) for n, c in enumerate(contenders)}

    monkeypatch.setattr("experiments.e04_decode.timing.emit", emitted)
    monkeypatch.setattr("experiments.e04_decode.sweep.time_contenders", timed)
    given = {"a": torch.randn(3, 5), "b": torch.randn(5, 4)}
    baselines = usable([given], {"cublas": lambda x: x["a"] @ x["b"]})
    out = swept("matmul", dims, plans, baselines)
    assert [(r.outcome, r.workload.get("splits")) for r in out.records] == [
        (Outcome.WRONG, None),
        (Outcome.OK, 1),
        (Outcome.OK, 4),
        (Outcome.OK, None),
    ]
    assert out.records[2].schedule["merge"] == "cluster" and out.records[2].schedule["modelled_us"] > 0
    assert "us by split count 1: 1.00, 4: 2.00 | best baseline 3.00" in out.lines[0]


@pytest.mark.parametrize("way", [w for w in WAYS if w[1] < 8])
def test_lengths_on_the_device_are_read_at_every_call(way: tuple[Merge, int], rng: np.random.Generator) -> None:
    merge, count = way
    c = candidate_of("attention_by_length", *(["t"] if count > 1 else []))
    dims = {"b": 3, "kv_heads": 2, "group": 4, "t": 200, "d": 16, "e": 16}
    forced = {"split": {"t": count}, "merge": merge} if count > 1 else {}
    plan = schedule(c, Target("sm_90a"), dims, skeleton="warp-ring", **forced)[0]  # type: ignore[arg-type]
    source = generate(plan)
    x = inputs(rng, b=3, kv_heads=2, group=4, t=200)
    for lengths in ([200, 0, 31], [0, 0, 0], [1, 129, 64]):
        given = {**x, "lengths": np.array(lengths, np.int32)}
        np.testing.assert_allclose(emulate(source, given)["out"], expected(given)["out"], rtol=2e-2, atol=2e-3)
