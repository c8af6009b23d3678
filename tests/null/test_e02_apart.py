"""The parts of e02 with shapes of their own, without a GPU: many keys in large pages, graphs that are replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import experiments.e02_dynamic.run as runner
from cleave.ir.interp import interpret
from cleave.records import Outcome
from experiments.e02_dynamic import evaluator, large, replay
from experiments.e02_dynamic.batch import drawn, pools_of
from experiments.e02_dynamic.bench import Laboratory
from experiments.e02_dynamic.config import CANDIDATES, graph_of
from experiments.e02_dynamic.reference import reference
from experiments.e02_dynamic.workloads import operators, points
from tests.null.e02_laboratory import LATEST, SMALL, Ours, laboratory
from tests.null.paged_references import REFERENCES
from tests.null.test_e02_measure import tried

PAGED = {k: v for k, v in SMALL["gqa_paged_decode"].items() if k != "page_size"}


@pytest.fixture(autouse=True)
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> tuple[large.Large, ...]:
    monkeypatch.setattr(large, "BATCHES", ((1, 70), (3, 20)))
    return large.points(PAGED, pool_keys=256)


def test_pages_lie_beyond_what_32_bits_number(torch: Any) -> None:
    every = large.points()
    assert {(x.point.page, x.point.requests, sum(x.point.keys)) for x in every} == {
        (page, b, b * t) for page in (1, 16, 64) for b, t in ((1, 131072), (256, 32768))
    }
    for x in (x for x in every if x.point.requests == 1):
        ids = large.page_table(x.point, x.order, "cpu").long()
        assert len(ids.unique()) == len(ids) and int(ids.max()) < x.point.pages
        assert int(ids.min()) * x.point.page * 4 * 128 >= large.FAR
    for x in every:
        assert (CANDIDATES / f"{x.operator}.json").exists() and (CANDIDATES / f"{x.dense.operator}.json").exists()


def test_the_reference_in_pages_of_several_keys() -> None:
    for kind, page in (("gqa_paged_decode", 16), ("mla_paged_prefill", 4)):
        const = {**SMALL[kind], "page_size": page}
        p = replay.point(kind, const, (9, 0, 35, 16), (4, 2, 5, 1))
        batch = drawn(p, pools_of([p], "cpu"), "cpu", seed=1, ids=replay._table(p, 3, "cpu"))
        x = {n: np.asarray(v if n == "sm_scale" else v.double().numpy()) for n, v in batch.inputs.items()}
        x |= {n: v.astype(np.int32) for n, v in x.items() if n.startswith(("kv_", "qo_in")) and n != "kv_cache"}
        expected = REFERENCES[kind.removeprefix("gqa_")](x, **({"causal": True} if "prefill" in kind else {}))
        for name, (value, _) in reference(batch).items():
            np.testing.assert_allclose(value.numpy(), expected[name], rtol=1e-5, atol=1e-5)


def test_keys_in_one_piece_have_the_same_value(few: tuple[large.Large, ...]) -> None:
    for x in few:
        batch = drawn(x.point, pools_of([x.point], "cpu"), "cpu", seed=1, ids=large.page_table(x.point, x.order, "cpu"))
        dense = large.contiguous(batch, x.dense)
        given = {n: v.double().numpy() for n, v in dense.inputs.items()}
        found = interpret(dense.graph, given, {s.name: s.value for s in dense.graph.symbols if s.value is not None})
        for name, (value, _) in reference(batch).items():
            np.testing.assert_allclose(found[name][:, :, 0], value.numpy(), rtol=1e-4, atol=1e-4)
        assert dense.outputs["out"].data_ptr() == batch.outputs["out"].data_ptr() and large.far_keys(batch) == 0


class Shared(Ours):
    """Right for whoever shares the outputs of the batch that was drawn last."""

    def __call__(self, out: Mapping[str, Any], **inputs: Any) -> None:
        for name, x in out.items():
            x.copy_(reference(LATEST[-1])[name][0].view(x.shape))
        self.spoil(out)

    def prepare(self, out: Mapping[str, Any], **inputs: Any) -> None: ...


def following(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    def recorded(*arguments: Any, **more: Any) -> Any:
        LATEST.append(drawn(*arguments, **more))
        return LATEST[-1]

    monkeypatch.setattr(module, "drawn", recorded)


def test_paged_and_contiguous_meet(few: tuple[large.Large, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    plans = tried("gqa_paged_decode", ("none", "cluster"))
    seconds = {"schedule 0": 3e-6, "schedule 1": 2e-6, "paged": 4e-6, "contiguous": 3e-6}
    wrong = Shared(lambda out: out["out"].zero_())
    lab = laboratory(monkeypatch, [], seconds, lambda rule: wrong if rule.made[0] is plans.made[0] else Shared())
    following(monkeypatch, large)
    for x in few[:3]:
        found = large.time_large(x, plans, plans, few, lab)
        assert [r.outcome for r in found.records] == [Outcome.WRONG] * 2 + [Outcome.OK] * 2
        paged, dense = found.records[2:]
        assert (paged.workload["contender"], dense.workload["contender"]) == ("paged", "contiguous")
        assert paged.details["contiguous_over_paged"] == pytest.approx(0.75) and paged.details["order"] == x.order
        assert "contiguous / paged 0.750  missed: 0.92" in found.lines[0]
    lab = laboratory(monkeypatch, [], seconds, lambda m: wrong)
    found = large.time_large(few[-1], plans, plans, few, lab)
    assert [r.outcome for r in found.records] == [Outcome.WRONG] * 4 + [Outcome.REFUSED]


# ---- replays


def replaying(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Mapping[str, Any]], object]) -> Laboratory:
    """A graph that is right for the batch that was written last, if that is all there is in what was captured."""
    lab = laboratory(monkeypatch, [], executable=lambda m: Ours())
    following(monkeypatch, replay)
    first, last = ((7, 4, 0, 1), (5, 2, 3, 1)), ((0, 0, 0, 0), (0, 0, 4, 0))
    monkeypatch.setattr(replay, "CAPTURED", first)
    monkeypatch.setattr(replay, "STEPS", (first, ((0, 9, 2, 0), (1, 5, 0, 2)), last))

    def captured(call: Any) -> Callable[[], object]:
        given, out = call.keywords, call.keywords["out"]

        def again() -> None:
            step = LATEST[-1]
            for name, x in step.inputs.items():
                if name not in step.pools.arrays and name != "sm_scale":
                    assert bool((given[name][: len(x)] == x).all()), name
                    rest = given[name][len(x) :]
                    assert (
                        bool(rest.isnan().all())
                        if rest.is_floating_point()
                        else set(rest.tolist()) <= {*replay.GARBAGE}
                    )
            for name, (value, _) in reference(step).items():
                out[name][: len(value)] = value
            spoil(out)

        return again

    return replace(lab, captured=captured)


@pytest.mark.parametrize("kind", SMALL)
def test_every_step_of_a_replay_is_checked(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tried(kind, ("none", "cluster"))
    found = replay.replay(made, SMALL[kind], replaying(monkeypatch, lambda out: None))
    assert [r.outcome for r in found.records] == [Outcome.OK] * 2 * len(replay.STEPS)
    assert [r.workload["step"] for r in found.records] == [*range(len(replay.STEPS))] * 2
    assert max(r.workload["empty"] for r in found.records) == 4
    assert [line.split(": ")[1].split(" (")[0] for line in found.lines] == ["3 of 3 replays are right"] * 2


def test_rows_of_no_request_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = replaying(monkeypatch, lambda out: out["lse"][-1].zero_())
    found = replay.replay(tried("gqa_ragged_prefill", ("none",)), SMALL["gqa_ragged_prefill"], lab)
    wrong = {r.workload["step"]: r.check["error"] for r in found.records if r.outcome is Outcome.WRONG}
    assert wrong[1] == "rows of no request were written"


def test_what_is_replayed_has_candidates_and_room() -> None:
    known = replay.consts(operators(points()))
    for name, const in known.items():
        assert (CANDIDATES / f"{name}.json").exists() and graph_of(const).inputs
        first, every = replay.steps(name, const)
        for p in every:
            assert p.requests == first.requests and p.pages == first.pages
            assert all(p.dims[n] <= first.dims[n] for n in first.dims)


def test_parts_apart_run_on_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def plan_at(pool: Any, wanted: Any, count: int) -> list[Any]:
        asked.extend((name, len(dims)) for name, dims in wanted)
        return [tried(name, ("none",)) for name, _ in wanted]

    monkeypatch.setattr(large, "plan_at", plan_at)
    monkeypatch.setattr(replay, "plan_at", plan_at)
    monkeypatch.setattr(evaluator, "plan", lambda pool, names: [tried(name, ("none",)) for name in names])
    jobs = [job for part in runner.APART for job in runner._jobs(part, None, points())]  # type: ignore[arg-type]
    judged = len(jobs) - 8 - 5
    assert [j[0] for j in jobs] == ["large.jsonl"] * 8 + ["replay.jsonl"] * 5 + ["evaluator.jsonl"] * judged
    assert all(j[3].operator == j[4].operator and "contiguous" in j[5].operator for j in jobs[:8])
    assert all(j[1]["operator"] == j[3].operator for j in jobs)
    assert len({(j[1]["operator"], j[1]["uuid"]) for j in jobs[13:]}) == judged == 303
    assert len(asked) == 8 + 5
