"""`cleave operators`: the table, and one operator."""

from __future__ import annotations

import json

import pytest

from cleave.cli import main
from cleave.nn import OPERATORS

Captured = pytest.CaptureFixture[str]


def test_operators_are_listed(capsys: Captured) -> None:
    assert main(["operators"]) == 0
    listed = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in listed] == list(OPERATORS)
    assert len({summary for _, summary in listed}) == len(listed)
    assert main(["operators", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [o["name"] for o in found] == list(OPERATORS)
    assert all(o["inputs"] and o["outputs"] and o["dims"] for o in found)


def test_one_operator_is_shown_with_its_shapes(capsys: Captured) -> None:
    assert main(["operators", "moe_routing"]) == 0
    text = capsys.readouterr().out
    assert "output experts: int32[m, 8]" in text and "dims (--bind NAME=N): m, n, k" in text
    assert "options: --normalised (True), --dtype (float16)" in text
    assert "workload moe_routing prefill\n  m=4096,n=4096,k=8" in text
    assert "graph moe_routing\n" in text
    assert main(["operators", "mha"]) == 0
    assert "compiled in where they are bound: d, e\n" in capsys.readouterr().out
    assert main(["operators", "lora", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weights"] == ["w", "a", "b"]


def test_an_operator_that_does_not_exist(capsys: Captured) -> None:
    assert main(["operators", "convolution"]) == 2
    told = f"cleave: convolution: no such operator: allowed are {', '.join(OPERATORS)}\n"
    assert capsys.readouterr().err == told
