"""Calls on a GPU: the short way, prepared calls, graphs whose lengths change, two devices, every form, isolation."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cleave
from cleave.candidate import Candidate, as_written, load_candidates
from cleave.codegen.compile import compile_cubin
from cleave.config import Config
from cleave.errors import ArgumentError, LaunchError
from cleave.ir.graph import Graph
from cleave.pipeline import emit, optimizer, trial
from cleave.pipeline.result import Forced, Trial
from cleave.records import Outcome
from cleave.runtime import cuda, device
from cleave.runtime.executable import Executable
from cleave.schedule import schedule
from cleave.tile.plan import Schedule
from tests.cases.lengths import expected, inputs
from tests.cases.reference import Array

cupy = pytest.importorskip("cupy")

SIZES = {"b": 3, "kv_heads": 2, "group": 4, "t": 1000}
LENGTHS = ([1000, 0, 517], [1, 999, 64], [0, 0, 0], [63, 65, 1000])


CANDIDATES = Path(__file__).parent.parent / "golden" / "attention_by_length.json"
"""Searched elsewhere (tests/null/test_golden_candidates.py): a machine with a GPU needs no egglog."""


def made(candidate: Candidate, dims: Mapping[str, int], **forced: Any) -> Executable:
    return emit(schedule(candidate, device.target(), bind=dims, **forced)[0])


def attention(*, count: int = 1) -> Executable:
    forced = {} if count == 1 else {"split": {"t": count}, "merge": "last-arriving"}
    candidates = load_candidates(CANDIDATES)
    return made(next(c for c in candidates if bool(c.splits) == ("split" in forced)), SIZES, **forced)


def on_device(arrays: Mapping[str, Array]) -> dict[str, Any]:
    return {name: cupy.asarray(array) for name, array in arrays.items()}


def close(out: Any, x: Mapping[str, Array]) -> None:
    np.testing.assert_allclose(np.asarray(out.get(), np.float64), expected(x)["out"], rtol=2e-2, atol=2e-3)


# ---- the short way -------------------------------------------------------------------------------------------------


def test_the_short_way_gives_what_the_first_call_gave(rng: np.random.Generator) -> None:
    f = attention()
    for lengths in LENGTHS:
        x = inputs(rng, **SIZES) | {"lengths": np.array(lengths, np.int32)}
        arrays = on_device(x)
        out = cupy.full(x["q"].shape, cupy.nan, cupy.float16)
        assert f(**arrays, out=out) is out
        close(out, x)
        close(f(*arrays.values()), x)
    assert len(f._routes) == 2 and f.compiles == len(f.kernels)
    with pytest.raises(ArgumentError, match="it shares memory with input q"):
        f(**arrays, out=arrays["q"])


def test_torch_goes_the_short_way_on_its_own_stream(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    f = attention()
    for lengths in LENGTHS:
        x = inputs(rng, **SIZES) | {"lengths": np.array(lengths, np.int32)}
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            arrays = {name: torch.tensor(array, device="cuda") for name, array in x.items()}
            out = torch.full(x["q"].shape, float("nan"), dtype=torch.float16, device="cuda")
            f(**arrays, out=out)
            again = f(**arrays)
        side.synchronize()
        for found in (out, again):
            close(cupy.asarray(found), x)
    assert type(arrays["q"]) in cleave.runtime.arrays.READERS


def test_a_thread_that_has_not_met_the_device_may_launch(rng: np.random.Generator) -> None:
    f = attention()
    x = inputs(rng, **SIZES) | {"lengths": np.array(LENGTHS[0], np.int32)}
    arrays, out = on_device(x), cupy.full(inputs(rng, **SIZES)["q"].shape, cupy.nan, cupy.float16)
    call = f.prepare(**arrays, out=out)
    f(**arrays, out=out)
    failed: list[BaseException] = []

    def work(launch: Callable[[], object]) -> None:
        try:
            launch()
        except BaseException as error:
            failed.append(error)

    for launch in (call, partial(f, **arrays, out=out)):
        out.fill(cupy.nan)
        cuda.synchronize()
        thread = threading.Thread(target=work, args=(launch,))
        thread.start()
        thread.join()
        cuda.synchronize()
        close(out, x)
    assert not failed


# ---- graphs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("form", ["call", "prepared"])
def test_a_captured_call_replays_with_changed_lengths(rng: np.random.Generator, count: int, form: str) -> None:
    f = attention(count=count)
    x = inputs(rng, **SIZES) | {"lengths": np.array(LENGTHS[0], np.int32)}
    arrays = on_device(x)
    out = cupy.full(x["q"].shape, cupy.nan, cupy.float16)
    stream = cuda.new_stream()
    handle = int(stream.ptr)
    cuda.synchronize()
    with cuda.on_stream(handle):
        call = f.prepare(**arrays, out=out) if form == "prepared" else partial(f, **arrays, out=out)
        call()
        cuda.synchronize_stream(handle)
        replay = cuda.capture(call, handle)
        for lengths in (*LENGTHS, LENGTHS[0]):
            x["lengths"] = np.array(lengths, np.int32)
            x["q"] = inputs(rng, **SIZES)["q"]
            arrays["lengths"].set(x["lengths"])
            arrays["q"].set(x["q"])
            out.fill(cupy.nan)
            replay()
            cuda.synchronize_stream(handle)
            close(out, x)
    assert f.compiles == len(f.kernels)


def test_torchs_own_graph_replays_with_changed_lengths(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    f = attention(count=3)
    x = inputs(rng, **SIZES) | {"lengths": np.array(LENGTHS[0], np.int32)}
    arrays = {name: torch.tensor(array, device="cuda") for name, array in x.items()}
    out = torch.empty(x["q"].shape, dtype=torch.float16, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        f(**arrays, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        f(**arrays, out=out)
    for lengths in LENGTHS:
        x["lengths"] = np.array(lengths, np.int32)
        arrays["lengths"].copy_(torch.tensor(x["lengths"]))
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        close(cupy.asarray(out), x)


def test_a_capture_of_kernels_that_are_not_loaded_is_refused(rng: np.random.Generator) -> None:
    f = attention()
    arrays = on_device(inputs(rng, **SIZES) | {"lengths": np.array(LENGTHS[0], np.int32)})
    out = cupy.empty(arrays["q"].shape, cupy.float16)
    stream = cuda.new_stream()
    with cuda.on_stream(int(stream.ptr)), pytest.raises(LaunchError, match="before a graph is captured"):
        cuda.capture(lambda: f(**arrays, out=out), int(stream.ptr))


# ---- devices -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(device.available() and cupy.cuda.runtime.getDeviceCount() < 2, reason="one GPU")
def test_t05_two_devices(rng: np.random.Generator) -> None:
    """T05: 2 x compiled once, run on device 0 and then on device 1; both in one call are refused."""
    f = made(as_written(cleave.trace(lambda x: x * 2.0, x="m n")), {"m": 4, "n": 8})
    x = rng.standard_normal((4, 8)).astype(np.float16)
    arrays, outs = [], []
    for index in (0, 1):
        with cupy.cuda.Device(index):
            arrays.append(cupy.asarray(x))
            outs.append(cupy.full_like(arrays[-1], cupy.nan))
    calls = [f.prepare(a, out=o) for a, o in zip(arrays, outs, strict=True)]
    for _ in range(2):
        for current in (0, 1):
            for index in (0, 1):
                with cupy.cuda.Device(current):
                    outs[index].fill(cupy.nan)
                    f(arrays[index], out=outs[index])
                    np.testing.assert_array_equal(outs[index].get(), 2 * x)
                    result = f(arrays[index])
                    assert result.device.id == index and cuda.current_device() == current
                    np.testing.assert_array_equal(result.get(), 2 * x)
                    outs[index].fill(cupy.nan)
                    calls[index]()
                    np.testing.assert_array_equal(outs[index].get(), 2 * x)
    with pytest.raises(ArgumentError, match=r"^arguments: x is on device 0, out is on device 1$|on device"):
        f(arrays[0], out=outs[1])
    assert f.compiles == len(f.kernels)


# ---- forms of a call -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["CuPy", "torch"])
def test_every_form_of_a_call_gives_the_same(rng: np.random.Generator, library: str) -> None:
    """What a call costs the host is measured by the experiment e04."""
    f = attention(count=3)
    x = inputs(rng, b=1, kv_heads=2, group=4, t=64) | {"lengths": np.array([64], np.int32)}
    out: Any
    if library == "torch":
        torch = pytest.importorskip("torch")
        arrays = {name: torch.tensor(array, device="cuda") for name, array in x.items()}
        out = torch.empty(x["q"].shape, dtype=torch.float16, device="cuda")
        other = torch.clone(arrays["q"])
    else:
        arrays = on_device(x)
        out = cupy.empty(x["q"].shape, cupy.float16)
        other = arrays["q"].copy()
    q, k, v, lengths = arrays.values()
    forms: list[Callable[[], Any]] = [
        lambda: f(q, k, v, lengths, out=out),
        lambda: f(q=q, k=k, v=v, lengths=lengths, out=out),
        lambda: f(other, k, v, lengths, out=out),
        lambda: f(q, k, v, lengths),
        f.prepare(q, k, v, lengths, out=out),
    ]
    for form in forms:
        for _ in range(3):
            found = form()
        cuda.synchronize()
        close(cupy.asarray(found), x)


# ---- isolation -----------------------------------------------------------------------------------------------------

KERNEL = 'extern "C" __global__ void bad(float* y) { %s }'
BAD = {
    "illegal address": "*(volatile float*)64ull = 1;",
    "failed launch": 'asm volatile("trap;");',
    "hang": "((volatile float*)y)[0] = 1; while (((volatile float*)y)[0] != 0) { }",
}


def planted(s: Schedule, origin: Graph, dims: Mapping[str, int], seed: int) -> trial.OnDevice:
    """In a child: a kernel that misbehaves, an exception, the end of the process, or the real measurement."""
    name = s.candidate
    if name in BAD:
        compiled = compile_cubin(KERNEL % BAD[name], device.target().arch)
        kernel = cuda.load_kernel(compiled.cubin, "bad", threads=1, shared_bytes=0)
        memory = cuda.allocate(256, zeroed=True, stream=0)
        value = ctypes.c_uint64(memory.pointer)
        addresses = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        kernel.bound((1, 1, 1), ctypes.addressof(addresses), 0)()
        cuda.synchronize()
    if name == "exception":
        raise ValueError("a fault")
    if name == "dead":
        os._exit(7)
    return MEASURE(s, origin, dims, seed)


MEASURE = trial.measure


def test_whatever_a_candidate_does_the_next_one_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    g = cleave.trace(lambda x: x * 2.0, x="m n")
    dims = {"m": 64, "n": 1024}
    s = schedule(as_written(g), device.target(), bind=dims)[0]
    names = [*BAD, "exception", "dead", "good"]
    monkeypatch.setattr(trial, "measure", planted)
    monkeypatch.setattr(trial, "_LIMIT_SECONDS", 30.0)
    trials = [Trial(replace(s, candidate=name), Outcome.OK) for name in names]
    state = optimizer._State(g, Config(), Forced(), gpu=device.properties().name, trials=trials)
    optimizer._measure(state, dims, None)
    found = {t.schedule.candidate: (t.outcome, t.detail) for t in state.trials}
    print(found)
    assert [outcome for outcome, _ in found.values()] == [
        Outcome.CRASHED,
        Outcome.CRASHED,
        Outcome.TIMEOUT,
        Outcome.CRASHED,
        Outcome.CRASHED,
        Outcome.OK,
    ]
    assert found["illegal address"][1].startswith("illegal address: ")
    assert found["failed launch"][1].startswith("launch failed: ")
    assert state.trials[-1].measured is not None
