"""The metric lets pass what is rounded right, however small it is."""

import numpy as np
import pytest

from cleave.ir.op import round_to
from cleave.verify.metric import compare, storage


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("scale", [2.0**-20, 2.0**-24, 2.0**-130, 2.0**-140])
def test_what_is_rounded_right_passes_however_small(dtype: str, scale: float, rng: np.random.Generator) -> None:
    expected = rng.standard_normal(100) * scale
    allowed = storage([dtype], dtype)
    stored_right = round_to(expected, dtype)
    assert compare(stored_right, expected, np.abs(expected), allowed).passed
    beyond = stored_right + 2.0**-23  # two spacings of the smallest numbers of float16, many of the others
    assert not compare(beyond, expected, np.abs(expected), allowed).passed
