"""Graphs whose extents are less than their dims are verified at sizes that leave something."""

from cleave.candidate import as_written
from cleave.config import Config
from cleave.frontend import ops
from cleave.frontend.trace import trace
from cleave.search import search
from cleave.verify import verify


def test_a_slice_of_symbolic_dims_has_values_at_small_sizes() -> None:
    g = trace(lambda x: ops.softmax(x[1:, 3:], axis=-1), x="m n", name="slice")
    assert verify(as_written(g)).passed
    assert all(verify(c).passed for c in search(g, config=Config(isolate=False)).candidates)
