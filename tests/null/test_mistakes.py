"""What a user of the Python names gets wrong: each is one line that names the cause."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import ops
from cleave.candidate import Candidate
from cleave.config import Ablation, SearchLimits
from cleave.errors import CleaveError
from cleave.ir.graph import Graph
from tests.null.searched import searched

SHAPE = {"h": 2, "s": 16, "t": 96}
TARGET = cleave.Target("sm_90a")


def attention(q: Any, k: Any, v: Any) -> Any:
    p = ops.softmax(ops.einsum("hsd,htd->hst", q, k) * 0.125, axis="t")
    return ops.einsum("hst,hte->hse", p, v)


@cache
def graph() -> Graph:
    return cleave.trace(attention, q="h s d=64", k="h t d", v="h t e=64")


@cache
def split() -> Candidate:
    return searched(graph()).pick(split="t")


def bound(**changed: object) -> Any:
    return {**SHAPE, **changed}


CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "no graph": (lambda: cleave.search(attention), "function is no graph: cleave.trace makes one of a function"),  # type: ignore[arg-type]
    "size of nothing": (
        lambda: cleave.search(graph(), sizes={"z": 3}),
        "attention: no dim 'z': there are d, e, h, s, t",
    ),
    "size below zero": (lambda: cleave.search(graph(), sizes={"s": -3}), "dim s = -3: allowed is >= 0"),
    "weights": (lambda: cleave.search(graph(), weights=["w"]), "attention: no input 'w': there are q, k, v"),
    "pick": (lambda: cleave.search(graph()).pick(split="x"), "no candidate splits 'x'; axes that candidates split: t"),
    "verify a dim": (lambda: cleave.verify(split(), bind={"z": 3}), "split t: no dim 'z': there are "),
    "verify a value": (lambda: cleave.verify(split(), bind=bound(s=-1)), "dim s = -1: allowed is >= 0"),
    "no value": (lambda: cleave.schedule(split(), TARGET, bind={}), "split t: dim h has no value: bind it (h=...)"),
    "no dim": (lambda: cleave.schedule(split(), TARGET, bind=bound(z=2)), "split t: no dim 'z': the graph has "),
    "fraction": (lambda: cleave.schedule(split(), TARGET, bind=bound(s=2.5)), "dim s = 2.5: an integer is expected"),
    "text": (lambda: cleave.schedule(split(), TARGET, bind=bound(s="2")), "dim s = '2': an integer is expected"),
    "too long": (lambda: cleave.schedule(split(), TARGET, bind=bound(s=2**48 + 1)), "allowed is <= 281474976710656"),
    "tile": (lambda: cleave.schedule(split(), TARGET, SHAPE, tile={"t": 7}), "axis t: tile 7: allowed are multiples"),
    "skeleton": (lambda: cleave.schedule(split(), TARGET, SHAPE, skeleton="x"), "skeleton 'x': allowed are cta-ring"),
    "split": (lambda: cleave.schedule(split(), TARGET, SHAPE, split={"s": 2}), "split of 's': allowed are t"),
    "target": (lambda: cleave.optimize(graph(), SHAPE, "sm_70"), "target: unknown architecture 'sm_70'"),
    "rule": (lambda: cleave.Rulebook.default().without("reasoc"), "no rule or family 'reasoc'; did you mean reassoc?"),
    "assumption": (lambda: cleave.Rulebook.default().assuming(["finit"]), "no assumption 'finit'; there are finite, "),
    "assume": (
        lambda: cleave.Config(assume=frozenset({"finit"})),
        "Config: assume = frozenset({'finit'}): allowed is ",
    ),
    "assume text": (lambda: cleave.Config(assume="finite"), "Config: assume = 'finite': allowed is a set of finite, "),  # type: ignore[arg-type]
    "seed": (lambda: cleave.Config(seed=-1), "Config: seed = -1: allowed is a number >= 0"),
    "rounds": (lambda: SearchLimits(rounds=0), "Config: rounds = 0: allowed is 1 to 2147483647"),
    "seconds": (lambda: SearchLimits(seconds=float("inf")), "Config: seconds = inf: allowed is a positive number"),
    "scale": (lambda: cleave.nn.attention(scale=float("nan")), "attention: scale = nan: a finite number is expected"),
    "load": (lambda: cleave.load("absent"), "absent: is no saved result: there is no such file or folder"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_mistake_is_one_line(call: str) -> None:
    run, message = CALLS[call]
    with pytest.raises(CleaveError) as caught:
        run()
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_integers_of_numpy_are_integers() -> None:
    found = cleave.schedule(split(), TARGET, bind={n: np.int64(v) for n, v in SHAPE.items()})
    assert found[0].text() == cleave.schedule(split(), TARGET, bind=SHAPE)[0].text()


@pytest.mark.parametrize("name", Ablation.__slots__)
def test_every_ablation_changes_something_or_says_why_not(name: str) -> None:
    assert outcome(Ablation(**{name: False})) != outcome(Ablation())


@cache
def outcome(ablation: Ablation) -> tuple[object, ...]:
    config = cleave.Config(ablation=ablation, isolate=False)

    def plan(c: Candidate) -> str:
        try:
            return cleave.schedule(c, TARGET, SHAPE, config)[0].text()
        except CleaveError as error:
            return str(error)

    found = cleave.search(graph(), config=config)
    return [c.name for c in found.candidates], [plan(c) for c in found.candidates], found.report.notes


def test_what_a_prompt_shows_is_one_short_line() -> None:
    plan = cleave.schedule(split(), TARGET, SHAPE)[0]
    result = cleave.optimize(graph(), SHAPE, "sm_80", cleave.Config(ablation=Ablation(algebra=False)))
    for thing in (split(), plan, result, searched(graph()), cleave.emit(plan)):
        assert len(repr(thing)) < 160 and "\n" not in repr(thing)
    assert repr(result).startswith("Result(attention, 1 candidates, as written: ")
