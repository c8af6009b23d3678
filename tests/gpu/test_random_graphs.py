"""Thirty random graphs at several shapes: every kernel against float64, under the metric of ``cleave.verify``."""

from __future__ import annotations

import pytest

from cleave.pipeline import emit
from cleave.runtime import device
from cleave.tune.bench import problem_of, storage
from tests.null import random_graphs

pytest.importorskip("cupy")


def as_operator(run, origin, sizes):
    """As ``check_executable`` calls one: arrays of NumPy, each in the storage type of its name."""
    given = problem_of(origin, sizes, 0).unshaped

    def operator(arrays, outputs):
        stored = {o.name: outputs[o.name].astype(storage(o.dtype)) for o in origin.outputs}
        inputs = {i.name: arrays[i.name].astype(storage(i.dtype)) for i in origin.inputs}
        run(**inputs, **given, out=stored)
        for name, array in outputs.items():
            array[...] = stored[name]

    return operator


@pytest.mark.parametrize("drawn", random_graphs.saved(), ids=str)
def test_a_random_graph_at_every_size(drawn):
    """One operator, called at each size that it takes."""
    s = drawn.schedule(device.target())
    run = emit(s)
    for number in range(len(random_graphs.SIZES)):
        sizes = drawn.suiting(s, number)
        check = drawn.check(as_operator(run, drawn.candidate.origin, sizes), sizes)
        assert check.outcome.value == "passed", f"{sizes}: {check}\n{drawn.candidate.origin.text()}\n{s.text()}"
