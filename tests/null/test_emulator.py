"""The emulator refuses what a GPU would do wrongly or at random."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cleave.codegen import emulator
from cleave.codegen.emulator import emulate
from cleave.codegen.prelude import device_prelude
from cleave.errors import CleaveError
from cleave.ir.index import index
from cleave.kernel import Buffer, KernelSource, OperatorSource, Parameter, Pointer, Value, Workspace

N = index("n")


def operator(
    body: str, *, threads: int = 64, shared: int = 1024, blocks: int = 1, dtype: str = "float32"
) -> OperatorSource:
    """x[n] -> y[n] with a kernel of this body."""
    kind = {"float32": "float", "float16": "f16"}[dtype]
    text = (
        f'{device_prelude()}\nextern "C" __global__ void __launch_bounds__({threads}, 1) '
        f"probe(const {kind}* __restrict__ x, {kind}* y, int n) {{\n"
        "  SHARED_MEMORY(shared);\n  const u32 base = shared_address(shared);\n"
        f"  const int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;\n"
        f"  kernel_before_is_over();\n  {body}\n}}\n"
    )
    parameters = (
        Parameter("x", "pointer", dtype, False, Pointer("x")),
        Parameter("y", "pointer", dtype, True, Pointer("y")),
        Parameter("n", "int32", "int32", False, Value(N)),
    )
    kernel = KernelSource(text, "probe", parameters, threads, shared, (index(blocks),), ("sm_80",), "probe")
    x, y = (Buffer(name, dtype, (N,), alignment=16) for name in "xy")
    return OperatorSource("probe", (x,), (y,), (), (kernel,))


def run(body: str, *, size: int = 64, seed: int = 0, **options) -> np.ndarray:
    return emulate(operator(body, **options), {"x": np.arange(size, dtype=np.float64)}, seed=seed)["y"]


def refused(body: str, **options) -> str:
    with pytest.raises(CleaveError) as caught:
        run(body, **options)
    return str(caught.value)


def test_runs_threads():
    assert (run("write(y + thread, 2.f * read(x + thread, true));") == 2 * np.arange(64)).all()


def test_what_is_not_written_stays_nan():
    assert np.isnan(run("if (thread < 3) write(y + thread, 1.f);")).sum() == 61


@pytest.mark.parametrize("access", ["read(x + n, true)", "read(x - 1, true)"])
def test_reads_outside_are_refused(access):
    assert "outside every buffer" in refused(f"float v = {access}; if (thread == 0) write(y, v);")


def test_writes_outside_and_to_inputs_are_refused():
    assert "writes 4 bytes outside every buffer" in refused("write(y + thread + 1, 0.f);")
    assert "writes an input" in refused("write((float*)x + thread, 0.f);")


def test_misaligned_vectors_are_refused():
    assert "not aligned to 8 bytes" in refused("if (thread == 0) write_two(y + 1, 0.f, 0.f);")
    assert "not aligned to 16 bytes" in refused("if (thread == 0) copy_chunk(base, x + 1, 16);")


SHIFT = """shared_write_float(base + 4 * thread, read(x + thread, true)); {}
  write(y + thread, shared_read_float(base + 4 * ((thread + 32) % 64)));"""


def test_a_missing_barrier_is_a_race_whatever_the_order():
    for seed in range(5):
        assert "no barrier between" in refused(SHIFT.format(""), seed=seed)
    assert (run(SHIFT.format("block_barrier();")) == (np.arange(64) + 32) % 64).all()


COPY = """if (thread < 16) copy_chunk(base + 16 * thread, x + 4 * thread, 16); copies_commit(); {}
  write(y + thread, shared_read_float(base + 4 * thread));"""


def test_a_copy_has_to_be_waited_for_and_ordered():
    assert "before its copy was waited for" in refused(COPY.format("block_barrier();"))
    assert "no barrier between" in refused(COPY.format("copies_wait<0>();"))
    assert (run(COPY.format("copies_wait<0>(); block_barrier();")) == np.arange(64)).all()


SWAP = """shared_write_float(base + 4 * thread, read(x + thread, true)); {}
  float v = shared_read_float(base + 4 * (thread ^ 1)); {}
  shared_write_float(base + 4 * thread, v); {} write(y + thread, shared_read_float(base + 4 * (thread ^ 1)));"""


def test_lanes_of_one_warp_race_as_well():
    barriers = ["warp_barrier();"] * 3
    assert (run(SWAP.format(*barriers)) == np.arange(64)).all()
    for missing in range(3):
        some = ["" if n == missing else text for n, text in enumerate(barriers)]
        assert "no barrier between, in one warp" in refused(SWAP.format(*some))
    assert (run(SWAP.format(*["block_barrier();"] * 3)) == np.arange(64)).all()
    assert "no barrier between, in one warp" in refused("shared_write_float(base, 1.f); write(y + thread, 0.f);")


@pytest.mark.skipif(not emulator._initialised(), reason="g++ 12 and later initialise variables on demand")
def test_variables_start_as_nonsense():
    assert (np.abs(run("float v[2]; write(y + thread, v[thread & 1]);")) > 1e30).all()


def test_integers_that_overflow_are_refused():
    assert "the product of two integers overflows" in refused("int far = n * 100000000; write(y + far % n, 0.f);")
    assert "the sum of two integers overflows" in refused("int far = 2147483640 + n; write(y + far % n, 0.f);")
    assert "has no negative" in refused("int far = -2147483647 - (n - 63); write(y + (-far) % n, 0.f);")
    assert "a division by zero" in refused("int none = thread / (n - 64); write(y + none, 0.f);")
    assert (run("i64 far = (i64)n * 100000000; write(y + thread, (float)far);") == 6.4e9).all()


MERGE = """write(p + thread, read(x + thread, true)); {}
  __shared__ int last;
  if (thread == 0) {{ last = arrive(count) == 1; if (last) reset(count); }}
  {}
  if (last) write(y + thread, {}(p + thread, true));"""


def merging(*parts: str) -> OperatorSource:
    """Two blocks, of which the last to arrive reads a temporary."""
    made = operator("", blocks=2)
    (kernel,) = made.kernels
    pointers = [
        Parameter("p", "pointer", "float32", True, Pointer("p")),
        Parameter("count", "pointer", "int32", True, Pointer("count")),
    ]
    text = kernel.text.replace("int n)", "int n, float* p, int* count)").replace(
        "\n}\n", f"{MERGE.format(*parts)}\n}}\n"
    )
    kernel = replace(kernel, text=text, parameters=(*kernel.parameters, *pointers))
    workspaces = (Workspace("p", "float32", (N,)), Workspace("count", "int32", (index(1),), zeroed=True))
    return replace(made, kernels=(kernel,), workspaces=workspaces)


MERGES = {
    "no barrier between": ("", "block_barrier();", "read_fresh"),
    "while its own arrives, no barrier between": ("block_barrier();", "", "read_fresh"),
    "a cache that may be stale": ("block_barrier();", "block_barrier();", "read"),
}


def test_blocks_arrive_after_they_wrote():
    x = {"x": np.arange(64.0)}
    assert (emulate(merging("block_barrier();", "block_barrier();", "read_fresh"), x)["y"] == x["x"]).all()
    for message, parts in MERGES.items():
        with pytest.raises(CleaveError, match=message):
            emulate(merging(*parts), x)


def test_open_groups_are_counted():
    two = """if (thread == 0) {{
      copy_chunk(base, x, 16); copies_commit(); copy_chunk(base + 16, x + 4, 16); copies_commit(); copies_wait<1>();
      write(y, shared_read_float(base + {}));
    }}"""
    assert run(two.format(0))[0] == 0
    assert "before its copy was waited for" in refused(two.format(16))


def test_a_refill_while_others_read_is_a_race():
    body = (
        "if (warp == 0) shared_write_float(base, 1.f); block_barrier(); float v = shared_read_float(base); "
        "if (thread == 0) { copy_chunk(base, x, 16); copies_commit(); copies_wait<0>(); } write(y + thread, v);"
    )
    assert "race" in refused(body)


def test_shared_memory_starts_as_nan_and_ends():
    assert np.isnan(run("write(y + thread, shared_read_float(base));")).all()
    assert "outside or misaligned" in refused("write(y + thread, shared_read_float(base + 4096));")


def test_a_barrier_that_not_every_thread_reaches_is_a_deadlock():
    assert "deadlock" in refused("if (warp == 0) block_barrier(); write(y + thread, 1.f);")
    assert "deadlock" in refused("if (lane < 31) warp_barrier(); write(y + thread, 1.f);")


def test_the_order_of_warps_follows_the_seed():
    body = "if (lane == 0) { y[2] = 0.f; write(y, (float)warp); }"
    found = {seed: run(body, seed=seed)[0] for seed in range(12)}
    assert set(found.values()) == {0.0, 1.0}
    assert all(run(body, seed=s)[0] == v for s, v in found.items())


def test_fragments_multiply():
    body = """
    for (int i = thread; i < 16 * 16; i += 32) {
      shared_write<f16>(base + 2 * i, to_float(x[i]));
      shared_write<f16>(base + 512 + 2 * i, i / 16 == i % 16 ? 2.f : 0.f);
    }
    warp_barrier();
    u32 a[4], b[4]; float d[2][4] = {};
    load_matrices(a, base + (lane & 15) * 32 + (lane >> 4) * 16);
    load_matrices_transposed(b, base + 512 + (lane & 15) * 32 + (lane >> 4) * 16);
    multiply_add<f16>(d[0], a, b[0], b[1]); multiply_add<f16>(d[1], a, b[2], b[3]);
    for (int j = 0; j < 2; j++)
      for (int e = 0; e < 4; e++) write(y + (lane / 4 + 8 * (e / 2)) * 16 + 8 * j + 2 * (lane % 4) + (e & 1), d[j][e]);
    """
    assert (run(body, size=256, threads=32, dtype="float16") == 2 * np.arange(256)).all()


def test_text_that_does_not_compile_is_one_line():
    message = refused("this is no C++;")
    assert message.startswith("emulated probe: g++ refuses the emitted text: ") and "\n" not in message


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    emulator._compiler.cache_clear()
    try:
        assert refused("write(y + thread, 3.f);") == (
            "emulator: g++ is not on the path: the emulator compiles emitted text with it"
        )
    finally:
        monkeypatch.undo()
        emulator._compiler.cache_clear()
