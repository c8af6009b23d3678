"""Tensor maps of calls: what a plan makes of them, when they are encoded, on a GPU made of host memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cleave.errors import LaunchError
from cleave.ir.dim import dims
from cleave.ir.index import index
from cleave.kernel import (
    Buffer,
    Compiled,
    KernelSource,
    OperatorSource,
    Parameter,
    Pointer,
    Resources,
    TensorMap,
    Value,
    Variant,
    Workspace,
)
from cleave.runtime import cuda
from cleave.runtime.executable import Executable
from cleave.runtime.plan import MapOf
from tests.null import fake_gpu as fake
from tests.null.fake_gpu import Quick, memory_at

N, M = dims("n m")


def map_of(name):
    source = TensorMap(name, "float16", (index(M), index(N)), (M * 2,), (64, 16), 128)
    return Parameter(f"{name}_map", "tensor_map", "float16", False, source)


def doubled():
    """y = 2 x, x read through its map; a workspace has a map as well."""
    parameters = (
        map_of("x"),
        map_of("scratch"),
        Parameter("y", "pointer", "float16", True, Pointer("y")),
        Parameter("n", "int32", "int32", False, Value(index(N))),
        Parameter("m", "int32", "int32", False, Value(index(M))),
    )
    kernel = KernelSource("text", "doubled", parameters, 64, 0, (index(1),), ("sm_90a",), "test")
    shape = {"shape": (index(N), index(M)), "axes": ("n", "m")}
    return OperatorSource(
        "doubled",
        (Buffer("x", "float16", **shape, alignment=16),),
        (Buffer("y", "float16", **shape),),
        (Workspace("scratch", "float16", (index(N), index(M))),),
        (kernel,),
    )


def work(_, x, scratch, y, n, m):
    if n * m == 0:
        return
    assert scratch
    read, write = (memory_at(p, (n, m), (m, 1), np.ctypeslib.ctypes.c_uint16) for p in (x, y))
    write.view()[...] = read + 1


@pytest.fixture
def gpu(monkeypatch):
    return fake.install(monkeypatch, {"doubled": ("QQQii", work)})


def executable():
    compiled = Compiled("any", "sm_90a", b"", "", Resources(1, 0, 0, 0, 0, 0))
    return Executable([Variant(doubled())], "sm_90a", lambda sources: [compiled] * len(sources))


def halves(n, m, fill=0):
    raw = np.full(n * m * 2 + 64, 0, np.uint8)
    start = -raw.ctypes.data % 16
    array = raw[start : start + n * m * 2].view(np.float16).reshape(n, m)
    array.view(np.uint16)[...] = fill
    return Quick(array)


def bits(array):
    return array.array.view(np.uint16)


def test_a_plan_has_the_numbers_of_a_map():
    plan = executable().plan(np.zeros((5, 24), np.float16))
    assert plan.launches[0].arguments[:2] == (
        MapOf("x", "float16", (24, 5), (48,), (64, 16), 128),
        MapOf("scratch", "float16", (24, 5), (48,), (64, 16), 128),
    )


def test_a_map_is_encoded_when_its_array_moves(gpu):
    f = executable()
    first, second, out = halves(3, 8, 5), halves(3, 8, 9), halves(3, 8)
    for x in (first, first, second, second, first, second):
        f(x, out=out)
        assert (bits(out) == bits(x) + 1).all()
    pointers = [pointer for pointer, _ in gpu.encoded]
    assert pointers[1:] == [first.array.ctypes.data, second.array.ctypes.data]
    facts = {"dtype": "float16", "dims": (8, 3), "strides": (16,), "box": (64, 16), "swizzle": 128}
    assert gpu.encoded[1][1] == {**facts, "location": "x"}


def test_another_shape_has_maps_of_its_own(gpu):
    f = executable()
    for n in (3, 4, 3, 4):
        x, out = halves(n, 8, n), halves(n, 8)
        f(x, out=out)
        assert (bits(out) == n + 1).all()
    assert {facts["dims"] for _, facts in gpu.encoded} == {(8, 3), (8, 4)}


def test_a_prepared_call_encodes_once(gpu):
    x, out = halves(3, 8, 2), halves(3, 8)
    call = executable().prepare(x, out=out)
    count = len(gpu.encoded)
    bits(x)[...] = 7
    call()
    call()
    assert (bits(out) == 8).all() and len(gpu.encoded) == count == 2


def test_an_array_without_elements_has_no_map(gpu):
    executable()(halves(0, 8), out=halves(0, 8))
    assert gpu.encoded == []


def test_what_the_driver_refuses_is_an_error(monkeypatch):
    monkeypatch.setattr(cuda, "_libcuda", lambda _: lambda *_: 1)
    with pytest.raises(LaunchError, match=r"^x: no tensor map: boxes \(64, 16\) of \(8, 3\) .* \(CUDA error 1\)$"):
        cuda.encode_tensor_map(
            64, 16, dtype="float16", dims=(8, 3), strides=(16,), box=(64, 16), swizzle=128, location="x"
        )


@pytest.mark.parametrize("code", [3, 201])
def test_a_thread_without_a_context_gets_one_and_encodes_again(monkeypatch, code):
    events, codes = [], iter([code, 0])
    runtime = SimpleNamespace(free=lambda pointer: events.append(("free", pointer)))
    monkeypatch.setattr(cuda, "_cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    monkeypatch.setattr(cuda, "_libcuda", lambda _: lambda *_: events.append("encode") or next(codes))
    cuda.encode_tensor_map(64, 16, dtype="float16", dims=(8, 3), strides=(16,), box=(64, 16), swizzle=128, location="x")
    assert events == ["encode", ("free", 0), "encode"]
