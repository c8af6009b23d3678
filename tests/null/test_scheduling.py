"""Explanations of schedules: what they say is what the scheduler did, for splits, loops, refusals and rooflines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import cleave
from cleave import Config, Target, nn
from cleave.candidate import as_written
from cleave.config import Ablation
from cleave.cost.roofline import PARTS, roofline
from cleave.ir.bind import bind_dims
from cleave.pipeline import Trial
from cleave.pipeline.scheduling import Scheduling, explain_schedules
from cleave.records import Outcome
from cleave.schedule import schedule
from cleave.schedule.choice import Refusal, summarised
from cleave.tile.program import loops
from cleave.tile.skeleton import SKELETONS
from tests.null.command import Run, runner
from tests.null.optimized import matmul
from tests.null.searched import QUICK, searched

SM_90A = Target("sm_90a")


@dataclass(frozen=True)
class Operator:
    """What is bound, and lines that its explanation has to have."""

    name: str
    bind: Mapping[str, int]
    says: tuple[str, ...]


HEADS = {"d": 64, "e": 64}
OPERATORS = (
    Operator(
        "matmul",
        {"m": 512, "n": 512, "k": 192},
        (r"^k: not split: the best split of it, into \d+ chunks, merge [\w-]+, takes [\d.]+ us$",),
    ),
    Operator(
        "mha",
        {"b": 2, "h": 16, "s": 1024, "t": 192, **HEADS},
        (
            r"^attention: max, sum and sum over t in one loop: a fold of the candidate restates what was gathered; "
            r"tiles are computed relative to the joint state$",
            r"^t: not split: ",
            r"^d: not split: no candidate splits it: its extent is fixed and short$",
        ),
    ),
    Operator(
        "gqa",
        {"b": 1, "h": 32, "kv_heads": 4, "s": 1, "t": 1024, **HEADS},
        (
            r"^t: split into \d+ chunks, merge [\w-]+: [\d.]+ us; the best without it takes [\d.]+ us$",
            r"^2 kernels: partials of chunks, and their merge",
            r"at the end of the launch before$",
        ),
    ),
    Operator(
        "rmsnorm_matmul",
        {"m": 2048, "k": 64, "n": 4096},
        (r"^k: not split: it has not two chunks of 64 elements$", r"^\d +cut at reductions that tiles repeat +- "),
    ),
    Operator(
        "softmax",
        {"m": 512, "n": 1000},
        (
            r"^n: not split: max x1, sum x1; output out stores it too: a split would have to store chunks$",
            r"^softmax: sum over n needs the finished max over n and no fold holds both: two loops$",
            r"^softmax: a loop over n stores what is known once the reductions over it are done$",
        ),
    ),
)


def explained(operator: Operator) -> Scheduling:
    g, dims = nn.instantiate(operator.name, operator.bind)
    found = searched(g).candidates[:2]
    return explain_schedules(tuple(enumerate(found)), SM_90A, bind_dims(g, {}, dims), QUICK)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_it_says_what_the_scheduler_did(operator: Operator) -> None:
    e = explained(operator)
    text = e.text()
    for line in operator.says:
        assert re.search(line, text, re.MULTILINE), f"{line}\n{text}"
    json.dumps(e.as_dict())
    check_order(e)
    check_loops(e)
    check_rooflines(e)
    check_refusals(e)


def check_order(e: Scheduling) -> None:
    """What is explained is the best of all alternatives, and each axis that is reduced has its line."""
    assert e.detailed is not None and e.schedule is not None and e.schedule.modelled is not None
    every = [a.microseconds for _, a in e.alternatives if a.microseconds is not None]
    assert every == sorted(every) and e.schedule.modelled.microseconds == pytest.approx(every[0], rel=0.01)
    reducible = [row.axis.name for row in e.axes.rows if row.reducible]
    assert [line.split(":")[0] for line in e.split_lines()] == reducible


def check_loops(e: Scheduling) -> None:
    """Every loop that carries something has its reason."""
    assert e.schedule is not None
    for k in e.schedule.kernels:
        for loop in loops(k.program):
            if loop.accumulators:
                assert any(f"over {loop.axis.name} " in n for n in k.notes if "loop" in n), (loop.axis, k.notes)


def check_rooflines(e: Scheduling) -> None:
    """Rows and launches add up to the modelled time; no share is above its ceiling."""
    for s in (a.best for _, a in e.alternatives):
        if s is None or s.modelled is None:
            continue
        rows = roofline(s)
        total = sum(r.microseconds for r in rows) + s.modelled.terms["launch"]
        assert total == pytest.approx(s.modelled.microseconds)
        for r in rows:
            assert r.in_launch_of_first == (not r.shares) and r.microseconds > 0
            assert set(r.shares) in (set(), set(PARTS)) and all(0 <= v <= 1 for v in r.shares.values())


def check_refusals(e: Scheduling) -> None:
    """A line a kind, not hundreds."""
    for s in e.candidates:
        assert s.choice is not None
        assert len(s.choice.refusals) <= 4 * len(SKELETONS)
        assert len({(r.skeleton, re.sub(r"\d+", "#", r.why)) for r in s.choice.refusals}) == len(s.choice.refusals)


def test_shares_are_amounts_over_ceilings() -> None:
    """A matmul of 512 x 2048 x 512 in half precision, by hand."""
    s = schedule(as_written(nn.matmul()), SM_90A, {"m": 512, "n": 512, "k": 2048})[0]
    (r,) = roofline(s)
    facts, seconds = SM_90A.facts, r.microseconds / 1e6
    rate = facts.matmul_rate if s.kernels[0].binding.mma == "wgmma" else facts.mma_rate
    assert r.bytes == 2 * (512 * 2048 * 2 + 512 * 512)
    assert r.matmul_flops == 2 * 512 * 512 * 2048
    assert r.shares["memory"] == pytest.approx(r.bytes / facts.read_bandwidth / seconds)
    assert r.shares["matmul"] == pytest.approx(r.matmul_flops / rate / seconds)


# ---- refusals


def test_refusals_are_a_line_a_kind_with_ranges() -> None:
    refused = {
        ("row", "300 bytes, allowed are 255"): 1,
        ("row", "280 bytes, allowed are 255"): 2,
        ("row", "value e7 is -1 of sm_90a"): 1,
        ("", "300 bytes, allowed are 255"): 1,
    }
    assert summarised(refused) == (
        Refusal("", "300 bytes, allowed are 255", 1),
        Refusal("row", "280 to 300 bytes, allowed are 255", 3),
        Refusal("row", "value e7 is -1 of sm_90a", 1),
    )


def test_a_candidate_that_can_not_be_scheduled_has_its_reason() -> None:
    g, dims = nn.instantiate("moe_routing", {"m": 5, "n": 8, "k": 2})
    e = cleave.explain(searched(g), config=QUICK, bind=dims)
    assert e.schedules is not None and e.schedules.schedule is None
    assert re.search(r"^candidate 0 \(.*\) can't be scheduled: .*top-k over axis .*$", e.text(), re.MULTILINE)
    json.dumps(e.as_dict())


def test_a_switch_is_the_reason_where_it_is_one() -> None:
    g, dims = nn.instantiate("mha", OPERATORS[1].bind)
    candidates = tuple(enumerate(searched(g).candidates[:1]))
    off = Config(ablation=Ablation(horizontal_fusion=False, split=False), isolate=False)
    text = explain_schedules(candidates, SM_90A, dims, off).text()
    assert "horizontal fusion is switched off" in text


# ---- where it is seen


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    return runner(capsys)


def test_every_format_has_the_schedule() -> None:
    g, dims = nn.instantiate("softmax", {"m": 64, "n": 128})
    e = cleave.explain(searched(g), config=QUICK, bind=dims, target="sm_80")
    assert e.schedules is not None and e.schedules.schedule is not None
    for shown in (e.text(), e.markdown().replace("\\", ""), e.html()):
        assert "schedules for sm_80 at m = 64, n = 128" in shown and "kernel softmax: grid" in shown
        assert "it is for sm_90a" in shown
    assert e.schedules.schedule.svg() in e.html() and e.schedules.schedule.svg() in e.schedules._repr_html_()
    assert cleave.explain(searched(g)).schedules is None


def test_of_an_operator_on_the_command_line(command: Callable[..., Run]) -> None:
    found = command("explain softmax --bind m=64,n=128 --target sm_80 --json")
    schedules: dict[str, Any] = found.json["schedules"]
    assert found.code == 0 and schedules["target"] == "sm_80" and schedules["dims"] == {"m": 64, "n": 128}
    assert schedules["schedule"]["roofline"][0]["limit"] in PARTS
    found = command("explain softmax --bind m=64")
    assert (
        found.code == 0
        and "note: --bind n=.. explains schedules too\n" in found.out
        and "== schedules" not in found.out
    )
    found = command("explain softmax --bind m=64,n=128 --target sm_75")
    assert found.code == 2 and found.err.startswith("cleave: target: unknown architecture 'sm_75'")


def test_of_a_saved_result(command: Callable[..., Run], tmp_path: Path) -> None:
    result = matmul()
    result.save(tmp_path / "saved")
    found = command(f"explain {tmp_path / 'saved'}")
    best = result.best
    assert found.code == 0 and best is not None
    assert f"\nkept: {best.name}: {best.outcome}, {best.time}\n" in found.out
    assert best.schedule.text() in found.out
    shown = command(f"explain {tmp_path / 'saved'} --json").json["schedules"]
    assert shown["schedule"]["text"] == best.schedule.text() and shown["kept"][0]["name"] == best.name
    assert "k: not split: the candidate does not split it" in shown["splits"]
    assert "not among those that the scheduler gives today" not in found.out


def test_a_measured_time_has_its_shares_beside_the_modelled_ones() -> None:
    s = schedule(as_written(nn.matmul()), SM_90A, {"m": 64, "n": 64, "k": 64})[0]
    trial = Trial(s, Outcome.OK, times={"q50": 50e-6})
    e = explain_schedules(((0, as_written(nn.matmul())),), SM_90A, {"m": 64, "n": 64, "k": 64}, kept=[trial])
    (r,) = roofline(s)
    share = f"memory {100 * r.shares['memory'] * r.microseconds / 50:.0f} %"
    assert f"in the 50.0 us that were measured, launches and merges among them: {share}" in e.text()
