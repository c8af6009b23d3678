"""Random graphs through search, schedule and emission, on the emulator: a few of those that tests/gpu runs all of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from numpy.typing import NDArray

from cleave import Target
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.ir.graph import walk
from cleave.verify import verify
from tests.null import random_graphs
from tests.null.random_graphs import DTYPES, Drawn

Array = NDArray[Any]
SAVED = random_graphs.saved()
FEW = [d for d in SAVED if d.candidate.splits or d.candidate.folds][:3] + SAVED[:2]


def test_there_are_thirty_graphs_of_each_storage_type_with_splits_and_folds() -> None:
    assert len({d.number for d in SAVED}) == random_graphs.COUNT
    assert len({d.candidate.origin.text() for d in SAVED}) == random_graphs.COUNT
    assert {i.dtype for d in SAVED for i in d.candidate.origin.inputs} >= set(DTYPES)
    assert any(d.candidate.splits for d in SAVED) and any(d.candidate.folds for d in SAVED)
    assert max(len(list(walk(*d.candidate.origin.terms))) for d in SAVED) > 20


@pytest.mark.parametrize("drawn", FEW, ids=str)
def test_a_random_graph_on_the_emulator(drawn: Drawn) -> None:
    assert verify(drawn.candidate).passed
    s = drawn.schedule(Target("sm_80"))
    source, sizes = generate(s), drawn.suiting(s, 0)

    def operator(arrays: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        for name, made in emulate(source, arrays, sizes).items():
            outputs[name][...] = made

    check = drawn.check(operator, sizes)
    assert check.outcome.value == "passed", f"{check}\n{drawn.candidate.origin.text()}"
