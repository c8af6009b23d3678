"""Arguments of compiled operators: names, dtypes, dims, strides, and what a call launches. No GPU: arrays are fakes."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from cleave.errors import ArgumentError, LaunchError
from cleave.ir.dim import dim, dims
from cleave.ir.index import Symbol, ceildiv, index, of
from cleave.kernel import (
    Buffer,
    Compiled,
    KernelSource,
    OperatorSource,
    Parameter,
    Pointer,
    Resources,
    Scalar,
    Stride,
    Value,
    Variant,
    Workspace,
)
from cleave.runtime import cuda
from cleave.runtime.arguments import check_layout, check_outputs, match_arguments, solve_dims
from cleave.runtime.arrays import Library, view
from cleave.runtime.executable import Executable
from cleave.runtime.plan import Address, choose, make_plan, packed
from tests.null import fake_gpu as fake
from tests.null.fake_gpu import DeviceArray, Tensor, memory_at

S, T = dims("s t", minimum=1, maximum=4096)
(H,) = dims("h", multiple_of=2)
CHUNK = Symbol("chunk")
D = dim("d")


def attention(**changes):
    """Shapes of attention; the kernels do nothing in particular."""
    q = Buffer("q", "float16", (H, S, D), ("h", "s", "d"), "rows", 16)
    k = Buffer("k", "float16", (H, T, D), ("h", "t", "d"), "rows", 16)
    out = Buffer("o", "float16", (H, S, D), ("h", "s", "d"), "rows", 16)
    parameters = (
        Parameter("q", "pointer", "float16", False, Pointer("q")),
        Parameter("k", "pointer", "float16", False, Pointer("k")),
        Parameter("o", "pointer", "float16", True, Pointer("o")),
        Parameter("ws", "pointer", "float32", True, Pointer("ws")),
        Parameter("n_s", "int32", "int32", False, Value(S)),
        Parameter("q_s", "int64", "int64", False, Stride("q", 1)),
        Parameter("chunk", "int32", "int32", False, Value(of(CHUNK))),
    )
    first = KernelSource("", "partial", parameters, 128, 0, (ceildiv(S, 64) * H, dim("4")), ("sm_80",), "test")
    second = KernelSource("", "merge", parameters[:3], 128, 0, (H * S,), ("sm_80",), "test")
    fields = dict(
        name="attention",
        inputs=(q, k),
        outputs=(out,),
        workspaces=(Workspace("ws", "float32", (H, S)), Workspace("count", "int32", (ceildiv(S, 64),), zeroed=True)),
        kernels=(first, second),
        fixed={"d": 64},
        derived=((CHUNK, ceildiv(T, 4)),),
    )
    return OperatorSource(**(fields | changes))


SHAPES = {"q": (8, 77, 64), "k": (8, 130, 64)}


def refused(call, *, match):
    with pytest.raises(ArgumentError) as error:
        call()
    assert str(error.value) == match


# ---- views ---------------------------------------------------------------------------------------------------------


def test_device_array_keeps_its_strides_in_elements():
    array = np.zeros((4, 6, 8), np.float16)[:, ::2]
    found = view("x", DeviceArray(array))
    assert (found.shape, found.strides, found.dtype, found.library) == ((4, 3, 8), (48, 16, 1), "float16", Library.CUPY)
    assert found.pointer == array.ctypes.data and not found.on_host


def test_host_array_counts_as_contiguous_because_it_is_copied():
    found = view("x", np.zeros((4, 6), np.float32).T)
    assert found.on_host and found.strides == (4, 1)


def test_a_host_array_is_copied_in_the_machines_order_of_bytes(monkeypatch):
    taken = []
    owner = type("Owner", (), {"set": lambda _, flat: taken.append(flat.view(np.float16).tolist())})()
    monkeypatch.setattr(cuda, "allocate", lambda size, **_: cuda.DeviceMemory(1, size, owner))
    monkeypatch.setattr(cuda, "on_stream", lambda _: contextlib.nullcontext())
    for dtype in ("<f2", ">f2"):
        array = np.asarray([[1.0, 2.0], [3.0, -4.0]], dtype).T
        assert view("x", array).dtype == "float16"
        cuda.to_device(array, 0)
    assert taken == [[1.0, 3.0, 2.0, -4.0]] * 2


def test_torch_tensor_is_read_through_its_attributes():
    found = view("x", Tensor(np.zeros((3, 5), np.float16).T, dtype="bfloat16"))
    assert (found.shape, found.strides, found.dtype, found.device) == ((5, 3), (1, 5), "bfloat16", 1)
    assert found.library is Library.TORCH


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ([1.0, 2.0], "input q: list is no array: NumPy, CuPy, torch, or anything with __cuda_array_interface__ or "
         "__dlpack__ is accepted"),
        (Tensor(np.zeros(2, np.float16), device="cpu"), "input q: the tensor is on cpu; move it to the GPU (.cuda())"),
        (np.zeros(2, np.complex64), "input q: dtype complex64; kernels have bfloat16, bool, float16, float32, float64, "
         "int32, int64"),
        (np.ma.array([1.0, 2.0], np.float16, mask=[0, 1]), "input q: masked arrays are not supported"),
        (np.ma.masked, "input q: masked arrays are not supported"),
        (DeviceArray(np.zeros(2, np.int8)), "input q: dtype |i1; kernels have bfloat16, bool, float16, float32, "
         "float64, int32, int64"),
    ],
)  # fmt: skip
def test_what_is_no_array_for_a_kernel(array, message):
    refused(lambda: view("input q", array), match=message)


def test_bfloat16_of_the_array_interface():
    assert view("x", DeviceArray(np.zeros(4, np.uint16), typestr="<V2")).dtype == "bfloat16"


# ---- names ---------------------------------------------------------------------------------------------------------


def test_arguments_by_position_and_by_name():
    assert match_arguments(attention(), ["a"], {"k": "b", "t": 7}) == ({"q": "a", "k": "b"}, {"t": 7})


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ([1, 2, 3], {}, "attention: 3 arguments, the inputs are q, k"),
        ([1], {}, "attention: input k is missing; the inputs are q, k"),
        ([1, 2], {"q": 3}, "attention: input q is given twice"),
        ([1, 2], {"v": 3}, "attention: unknown argument 'v': inputs are q, k; dims are h, s, d, t"),
        ([1, 2], {"t": 1.5}, "attention: dim t = 1.5: an integer is expected"),
        ([1, 2], {"chunk": 5}, "attention: unknown argument 'chunk': inputs are q, k; dims are h, s, d, t"),
    ],
)
def test_arguments_that_do_not_match(arguments, named, message):
    refused(lambda: match_arguments(attention(), arguments, named), match=message)


# ---- dims ----------------------------------------------------------------------------------------------------------


def test_dims_come_from_shapes_and_the_derived_ones_from_dims():
    assert solve_dims(attention(), SHAPES) == {"h": 8, "s": 77, "t": 130, "d": 64, "chunk": 33}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (SHAPES | {"k": (6, 130, 64)}, "input k, axis h: extent 6, expected 8 (h = 8 from input q, axis h)"),
        (SHAPES | {"k": (8, 130, 32)}, "input k, axis d: extent 32, expected 64 (d = 64 as compiled)"),
        ({"q": (7, 77, 64), "k": (7, 130, 64)}, "attention: dim h = 7: must be divisible by 2 (from input q, axis h)"),
        (SHAPES | {"k": (8, 4097, 64)}, "attention: dim t = 4097: allowed is in [1, 4096] (from input k, axis t)"),
        (SHAPES | {"q": (8, 0, 64)}, "attention: dim s = 0: allowed is in [1, 4096] (from input q, axis s)"),
    ],
)
def test_shapes_that_do_not_fit(shapes, message):
    refused(lambda: solve_dims(attention(), shapes), match=message)


def test_given_dims_are_held_against_shapes_and_compiled_values():
    refused(
        lambda: solve_dims(attention(), SHAPES, {"s": 78}),
        match="input q, axis s: extent 77, expected 78 (s = 78 as given)",
    )
    refused(lambda: solve_dims(attention(), SHAPES, {"d": 128}), match="attention: dim d = 128: compiled for 64")


def test_affine_extents_are_solved_and_open_dims_named():
    n, w = dims("n w")
    padded = Buffer("x", "float32", (2 * n + 3, n * w), ("rows", "columns"))
    operator = OperatorSource("pad", (padded,), (), (), (), {"w": 5})
    assert solve_dims(operator, {"x": (13, 25)}) == {"n": 5, "w": 5}
    refused(lambda: solve_dims(operator, {"x": (12, 25)}), match="input x, axis rows: extent 12, expected 13 "
            "(2*n + 3; n = 5 from input x, axis columns)")  # fmt: skip
    masked = OperatorSource("masked", (Buffer("x", "float32", (n,), ("n",)),), (), (), (), constraints=(w <= n,))
    refused(lambda: solve_dims(masked, {"x": (4,)}), match="masked: dim w has no value: pass w=...")
    refused(
        lambda: solve_dims(masked, {"x": (4,)}, {"w": 9}), match="masked: dim.w <= dim.n does not hold: n = 4, w = 9"
    )


def test_a_dim_that_no_kernel_needs_may_be_named():
    """A candidate can lose one: max over n of what does not depend on n."""
    (n,) = dims("n")
    x = Buffer("x", "float32", (n,), ("n",))
    operator = OperatorSource("lost", (x,), (), (), (), dims=(Symbol("n"), Symbol("m")))
    assert match_arguments(operator, [0], {"m": 3}) == ({"x": 0}, {"m": 3})
    assert solve_dims(operator, {"x": (4,)}, {"m": 3}) == {"n": 4, "m": 3}
    refused(lambda: solve_dims(operator, {"x": (4,)}), match="lost: dim m has no value: pass m=...")


# ---- strides -------------------------------------------------------------------------------------------------------

ROWS = Buffer("k", "float16", (H, T, D), ("h", "t", "d"), "rows", 16)


def placed(shape, strides=None, *, offset=0):
    """A float16 view at an aligned address plus an offset in bytes; strides in elements."""
    raw = np.zeros(1 << 16, np.uint8)
    start = -raw.ctypes.data % 256 + offset
    byte_strides = None if strides is None else tuple(2 * s for s in strides)
    return view("input k", DeviceArray(np.ndarray(shape, np.float16, raw[start:].data, strides=byte_strides)))


def test_rows_may_be_strided():
    assert check_layout(ROWS, placed((2, 4, 8), (256, 16, 1))) == (256, 16, 1)
    assert check_layout(ROWS, placed((2, 4, 8), (8, 16, 1))) == (8, 16, 1)  # axes in another order in memory


def test_strides_of_axes_with_one_element_do_not_matter():
    assert check_layout(ROWS, placed((1, 4, 8), (3, 8, 1))) == (32, 8, 1)
    assert check_layout(ROWS, placed((2, 4, 1), (8, 8, 5))) == (8, 8, 1)


def test_an_empty_array_may_have_any_strides():
    assert check_layout(ROWS, placed((0, 4, 8), (3, 3, 3), offset=2)) == (32, 8, 1)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (placed((2, 4, 8), (64, 16, 2)), "input k, axis d: stride 2 elements, expected 1 (rows without gaps); "
         "pass a contiguous copy"),
        (placed((2, 4, 8), (64, 10, 1)), "input k, axis t: stride 10 elements (20 bytes) is no multiple of 16 bytes; "
         "pass a contiguous copy"),
        (placed((2, 4, 8), offset=2), "input k: its address is no multiple of 16 bytes (a view that starts inside an "
         "array?); pass a copy"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_read(array, message):
    refused(lambda: check_layout(ROWS, array), match=message)


def test_contiguous_and_strided_layouts():
    whole = Buffer("x", "float16", (H, T), ("h", "t"))
    assert check_layout(whole, placed((3, 5))) == (5, 1)
    refused(
        lambda: check_layout(whole, placed((3, 5), (8, 1))),
        match="input x, axis h: stride 8 elements, expected 5 (C order without gaps); pass a contiguous copy",
    )
    free = Buffer("x", "float16", (H, T), ("h", "t"), "strided")
    assert check_layout(free, placed((3, 5), (1, 7))) == (1, 7)


def test_outputs_that_must_be_refused():
    out = Buffer("o", "float16", (H, T), ("h", "t"), "strided")
    memory = np.zeros((6, 8), np.float16)
    values = {"h": 3, "t": 8}

    def check(array, **inputs):
        views = {n: view(n, a) for n, a in inputs.items()}
        return check_outputs([out], {"o": view("output o", array)}, values, views)

    check(DeviceArray(memory[:3]), q=DeviceArray(memory[3:]))
    refused(lambda: check(DeviceArray(memory[:2])), match="output o: shape (2, 8), expected (3, 8)")
    refused(lambda: check(DeviceArray(memory[:3], writable=False)), match="output o: it is read-only")
    refused(
        lambda: check(DeviceArray(np.lib.stride_tricks.as_strided(memory, (3, 8), (0, 2)))),
        match="output o, axis h: stride 0: elements overlap",
    )
    refused(
        lambda: check(DeviceArray(memory[:3]), q=DeviceArray(memory[2:4][:, ::-1])),
        match="output o: it shares memory with input q: kernels read inputs while they write",
    )


# ---- plans ---------------------------------------------------------------------------------------------------------


def plan_for(operator, **values):
    return make_plan(operator, values, {"q": (9999, 64, 1), "k": (8320, 64, 1), "o": (4928, 64, 1)})


def test_plan_has_grids_arguments_and_sizes():
    plan = plan_for(attention(), h=8, s=77, t=130, d=64, chunk=33)
    first, second = plan.launches
    assert (first.grid, second.grid) == ((16, 4, 1), (616, 1, 1))
    assert first.arguments[:4] == (Address("q"), Address("k"), Address("o"), Address("ws"))
    assert first.arguments[4:] == (np.int32(77), np.int64(64), np.int32(33))
    assert [type(a) for a in first.arguments[4:]] == [np.int32, np.int64, np.int32]
    assert plan.outputs == {"o": (8, 77, 64)}
    assert [(m.name, m.size, m.zeroed) for m in plan.workspaces] == [("ws", 8 * 77 * 4, False), ("count", 8, True)]


def test_g06_an_empty_grid_is_not_launched():
    plan = plan_for(attention(), h=8, s=0, t=130, d=64, chunk=33)
    assert plan.launches == () and plan.outputs == {"o": (8, 0, 64)}


def test_grids_beyond_the_limits_are_refused():
    kernel = KernelSource("", "wide", (), 32, 0, (dim("1"), S), ("sm_80",), "test")
    with pytest.raises(LaunchError, match=r"^wide: 65536 blocks along y, allowed are 65535$"):
        plan_for(attention(kernels=(kernel,)), s=65536)


def test_t04_numbers_are_passed_as_the_declared_type_or_refused():
    assert packed("k", "scale", "float32", 0.125).tobytes() == np.float32(0.125).tobytes()
    assert packed("k", "n", "int64", 2**31 + 5) == 2**31 + 5
    assert type(packed("k", "n", "int64", 2**31 + 5)) is np.int64
    with pytest.raises(LaunchError, match=r"^k: parameter n = 2147483653 does not fit int32$"):
        packed("k", "n", "int32", 2**31 + 5)
    with pytest.raises(LaunchError, match=r"^k: parameter n = 0.5 does not fit int32$"):
        packed("k", "n", "int32", 0.5)


def test_the_first_variant_whose_comparisons_hold_is_chosen():
    few, many = attention(name="few rows"), attention(name="many rows")
    variants = (Variant(few, (S <= 64,)), Variant(many))
    assert [choose(variants, {"s": s}) for s in (1, 64, 65)] == [0, 0, 1]
    with pytest.raises(LaunchError, match=r"^few rows: no variant for s = 65: allowed are dim.s <= 64$"):
        choose(variants[:1], {"s": 65})


# ---- a whole call, on a device made of host memory -----------------------------------------------------------------

N, M = dims("n m")


def scaling(kernel_count=1):
    x = Buffer("x", "float32", (N, M), ("n", "m"), "strided")
    parameters = (
        Parameter("x", "pointer", "float32", False, Pointer("x")),
        Parameter("y", "pointer", "float32", True, Pointer("y")),
        Parameter("ws", "pointer", "int32", True, Pointer("ws")),
        Parameter("scale", "float32", "float32", False, Scalar("scale")),
        Parameter("n", "int32", "int32", False, Value(N)),
        Parameter("m", "int32", "int32", False, Value(M)),
        Parameter("x_n", "int64", "int64", False, Stride("x", 0)),
        Parameter("x_m", "int64", "int64", False, Stride("x", 1)),
    )
    kernel = KernelSource("text", "scaling", parameters, 64, 1024, (N,), ("sm_80",), "test")
    return OperatorSource(
        "scaling",
        (x, Buffer("scale", "float32", ())),
        (Buffer("y", "float32", (N, M), ("n", "m")),),
        (Workspace("ws", "int32", (N,), zeroed=True),),
        (kernel,) * kernel_count,
    )


def scale_rows(grid, x, y, ws, scale, n, m, x_n, x_m):
    """What the kernel would do, through the addresses and numbers that it was launched with."""
    assert grid == (n, 1, 1) and not memory_at(ws, (n,), (1,)).any()
    memory_at(y, (n, m), (m, 1))[...] = memory_at(x, (n, m), (x_n, x_m)) * scale


@pytest.fixture
def fake_gpu(monkeypatch):
    return fake.install(monkeypatch, {"scaling": ("QQQfiiqq", scale_rows)}, quick=False)


def executable(operator, arch="sm_80"):
    compiled = Compiled("scaling", arch, b"", "", Resources(1, 0, 0, 0, 0, 0))
    return Executable([Variant(operator)], arch, lambda sources: [compiled] * len(sources))


def test_numpy_in_numpy_out(fake_gpu, rng):
    f = executable(scaling())
    x = rng.standard_normal((5, 7)).astype(np.float32)
    assert f.compiles == 0
    for _ in range(2):
        np.testing.assert_allclose(f(x, np.float32(-0.5)), x * -0.5)
        np.testing.assert_allclose(f(x.T, np.float32(2)), x.T * 2)
    assert f.compiles == 1 and len(fake_gpu.launched) == 4
    out = np.full((5, 7), np.nan, np.float32)
    assert f(x, scale=np.float32(3), out=out) is out
    np.testing.assert_allclose(out, x * 3)


def test_device_arrays_keep_strides_and_workspaces_are_reused(fake_gpu, rng):
    f = executable(scaling(kernel_count=2))
    x = rng.standard_normal((6, 4)).astype(np.float32)
    for array in (x, x[::2], x[:, ::-1], x.T):
        result = f(DeviceArray(array), np.float32(4))
        assert isinstance(result, DeviceArray)
        np.testing.assert_allclose(result.array, array * 4)
    counters = [a for a in fake_gpu.allocated if a[1]]
    assert counters == [(32, True, 7)]  # one for all calls, rounded up to a power of two
    f(DeviceArray(x), np.float32(4), stream=8)
    assert [a for a in fake_gpu.allocated if a[1]][1:] == [(32, True, 8)]  # another stream has its own
    assert f.compiles == 2


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_kernel_that_waits_itself_is_launched_early_where_the_device_can(fake_gpu, arch):
    operator = scaling(kernel_count=2)
    first, second = operator.kernels
    f = executable(replace(operator, kernels=(first, replace(second, waits=True))), arch)
    f(np.ones((2, 3), np.float32), np.float32(2))
    assert fake_gpu.early == fake_gpu.launched_early == [False, arch == "sm_90a"]


def test_a_prepared_call_may_begin_when_everything_before_is_over(fake_gpu):
    """Only its first kernel: what follows waits for that one anyway."""
    operator = scaling(kernel_count=2)
    f = executable(replace(operator, kernels=tuple(replace(k, waits=True) for k in operator.kernels)), "sm_90a")
    x, y = DeviceArray(np.ones((3, 4), np.float32)), DeviceArray(np.zeros((3, 4), np.float32))
    for early in (True, False, True):
        f.prepare(x, np.float32(3), out=y, early=early)()
        assert fake_gpu.launched_early[-2:] == [early, True]
        np.testing.assert_array_equal(y.array, 3 * x.array)


def test_the_first_kernel_is_the_first_one_with_a_block(fake_gpu):
    operator = scaling(kernel_count=2)
    idle, busy = (replace(k, waits=True) for k in operator.kernels)
    idle = replace(idle, grid=(index(0), *idle.grid[1:]))
    f = executable(replace(operator, kernels=(idle, busy)), "sm_90a")
    x = DeviceArray(np.ones((3, 4), np.float32))
    for early in (True, False):
        fake_gpu.launched_early.clear()
        f.prepare(x, np.float32(3), early=early)()
        assert fake_gpu.launched_early == [early]


def test_outputs_of_the_caller(fake_gpu):
    f = executable(scaling())
    x, y = DeviceArray(np.ones((3, 4), np.float32)), DeviceArray(np.zeros((3, 4), np.float32))
    for out in (y, [y], {"y": y}):
        y.array[...] = np.nan
        assert f(x, np.float32(2), out=out) is y
        assert (y.array == 2).all()
    refused(lambda: f(x, np.float32(2), out={"z": y}), match="scaling: out: no output 'z'; there are y")
    refused(lambda: f(x, np.float32(2), out=[y, y]), match="scaling: out has 2 arrays for 1 outputs")
    refused(lambda: f(x, np.float32(2), out=x), match="output y: it shares memory with input x: kernels read inputs "
            "while they write")  # fmt: skip
    wide = DeviceArray(np.zeros((3, 8), np.float32)[:, :4])
    refused(lambda: f(x, np.float32(2), out=wide), match="output y, axis n: stride 8 elements, expected 4 (C order "
            "without gaps); pass a contiguous copy")  # fmt: skip


def test_a_capture_must_not_allocate(fake_gpu):
    f = executable(scaling())
    x = DeviceArray(np.ones((3, 4), np.float32))
    with pytest.raises(LaunchError, match=r"^ws: call it once on this stream before a graph is captured there$"):
        f(x, np.float32(2), stream=99)


def test_wrong_dtype_and_rank(fake_gpu):
    f = executable(scaling())
    refused(lambda: f(np.ones((3, 4)), np.float32(1)), match="input x: dtype float64, expected float32")
    refused(
        lambda: f(np.ones(3, np.float32), np.float32(1)), match="input x: rank 1 (shape (3,)), expected rank 2 [n, m]"
    )


def test_g06_empty_input_gives_an_empty_result(fake_gpu):
    f = executable(scaling())
    assert f(np.ones((0, 4), np.float32), np.float32(1)).shape == (0, 4)
    assert fake_gpu.launched == []


def test_without_a_gpu_arguments_are_still_checked_first(monkeypatch):
    monkeypatch.setattr(cuda, "why_not", lambda: "there is no GPU")
    f = executable(scaling())
    refused(lambda: f(np.ones((3, 4)), np.float32(1)), match="input x: dtype float64, expected float32")
    with pytest.raises(LaunchError, match=r"^scaling: there is no GPU$"):
        f(np.ones((3, 4), np.float32), np.float32(1))
    assert f.plan(np.ones((3, 4), np.float32), np.float32(1)).launches[0].grid == (3, 1, 1)
