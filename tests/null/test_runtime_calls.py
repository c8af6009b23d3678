"""The short way of calls, prepared calls, devices and threads, on a GPU made of host memory; and what a call costs."""

import statistics
import threading
import time

import numpy as np
import pytest

from cleave.errors import ArgumentError, LaunchError
from cleave.ir.dim import dims
from cleave.ir.op import round_to
from cleave.kernel import (
    Buffer,
    Compiled,
    KernelSource,
    OperatorSource,
    Parameter,
    Pointer,
    Resources,
    Scalar,
    Value,
    Variant,
    Workspace,
)
from cleave.runtime.executable import Executable
from tests.null import fake_gpu as fake
from tests.null.fake_gpu import Quick, Tensor, memory_at

N, M, K = dims("n m k")
HOST_SECONDS = 8e-6
"""What a call may cost on the machine that figures are given for; here the driver's part is missing."""


def pointer(name, *, writable=False):
    return Parameter(name, "pointer", "float32", writable, Pointer(name))


def number(name, kind, source):
    return Parameter(name, kind, kind, False, source)


def axpy(*, kernels=1, workspace=True, alignment=16):
    """y = a x + b, z = x − b, over [n, m]; ``b`` is [m]."""
    parameters = (
        pointer("x"),
        pointer("b"),
        pointer("y", writable=True),
        pointer("z", writable=True),
        *([pointer("count", writable=True)] if workspace else []),
        number("a", "float32", Scalar("a")),
        number("n", "int32", Value(N)),
        number("m", "int64", Value(M)),
    )
    kernel = KernelSource("text", "axpy", parameters, 64, 0, (N,), ("sm_80",), "test")
    shape = {"shape": (N, M), "axes": ("n", "m"), "alignment": alignment}
    return OperatorSource(
        "axpy",
        (Buffer("x", "float32", **shape), Buffer("a", "float32", ()), Buffer("b", "float32", (M,), ("m",))),
        (Buffer("y", "float32", **shape), Buffer("z", "float32", **shape)),
        (Workspace("count", "int32", (N,), zeroed=True),) if workspace else (),
        (kernel,) * kernels,
    )


def sum_of_columns():
    """y = x + b: no input is passed by value."""
    parameters = (pointer("x"), pointer("b"), pointer("y", writable=True))
    kernel = KernelSource("text", "sum", parameters, 64, 0, (N,), ("sm_80",), "test")
    shape = {"shape": (N, M), "axes": ("n", "m")}
    inputs = (Buffer("x", "float32", **shape), Buffer("b", "float32", (M,), ("m",)))
    return OperatorSource("sum", inputs, (Buffer("y", "float32", **shape),), (), (kernel,))


def add(_, x, b, y):
    memory_at(y, (3, 8), (8, 1))[...] = memory_at(x, (3, 8), (8, 1)) + memory_at(b, (8,), (1,))


def work(grid, x, b, y, z, *rest):
    a, n, m = rest[-3:]
    assert grid == (n, 1, 1)
    memory_at(y, (n, m), (m, 1))[...] = memory_at(x, (n, m), (m, 1)) * np.float32(a) + memory_at(b, (m,), (1,))
    memory_at(z, (n, m), (m, 1))[...] = memory_at(x, (n, m), (m, 1)) - memory_at(b, (m,), (1,))


@pytest.fixture
def gpu(monkeypatch):
    return fake.install(
        monkeypatch, {"axpy": ("QQQQQfiq", work), "sum": ("QQQ", add), "plain": ("QQ", lambda *_: None)}
    )


def executable(operator):
    compiled = Compiled("any", "sm_80", b"", "", Resources(1, 0, 0, 0, 0, 0))
    return Executable([Variant(operator)], "sm_80", lambda sources: [compiled] * len(sources))


def aligned(shape, *, offset=0):
    """NaN in float32 at an address that 256 divides, plus an offset in bytes."""
    raw = np.zeros(int(np.prod(shape)) * 4 + 512, np.uint8)
    start = -raw.ctypes.data % 256 + offset
    array = np.ndarray(shape, np.float32, raw[start:].data)
    array[...] = np.nan
    return array


def arrays(rng, n=3, m=8, kind=Quick):
    made = [aligned((n, m)), aligned((m,)), aligned((n, m)), aligned((n, m))]
    for array in made[:2]:
        array[...] = rng.standard_normal(array.shape)
    return [kind(a) for a in made]


def right(x, a, b, y, z):
    np.testing.assert_allclose(y.array, x.array * np.float32(a) + b.array, rtol=1e-6)
    np.testing.assert_allclose(z.array, x.array - b.array, rtol=1e-6)


# ---- the short way -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_name", [False, True])
def test_the_second_call_reads_attributes_only(gpu, rng, by_name):
    f = executable(axpy())
    for number in range(3):
        x, b, y, z = arrays(rng)
        assert f(x, 0.5 * number, b, out={"z": z, "y": y} if by_name else (y, z)) == (y, z)
        right(x, 0.5 * number, b, y, z)
        assert gpu.interfaces == 0 if number else gpu.interfaces > 0
        fake.FakeGpu.interfaces = 0
    assert len(f._routes) == 1 and f.compiles == 1


@pytest.mark.parametrize("kind", [Quick, lambda a: Tensor(a, index=0)])
def test_every_form_of_call_gives_the_same(gpu, rng, monkeypatch, kind):
    monkeypatch.setattr("cleave.runtime.arrays._stream_of_torch", lambda: lambda _: 5)
    f = executable(axpy())
    for _ in range(2):
        x, b, y, z = arrays(rng, kind=kind)
        for call in (
            lambda x=x, b=b, y=y, z=z: f(x, 2.0, b, out=[y, z]),
            lambda x=x, b=b, y=y, z=z: f(x, b=b, a=2.0, out=(y, z)),
            lambda x=x, b=b, y=y, z=z: f(a=2.0, b=b, x=x, out=(y, z), m=8),
            lambda x=x, b=b, y=y, z=z: f(x, 2, b, out={"z": z, "y": y}),
            lambda x=x, b=b, y=y, z=z: f(x, np.float32(2), b, out=(y, z), stream=5),
            lambda x=x, b=b, y=y, z=z: f(x, np.asarray(2, np.float32), b, out=(y, z)),
        ):
            y.array[...] = z.array[...] = np.nan
            assert call() == (y, z)
            right(x, 2, b, y, z)


def test_outputs_are_allocated_on_the_short_way_too(gpu, rng):
    f = executable(axpy(alignment=1))
    seen = []
    for _ in range(3):
        x, b, _, _ = arrays(rng)
        y, z = f(x, 3.0, b)
        right(x, 3, b, y, z)
        seen += [y, z]
    assert len({id(a) for a in seen}) == 6 and len(f._routes) == 1


def test_sizes_change_from_call_to_call(gpu, rng):
    f = executable(axpy())
    for n in (5, 1, 5, 130, 2, 130):
        x, b, y, z = arrays(rng, n)
        f(x, -1.5, b, out=(y, z))
        right(x, -1.5, b, y, z)
    assert f.compiles == 1


def test_checks_hold_on_the_short_way(gpu, rng):
    f = executable(axpy())
    x, b, y, z = arrays(rng)
    f(x, 1.0, b, out=(y, z))
    launched = len(gpu.launched)
    odd = Quick(aligned((3, 8), offset=4))
    both = aligned((5, 8))
    for call, message in (
        (lambda: f(odd, 1.0, b, out=(y, z)), "input x: its address is no multiple of 16 bytes (a view that starts "
         "inside an array?); pass a copy"),
        (lambda: f(x, 1.0, b, out=(x, z)), "output y: it shares memory with input x: kernels read inputs while they "
         "write"),
        (lambda: f(x, 1.0, b, out=(y, y)), "output z: it shares memory with output y: both are written"),
        (lambda: f(x, 1.0, b, out=(Quick(both[:3]), Quick(both[2:]))),
         "output z: it shares memory with output y: both are written"),
        (lambda: f(x, "1", b, out=(y, z)), "input a: str is no array: NumPy, CuPy, torch, or anything with "
         "__cuda_array_interface__ or __dlpack__ is accepted"),
        (lambda: f(x, 1.0, b, out=(y,)), "axpy: out has 1 arrays for 2 outputs"),
        (lambda: f(x, 1.0, out=(y, z)), "axpy: input b is missing; the inputs are x, a, b"),
        (lambda: f(x, 1.0, b, out=(y, z), m=9), "input x, axis m: extent 8, expected 9 (m = 9 as given)"),
        (lambda: f(x, 1.0, Quick(b.array[:7]), out=(y, z)), "input b, axis m: extent 7, expected 8 (m = 8 from input "
         "x, axis m)"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError) as error:
            call()
        assert str(error.value) == message
    assert len(gpu.launched) == launched


def test_another_dtype_of_the_same_shape_is_another_form(gpu, rng):
    f = executable(axpy())
    x, b, y, z = arrays(rng)
    f(x, 1.0, b, out=(y, z))
    with pytest.raises(ArgumentError, match=r"^input x: dtype int32, expected float32$"):
        f(Quick(x.array.view(np.int32)), 1.0, b, out=(y, z))


def test_a_negated_tensor_is_refused_though_its_form_is_known(gpu, rng, monkeypatch):
    monkeypatch.setattr("cleave.runtime.arrays._stream_of_torch", lambda: lambda _: 5)
    f = executable(axpy())
    x, b, y, z = arrays(rng, kind=lambda a: Tensor(a, index=0))
    f(x, 1.0, b, out=(y, z))
    x.negated = True
    with pytest.raises(ArgumentError, match=r"^input x: the tensor is sparse or a negated view; pass a dense copy$"):
        f(x, 1.0, b, out=(y, z))


def test_calls_of_two_forms_in_turn(gpu, rng):
    f = executable(axpy())
    for n in (3, 4, 3, 4, 3, 3, 4, 4):
        x, b, y, z = arrays(rng, n)
        assert f(x, 2.0, b, out=(y, z)) == (y, z)
        right(x, 2, b, y, z)
        f(b=b, x=x, a=3.0, out=[y, z])
        right(x, 3, b, y, z)
    assert len(f._routes) == 4
    assert gpu.interfaces == 2 * 4 * 2  # of four arrays, by place and by name, at the first size


def test_a_match_that_fails_for_a_known_form_is_made_anew_some_times(gpu, rng, monkeypatch):
    from cleave.runtime import executable as module

    made = []
    monkeypatch.setattr(module, "matcher", lambda *_: made.append(1) or (lambda _: None))
    f = executable(axpy())
    x, b, y, z = arrays(rng)
    f(x, 1.0, b, out=(y, z))
    f._latest.match = lambda _: None
    for number in range(10):
        f(x, float(number), b, out=(y, z))
        right(x, number, b, y, z)
    assert len(made) == module._REMATCHED


def test_numbers_that_compare_equal_are_written_again(gpu, rng):
    f = executable(axpy())
    x, b, y, z = arrays(rng)
    b.array[...] = -0.0
    x.array[...] = 1.0
    for zero in (0.0, -0.0, 0.0, -0.0):
        f(x, zero, b, out=(y, z))
        assert (np.signbit(y.array) == np.signbit(np.float32(zero))).all()


def test_addresses_are_written_again_after_other_ones(gpu, rng):
    f = executable(sum_of_columns())
    sets = [arrays(rng)[:3] for _ in range(2)]
    for n in (0, 0, 1, 1, 0, 1):
        x, b, y = sets[n]
        y.array[...] = np.nan
        assert f(x, b, out=y) is y
        np.testing.assert_array_equal(y.array, x.array + b.array)


def test_a_number_that_does_not_fit_goes_the_long_way(gpu, rng):
    f = executable(axpy())
    x, b, y, z = arrays(rng)
    f(x, 2.0, b, out=(y, z))
    f(x, 1e300, b, out=(y, z))
    assert np.isinf(y.array).all()
    f(x, 2.0, b, out=(y, z))
    right(x, 2, b, y, z)


def test_where_there_is_one_device_nobody_asks_which_is_current(gpu, rng, monkeypatch):
    from cleave.runtime import cuda

    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    f = executable(axpy())
    x, b, y, z = arrays(rng)
    f(x, 2.0, b, out=(y, z))
    call = f.prepare(x, 2.0, b, out=(y, z))
    monkeypatch.setattr(cuda, "current_device", lambda: pytest.fail("asked"))
    f(x, 3.0, b, out=(y, z))
    right(x, 3, b, y, z)
    call()
    right(x, 2, b, y, z)


@pytest.mark.parametrize(("value", "message"), [(1.5, "1.5 is no int32"), (2**40, "1099511627776 is no int32"),
                                                (float("nan"), "nan is no int32")])  # fmt: skip
def test_t04_numbers_are_what_the_input_declares(gpu, value, message):
    parameters = (pointer("y", writable=True), number("n", "int32", Scalar("n")))
    kernel = KernelSource("text", "plain", parameters, 64, 0, (K,), ("sm_80",), "test")
    operator = OperatorSource(
        "plain", (Buffer("n", "int32", ()),), (Buffer("y", "float32", (K,), ("k",)),), (), (kernel,)
    )
    with pytest.raises(ArgumentError, match=f"^input n: {message}$"):
        executable(operator)(value, k=3)


def test_a_number_beyond_every_float_is_infinite(gpu, monkeypatch):
    got = []
    monkeypatch.setitem(gpu.kernels, "plain", ("Qf", lambda _, y, a: got.append(a)))
    parameters = (pointer("y", writable=True), number("a", "float32", Scalar("a")))
    kernel = KernelSource("text", "plain", parameters, 64, 0, (K,), ("sm_80",), "test")
    operator = OperatorSource(
        "plain", (Buffer("a", "float32", ()),), (Buffer("y", "float32", (K,), ("k",)),), (), (kernel,)
    )
    f = executable(operator)
    for value in (1, 2**2000, -(2**2000), 1e300, 2**128, 0.5):
        f(value, out=Quick(aligned((3,))), k=3)
    assert got == [1, np.inf, -np.inf, np.inf, np.inf, 0.5]
    assert round_to(np.asarray(1e300), "bfloat16") == np.inf


def test_numbers_for_half_precision_inputs_are_rounded(gpu, monkeypatch):
    got = []
    monkeypatch.setitem(gpu.kernels, "plain", ("Qf", lambda _, y, a: got.append(a)))
    parameters = (pointer("y", writable=True), number("a", "float32", Scalar("a")))
    kernel = KernelSource("text", "plain", parameters, 64, 0, (K,), ("sm_80",), "test")
    operator = OperatorSource(
        "plain", (Buffer("a", "float16", ()),), (Buffer("y", "float32", (K,), ("k",)),), (), (kernel,)
    )
    f = executable(operator)
    out = Quick(aligned((3,)))
    for value in (0.1, 0.3, -7):
        f(value, out=out, k=3)
        f(np.float16(value), out=out, k=3)
    assert got == [float(np.float16(v)) for v in (0.1, 0.1, 0.3, 0.3, -7, -7)]


def test_streams_have_their_own_launches_and_workspaces(gpu, rng):
    f = executable(axpy())
    x, b, y, z = arrays(rng)
    for stream in (None, 8, 8, None, 9):
        f(x, 1.0, b, out=(y, z), stream=stream)
    gpu.stream = 11
    f(x, 1.0, b, out=(y, z))
    assert [stream for _, _, stream in gpu.launched] == [7, 8, 8, 7, 9, 11]
    assert [stream for _, zeroed, stream in gpu.allocated if zeroed] == [7, 8, 9, 11]


def test_a_tensor_among_other_arrays_decides_the_stream(gpu, rng, monkeypatch):
    streams = {"torch": 5}
    monkeypatch.setattr("cleave.runtime.arrays._stream_of_torch", lambda: lambda _: streams["torch"])
    f = executable(axpy())
    x, b, y, z = arrays(rng)
    tensor = Tensor(b.array, index=0)
    for torch in (7, 5, 7, 5):  # 7 is CuPy's current one
        streams["torch"] = torch
        f(x, 1.0, tensor, out=(y, z))
    assert [stream for _, _, stream in gpu.launched] == [7, 5, 7, 5]


def test_threads_do_not_mix_their_arguments(gpu, rng):
    f = executable(axpy(kernels=2))
    wrong = []

    def calls(seed):
        mine = np.random.default_rng(seed)
        for _ in range(40):
            x, b, y, z = arrays(mine)
            f(x, float(seed), b, out=(y, z))
            if not np.allclose(y.array, x.array * seed + b.array, rtol=1e-5, atol=1e-6):
                wrong.append(seed)

    threads = [threading.Thread(target=calls, args=(seed,)) for seed in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and f.compiles == 2 and gpu.loaded == [("axpy", 0)] * 2


def test_a_refused_launch_is_an_error_of_the_kernel(gpu, rng, monkeypatch):
    def refuse(*_):
        raise RuntimeError("CUDA_ERROR_INVALID_VALUE: invalid argument")

    monkeypatch.setitem(gpu.kernels, "axpy", ("QQQQQfiq", refuse))
    f = executable(axpy())
    x, b, y, z = arrays(rng)
    with pytest.raises(LaunchError, match=r"^axpy: can't be launched: CUDA_ERROR_INVALID_VALUE: invalid argument$"):
        f(x, 1.0, b, out=(y, z))


def test_a_thread_without_a_context_gets_one_and_launches_once(monkeypatch):
    from types import SimpleNamespace

    from cleave.runtime import cuda

    events = []
    runtime = SimpleNamespace(free=lambda pointer: events.append(("free", pointer)))
    monkeypatch.setattr(cuda, "_cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    cuda.launch_again(lambda: events.append("launch"), RuntimeError("CUDA_ERROR_INVALID_CONTEXT: invalid"), "k")
    assert events == [("free", 0), "launch"]


# ---- devices -------------------------------------------------------------------------------------------------------


def test_t05_an_operator_is_loaded_on_every_device_that_it_is_called_on(gpu, rng):
    """T05: compiled once, run on device 0, then on 1, then on both in turn."""
    f = executable(axpy())
    for device in (0, 1, 0, 1, 1):
        x, b, y, z = arrays(rng, kind=lambda a, device=device: Quick(a, device))
        f(x, 2.0, b, out=(y, z))
        right(x, 2, b, y, z)
    assert [device for _, device, _ in gpu.launched] == [0, 1, 0, 1, 1]
    assert gpu.loaded == [("axpy", 0), ("axpy", 1)] and gpu.device == 0
    assert f.compiles == 1
    assert len([a for a in gpu.allocated if a[1]]) == 2  # a workspace on each


def test_t05_the_current_device_may_be_another_one(gpu, rng):
    f = executable(axpy())
    for current in (0, 1, 1, 0):
        gpu.device = current
        x, b, y, z = arrays(rng, kind=lambda a: Quick(a, 1))
        f(x, 2.0, b, out=(y, z))
        right(x, 2, b, y, z)
        assert gpu.device == current
    assert {device for _, device, _ in gpu.launched} == {1}


def test_t05_arrays_on_different_devices_are_refused(gpu, rng):
    f = executable(axpy())
    x, b, y, z = arrays(rng)
    f(x, 2.0, b, out=(y, z))
    for place, message in (
        (0, "arguments: x is on device 1, b on device 0"),
        (1, "arguments: x is on device 0, b on device 1"),
        (2, "arguments: x is on device 0, y on device 1"),
    ):
        mixed = [Quick(a.array, int(n == place)) for n, a in enumerate((x, b, y, z))]
        with pytest.raises(ArgumentError) as error:
            f(mixed[0], 2.0, mixed[1], out=mixed[2:])
        assert str(error.value) == message
    assert len(gpu.launched) == 1


def test_t05_a_prepared_call_launches_where_its_arrays_are(gpu, rng):
    f = executable(axpy())
    x, b, y, z = arrays(rng, kind=lambda a: Quick(a, 1))
    call = f.prepare(x, 2.0, b, out=(y, z))
    assert gpu.launched == []
    call()
    right(x, 2, b, y, z)
    assert gpu.launched == [("axpy", 1, 7)] and gpu.device == 0


# ---- prepared calls ------------------------------------------------------------------------------------------------


def test_a_prepared_call_runs_again_on_the_same_arrays(gpu, rng):
    f = executable(axpy(kernels=2))
    x, b, y, z = arrays(rng)
    call = f.prepare(x, 2.0, b, out=(y, z), stream=8)
    other = f.prepare(x, -1.0, b)
    for _ in range(3):
        x.array[...] = rng.standard_normal(x.array.shape)
        assert call() == (y, z)
        right(x, 2, b, y, z)
        right(x, -1, b, *other())
    assert call.result == (y, z) and call.stream == 8 and call.plan.outputs == {"y": (3, 8), "z": (3, 8)}
    assert {stream for _, _, stream in gpu.launched} == {7, 8}


def test_a_prepared_call_keeps_what_it_needs(gpu, rng):
    def made():
        return executable(axpy()).prepare(*arrays(rng)[:1], 2.0, arrays(rng)[1])

    call = made()
    y, _ = call()
    assert np.isfinite(y.array).all()


def test_what_a_prepared_call_cannot_hold(gpu, rng):
    f = executable(axpy(alignment=1))
    x, b, y, z = arrays(rng)
    host = np.ones((3, 8), np.float32)
    for call, message in (
        (lambda: f.prepare(host, 1.0, b), "input x: it is on the host; a prepared call needs it on the GPU"),
        (lambda: f.prepare(x, 1.0, b, out=(y, host)), "output z: it is on the host; a prepared call needs it on the "
         "GPU"),
        (lambda: f.prepare(x, Quick(np.asarray(1, np.float32)), b),
         "input a: it is passed by value; a prepared call needs a number"),
        (lambda: f.prepare(x, 1.0, b, out=(x, z)), "output y: it shares memory with input x: kernels read inputs "
         "while they write"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError) as error:
            call()
        assert str(error.value) == message


def test_nothing_is_loaded_or_allocated_during_a_capture(gpu, rng):
    plain = {"workspace": False}
    gpu.kernels["axpy"] = ("QQQQfiq", work)
    f = executable(axpy(**plain))
    x, b, y, z = arrays(rng)
    with pytest.raises(LaunchError, match=r"^axpy: call it once on this stream before a graph is captured there$"):
        f(x, 1.0, b, out=(y, z), stream=fake.CAPTURING)
    f(x, 1.0, b, out=(y, z))
    f(x, 1.0, b, out=(y, z), stream=fake.CAPTURING)  # loaded by now, and it has no workspace
    right(x, 1, b, y, z)


# ---- cost ----------------------------------------------------------------------------------------------------------


def seconds_per_call(call, *, calls=300, rounds=15):
    """Median over rounds of the mean over calls; whoever shares the machine disturbs some rounds."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - began) / calls)
    return statistics.median(found)


def interpreter_seconds():
    """A fixed piece of Python, about 1 us on the machine that figures are given for: how slow this one is just now."""
    sizes = list(range(16))

    def piece():
        return [size * 3 + 1 for size in sizes if size % 7 != 3]

    return seconds_per_call(piece)


@pytest.mark.parametrize("form", ["out", "keywords", "torch", "prepared"])
def test_the_host_time_of_a_call(gpu, rng, monkeypatch, form):
    """Without the driver, which takes 2 to 3 us: 5 are left, and twice as much is allowed on a shared machine."""
    monkeypatch.setattr("cleave.runtime.arrays._stream_of_torch", lambda: lambda _: 5)
    monkeypatch.setitem(gpu.kernels, "axpy", ("QQQQQfiq", lambda *_: None))
    f = executable(axpy())
    x, b, y, z = arrays(rng, kind=(lambda a: Tensor(a, index=0)) if form == "torch" else Quick)
    monkeypatch.setattr(fake.FakeKernel, "bound", lambda *_: int)  # the cheapest callable stands for the driver
    prepared = f.prepare(x, 2.0, b, out=(y, z))
    calls = {
        "out": lambda: f(x, 2.0, b, out=(y, z)),
        "torch": lambda: f(x, 2.0, b, out=(y, z)),
        "keywords": lambda: f(x=x, a=2.0, b=b, out=(y, z)),
        "prepared": prepared,
    }
    calls[form]()
    slowness = max(1.0, interpreter_seconds() / 1e-6)
    seconds = seconds_per_call(calls[form])
    print(f"{form}: {1e6 * seconds:.2f} us of host time, this machine being {slowness:.1f} times slower than assumed")
    assert seconds < (HOST_SECONDS - 3e-6) * 2 * slowness * (0.2 if form == "prepared" else 1)
