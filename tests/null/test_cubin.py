"""Figures from the cubin's ELF against what ptxas prints, on kernels made to spill and not to."""

import re

import pytest

from cleave.codegen.compile import compile_cubin
from cleave.codegen.cubin import entries, read_resources
from cleave.errors import CodegenError

# 1024 threads leave 64 registers a thread; 120 live values do not fit.
_SPILLS_IN_LOG = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def spills_in_log(log: str) -> tuple[int, int] | None:
    """Bytes of spill stores and loads that ptxas printed (all functions summed), or None for a log without them."""
    found = _SPILLS_IN_LOG.findall(log)
    return (sum(int(s) for s, _ in found), sum(int(n) for _, n in found)) if found else None


SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 1) spilling(float* x, int n) {
    __shared__ float s[300];
    float a[LIVE];
    #pragma unroll
    for (int i = 0; i < LIVE; i++) a[i] = x[i * 1024 + threadIdx.x];
    for (int k = 0; k < n; k++) {
        #pragma unroll
        for (int i = 0; i < LIVE; i++) a[i] = a[i] * a[(i + 7) % LIVE] + k;
    }
    s[threadIdx.x % 300] = a[3];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < LIVE; i++) x[i * 1024 + threadIdx.x] = a[i] + s[i];
}"""
# A stack frame without spills: an array that is indexed at run time.
STACK = """
extern "C" __global__ void stack(float* x, int n) {
    float a[32];
    for (int i = 0; i < 32; i++) a[i] = x[i] * n;
    for (int i = 0; i < n; i++) a[(i * n) % 32] += a[i];
    x[n] = a[n % 7];
}"""
# float4 spills: STL.128 and LDL.128 have a width of their own.
VECTORS = """
extern "C" __global__ void __launch_bounds__(1024, 1) vectors(float4* x, int n) {
    float4 a[30];
    #pragma unroll
    for (int i = 0; i < 30; i++) a[i] = x[i * 1024 + threadIdx.x];
    for (int k = 0; k < n; k++) {
        #pragma unroll
        for (int i = 0; i < 30; i++) { a[i].x = a[(i + 7) % 30].y + k; a[i].w *= a[i].x; a[i].y += a[i].z; }
    }
    #pragma unroll
    for (int i = 0; i < 30; i++) x[i * 1024 + threadIdx.x] = a[i];
}"""
DOUBLES = """
extern "C" __global__ void __launch_bounds__(1024, 1) pairs(double* x, int n) {
    double a[40];
    #pragma unroll
    for (int i = 0; i < 40; i++) a[i] = x[i * 1024 + threadIdx.x];
    for (int k = 0; k < n; k++) {
        #pragma unroll
        for (int i = 0; i < 40; i++) a[i] = a[i] * a[(i + 7) % 40] + k;
    }
    #pragma unroll
    for (int i = 0; i < 40; i++) x[i * 1024 + threadIdx.x] = a[i];
}"""
SHARED = """
extern "C" __global__ void shared(float* x, int n) {
    __shared__ float s[4]; extern __shared__ __align__(1024) float d[];
    d[n] = n; s[n] = x[n]; __syncthreads(); x[n + 1] = s[n ^ 1] + d[n ^ 3];
}"""
PLAIN = 'extern "C" __global__ void plain(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'

KERNELS = {
    "spilling": SPILLING.replace("LIVE", "120"),
    "spilling a little": SPILLING.replace("LIVE", "60"),
    "not spilling": SPILLING.replace("LIVE", "20"),
    "stack": STACK,
    "vectors": VECTORS,
    "pairs": DOUBLES,
    "shared": SHARED,
    "plain": PLAIN,
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEAVE_CACHE", str(tmp_path))


def figure(pattern, log):
    found = re.search(pattern, log)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", KERNELS)
def test_equals_what_ptxas_prints(name, arch):
    compiled = compile_cubin(KERNELS[name], arch)
    found = compiled.resources
    assert "ptxas info" in compiled.log
    assert found.registers == figure(r"Used (\d+) registers", compiled.log)
    assert found.shared_bytes == figure(r"(\d+) bytes smem", compiled.log)
    assert found.local_bytes == figure(r"(\d+) bytes stack frame", compiled.log)
    assert (found.spill_stores, found.spill_loads) == spills_in_log(compiled.log)
    assert found.cubin_bytes == len(compiled.cubin)


def test_the_kernels_are_what_they_are_called():
    spills = {name: compile_cubin(text, "sm_80").resources for name, text in KERNELS.items()}
    assert (
        spills["spilling"].spill_stores > 500 and spills["pairs"].spill_stores > 0 and spills["vectors"].spill_loads > 0
    )
    assert spills["not spilling"].spill_stores == 0
    assert spills["stack"].local_bytes >= 128 and spills["stack"].spill_loads == 0
    assert spills["shared"].shared_bytes == 1024  # the static part is aligned for the dynamic one


def test_dynamic_shared_memory_is_added():
    cubin = compile_cubin(SHARED, "sm_90a").cubin
    assert read_resources(cubin, "shared", dynamic_shared_bytes=5000).shared_bytes == 6024


def test_entries_and_an_entry_that_is_not_there():
    cubin = compile_cubin(PLAIN, "sm_80").cubin
    assert entries(cubin) == ("plain",)
    with pytest.raises(CodegenError, match=r"^other: the cubin has no kernel of that name; it has: plain$"):
        read_resources(cubin, "other")


def test_bytes_that_are_no_cubin(rng):
    cubin = compile_cubin(SPILLING.replace("LIVE", "120"), "sm_80").cubin
    cuts = [0, 3, 30, 63, *rng.integers(64, len(cubin), 50), len(cubin) - 1]
    for damaged in [b"\0" * 100, b"\x7fELF", *(cubin[:n] for n in cuts)]:
        with pytest.raises(CodegenError, match=r"^spilling: not a readable cubin"):
            read_resources(damaged, "spilling")


def test_a_log_without_figures():
    assert spills_in_log("") is None
