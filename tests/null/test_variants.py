"""Variants: rules from times at shapes, operators that run what the rule picks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import cleave
from cleave import nn
from cleave.candidate import as_written
from cleave.codegen.generate import generate
from cleave.cost.roofline import modelled_at
from cleave.errors import LaunchError, ScheduleError
from cleave.ir.dim import dim
from cleave.ir.index import evaluate, show_pred
from cleave.ir.polynomial import compare
from cleave.runtime.plan import choose
from cleave.target import Target
from cleave.tune.variants import Sample, picked, rule, variants_of
from tests.null.searched import searched

H200 = Target("sm_90a")


def pick(found: list[tuple[int, Any]], dims: dict[str, int]) -> int:
    return found[picked([tests for _, tests in found], dims)][0]


def test_one_schedule_that_is_best_everywhere_is_the_rule() -> None:
    assert rule([Sample({"m": m}, {0: 1e-6 * m, 1: 2e-6 * m}) for m in (1, 10, 100)]) == [(0, ())]


def test_a_dim_or_a_ratio_of_dims_divides_shapes() -> None:
    times = {1: {0: 1e-6, 1: 3e-6}, 50: {0: 2e-6, 1: 3e-6}, 400: {0: 9e-6, 1: 4e-6}}
    found = rule([Sample({"m": m}, t) for m, t in times.items()])
    assert [show_pred(p) for _, tests in found for p in tests] == ["dim.m <= 141"]
    assert [pick(found, {"m": m}) for m in (0, 141, 142)] == [0, 0, 1]
    long = [
        ({"b": b, "t": t}, t >= 100 * b) for b, t in ((1, 90), (1, 300), (64, 3000), (64, 9000), (8, 500), (8, 2000))
    ]
    found = rule([Sample(d, {0: 5e-6 if x else 1e-6, 1: 1e-6 if x else 5e-6}) for d, x in long])
    assert len(found) == 2 and all(pick(found, d) == int(x) for d, x in long)


def test_a_schedule_that_is_wrong_somewhere_is_not_picked_there() -> None:
    found = rule([Sample({"m": 1}, {0: 1e-6, 1: 2e-6}), Sample({"m": 64}, {1: 4e-6})])
    assert pick(found, {"m": 64}) == 1
    found = rule([Sample({"m": 1}, {0: 1e-6}), Sample({"m": 64}, {1: 4e-6})])
    assert [n for n, _ in found] == [0, 1] and [pick(found, {"m": m}) for m in (1, 64)] == [0, 1]
    with pytest.raises(ScheduleError, match="no schedule runs at all shapes, and none of 4 at all of a part"):
        rule([Sample({"m": 1}, {0: 1e-6}), Sample({"m": 1}, {1: 4e-6})])


TIMES = st.lists(st.floats(1, 9), min_size=5, max_size=5)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 99), TIMES), min_size=1, max_size=12))
def test_a_rule_knows_every_shape_and_is_no_worse_than_one_schedule(rows: list[tuple[int, int, list[float]]]) -> None:
    samples = [Sample({"m": m, "n": n}, dict(enumerate(t))) for m, n, t in rows]
    found = rule(samples)
    assert 1 <= len(found) <= 4 and found[-1][1] == ()

    def product(numbers: list[int]) -> float:
        total = 1.0
        for number, s in zip(numbers, samples, strict=True):
            total *= s.seconds[number]
        return total

    ruled = product([pick(found, dict(s.dims)) for s in samples])
    assert all(ruled <= 1.000001 * product([n] * len(samples)) for n in range(5))


def test_the_models_variants_are_one_operator() -> None:
    g = nn.matmul(n=4096, k=4096)
    shapes = [{"m": m} for m in (1, 16, 64, 512, 4096)]
    found = cleave.variants([as_written(g)], H200, shapes)
    assert 2 <= len(found.schedules) <= 4 and found.text().splitlines()[-1].startswith("else")
    for dims in shapes:
        number = picked(found.when, dims)
        times = [modelled_at(s, {**dims, "k": 4096, "n": 4096}).microseconds for s in found.schedules]
        assert times[number] <= 1.1 * min(times), (dims, times)
    f = cleave.emit(found)
    assert len(f.variants) == len(found.schedules) and len(f.resources) >= len(f.variants)
    assert choose(f.variants, {"m": 4096, "k": 4096, "n": 4096}) == len(f.variants) - 1 or f.variants[-1].when == ()


def test_buffers_meet_what_all_variants_need() -> None:
    s = cleave.schedule(as_written(nn.matmul(n=256, k=256)), H200, {"m": 16})[0]
    source = generate(s)
    loose = replace(source, inputs=tuple(replace(b, alignment=1) for b in source.inputs))
    assert [v.operator.inputs for v in variants_of([loose, source], [(), ()])] == [source.inputs] * 2
    other = replace(source, inputs=tuple(replace(b, layout="strided") for b in source.inputs))
    with pytest.raises(ScheduleError, match="variants need different layouts of a: contiguous, strided"):
        variants_of([source, other], [(), ()])


def planned(f: Any, g: Any, dims: dict[str, int]) -> dict[str, int]:
    """Dims of the plan of a call on arrays of NumPy."""
    arrays = [np.empty([int(evaluate(n, dims)) for n in i.shape], i.dtype) for i in g.inputs]
    return dict(f.plan(*arrays).dims)


def test_a_variant_is_picked_only_where_it_can_run() -> None:
    """Boxes want rows at multiples of 16 bytes; a split has a chunk length: neither is the others' business."""
    g = nn.matmul()
    cs = searched(g).candidates
    shapes = [
        {"m": m, "n": n, "k": k} for m, n, k in ((1, 4096, 4096), (64, 4096, 4096), (4096, 4095, 4097), (300, 512, 512))
    ]
    f = cleave.emit(cleave.variants(cs, H200, shapes))
    for dims in (*shapes, {"m": 1, "n": 13, "k": 7}, {"m": 64, "n": 13, "k": 7}, {"m": 4096, "n": 512, "k": 512}):
        assert planned(f, g, dims).items() >= dims.items()


def test_a_call_does_not_give_the_length_of_a_chunk() -> None:
    g = nn.matmul(n=256, k=4096)
    c, whole = next(c for c in searched(g).candidates if c.splits), as_written(g)
    split = generate(cleave.schedule(c, H200, {"m": 16}, split={"k": 4}, merge="cluster")[0])
    assert split.derived and split.constraints
    found = variants_of([split, generate(cleave.schedule(whole, H200, {"m": 600})[0])], [(dim("m") <= 64,), ()])
    assert [choose(found, {"m": m, "n": 256, "k": 4096}) for m in (1, 64, 65)] == [0, 0, 1]


def test_dims_that_a_schedule_has_compiled_in_are_compared() -> None:
    g = nn.lora()
    shapes = [{"m": m, "n": 512, "k": 512, "r": r} for m, r in ((1, 16), (600, 16), (600, 64))]
    f = cleave.emit(cleave.variants([as_written(g)], H200, shapes))
    for dims in shapes:
        assert planned(f, g, dims).items() >= dims.items()


def test_the_one_that_asks_least_stands_behind_the_last() -> None:
    s = cleave.schedule(as_written(nn.matmul(n=256, k=256)), H200, {"m": 16})[0]
    even, any_ = generate(s), replace(generate(s), constraints=())
    m = dim("m")
    even = replace(even, constraints=(compare("==", m % 2, 0),))
    found = variants_of([any_, even], [(m <= 8,), ()])
    assert [choose(found, {"m": n, "n": 256, "k": 256}) for n in (8, 64, 65)] == [0, 1, 2]
    assert found[2].operator is found[0].operator and all(not v.operator.constraints for v in found)
    only = variants_of([replace(even, fixed={**even.fixed, "m": n}) for n in (16, 32)], [(m <= 16,), ()])
    assert [choose(only, {"m": n, "n": 256, "k": 256}) for n in (16, 32)] == [0, 1]
    with pytest.raises(LaunchError, match=r"no variant for m = 40: allowed are .* and dim.m == 16; or .*dim.m == 32"):
        choose(only, {"m": 40})


@pytest.mark.parametrize(
    ("candidates", "shapes", "most", "why"),
    [
        (0, [], 4, "1 candidates and 0 shapes: allowed is at least one of each"),
        (None, [{"m": 1}], 4, "0 candidates and 1 shapes"),
        (0, {"m": 1}, 4, "a list of each is expected"),
        (0, None, 4, "a list of each is expected"),
        (0, [16], 4, "16: a shape as dims by name is expected"),
        (0, [{"m": 1}], 0, "0 variants: an integer from 1 is expected"),
        (0, [{"m": 1}], 2.5, "2.5 variants: an integer from 1 is expected"),
        (1, [{"m": 1}], 4, "candidates of matmul and swiglu: they have to be of one graph"),
    ],
)
def test_what_is_asked_for_is_checked(candidates: int | None, shapes: Any, most: Any, why: str) -> None:
    every = [as_written(nn.matmul(n=256, k=256)), as_written(nn.swiglu(n=256, k=256))]
    with pytest.raises(ScheduleError, match=why):
        cleave.variants([] if candidates is None else every[: candidates + 1], H200, shapes, most=most)
