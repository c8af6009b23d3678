"""One case through every stage: interpreter, search, verification, schedule, tile interpreter, CUDA on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cleave import Target
from cleave.candidate import Candidate
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.ir.bind import bind_dims
from cleave.ir.graph import Graph
from cleave.ir.interp import interpret
from cleave.schedule import schedule
from cleave.search import Found
from cleave.tile.interp import run_schedule
from cleave.tile.plan import Schedule
from cleave.verify import References, verify
from tests.null.searched import searched

Array = NDArray[Any]
Arrays = Mapping[str, Array]

RTOL, ATOL = 2e-2, 2e-3
"""How far an emitted kernel may be from the float64 reference, where a case says nothing else."""

EXACT = 1e-9
"""How far the float64 interpreter may be."""


@dataclass(frozen=True)
class Ran:
    """What the stages gave, for cases that look closer."""

    found: Found
    schedules: tuple[Schedule, ...]


def run_case(
    g: Graph,
    calls: Sequence[tuple[Arrays, Arrays]],
    *,
    dims: Mapping[str, int] | None = None,
    rtol: float = RTOL,
    atol: float = ATOL,
) -> Ran:
    """Run a graph through every stage and compare with the reference, each call in turn on one compiled operator.

    ``calls``: inputs and expected outputs; the first decides the representative shape. ``dims``: what no shape fixes.
    The best unsplit candidate and the best split one are scheduled; all candidates are verified.
    """
    found = run_search(g, calls, dims=dims)
    shape = bind_dims(g, {n: a.shape for n, a in calls[0][0].items()}, dims)
    schedules = tuple(schedule(c, Target("sm_80"), bind=shape)[0] for c in _chosen(found))
    for s in schedules:
        source = generate(s)
        for inputs, expected in calls:
            _close(run_schedule(s, inputs, dims), expected, EXACT, EXACT, f"tile program of {s.candidate}")
            _close(run_schedule(s, inputs, dims, rounding="storage"), expected, rtol, atol, f"{s.candidate}, rounded")
            _close(emulate(source, inputs, dims), expected, rtol, atol, f"kernel of {s.candidate}")
    return Ran(found, schedules)


def run_search(g: Graph, calls: Sequence[tuple[Arrays, Arrays]], *, dims: Mapping[str, int] | None = None) -> Found:
    """The stages before the scheduler: interpreter, search, and verification of every candidate."""
    for inputs, expected in calls:
        _close(interpret(g, inputs, dims), expected, EXACT, EXACT, "interpreter")
    found = searched(g)
    shape = bind_dims(g, {n: a.shape for n, a in calls[0][0].items()}, dims)
    references = References(g)
    for c in found.candidates:
        verdict = verify(c, bind=shape, references=references)
        assert verdict.passed, f"candidate {c.name}: {verdict}"
    return found


def _chosen(found: Found) -> list[Candidate]:
    """The best candidate without a split, and the best with one."""
    unsplit = [c for c in found.candidates if not c.splits]
    split = [c for c in found.candidates if c.splits]
    return [*unsplit[:1], *split[:1]]


def _close(actual: Arrays, expected: Arrays, rtol: float, atol: float, what: str) -> None:
    assert set(actual) == set(expected), what
    for name, value in expected.items():
        assert actual[name].shape == value.shape, f"{what}, {name}"
        np.testing.assert_allclose(actual[name], value, rtol=rtol, atol=atol, err_msg=f"{what}, {name}")
