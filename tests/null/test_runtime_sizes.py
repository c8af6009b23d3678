"""Calls of sizes that were not met before: what passes, what it becomes, and what is said of the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleave.errors import ArgumentError, CleaveError, LaunchError
from cleave.ir.dim import dims
from cleave.ir.index import Pred, Symbol, ceildiv, maximum, minimum, of
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
    TensorMap,
    Value,
    Variant,
    Workspace,
)
from cleave.runtime import executable as module
from cleave.runtime.arguments import solve_dims
from cleave.runtime.arrays import READERS, torch_facts
from cleave.runtime.executable import Executable
from cleave.runtime.launch import layout_of
from cleave.runtime.match import facts_of
from cleave.runtime.plan import make_plan
from cleave.runtime.route import see
from cleave.runtime.sizes import finder
from tests.null import fake_gpu as fake
from tests.null.fake_gpu import Quick, Tensor
from tests.null.test_runtime_calls import aligned, interpreter_seconds, seconds_per_call

NEW_SIZE_SECONDS = 60e-6
"""What a call at a new size may cost on the machine that figures are given for, with the driver's part."""

B, P = dims("b p", minimum=1, maximum=4096)
(H,) = dims("h", multiple_of=2)
(K,) = dims("k")
D = of(Symbol("d"))
CHUNK = Symbol("chunk")


def paged(**changes: object) -> OperatorSource:
    """Sizes as those of attention over pages, split: chunks, workspaces, a grid of at most 16 blocks, tensor maps."""
    parts = ceildiv(K, of(CHUNK))
    cache = TensorMap("cache", "float32", (D, H, P), (4 * D, 4 * D * H), (32, 1, 16), 128)
    partial = TensorMap("partial", "float32", (D, B * H), (4 * D,), (32, 16), 128)
    parameters = (
        Parameter("q", "pointer", "float32", False, Pointer("q")),
        Parameter("at", "pointer", "int32", False, Pointer("at")),
        Parameter("pages", "pointer", "int32", False, Pointer("pages")),
        Parameter("o", "pointer", "float32", True, Pointer("o")),
        Parameter("partial", "pointer", "float32", True, Pointer("partial")),
        Parameter("cache_map", "tensor_map", "float32", False, cache),
        Parameter("partial_map", "tensor_map", "float32", False, partial),
        Parameter("scale", "float32", "float32", False, Scalar("scale")),
        Parameter("chunk", "int32", "int32", False, Value(of(CHUNK))),
        Parameter("reciprocal", "int32", "int32", False, Value(minimum(2**31 // maximum(1, B), 2**31 - 1))),
        Parameter("total", "int64", "int64", False, Value(K * H * D)),
    )
    first = KernelSource("", "paged", parameters, 128, 0, (minimum(B * H, 16), parts), ("sm_90a",), "test")
    last = KernelSource("", "merge", (*parameters[3:5], parameters[8]), 128, 0, (B * H,), ("sm_90a",), "test")
    fields: dict[str, object] = {
        "name": "paged",
        "inputs": (
            Buffer("q", "float32", (B, H, D), ("b", "h", "d"), alignment=16),
            Buffer("cache", "float32", (P, H, D), ("p", "h", "d"), alignment=16),
            Buffer("at", "int32", (B + 1,), ("b + 1",)),
            Buffer("pages", "int32", (K,), ("k",)),
            Buffer("scale", "float32", ()),
        ),
        "outputs": (Buffer("o", "float32", (B, H, D), ("b", "h", "d"), alignment=16),),
        "workspaces": (
            Workspace("partial", "float32", (B * H, parts, D)),
            Workspace("count", "int32", (B,), zeroed=True),
        ),
        "kernels": (first, last),
        "fixed": {"d": 8},
        "derived": ((CHUNK, maximum(ceildiv(K, 4), 16)),),
        "constraints": (B <= K,),
    }
    return OperatorSource(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def gpu(monkeypatch):
    found = fake.install(monkeypatch, {"paged": ("QQQQQQQfiiq", lambda *a: grids.append(a)), "merge": ("QQi", merge)})
    monkeypatch.setattr("cleave.runtime.arrays._stream_of_torch", lambda: lambda _: 5)
    made = lambda shape, *_: lambda: torch(aligned(shape))  # noqa: E731
    monkeypatch.setattr("cleave.runtime.call.torch_maker", made)
    grids: list[object] = []
    found.seen = grids
    return found


def merge(*_):
    pass


def executable(operator: OperatorSource, when: tuple[Pred, ...] = ()) -> Executable:
    compiled = Compiled("any", "sm_90a", b"", "", Resources(1, 0, 0, 0, 0, 0))
    return Executable([Variant(operator, when)], "sm_90a", lambda sources: [compiled] * len(sources))


def arrays(b=3, h=2, k=40, p=70, d=8, *, kind=Quick, at=None, changes=()):
    """q, cache, at, pages, scale and o; ``changes``: what becomes of some of them."""
    made = {
        "q": aligned((b, h, d)),
        "cache": aligned((p, h, d)),
        "at": aligned((b + 1 if at is None else at,)).view(np.int32),
        "pages": aligned((k,)).view(np.int32),
        "o": aligned((b, h, d)),
    }
    for name, change in changes:
        made[name] = change(made[name])
    given = {n: kind(a) for n, a in made.items()}
    return {**{n: a for n, a in given.items() if n != "o"}, "scale": 0.5}, given["o"]


def torch(array: np.ndarray) -> Tensor:
    return Tensor(array, index=0)


# ---- what passes ---------------------------------------------------------------------------------------------------

CHANGES = {
    "as it is": lambda a: a,
    "misaligned": lambda a: aligned(a.shape, offset=4).view(a.dtype),
    "with gaps": lambda a: aligned((*a.shape, 2)).view(a.dtype)[..., 0],
    "longer": lambda a: aligned((a.shape[0] + 1, *a.shape[1:])).view(a.dtype),
    "of no rank": lambda a: aligned((1,)).view(a.dtype).reshape(()),
    "with an axis more": lambda a: a[None],
    "of one row, with any stride": lambda a: np.lib.stride_tricks.as_strided(a[:1], strides=(12, *a.strides[1:])),
    "the same row again and again": lambda a: np.broadcast_to(a[:1], a.shape),
    "of another dtype": lambda a: a.view(np.int32 if a.dtype == np.float32 else np.float32),
    "with another axis 1": lambda a: aligned((*a.shape[:1], *(n + 2 for n in a.shape[1:2]), *a.shape[2:])).view(
        a.dtype
    ),
    "with a longer last axis": lambda a: aligned((*a.shape[:-1], *(n + 4 for n in a.shape[-1:]))).view(a.dtype),
}
ARRAYS = ("q", "cache", "at", "pages", "o")

calls = st.fixed_dictionaries(
    {
        "b": st.sampled_from((3, 1, 5, 2, 0)),
        "h": st.sampled_from((2, 4, 6, 8, 3, 0)),
        "k": st.sampled_from((40, 17, 64, 65, 90, 7, 3, 0)),
        "p": st.sampled_from((7, 1, 70, 4096, 4097, 0)),
        "d": st.sampled_from((8, 8, 8, 8, 4)),
    }
)


def overlapping(name, kind):
    """The output begins inside of an input, or an input inside of it."""
    shape, whole = {"q": (3, 2, 8), "cache": (70, 2, 8), "at": (4,), "pages": (40,)}[name], aligned((72, 2, 8))
    inside = whole.reshape(-1)[16 : 16 + int(np.prod(shape))].reshape(shape)
    x, _ = arrays(kind=kind)
    x[name] = kind(inside if name in ("q", "cache") else inside.view(np.int32))
    return x, kind(whole[:3])


@pytest.mark.parametrize("kind", [Quick, torch])
@pytest.mark.parametrize("allocates", [False, True])
def test_what_is_found_is_what_the_checks_one_by_one_find(gpu, kind, allocates):
    f, reference = executable(paged()), executable(paged())
    x, o = arrays(kind=kind)
    f(**x, **({} if allocates else {"out": o}))
    (pattern,) = f._patterns.values()
    passed = []

    def check(x, o):
        outs = () if allocates else (o,)
        given = (0, *x)
        found = pattern.found((*x.values(), *outs), given)
        try:
            call = reference._checked((), x, None if allocates else o, None)
        except CleaveError:
            assert found is None
            return
        plan = call.planned.plan
        whole = all(0 not in a.shape for a in (*x.values(), o) if hasattr(a, "shape")) and len(plan.launches) == 2
        assert (found is not None) == whole
        if found is not None:
            passed.append(1)
            names = [b.name for b in (*f.operator.inputs, *f.operator.outputs)]
            layout, wanted = layout_of(plan, names)
            assert layout.kinds == pattern.layout.kinds and layout.launches == pattern.layout.launches
            assert found.sizes == wanted and found.shapes == (tuple(plan.outputs.values()) if allocates else ())
            assert all(type(n) is int for n in (*found.sizes.numbers, *found.sizes.memory, *found.bytes))
            _, values = see((*x.values(), *outs), given)
            assert found.values == values

    @settings(max_examples=120)
    @given(calls)
    def at(sizes):
        check(*arrays(**sizes, kind=kind))

    at()
    assert len(passed) > 15
    for name in ARRAYS:
        for change in CHANGES.values():
            check(*arrays(kind=kind, changes=[(name, change)]))
        if name != "o":
            check(*overlapping(name, kind))


@pytest.mark.parametrize("kind", [Quick, torch])
def test_arguments_of_other_types_are_not_taken(gpu, kind):
    """A pattern is of types too: another array library, another type of number."""
    f = executable(paged())
    x, o = arrays(kind=kind)
    f(**x, out=o)
    (pattern,) = f._patterns.values()
    (other,) = {Quick, torch} - {kind}
    given, every = (0, *x), (*x.values(), o)
    for n, argument in enumerate(every):
        changes = [1.0, float("nan")] if argument is x["scale"] else []
        for change in changes:
            assert pattern.found((*every[:n], change, *every[n + 1 :]), given) is not None
        for change in ("1", True, 1, np.float32(1), None, np.ones(()), *([] if changes else [other(argument.array)])):
            assert pattern.found((*every[:n], change, *every[n + 1 :]), given) is None
    assert pattern.found(every[:-1], given) is None and pattern.found(every, (1, *given[2:])) is None


def test_torchs_own_tensors_are_read(monkeypatch):
    """Those of the CPU, which have the same attributes."""
    library = pytest.importorskip("torch")
    monkeypatch.setitem(READERS, library.Tensor, torch_facts)
    operator = paged()
    came = ("q", "cache", "at", "pages", "scale", "o")

    def arguments(k, *, at=4, **options):
        floats = [library.empty(shape, **options) for shape in ((3, 2, 8), (70, 2, 8), (3, 2, 8))]
        integers = [library.empty((n,), dtype=library.int32) for n in (at, k)]
        return (*floats[:2], *integers, 0.5, floats[2])

    def planned(k):
        shapes = {"q": (3, 2, 8), "cache": (70, 2, 8), "at": (4,), "pages": (k,), "scale": ()}
        return layout_of(make_plan(operator, solve_dims(operator, shapes), {}), came)

    layout, _ = planned(40)
    _, find = finder([Variant(operator)], 0, came, arguments(40), facts_of(arguments(40)), layout)
    for k in (40, 41, 90):
        x = arguments(k)
        found = find(x)
        assert found.sizes == planned(k)[1] and found.values == [a if a is x[4] else a.data_ptr() for a in x]
    x = arguments(40)
    transposed = x[0].transpose(0, 1).contiguous().transpose(0, 1)
    for wrong in (
        arguments(40, dtype=library.float64),
        arguments(40, at=5),
        (transposed, *x[1:]),
        (x[0]._neg_view(), *x[1:]),
        (*x[:5], x[0]),
        (x[0].numpy(), *x[1:]),
    ):
        assert find(wrong) is None


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"b": 4097, "k": 5000}, "paged: dim b = 4097: allowed is in [1, 4096] (from input q, axis b)"),
        ({"h": 3}, "paged: dim h = 3: must be divisible by 2 (from input q, axis h)"),
        ({"d": 4}, "input q, axis d: extent 4, expected 8 (d = 8 as compiled)"),
        ({"at": 3}, "input at, axis b + 1: extent 3, expected 4 (b + 1; b = 3 from input q, axis b)"),
        ({"k": 2}, "paged: dim.b <= dim.k does not hold: b = 3, k = 2"),
    ],
)
def test_what_is_wrong_with_a_new_size_is_said(gpu, sizes, message):
    f = executable(paged())
    for call in (f, f.prepare):
        x, o = arrays()
        call(**x, out=o)
        x, o = arrays(**sizes)
        with pytest.raises(ArgumentError) as error:
            call(**x, out=o)
        assert str(error.value) == message


def test_an_output_that_shares_memory_is_refused_at_every_size(gpu):
    f = executable(paged())
    for k in (40, 41, 42):
        x, o = arrays(k=k)
        f(**x, out=o)
        with pytest.raises(ArgumentError, match=r"^output o: it shares memory with input q: kernels read inputs while"):
            f(**x, out=x["q"])
    assert len(f._patterns) == 1


def test_a_grid_beyond_the_limits_is_refused(gpu):
    kernels = (replace(paged().kernels[0], grid=(K, K * 1000)),)
    f = executable(paged(kernels=kernels))
    x, o = arrays(k=40)
    f(**x, out=o)
    x, o = arrays(k=66)
    with pytest.raises(LaunchError, match=r"^paged: 66000 blocks along y, allowed are 65535$"):
        f(**x, out=o)


def test_dims_by_name_and_numbers_that_do_not_fit(gpu):
    f = executable(paged())
    for k in (40, 41):
        x, o = arrays(k=k)
        f(**x, k=k, out=o)
        with pytest.raises(ArgumentError, match=rf"^input pages, axis k: extent {k}, expected 39 \(k = 39 as given\)$"):
            f(**x, k=39, out=o)
        f(**{**x, "scale": 1e300}, out=o)
        assert gpu.seen[-1][8] == float("inf")


def test_what_has_no_pattern(gpu):
    """It goes through the checks one by one at every new size, and is right."""
    first, last = paged().kernels
    strided = Parameter("s", "int64", "int64", False, Stride("q", 0))
    gpu.kernels["paged"] = "q", lambda *a: None
    for kernels in ((last, replace(last, grid=(K - 40,))), (replace(first, parameters=(strided,)), last)):
        f = executable(paged(kernels=kernels))
        x, o = arrays(k=40)
        f(**x, out=o)
        assert not f._patterns and f.host_source == ""


# ---- what it becomes -----------------------------------------------------------------------------------------------


def test_kernels_get_the_sizes_of_each_call(gpu):
    """Known and new sizes in any order, on two streams, prepared or not: grids, numbers, maps, workspaces."""
    f = executable(paged())
    prepared = []
    for k, b, p in (
        (40, 3, 70),
        (41, 3, 70),
        (41, 3, 70),
        (90, 5, 7),
        (40, 3, 70),
        (41, 3, 70),
        (90, 5, 7),
        (17, 1, 1),
    ):
        for stream in (7, 8):
            x, o = arrays(k=k, b=b, p=p)
            call = f.prepare(**x, out=o, stream=stream)
            for run in (lambda x=x, o=o, stream=stream: f(**x, out=o, stream=stream), call):
                assert run() is o
                expected(gpu, x, o, k=k, b=b)
            assert call.plan.dims["chunk"] == max(-(-k // 4), 16) and call.stream == stream
            prepared.append((call, x, o, k, b))
    for call, x, o, k, b in prepared:
        call()
        expected(gpu, x, o, k=k, b=b)
    dims = {(pointer, facts["dims"]) for pointer, facts in gpu.encoded if facts["location"] == "cache"}
    assert {d for _, d in dims} == {(8, 2, 70), (8, 2, 7), (8, 2, 1)}
    assert f.compiles == 2 and len(f._patterns) == 1


def expected(gpu, x, o, *, k, b):
    chunk = max(-(-k // 4), 16)
    grid, *values = gpu.seen[-1]
    assert grid == (min(b * 2, 16), -(-k // chunk), 1)
    pointers = [a.array.ctypes.data for a in (x["q"], x["at"], x["pages"], o)]
    assert values[:4] == pointers and values[5] == x["cache"].array.ctypes.data and values[6] == values[4]
    assert values[7:] == [0.5, chunk, min(2**31 // b, 2**31 - 1), k * 2 * 8]


def test_outputs_are_made_at_new_sizes(gpu):
    f = executable(paged())
    for b in (3, 4, 5, 5, 5, 4):
        x, _ = arrays(b=b)
        o = f(**x)
        assert o.shape == (b, 2, 8) and gpu.seen[-1][4] == o.array.ctypes.data
        assert f.prepare(**x).result.shape == (b, 2, 8)


def test_workspaces_grow_but_not_while_a_graph_is_captured(gpu):
    f = executable(paged())
    x, o = arrays(b=1)
    f(**x, out=o)
    x, o = arrays(b=5)
    with pytest.raises(LaunchError, match=r"^partial: call it once on this stream before a graph is captured there$"):
        f(**x, out=o, stream=fake.CAPTURING)
    f(**x, out=o)
    sizes = [size for size, zeroed, _ in gpu.allocated if not zeroed]
    assert sizes == sorted(sizes) and all(size & (size - 1) == 0 for size in sizes)


def test_sizes_choose_among_variants(gpu):
    """Each has a pattern of its own, and none takes what another serves; what the first refuses, all refuse."""
    small = paged(kernels=(paged().kernels[0], replace(paged().kernels[1], grid=(B,))), constraints=(B <= K, K <= 60))
    tall = paged(derived=((CHUNK, K),), fixed={"d": 8, "h": 4})
    rest = paged(constraints=(B <= K, B <= 4))
    f = executable(small, (K <= 20,))
    f = Executable([*f.variants, Variant(tall, (H <= 4, H >= 4)), Variant(rest)], "sm_90a",
                   f._compile)  # fmt: skip
    for k, b, h, chunk in (
        (18, 3, 2, 16), (40, 3, 4, 40), (40, 3, 2, 16), (19, 3, 4, 16), (41, 3, 4, 41), (44, 2, 2, 16), (60, 3, 4, 60),
        (59, 3, 2, 16), (20, 5, 4, 16), (21, 5, 4, 21),
    ):  # fmt: skip
        x, o = arrays(k=k, b=b, h=h)
        assert f.plan(**x).dims["chunk"] == chunk
        for _ in range(3):
            f(**x, out=o)
            assert gpu.seen[-1][9] == chunk, (k, b, h)
    assert len(f._patterns) == 3
    x, o = arrays(k=61, h=4)
    with pytest.raises(ArgumentError, match=r"^paged: dim.k <= 60 does not hold: k = 61$"):
        f(**x, out=o)
    x, o = arrays(k=30, b=5)
    with pytest.raises(ArgumentError, match=r"^paged: dim.b <= 4 does not hold: b = 5$"):
        f(**x, out=o)


def test_a_size_that_comes_again_has_a_route(gpu):
    f = executable(paged())
    for k in range(40, 45):
        for again in range(3):
            x, o = arrays(k=k)
            f(**x, out=o)
            known = k - 40 + (again > 0 or k == 40)
            assert len(f._routes) == known, (k, again)


# ---- what is kept --------------------------------------------------------------------------------------------------


def test_memory_is_bounded_however_many_sizes_there_are(gpu, monkeypatch):
    for name, most in (("_KEPT", 20), ("_MET_KEPT", 5)):
        monkeypatch.setattr(module, name, most)
    f = executable(paged())
    for k in range(40, 140):
        for _ in range(3):
            x, o = arrays(k=k)
            f(**x, out=o)
            f.prepare(**x, out=o)
    assert len(f._routes) == 20 and len(f._met) == 5 and len(f._plans) <= 20 and len(f._patterns) == 1
    (pattern,) = f._patterns.values()
    assert len(pattern.launches) == 1
    assert len(gpu.allocated) < 10


def test_what_is_used_is_kept(gpu, monkeypatch):
    monkeypatch.setattr(module, "_KEPT", 4)
    f = executable(paged())
    kept, o = arrays(k=40)
    f(**kept, out=o)
    route = f._latest
    for k in range(41, 60):
        f(**kept, out=o)
        assert f._latest is route and route in f._routes.values()
        for _ in range(2):
            x, other = arrays(k=k)
            f(**x, out=other)
    assert len(f._routes) == 4


def test_the_text_of_the_checks_can_be_read(gpu):
    f = executable(paged())
    x, o = arrays()
    f(**x, out=o)
    assert "def find(arguments):" in f.host_source and "n1_0 <= 4096" in f.host_source


# ---- cost ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["call", "prepare"])
def test_the_host_time_of_a_call_at_a_new_size(gpu, monkeypatch, form):
    """Twice what the goal is, on a shared machine."""
    monkeypatch.setattr(fake.FakeKernel, "bound", lambda *_: int)
    f = executable(paged())
    every = iter([arrays(k=k, kind=torch) for k in range(40, 40 + 600)])
    call = f if form == "call" else f.prepare

    def once():
        x, o = next(every)
        call(**x, out=o)

    once()
    slowness = max(1.0, interpreter_seconds() / 1e-6)
    seconds = seconds_per_call(once, calls=30, rounds=15)
    print(f"{form}: {1e6 * seconds:.1f} us of host time at a new size, this machine being {slowness:.1f} times slower")
    assert seconds < NEW_SIZE_SECONDS * 2 * slowness
