"""Thirty random graphs at several shapes: every kernel against float64, under the metric of ``cleave.verify``."""

from __future__ import annotations

import pytest

from cleave.pipeline import emit
from cleave.runtime import device
from tests.gpu.called import as_operator
from tests.null import random_graphs

pytest.importorskip("cupy")


@pytest.mark.parametrize("drawn", random_graphs.saved(), ids=str)
def test_a_random_graph_at_every_size(drawn):
    """One operator, called at each size that it takes."""
    s = drawn.schedule(device.target())
    run = emit(s)
    for number in range(len(random_graphs.SIZES)):
        sizes = drawn.suiting(s, number)
        check = drawn.check(as_operator(run, drawn.candidate.origin, sizes), sizes)
        assert check.outcome.value == "passed", f"{sizes}: {check}\n{drawn.candidate.origin.text()}\n{s.text()}"
