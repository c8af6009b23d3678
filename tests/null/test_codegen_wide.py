"""Numbers of elements need more than the 32 bits of a position: products are widened, or the host refuses them."""

import numpy as np
import pytest

from cleave.candidate import as_written
from cleave.codegen.compile import compile_all
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.errors import CleaveError
from cleave.ir.axis import axis
from cleave.ir.dim import dims
from cleave.ir.graph import Graph, Input, Output, Where, const, fold, graph, load
from cleave.ir.index import compare, index
from cleave.ir.interp import interpret
from cleave.kernel import OperatorSource
from cleave.schedule import schedule
from cleave.target import Target

M, S, N = dims("m s n")
ROW, J = axis("i", M), axis("j", index(4))
FLAT = ROW.position * S + J.position
X = Input("x", "float16", (index(16),))


def operator(g: Graph) -> OperatorSource:
    shape = {s.name: 8 for s in g.symbols if s.value is None}
    return generate(schedule(as_written(g), Target("sm_80"), shape)[0])


def rows(name: str, term) -> Graph:
    return graph(name, [X], [Output("out", "float32", (M,), (ROW.position,), term)])


@pytest.mark.parametrize(
    "term",
    [
        fold("sum", J, load("x", FLAT // N)),
        fold("sum", J, load("x", (FLAT % N) // (N // 16 + 1))),
        fold("sum", J, load("x", (FLAT - S) // N + 8)),
        fold("sum", J, Where(compare("<", FLAT, 2 * N), load("x", J.position), const(0.0))),
    ],
)
def test_elements_are_counted_beyond_32_bits(term) -> None:
    g = rows("flat", term)
    source, x = operator(g), {"x": np.arange(16.0)}
    for sizes in ({"m": 4, "s": 2**30 + 8, "n": 2**29}, {"m": 5, "s": 7, "n": 3}, {"m": 3, "s": 0, "n": 1}):
        if sizes["n"] * 16 <= (sizes["m"] + 3) * sizes["s"]:
            continue  # positions outside the input
        assert np.array_equal(emulate(source, x, sizes)["out"], interpret(g, x, sizes)["out"]), sizes
    assert all(hasattr(made, "cubin") for made in compile_all(source.kernels, arch="sm_80"))


def test_an_extent_beyond_32_bits_is_refused() -> None:
    merged = axis("f", S * N)
    g = rows("merged", fold("sum", merged, load("x", (ROW.position + merged.position) % 16)))
    source, x = operator(g), {"x": np.arange(16.0)}
    for sizes in ({"m": 3, "s": 5, "n": 7}, {"m": 3, "s": 0, "n": 7}):
        assert np.array_equal(emulate(source, x, sizes)["out"], interpret(g, x, sizes)["out"]), sizes
    with pytest.raises(CleaveError, match="does not fit int32"):
        emulate(source, x, {"m": 3, "s": 50_000, "n": 50_000})
