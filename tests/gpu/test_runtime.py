"""The runtime on a GPU: loading, strides, streams, graphs, counters, timing, and kernels that misbehave."""

import ctypes
import time
from functools import partial

import numpy as np
import pytest

from cleave.codegen.compile import compile_cubin
from cleave.errors import LaunchError
from cleave.ir.dim import dims
from cleave.ir.index import ceildiv, index
from cleave.kernel import (
    Buffer,
    KernelSource,
    OperatorSource,
    Parameter,
    Pointer,
    Scalar,
    Stride,
    Value,
    Variant,
    Workspace,
)
from cleave.runtime import cuda, device
from cleave.runtime.executable import Executable
from cleave.runtime.timing import Contender, rotation, time_contenders
from cleave.runtime.watchdog import Outcome, Worker

cupy = pytest.importorskip("cupy")
N, M = dims("n m")

FLOAT = """
extern "C" __global__ void scale(const float* x, float factor, float* y, int n, int m, long long x_n, long long x_m) {
    extern __shared__ float row[];
    for (int j = threadIdx.x; j < m; j += blockDim.x) {
        row[threadIdx.x] = factor * x[blockIdx.x * x_n + j * x_m];
        y[(long long)blockIdx.x * m + j] = row[threadIdx.x];
    }
}"""

# Sum of all elements: partial sums, and the block that arrives last adds them up and resets the counter.
SUM = """
extern "C" __global__ void total(const float* x, float* y, float* partial, int* arrived, int n) {
    __shared__ float part[128]; __shared__ int last;
    float own = 0;
    for (int i = threadIdx.x; i < 1024; i += 128) { int at = blockIdx.x * 1024 + i; if (at < n) own += x[at]; }
    part[threadIdx.x] = own; __syncthreads();
    if (threadIdx.x == 0) {
        own = 0; for (int i = 0; i < 128; i++) own += part[i];
        partial[blockIdx.x] = own; __threadfence();
        last = atomicAdd(arrived, 1) == gridDim.x - 1;
        if (last) {
            *arrived = 0; own = 0;
            for (int i = 0; i < gridDim.x; i++) own += __ldcg(partial + i);
            *y = own;
        }
    }
}"""
BAD = {
    "illegal": 'extern "C" __global__ void bad(float* y) { *(volatile float*)((y == nullptr) ? 0ull : 64ull) = 1; }',
    "misaligned": 'extern "C" __global__ void bad(float* y) { *(float4*)((char*)y + 4) = float4{1, 2, 3, 4}; }',
    "trap": 'extern "C" __global__ void bad(float* y) { asm volatile("trap;"); }',
    "hang": 'extern "C" __global__ void bad(volatile float* y) { y[0] = 1; while (y[0] != 0) { } }',
    "good": 'extern "C" __global__ void bad(float* y) { y[threadIdx.x] = 1; }',
}


def pointer(name, *, writable=False, dtype="float32"):
    return Parameter(name, "pointer", dtype, writable, Pointer(name))


def scale(text=FLOAT, shared_bytes=512):
    parameters = (
        pointer("x"),
        Parameter("factor", "float32", "float32", False, Scalar("factor")),
        pointer("y", writable=True),
        Parameter("n", "int32", "int32", False, Value(N)),
        Parameter("m", "int32", "int32", False, Value(M)),
        Parameter("x_n", "int64", "int64", False, Stride("x", 0)),
        Parameter("x_m", "int64", "int64", False, Stride("x", 1)),
    )
    kernel = KernelSource(text, "scale", parameters, 128, shared_bytes, (N,), ("sm_80", "sm_90a"), "test")
    inputs = (Buffer("x", "float32", (N, M), ("n", "m"), "strided"), Buffer("factor", "float32", ()))
    return OperatorSource("scale", inputs, (Buffer("y", "float32", (N, M), ("n", "m")),), (), (kernel,))


def total():
    blocks = ceildiv(N, 1024)
    parameters = (
        pointer("x"),
        pointer("y", writable=True),
        pointer("partial", writable=True),
        pointer("arrived", writable=True, dtype="int32"),
        Parameter("n", "int32", "int32", False, Value(N)),
    )
    kernel = KernelSource(SUM, "total", parameters, 128, 0, (blocks,), ("sm_80", "sm_90a"), "test")
    workspaces = (Workspace("partial", "float32", (blocks,)), Workspace("arrived", "int32", (index(1),), zeroed=True))
    return OperatorSource(
        "total", (Buffer("x", "float32", (N,)),), (Buffer("y", "float32", ()),), workspaces, (kernel,)
    )


def built(operator):
    arch = device.target().arch
    return Executable([Variant(operator)], arch, lambda sources: [compile_cubin(s, arch) for s in sources])


def test_the_device_describes_itself():
    facts = device.properties()
    assert device.available() and facts.multiprocessors > 0 and facts.shared_per_block >= 99 * 1024
    assert device.target().facts.shared_per_block == facts.shared_per_block


def test_numpy_and_cupy_with_any_strides(rng):
    f = built(scale())
    x = rng.standard_normal((37, 1001)).astype(np.float32)
    np.testing.assert_array_equal(f(x, np.float32(-0.125)), x * np.float32(-0.125))
    on_device = cupy.asarray(x)
    for array in (on_device, on_device[::3], on_device.T, on_device[:, ::-1], on_device[:1, 5:]):
        result = f(array, np.float32(2))
        assert isinstance(result, cupy.ndarray) and result.flags.c_contiguous
        np.testing.assert_array_equal(result.get(), array.get() * 2)
    assert f.compiles == 1 and f(x[:0], np.float32(1)).shape == (0, 1001)
    np.testing.assert_array_equal(
        f(on_device, cupy.asarray(np.float32(3))).get(), x * 3
    )  # a scalar that lies on the device


def test_out_is_written_and_nothing_else(rng):
    f = built(scale())
    x = cupy.asarray(rng.standard_normal((5, 6)).astype(np.float32))
    around = cupy.full((7, 6), cupy.nan, cupy.float32)
    assert f(x, np.float32(2), out=around[1:6]).data.ptr == around[1:6].data.ptr
    assert bool(cupy.isnan(around[0]).all()) and bool(cupy.isnan(around[6]).all())
    np.testing.assert_array_equal(around[1:6].get(), x.get() * 2)


def test_torch_tensors_and_its_current_stream(rng):
    torch = pytest.importorskip("torch")
    f = built(scale())
    x = torch.tensor(rng.standard_normal((64, 513)), dtype=torch.float32, device="cuda", requires_grad=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        result = f(f(x, np.float32(2)), np.float32(4))
    side.synchronize()
    assert isinstance(result, torch.Tensor) and torch.equal(result, x.detach() * 8)
    assert torch.equal(f(x.detach().t(), np.float32(3)), x.detach().t() * 3)


def test_arrays_that_speak_only_dlpack():
    class Only:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = cupy.arange(12, dtype=cupy.float32).reshape(3, 4)
    np.testing.assert_array_equal(built(scale())(Only(x), np.float32(2)).get(), x.get() * 2)


@pytest.mark.parametrize("shared_bytes", [48 * 1024, 48 * 1024 + 4, 160 * 1024])
def test_t06_shared_memory_beyond_48_kb(shared_bytes, rng):
    x = rng.standard_normal((3, 70)).astype(np.float32)
    np.testing.assert_array_equal(built(scale(shared_bytes=shared_bytes))(x, np.float32(2)), x * 2)


def test_more_shared_memory_than_the_device_has():
    with pytest.raises(LaunchError, match=r"^scale: can't be loaded"):
        built(scale(shared_bytes=300 * 1024))(np.ones((2, 2), np.float32), np.float32(1))


def test_resources_equal_what_the_driver_says():
    arch = device.target().arch
    compiled = compile_cubin(scale().kernels[0], arch)
    kernel = cuda.load_kernel(compiled.cubin, "scale", threads=128, shared_bytes=512)
    said = kernel.attributes()
    assert compiled.resources.registers == said["num_regs"]
    assert compiled.resources.local_bytes == said["local_size_bytes"]
    assert compiled.resources.shared_bytes == said["shared_size_bytes"] + 512


def test_counters_reset_themselves_over_calls_sizes_and_replays(rng):
    f = built(total())
    for n in (1, 5000, 100, 200_000, 5000):
        x = cupy.asarray(rng.integers(-8, 8, n).astype(np.float32))
        assert float(f(x)) == float(x.sum())
    stream = cuda.new_stream()
    out = cupy.zeros((), cupy.float32)
    with cuda.on_stream(int(stream.ptr)):
        f(x, out=out)
        replay = cuda.capture(lambda: f(x, out=out), int(stream.ptr))
        for _ in range(3):
            x += 1
            replay()
            cuda.synchronize_stream(int(stream.ptr))
            assert float(out) == float(x.sum())


def test_a_capture_before_the_first_call_is_refused():
    f, x, out = built(total()), cupy.ones(10, cupy.float32), cupy.zeros((), cupy.float32)
    stream = cuda.new_stream()
    with cuda.on_stream(int(stream.ptr)), pytest.raises(LaunchError, match="before a graph is captured"):
        cuda.capture(lambda: f(x, out=out), int(stream.ptr))


def test_two_sizes_are_timed_in_proportion():
    def contender(name, rows):
        f = built(scale())
        sets = [cupy.ones((rows, 1024), cupy.float32) for _ in range(rotation(rows * 1024 * 4))]
        outs = [cupy.empty_like(x) for x in sets]
        factor = np.float32(2)
        return Contender(name, [lambda x=x, o=o: f(x, factor, out=o) for x, o in zip(sets, outs, strict=True)])

    for regime in ("burst", "sustained"):
        found = time_contenders([contender("small", 8192), contender("large", 65536)], samples=9, regime=regime)
        ratio = found["large"].median / found["small"].median
        print("\n".join(map(str, found.values())))
        assert 5 < ratio < 12
        assert found["large"].median > 2 * 65536 * 1024 * 4 / 5e12  # nothing is faster than the memory


def test_a_slow_host_is_not_timed():
    f, factor = built(scale()), np.float32(2)
    sets = [cupy.ones((1024, 1024), cupy.float32) for _ in range(3)]
    outs = [cupy.empty_like(x) for x in sets]

    def contender(name, pause):
        def call(x, o):
            time.sleep(pause)
            return f(x, factor, out=o)

        return Contender(name, [partial(call, x, o) for x, o in zip(sets, outs, strict=True)])

    found = time_contenders([contender("quick", 0), contender("slow", 2e-3)], samples=9)
    quick, slow = found["quick"], found["slow"]
    assert slow.calls_per_sample > quick.calls_per_sample / 8  # the pause alone would leave one
    assert slow.median < 1.1 * quick.median


def test_a_contender_on_another_stream_is_refused_not_timed():
    f, x = built(scale()), cupy.ones((64, 64), cupy.float32)
    elsewhere = f.prepare(x, np.float32(2), out=cupy.empty_like(x))  # on the stream that is current here
    with pytest.raises(LaunchError, match=r"^elsewhere: can't be captured as a graph: "):
        time_contenders([Contender("elsewhere", [elsewhere])], samples=1)


def run_bad(name):
    """In a child: launch one kernel and wait for it."""
    compiled = compile_cubin(BAD[name], device.target().arch)
    kernel = cuda.load_kernel(compiled.cubin, "bad", threads=1, shared_bytes=0)
    memory = cuda.allocate(256, zeroed=True, stream=0)
    value = ctypes.c_uint64(memory.pointer)
    addresses = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    kernel.bound((1, 1, 1), ctypes.addressof(addresses), 0)()
    cuda.synchronize()
    return name


def test_kernels_that_misbehave_are_outcomes():
    with Worker() as worker:
        outcomes = {name: worker.run(run_bad, name, seconds=60 if name != "hang" else 20).outcome for name in BAD}
    assert outcomes == {
        "illegal": Outcome.ILLEGAL_ADDRESS,
        "misaligned": Outcome.ILLEGAL_ADDRESS,
        "trap": Outcome.LAUNCH_FAILED,
        "hang": Outcome.TIMEOUT,
        "good": Outcome.OK,
    }
