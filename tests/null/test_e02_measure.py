"""The measurement of e02 without a GPU: batches, their reference, jobs, the loop, what records add up to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import experiments.e02_dynamic.bench as benches
import experiments.e02_dynamic.first as first
import experiments.e02_dynamic.plans as planning
import experiments.e02_dynamic.reference as references
import experiments.e02_dynamic.run as runner
from cleave.ir.graph import Graph
from cleave.ir.graph import graph as make_graph
from cleave.ir.index import Pred
from cleave.ir.interp import interpret
from cleave.records import Outcome, Record, read
from cleave.runtime.timing import in_turns, without
from cleave.runtime.watchdog import Limited
from cleave.runtime.watchdog import Outcome as Ended
from cleave.tune.plan import Made
from cleave.tune.variants import Sample
from cleave.verify.metric import least, magnitude
from experiments.e02_dynamic.baselines import names, with_dead_rows
from experiments.e02_dynamic.batch import drawn, page_ids, pointers, pools_of
from experiments.e02_dynamic.loop import Loop, remembered
from experiments.e02_dynamic.plans import OURS, SECOND_LAUNCH, SPLIT_OFF, Chosen, Tried
from experiments.e02_dynamic.point import Trial, check_point, time_point, told_apart, try_schedules
from experiments.e02_dynamic.reference import reference
from experiments.e02_dynamic.search import middle, planned, sampled
from experiments.e02_dynamic.summary import Ratio, over, over_operators, ratios, table
from experiments.e02_dynamic.workloads import Point, operators, points
from experiments.tally import Checked, Tally
from tests.null.e02_laboratory import SMALL, Ours, laboratory, small_point
from tests.null.paged_references import REFERENCES

POINTS = points()
OPERATORS = operators(POINTS)


# ---- shapes and tables


def test_the_shape_that_stands_for_an_operator_is_a_batch() -> None:
    for name in OPERATORS:
        chosen = middle(POINTS, name)
        own = sorted(p.work for p in POINTS if p.operator == name and p.requests > 1)
        assert chosen.requests > 1 and chosen.work == own[len(own) // 2]
        tried = sampled(POINTS, name)
        assert 6 <= len({p.uuid for p in tried}) <= 10 and tried[0] is chosen
        ends = sorted((p for p in POINTS if p.operator == name), key=lambda p: p.work)
        assert ends[-1].work in {p.work for p in tried}


def test_pairs_are_those_under_the_diagonal() -> None:
    p = Point("x", {}, "u", {"len_indptr": 4}, 1.0, "exact", keys=(5, 2, 0), queries=(3, 4, 2))
    assert p.pairs == (3 + 4 + 5) + (1 + 2)


def test_pages_are_given_out_as_by_a_server() -> None:
    assert page_ids((4,), decode=True).tolist() == [1, 2, 3, 4]
    # prompts of one and three tokens behind the shared one, then two steps of both
    assert page_ids((4, 6), decode=True).tolist() == [1, 2, 6, 8, *(1, 3, 4, 5, 7, 9)]
    assert page_ids((4, 0, 3), decode=False).tolist() == [1, 2, 3, 4, 1, 5, 6]


def test_tables_name_pages_of_the_pool_and_share_the_first() -> None:
    for p in POINTS:
        if p.pages:
            ids = page_ids(p.keys, decode="decode" in p.operator)
            assert len(ids) == sum(p.keys) and ids.min() == 1 and ids.max() < p.pages
            own = ids[ids > 1]
            assert len(np.unique(own)) == len(own)
    assert pointers((3, 0, 2)).tolist() == [0, 3, 3, 5]


# ---- batches and their reference


@pytest.fixture(autouse=True)
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("operator", SMALL)
def test_the_reference_is_the_operator(operator: str) -> None:
    p = small_point(operator)
    batch = drawn(p, pools_of([p], "cpu"), "cpu", seed=1)
    x = {n: np.asarray(v if n == "sm_scale" else v.double().numpy()) for n, v in batch.inputs.items()}
    x |= {n: v.astype(np.int32) for n, v in x.items() if n.startswith(("kv_in", "qo_in"))}
    name = operator.removeprefix("gqa_")
    options = {"causal": True} if "prefill" in name else {}
    expected = REFERENCES[name](x, **options)
    found = reference(batch)
    every = {**p.dims, **{s.name: s.value for s in batch.graph.symbols if s.value is not None}}
    sizes = interpret(measured(batch.graph), x, every)
    for output in ("out", "lse"):
        value, size = (t.numpy() for t in found[output])
        np.testing.assert_allclose(value, expected[output], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(size, np.abs(size))
        finite = np.isfinite(value)
        np.testing.assert_allclose(size[finite], sizes[output][finite], rtol=0.2, atol=1e-3)


def measured(g: Graph) -> Graph:
    """The graph of the magnitudes that ``cleave.verify`` has."""
    sizes = [replace(o, dtype="float64", term=magnitude(o.term, least(g, o.name))) for o in g.outputs]
    return make_graph(g.name, g.inputs, sizes, g.constraints)


def test_long_requests_are_referred_to_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    p = small_point("gqa_paged_prefill", (7, 3), (5, 6))
    batch = drawn(p, pools_of([p], "cpu"), "cpu", seed=1)
    whole = reference(batch)
    monkeypatch.setattr(references, "MOST_SCORES", 2 * 4 * 7)
    for name, (value, size) in reference(batch).items():
        np.testing.assert_allclose(value, whole[name][0], rtol=1e-6)
        np.testing.assert_allclose(size, whole[name][1], rtol=1e-6)


def test_what_no_request_uses_is_nan() -> None:
    long, short = small_point("gqa_paged_decode", (9, 4)), small_point("gqa_paged_decode", (3, 2))
    pools = pools_of([short, long], "cpu")
    for p in (long, short):
        batch = drawn(p, pools, "cpu", seed=2)
        cache = batch.inputs["k_cache"]
        assert cache.shape[0] == p.pages and cache.data_ptr() == pools.arrays["k_cache"].data_ptr()
        used = set(batch.inputs["kv_indices"].tolist())
        assert {n for n in range(len(pools.arrays["k_cache"])) if not pools.arrays["k_cache"][n].isnan().all()} == used
        assert all(bool(x.isnan().all()) for x in batch.outputs.values())
    pools.finite()
    assert bool(pools.arrays["v_cache"].isfinite().all())


# ---- schedules


class Here:
    """A pool without processes."""

    def submit(self, function: Any, *arguments: Any) -> Any:
        done: Future[Any] = Future()
        done.set_result(function(*arguments))
        return done


def test_schedules_with_and_without_a_split_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a split candidate has in one chunk is left out; no program is tried twice."""
    asked: list[tuple[bool, int, str | None]] = []

    def chosen_of(pool: Any, requests: Any) -> list[Any]:
        asked.extend((any(c.splits for c in r.candidates), r.count, r.forced.merge) for r in requests)
        merges = (("none", "none"), ("none", "cluster", "second-launch"), ("second-launch",))
        numbers = ((0, 1), (2, 3, 4), (4,))
        groups = [
            tuple(made(n, m).schedule for n, m in zip(*g, strict=True)) for g in zip(numbers, merges, strict=True)
        ]
        return [planning.Alternatives(g, {}, ("why",)) for g in groups] * (len(requests) // 3)

    monkeypatch.setattr(planning, "chosen_of", chosen_of)
    monkeypatch.setattr(planning, "prepared", lambda s: made(s.kernels[0].binding.key, s.merge))
    operator = "mla_paged_decode_h16_ckv512_kpe64_ps1"
    (found,) = planning.plan(Here(), POINTS, [operator], 2)  # type: ignore[arg-type]
    of_a_shape = [(False, 2, None), (True, 2 * planning.AHEAD, None), (True, planning.OTHERS, "second-launch")]
    assert asked == of_a_shape * len(planned(POINTS, operator))
    assert [m.schedule.merge for m in found.made] == ["none", "none", "cluster", "second-launch"]
    assert found.kinds() == {OURS: [0, 1, 2, 3], SPLIT_OFF: [0, 1], SECOND_LAUNCH: [3]} and found.refused == ("why",)


# ---- jobs of a point


def alone(number: int) -> list[tuple[int, tuple[Pred, ...]]]:
    """A rule that knows one schedule."""
    return [(number, ())]


def tried(operator: str, merges: Sequence[str] = ("none", "last-arriving", "second-launch", "none")) -> Tried:
    return Tried(operator, tuple(made(n, merge) for n, merge in enumerate(merges)))


def made(number: int, merge: str) -> Made:
    binding = SimpleNamespace(
        tiles={}, warps=number, row_tiles=1, mma="mma.sync", teams=1, stages=2, rows=(), key=number
    )
    program = SimpleNamespace(grid=(SimpleNamespace(kind="outer"),))
    kernel = SimpleNamespace(skeleton="ring", binding=binding, feed="cp.async", program=program)
    source = SimpleNamespace(
        kernels=(SimpleNamespace(text=str(number), grid=(), shared_bytes=0),), derived=(), fixed={}
    )
    plan = SimpleNamespace(
        candidate="c", merge=merge, kernels=(kernel,) * (1 if merge == "none" else 2), chunks=(), bind={}, modelled=None
    )
    return Made(plan, source)  # type: ignore[arg-type]


def test_a_point_is_checked_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    p, plans = small_point("gqa_paged_decode"), tried("gqa_paged_decode")
    lab = laboratory(monkeypatch, [p], {OURS: 2e-6, SPLIT_OFF: 3e-6, "fa2": 6e-6, "fa2 mma": 5e-6, "fa3": 8e-6})
    out = time_point(p, Chosen(p.operator, plans.made, {OURS: alone(1), SPLIT_OFF: alone(0)}), {}, lab)
    rows = {r.workload["contender"]: r for r in out.records}
    assert list(rows) == [OURS, SPLIT_OFF, *names(p.const["kind"])]
    assert all(r.outcome is Outcome.OK and r.workload["keys"] == 12 for r in rows.values())
    assert rows[OURS].details["compiles_after_first_call"] == 0 and rows[OURS].quantiles["q50"] == pytest.approx(2.0)
    assert rows["fa2"].details["reads_unused_pages"] and not rows["fa3"].details["reads_unused_pages"]
    (r,) = ratios(out.records)
    assert r.over("fa2") == pytest.approx(2.5) and r.over("fa3") == pytest.approx(4.0)
    assert r.over("better") == pytest.approx(2.5) and r.over(SPLIT_OFF) == pytest.approx(1.5)
    assert r.over(SECOND_LAUNCH) is None


def test_a_wrong_baseline_is_named_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    p = small_point("gqa_paged_prefill", (3, 1, 2, 5), (3, 2, 2, 1))
    lab = laboratory(monkeypatch, [p])
    out = time_point(p, Chosen(p.operator, tried(p.operator).made, {OURS: alone(0), SPLIT_OFF: alone(0)}), {}, lab)
    rows = {r.workload["contender"]: r for r in out.records}
    assert list(rows) == [OURS, SPLIT_OFF, "fa2"] and "is wrong" in rows[OURS].details["refused"]["fa3"]
    assert rows[SPLIT_OFF].quantiles == rows[OURS].quantiles
    (r,) = ratios(out.records)
    assert r.over("fa3") is None and "left out: fa3 at 1 points" in table([r])[-1]


def test_ours_that_is_wrong_is_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    p, chosen = (
        small_point("mla_paged_decode"),
        Chosen("mla_paged_decode", tried("mla_paged_decode").made, {OURS: alone(0)}),
    )
    lab = laboratory(monkeypatch, [p], executable=lambda _: Ours(lambda out: out["lse"].mul_(1.5)))
    out = time_point(p, chosen, {}, lab)
    assert [r.outcome for r in out.records] == [Outcome.WRONG]
    assert [r.outcome for r in check_point(p, chosen, lab).records] == [Outcome.WRONG]
    calls: list[int] = []

    def later(out: Mapping[str, Any]) -> None:
        calls.append(1)
        if len(calls) > 2:
            out["out"][0] += 1.0

    lab = laboratory(monkeypatch, [p], executable=lambda _: Ours(later))
    wrong = [r for r in time_point(p, chosen, {}, lab).records if r.outcome is not Outcome.OK]
    assert [r.check["error"].split(":")[0] for r in wrong] == ["after timing"]


@pytest.mark.parametrize(
    ("operator", "longer"), [("mla_paged_prefill", {"kv_indices"}), ("gqa_ragged_prefill", {"k", "v"})]
)
def test_what_a_new_shape_costs_is_asked_at_shapes_that_are_new(
    monkeypatch: pytest.MonkeyPatch, operator: str, longer: set[str]
) -> None:
    p, run = small_point(operator), Ours()
    lab = laboratory(monkeypatch, [p], executable=lambda _: run)
    check_point(p, Chosen(p.operator, tried(p.operator).made, {OURS: alone(0)}), lab)
    assert run.prepared == [dict.fromkeys(longer, sum(p.keys) + n) for n in range(1, benches.PLANNED_TIMES + 1)]


def test_schedules_are_tried_at_some_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [small_point("mla_paged_decode", keys) for keys in ((5, 2), (7,))]
    plans = tried("mla_paged_decode")
    wrong = Ours(lambda out: out["out"].zero_())
    lab = laboratory(
        monkeypatch,
        shapes,
        {"0": 2e-6, "2": 3e-6, "3": 1e-6},
        executable=lambda rule: wrong if rule.made[0] is plans.made[1] else Ours(),
    )
    trial = try_schedules(plans, shapes, None, lab)
    assert trial.seconds == pytest.approx({0: 2e-6, 2: 3e-6, 3: 1e-6})
    assert trial.chosen(plans).rules == {OURS: alone(3), SPLIT_OFF: alone(3), SECOND_LAUNCH: alone(2)}
    assert [r.outcome for r in trial.records].count(Outcome.WRONG) == 1
    again = remembered(plans, shapes, trial.records)
    assert again is not None and again.seconds == pytest.approx(trial.seconds)
    assert (
        remembered(tried("mla_paged_decode", ("none",)), [*shapes, small_point("mla_paged_decode")], trial.records)
        is None
    )


def test_shapes_that_differ_have_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a record says of a contender is the schedule that its shape picks."""
    small, large = (small_point("gqa_paged_decode", keys) for keys in ((5, 2), (70, 20)))
    plans, lab = tried("gqa_paged_decode"), laboratory(monkeypatch, [small, large])
    samples = [Sample(told_apart(small), {0: 1e-6, 1: 2e-6}), Sample(told_apart(large), {0: 9e-6, 1: 3e-6})]
    chosen = Trial(samples=samples).chosen(plans)
    assert [len(tests) for _, tests in chosen.rules[OURS]] == [1, 0] and chosen.rules[SPLIT_OFF] == alone(0)
    assert [chosen[OURS].at(p.dims).schedule.kernels[0].binding.key for p in (small, large)] == [0, 1]
    rows = time_point(small, chosen, {}, lab).records
    assert "else: " in rows[0].details["variants"] and "variants" not in rows[1].details


def test_a_first_call_compiles_into_an_empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    p, folders = small_point("gqa_paged_decode"), list[str]()

    class Run(Ours):
        @property
        def compiled(self) -> None:
            folders.append(os.environ["CLEAVE_CACHE"])

    monkeypatch.setenv("CLEAVE_CACHE", str(tmp_path))
    lab = laboratory(monkeypatch, [p], executable=lambda _: Run())
    monkeypatch.setattr(first, "drawn", benches.drawn)
    out = first.first_calls(p, Chosen(p.operator, tried(p.operator).made, {OURS: alone(0)}), lab)
    assert folders != [str(tmp_path)] and os.environ["CLEAVE_CACHE"] == str(tmp_path)
    assert [r.workload["contender"] for r in out.records] == [OURS, *names("gqa_paged_decode")]
    assert all(r.details["first_call_seconds"] > 0 for r in out.records) and "1 kernels compiled" in out.lines[0]


# ---- the loop


class Workers:
    """Answers jobs by their names; FA3 ends the process at points with fewer keys than queries."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, tuple[str, ...]]] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, job: Any, first: Any, *rest: Any, seconds: float) -> Limited:
        if job is try_schedules:
            return Limited(Ended.OK, Trial([], [first.operator], [Sample({}, {0: 1e-6})]))
        p, without_ = first, tuple(rest[1]) if job is time_point else ()
        self.calls.append((job.__name__, p.uuid, without_))
        if job is time_point and "fa3" not in without_ and any(q > k for q, k in zip(p.queries, p.keys, strict=True)):
            return Limited(Ended.ILLEGAL_ADDRESS, message="it reads what is not there")
        rows = [row(p, name, us) for name, us in ((OURS, 2.0), ("fa2", 4.0), ("fa3", 6.0)) if name not in without_]
        rows[0].details["refused"] = dict(rest[1]) if job is time_point else {}
        return Limited(Ended.OK, Checked(rows, [p.name]))


def row(p: Point, contender: str, microseconds: float, plan: float = 1.0) -> Record:
    workload = {**p.row, "contender": contender}
    details = {"plan_us": plan, "compiles_after_first_call": 0}
    return Record(workload=workload, outcome=Outcome.OK, quantiles={"q50": microseconds}, details=details)


def test_a_baseline_that_ends_the_process_is_left_out(tmp_path: Path) -> None:
    even, *uneven = (small_point("gqa_paged_prefill", k, (3, 2)) for k in ((4, 2), (2, 1), (1, 3)))
    workers, tally = Workers(), Tally(tmp_path, {}, "a command", 1e18)
    chosen = Chosen("gqa_paged_prefill", tried("gqa_paged_prefill").made, {OURS: alone(0)})
    Loop("times", tally, workers).points(chosen, [uneven[0], even, uneven[1]])
    assert [c[2] for c in workers.calls] == [(), ("fa3",), (), ("fa3",)] and not tally.bad
    records = list(read(tmp_path / "times.jsonl"))
    assert [r.outcome for r in records].count(Outcome.SKIPPED) == 1
    one, _, last = ratios(records)
    assert one.refused["fa3"].startswith("ends the process: illegal address")
    assert last.refused["fa3"].startswith(f"not run, for at {uneven[0].uuid} it ends the process")


def test_an_operator_without_a_schedule_is_a_row(tmp_path: Path) -> None:
    tally = Tally(tmp_path, {}, "a command", 1e18)
    loop = Loop("times", tally, Workers())
    operator = next(iter(OPERATORS))
    assert loop.choose(Tried(operator, (), ("no way",)), POINTS, []) is None
    (r,) = read(tmp_path / "tried.jsonl")
    assert (r.outcome, r.check) == (Outcome.REFUSED, {"error": "no way"})


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workers:
    """A machine without a GPU that says that it has one."""
    import cleave.runtime.device
    import cleave.runtime.watchdog

    workers = Workers()
    monkeypatch.setattr(cleave.runtime.device, "properties", lambda: SimpleNamespace(as_dict=lambda: {"name": "a GPU"}))
    monkeypatch.setattr(cleave.runtime.watchdog, "Worker", lambda: workers)
    monkeypatch.setattr(runner, "ProcessPoolExecutor", lambda mp_context: workers)
    monkeypatch.setattr(planning, "plan", lambda pool, every, names, count: [tried(n, ("none",)) for n in names])
    monkeypatch.setattr(runner, "RECORDS", tmp_path)
    monkeypatch.setattr(runner.kept, "relative", lambda path: "records")
    return workers


def test_a_run_goes_through_points_and_resumes(machine: Workers, capsys: pytest.CaptureFixture[str]) -> None:
    operator = "mla_paged_decode_h16_ckv512_kpe64_ps1"
    own = [p for p in POINTS if p.operator == operator]
    one = ["measure", "--points", f"{operator} {own[0].uuid}"]
    assert runner.main(one) == 0 and [c[:2] for c in machine.calls] == [("time_point", own[0].uuid)]
    assert runner.main(["measure", "--parts", "times,checks", "--points", operator, "--resume"]) == 0
    assert [c[0] for c in machine.calls] == ["time_point"] * len(own) + ["check_point"] * len(own)
    said = capsys.readouterr().out
    assert f"{operator:52}    47/47" in said and "0 compiles after the first call" in said
    assert runner.main(["report"]) == 0
    assert "missed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["measure", "--parts", "times,all"], "parts 'times,all': allowed are times, checks, first, large, replay"),
        (["measure", "--points", "("], "--points '(': missing"),
        (["measure", "--points", "conv"], "--points 'conv': no point's name has it; one is 'gqa_paged_decode_h32_kv4"),
        (["measure", "--tried", "0"], "tried 0: allowed is >= 1"),
        (["report"], "no records: "),
    ],
)
def test_bad_options_are_refused(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(runner, "RECORDS", tmp_path)
    monkeypatch.setattr(runner.kept, "relative", str)
    assert runner.main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"e02: {message}")


# ---- what records add up to


def test_means_are_over_points_then_over_operators() -> None:
    def ratio(operator: str, ours: float, lengths: str = "exact", **theirs: float) -> Ratio:
        times = {OURS: ours, **{n.replace("_", " "): t for n, t in theirs.items()}}
        return Ratio(operator, f"u{ours}", lengths, times, dict.fromkeys(times, 2.0))

    latent, paged = "mla_paged_decode_h16_ckv512_kpe64_ps1", "gqa_paged_prefill_causal_h32_kv4_d128_ps1"
    found = [
        ratio(latent, 1.0, fa2=4.0, fa3=2.0, second_launch=3.0),
        ratio(latent, 1.0, "completed", fa2=1.0, fa3=0.5),
        ratio(paged, 2.0, fa2=16.0),
        ratio("mla_ragged_prefill_causal_h16_qk192_vo128", 1.0, "synthetic", fa2=100.0, fa3=100.0),
    ]
    assert over(found[:2], "fa2") == pytest.approx(2.0) and over(found[:2], "better") == pytest.approx(1.0)
    assert over_operators(found[:3], "fa2") == pytest.approx(4.0)
    assert over_operators(found[:3], "fa3") == pytest.approx(1.0)
    assert found[0].over("fa2", planned=True) == pytest.approx(2.0)
    lines = table(found)
    shown = {line[:52].strip(): line[52:].split() for line in lines}
    assert shown[latent][:4] == ["2/47", "2.000", "1.000", "1.000"] and lines[4].endswith("missed: better 1.1") is False
    assert "missed: better 1.1" in next(line for line in lines if line.startswith(latent))
    assert shown["operators that were captured"][:4] == ["2", "4.000", "1.000", "2.828"]
    assert shown["without paged prefill"][:2] == ["1", "2.000"]
    assert table([]) == ["no point was timed"]


# ---- time that is not counted


def test_what_runs_before_a_call_is_subtracted() -> None:
    found = in_turns(lambda name: {"a": 5.0, "own": 3.0}[name], ["own", "a"], 3)
    assert without(found.pop("own"), found) == {"a": [2.0] * 3}
    assert without([3.0, 4.0], {"a": [5.0], "b": [3.5, 3.5]}) == {"a": [2.0], "b": [0.5, 0.0]}


def test_rows_of_no_key_may_hold_any_large_number() -> None:
    """Of baselines, and only where no key is seen."""
    torch = pytest.importorskip("torch")
    lse, expected = torch.tensor([-6369.3, -5e4, -999.0, -6369.3]), torch.tensor([-np.inf, -np.inf, -np.inf, 2.0])
    found = with_dead_rows({"lse": lse, "out": lse}, expected)
    assert found["lse"].tolist() == pytest.approx([-np.inf, -np.inf, -999.0, -6369.3]) and found["out"] is lse
