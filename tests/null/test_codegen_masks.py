"""Masks by a large finite number: equal scores cancel, whatever their size, and masked tiles leave no trace."""

import numpy as np
import pytest

from cleave.candidate import Candidate
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.frontend import ops
from cleave.frontend.trace import trace
from cleave.ir.graph import Graph
from cleave.schedule import schedule
from cleave.target import Target
from cleave.tile.interp import schedule_dims
from cleave.verify import Outcome, check_executable
from tests.null.searched import searched

QUERIES, KEYS = 70, 90
SEEN = {
    "later keys": lambda i, j: j >= i,
    "a window": lambda i, j: (j <= i) & (j + 9 > i),
    "nothing": lambda i, j: j < 0,
}


def masked(seen: str, hidden: float) -> Graph:
    def attention(q, k, v):
        scores = (q @ k.T) * 0.3
        scores = ops.where(SEEN[seen](scores.position("s"), scores.position("t")), scores, hidden)
        return ops.softmax(scores, axis="t") @ v, ops.logsumexp(scores, axis="t")

    return trace(attention, q="s d=16", k="t d", v="t e=16", dtype="float16")


def outcome(g: Graph, c: Candidate, inputs: dict[str, np.ndarray], **forced) -> str:
    plan = schedule(c, Target("sm_80"), {"s": 200, "t": 300}, tile={} if c.splits else {"t": 32}, **forced)[0]
    operator = generate(plan)
    dims = schedule_dims(plan, {n: x.shape for n, x in inputs.items()})

    def run(given, outputs) -> None:
        for name, found in emulate(operator, given, dims).items():
            outputs[name][...] = found

    check = check_executable(run, g, inputs)
    return "" if check.outcome is Outcome.PASSED else str(check)


@pytest.mark.parametrize("hidden", [-65504.0, -1e9, -1e30, -3.4e38, -np.inf])
@pytest.mark.parametrize("seen", SEEN)
def test_masks_by_a_finite_number_are_right(seen: str, hidden: float, rng: np.random.Generator) -> None:
    g = masked(seen, hidden)
    inputs = {
        n: rng.standard_normal((rows, 16)).astype(np.float16) for n, rows in (("q", QUERIES), ("k", KEYS), ("v", KEYS))
    }
    unsplit, split = (next(c for c in searched(g).candidates if bool(c.splits) is s) for s in (False, True))
    assert not outcome(g, unsplit, inputs)
    assert not outcome(g, split, inputs, merge="last-arriving", split={"t": 3})
