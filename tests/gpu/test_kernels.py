"""Every kernel of the code generator's suite on the GPU: against the graph under the metric, and against the emulator.

The emulator runs the same text with fragment maps written from the instruction set, so agreeing confirms the maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.ir.index import evaluate
from cleave.kernel import OperatorSource
from cleave.pipeline.emission import executable_from
from cleave.runtime import device
from cleave.runtime.arguments import solve_dims
from cleave.runtime.executable import Executable
from cleave.verify import check_executable
from cleave.verify.verdict import Outcome
from tests.null import codegen_cases as cases
from tests.null import team_cases

torch = pytest.importorskip("torch")

UNITS = 8
"""Allowed distance from the emulator, in units of the last place of a typical value at FP16 or BF16.

Special functions differ there, so weights are now and then rounded to a neighbour, and what they sum may cancel.
"""


def call(run: Executable, operator: OperatorSource, arrays: Mapping[str, Any], sizes: cases.Sizes) -> dict[str, Any]:
    """One call on tensors of torch, which has bfloat16; outputs start as NaN."""
    shaped = {
        b.name: torch.tensor(np.asarray(arrays[b.name])).to(getattr(torch, b.dtype)).cuda() for b in operator.inputs
    }
    dims = solve_dims(operator, {name: t.shape for name, t in shaped.items()}, sizes)
    outputs = {
        b.name: torch.full(
            [int(evaluate(e, dims)) for e in b.shape], float("nan"), dtype=getattr(torch, b.dtype)
        ).cuda()
        for b in operator.outputs
    }
    run(**shaped, **sizes, out=outputs)
    return {name: t.to(torch.float64).cpu().numpy() for name, t in outputs.items()}


KERNELS = {**cases.CASES, **team_cases.CASES}


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_equals_the_graph_and_the_emulator(name, rng):
    case = KERNELS[name]()
    operator = generate(case.schedule)
    run = executable_from(operator, device.target().arch)
    for sizes in case.sizes:
        arrays = cases.inputs(case, sizes, rng)
        got = call(run, operator, arrays, sizes)

        def same(inputs, outputs, got=got):
            for output, values in got.items():
                outputs[output][...] = values

        result = check_executable(same, case.schedule.graph, arrays, sizes)
        assert result.outcome is Outcome.PASSED, f"{sizes}: {result}"
        for output, expected in emulate(operator, arrays, sizes).items():
            finite = np.isfinite(expected)
            assert np.array_equal(np.isfinite(got[output]), finite), (sizes, output)
            bits = 8 if any(b.dtype == "bfloat16" for b in operator.inputs) else 11
            typical = float(np.sqrt(np.mean(expected[finite] ** 2))) if finite.any() else 0.0
            unit = np.maximum(np.abs(expected[finite]), typical) * 2.0 ** (1 - bits)
            assert np.all(np.abs(got[output][finite] - expected[finite]) <= UNITS * unit), (sizes, output)
    assert run.compiles <= len(operator.kernels)
