"""Trouble of decoding: lengths that grow, declared bounds, splits of a reduction, large batches, shared memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import cleave
from cleave import Target, nn, ops
from cleave.candidate import Candidate
from cleave.codegen.emulator import emulate
from cleave.codegen.generate import generate
from cleave.ir.graph import Graph
from cleave.ir.interp import interpret
from cleave.runtime.arguments import check_layout
from cleave.runtime.arrays import ArrayView, Library, contiguous_strides
from cleave.schedule import schedule
from cleave.target import TARGETS
from cleave.tile.interp import run_schedule
from cleave.tile.plan import Schedule
from cleave.tune.executable import executable_from
from tests.cases.lengths import attention_by_length, expected, inputs
from tests.cases.reference import Array, attend, f16, f64, rn
from tests.cases.stages import ATOL, EXACT, RTOL, run_case
from tests.null.searched import searched

SM_80 = Target("sm_80")


def best(g: Graph, bind: Mapping[str, int], **forced: Any) -> Schedule:
    """The best schedule of the best candidate; of the best one that has a split, if a count is forced."""
    found = next(c for c in searched(g).candidates if bool(c.splits) == ("split" in forced))
    return schedule(found, SM_80, bind=bind, **forced)[0]


def split_into(count: int) -> dict[str, Any]:
    return {} if count == 1 else {"split": {"t": count}, "merge": "last-arriving"}


def close(actual: Mapping[str, Array], wanted: Mapping[str, Array], rtol: float = RTOL, atol: float = ATOL) -> None:
    for name, value in wanted.items():
        np.testing.assert_allclose(actual[name], value, rtol=rtol, atol=atol, err_msg=name)


# ---- attention


def test_a12_a_finite_mask_hides_nothing(rng: np.random.Generator) -> None:
    """A row under −65504 everywhere is shifted, not hidden: the softmax is that of the scores."""

    def program(q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = ops.einsum("sd,td->st", q, k) * 0.35 + mask
        return {"out": ops.einsum("st,te->se", ops.softmax(scores, axis="t"), v), "lse": ops.logsumexp(scores, "t")}

    g = cleave.trace(program, q="s d=8", k="t d", v="t e=8", mask="float32[s t]", outputs={"lse": "float32[s]"})
    x = {"q": rn(rng, 2, 8), "k": rn(rng, 6, 8), "v": rn(rng, 6, 8), "mask": np.full((2, 6), -65504, np.float32)}
    out, lse = attend(x["q"], x["k"], x["v"], None, 0.35, x["mask"])
    np.testing.assert_allclose(out, attend(x["q"], x["k"], x["v"], None, 0.35)[0])
    # Scores near −65504 lie 2**-7 apart in float32: that is the float32 user's accuracy, of weights too.
    run_case(g, [(x, {"out": out, "lse": lse})], rtol=RTOL, atol=2e-2)


@pytest.mark.parametrize("count", [1, 3])
def test_a18_a_latent_cache_whose_values_are_narrower_than_its_scores(rng: np.random.Generator, count: int) -> None:
    """A18 (flashinfer-ai/flashinfer#1043, #1055): scores of width 32 + 8, and the cache again as values of width 32.

    One operator for a length with an empty chunk too; a scale of the values' width is seen as wrong.
    """

    def program(q: Any, q_rope: Any, c: Any, k_rope: Any) -> Any:
        scores = ops.einsum("sr,tr->st", q, c) + ops.einsum("sp,tp->st", q_rope, k_rope)
        return ops.einsum("st,tr->sr", ops.softmax(scores * 40**-0.5, axis="t"), c)

    def wanted(x: Mapping[str, Array], width: int) -> Array:
        q, k = np.hstack([x["q"], x["q_rope"]]), np.hstack([x["c"], x["k_rope"]])
        return attend(q, k, x["c"], None, width**-0.5)[0]

    g = cleave.trace(program, q="s r=32", q_rope="s p=8", c="t r", k_rope="t p")
    s = best(g, {"s": 4, "t": 10}, **split_into(count))
    assert [c.symbol.name for c in s.chunks] == ["C_t"] * (count > 1)
    source = generate(s)
    for t in (10, 1, 37):
        x = {"q": rn(rng, 4, 32), "q_rope": rn(rng, 4, 8), "c": rn(rng, t, 32), "k_rope": rn(rng, t, 8)}
        right = wanted(x, 40)
        close(interpret(g, x), {"out": right}, EXACT, EXACT)
        close(run_schedule(s, x), {"out": right}, EXACT, EXACT)
        close(emulate(source, x), {"out": right}, 1e-2, 1e-3)
        if t > 1:  # the weight of a single key is 1 under any scale
            with pytest.raises(AssertionError, match="Not equal to tolerance"):
                close(emulate(source, x), {"out": wanted(x, 32)}, 1e-2, 1e-3)


def sliced(cache: Array, n: int, head: int) -> Array:
    """The first n rows of one head of a cache [rows, heads, d]: a view with a pitch."""
    return cache[:n, head]


def test_s04_a_growing_cache_is_one_operator(rng: np.random.Generator) -> None:
    """S04: every length right, one compile in all, and views with a pitch are copied or refused by name."""
    keys, values = rn(rng, 256, 2, 8), rn(rng, 256, 2, 8)
    q = rn(rng, 1, 8)

    def program(q: Any, k: Any, v: Any) -> Any:
        return ops.einsum("st,te->se", ops.softmax(ops.einsum("sd,td->st", q, k) * 0.35), v)

    g = cleave.trace(program, q="s d=8", k="t d", v="t e=8")
    source = generate(best(g, {"s": 1, "t": 192}))
    run = executable_from(source, "sm_80")
    assert len(run.compiled) == run.compiles == len(source.kernels)
    for n in (128, 129, 130, 191, 192, 227, 1):
        x = {"q": q, "k": sliced(keys, n, 1), "v": sliced(values, n, 1)}
        wanted = {"out": attend(x["q"], x["k"], x["v"], None, 0.35)[0]}
        close(interpret(g, x), wanted, 1e-9, 1e-9)
        close(emulate(source, x), wanted)
        assert run.plan(**x).dims["t"] == n
    assert run.compiles == len(source.kernels)
    on_device = ArrayView(4096, (227, 8), (16, 1), "float16", Library.CUPY, 0)
    buffer = next(b for b in source.inputs if b.name == "k")
    if buffer.layout == "contiguous":
        with pytest.raises(cleave.CleaveError) as caught:
            check_layout(buffer, on_device)
        assert str(caught.value) == (
            "input k, axis t: stride 16 elements, expected 8 (C order without gaps); pass a contiguous copy"
        )
    else:
        assert check_layout(buffer, on_device) == (16, 1)


def test_s05_a_kernel_for_sizes_that_divide_is_not_used_for_others(rng: np.random.Generator) -> None:
    g = cleave.trace(lambda x, w: x @ w, x="3 k", w="k 5")
    source = generate(best(g, {"k": 64}))
    for n in (64, 65, 1, 48, 63):
        x = {"x": rn(rng, 3, n), "w": rn(rng, n, 5)}
        close(emulate(source, x), {"out": f64(x["x"]) @ f64(x["w"])})
    for buffer in source.inputs:  # what vector loads assume is checked for every call
        shape = (3, 64) if buffer.name == "x" else (64, 5)
        for offset in range(2, buffer.alignment, 2):
            view = ArrayView(4096 + offset, shape, contiguous_strides(shape), "float16", Library.CUPY, 0)
            with pytest.raises(cleave.CleaveError, match="its address is no multiple of"):
                check_layout(buffer, view)


# ---- lengths that lie on the device


LENGTHS = ([9, 0, 37], [37, 1, 20], [0, 0, 0], [16, 17, 15])


@pytest.mark.parametrize("count", [1, 3])
def test_lengths_change_and_the_operator_does_not(rng: np.random.Generator, count: int) -> None:
    """One compiled operator, one plan, lengths read by the kernel: what a captured graph replays."""
    g = attention_by_length()
    x = inputs(rng, b=3, kv_heads=2, group=3, t=37)
    dims = {"b": 3, "kv_heads": 2, "group": 3, "t": 37}
    s = best(g, dims, **split_into(count))
    source = generate(s)
    text = source.kernels[0].text
    run = executable_from(source, "sm_80")
    plans = set()
    for lengths in LENGTHS:
        x = {**x, "lengths": np.array(lengths, np.int32)}
        close(emulate(source, x), expected(x))
        close(run_schedule(s, x), expected(x), 1e-9, 1e-9)
        plan = run.plan(**x)
        plans.add((plan.launches, tuple(plan.dims.items())))
    assert len(plans) == 1
    assert source.kernels[0].text == text


@pytest.mark.parametrize("count", [1, 3])
def test_p08_the_answer_does_not_depend_on_the_declared_bound(rng: np.random.Generator, count: int) -> None:
    """P08: bounds 9, 64 and 4096 for the same data; bit for bit without a split (chunks are parts of the bound)."""
    short = {"q": rn(rng, 2, 1, 1, 8), "k": rn(rng, 2, 1, 9, 8), "v": rn(rng, 2, 1, 9, 8)}
    short["lengths"] = np.array([9, 4], np.int32)
    wanted = expected(short, scale=0.35)
    got: list[Array] = []
    for bound in (9, 64, 4096):
        padded = dict(short)  # as it lies in an allocation for the bound; what lies past a length has no weight
        for name in ("k", "v"):
            padded[name] = rn(rng, 2, 1, bound, 8, s=100.0)
            padded[name][:, :, :9] = short[name]
        g = attention_by_length(d=8, scale=0.35)
        dims = {"b": 2, "kv_heads": 1, "group": 1, "t": bound}
        source = generate(best(g, dims, tile={"t" if count == 1 else "t_i": 16}, **split_into(count)))
        for x in (short, padded):
            got.append(emulate(source, x)["out"])
            close({"out": got[-1]}, wanted)
    if count == 1:
        assert all(np.array_equal(got[0], other) for other in got)


# ---- products


def test_g04_partial_sums_of_a_split_are_added_in_float32(rng: np.random.Generator) -> None:
    """G04: K = 8192 in 64 chunks; added in half precision the sums near 2000 would drift away."""
    g = cleave.trace(lambda a, b: a @ b, a="m k", b="k n", outputs={"out": "float32[m n]"})
    x = {"a": f16(rng.uniform(0, 1, (8, 8192))), "b": f16(rng.uniform(0, 1, (8192, 8)))}
    wanted = {"out": f64(x["a"]) @ f64(x["b"])}
    s = best(g, {"m": 8, "k": 8192, "n": 8}, split={"k": 64})
    assert 64 in s.bind.values()
    close(emulate(generate(s), x), wanted, 1e-4, 0)


def test_g05_a_batch_beyond_the_grids_short_axes(rng: np.random.Generator) -> None:
    """G05: batch 65537; the whole grid lies along x, whose limit is 2**31 − 1."""
    g = cleave.trace(lambda x, w: ops.einsum("bsd,de->bse", x, w), x="b 1 d=2", w="d e=2")
    x = {"x": f16((np.arange(65537 * 2) % 17 - 8).reshape(65537, 1, 2)), "w": f16([[1, 2], [3, 4]])}
    source = generate(best(g, {"b": 65537}))
    plan = executable_from(source, "sm_80").plan(**x)
    assert all(launch.grid[1:] == (1, 1) for launch in plan.launches)
    assert math.prod(plan.launches[0].grid) >= 1
    close(emulate(source, x), {"out": f64(x["x"]) @ f64(x["w"])})


# ---- shared memory


KIB = 1024


@pytest.mark.parametrize("tile", [32, 64, 128])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_t06_what_does_not_fit_a_block_is_not_planned(rng: np.random.Generator, arch: str, tile: int) -> None:
    """T06: every schedule fits the device; those at and above 48 KiB are right too (and opted in when loaded)."""
    kept = [generate(s) for s in schedule(_wide_attention(), Target(arch), bind=WIDE, tile={"s": 64, "t": tile})]
    sizes = [max(k.shared_bytes for k in source.kernels) for source in kept]
    assert all(size <= TARGETS[arch].shared_per_block for size in sizes)
    assert max(sizes) > 48 * KIB
    if arch == "sm_80":
        x = {"q": rn(rng, 1, 1, 65, 128), "k": rn(rng, 1, 1, 130, 128), "v": rn(rng, 1, 1, 130, 128)}
        wanted = attend(x["q"][0, 0], x["k"][0, 0], x["v"][0, 0], None, 128**-0.5)[0]
        for source in {size: source for size, source in zip(sizes, kept, strict=True) if size >= 48 * KIB}.values():
            close(emulate(source, x), {"out": wanted[None, None]})


def test_t06_a_tile_that_no_schedule_has_is_refused_by_name() -> None:
    with pytest.raises(cleave.CleaveError) as caught:
        schedule(_wide_attention(), SM_80, bind=WIDE, tile={"s": 64, "t": 256})
    assert str(caught.value) == "axis t: tile 256: allowed in cta-ring are 16, 32, 64, 128"


WIDE = {"b": 1, "kv_heads": 1, "s": 65, "t": 130}


def _wide_attention() -> Candidate:
    return searched(nn.attention(d=128, e=128, group=1)).pick()
