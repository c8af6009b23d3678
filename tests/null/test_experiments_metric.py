"""The metric on tensors is the one on arrays, and references in pieces are those of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from cleave.ir.bind import bind_dims
from cleave.ir.graph import Input
from cleave.ir.index import evaluate
from cleave.ir.interp import interpret
from cleave.nn.workloads import NINE, Workload
from cleave.verify import compare as compare_arrays
from cleave.verify import draw_rounded, storage
from experiments import metric
from tests.null.test_e01 import OPERATORS, small

torch = pytest.importorskip("torch")

SPOILT = {
    "as it is": lambda x: x,
    "one off": lambda x: np.concatenate([x[:-1], x[-1:] * 1.01]),
    "all off": lambda x: x * 1.002,
    "not written": lambda x: np.concatenate([x[:-1], [np.nan]]),
    "infinite": lambda x: np.concatenate([[np.inf], x[1:]]),
    "nothing": lambda x: x * 0.0,
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("special", [(), (np.inf,), (-np.inf, 1e-6, 3e-8, 0.0)], ids=str)
def test_comparison_is_that_on_arrays(
    dtype: str, spoilt: str, special: tuple[float, ...], rng: np.random.Generator
) -> None:
    expected = np.concatenate([rng.standard_normal(50), special, rng.standard_normal(50)])
    size = np.abs(expected) * 3 + 0.1
    with np.errstate(invalid="ignore"):
        actual = SPOILT[spoilt](torch.from_numpy(expected).to(getattr(torch, dtype)).double().numpy())
    tolerance = storage([dtype], dtype)
    wanted = compare_arrays(actual, expected, size, tolerance)
    found = metric.compare(*map(torch.from_numpy, (actual, expected, size)), tolerance)
    assert (found.outcome, found.where) == (wanted.outcome, wanted.where)
    np.testing.assert_allclose((found.frobenius, found.worst), (wanted.frobenius, wanted.worst), rtol=1e-9)


@pytest.mark.parametrize("w", OPERATORS, ids=lambda w: f"{w.operator} {dict(w.options)}")
def test_references_in_pieces_are_the_interpreter_s(w: Workload, rng: np.random.Generator) -> None:
    g, dims = small(w).workload.build()
    dims = bind_dims(g, {}, dims)
    x = draw_rounded(g, dims, rng)
    expected = interpret(g, x, dims)
    for most in (metric.MOST_ELEMENTS, 1):
        found = metric.reference(g, dims, {n: torch.from_numpy(a) for n, a in x.items()}, most)
        for o in g.outputs:
            value, size = found[o.name]
            np.testing.assert_allclose(value.numpy(), expected[o.name], rtol=1e-9, atol=1e-12)
            assert (size >= value.abs() - 1e-9).all()


def test_large_references_come_in_pieces() -> None:
    g, dims = NINE[-2].build()
    inputs = {i.name: torch.empty(1).expand(_shape(i, dims)) for i in g.inputs}
    pieces = list(metric.pieces(g, dims, inputs, metric.MOST_ELEMENTS))
    assert len(pieces) == 2 and sum(p["q"].shape[1] for p in pieces) == 128 and pieces[0]["k"].shape[2] == 4096


def _shape(i: Input, dims: dict[str, int]) -> list[int]:
    return [int(evaluate(e, dims)) for e in i.shape]
