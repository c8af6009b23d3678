"""NVRTC without a GPU: compile, fail with one line, in parallel, for every architecture."""

import dataclasses

import pytest

from cleave.codegen import compile as compiling
from cleave.codegen.compile import Failed, compile_all, compile_cubin, compile_many
from cleave.errors import CleaveError, CodegenError
from cleave.ir.index import index
from cleave.kernel import Compiled, KernelSource
from cleave.target import TARGETS, Target

DOUBLE = """
extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = threadIdx.x; if (i < n) y[i] = 2 * x[i];
}
"""
SOURCE = KernelSource(DOUBLE, "twice", (), 128, 4096, (index(1),), ("sm_80", "sm_90a"), "test")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEAVE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("arch", TARGETS)
def test_compiles_for_every_target(arch):
    compiled = compile_cubin(SOURCE, arch)
    assert compiled.cubin.startswith(b"\x7fELF") and not compiled.cached
    assert compiled.resources.shared_bytes == 4096  # dynamic: it is the launch's, the code has none
    again = compile_cubin(SOURCE, arch)
    assert again.cached and dataclasses.replace(again, cached=False) == compiled


def test_dynamic_shared_memory_is_not_part_of_the_machine_code():
    compile_cubin(SOURCE, "sm_80")
    other = compile_cubin(dataclasses.replace(SOURCE, shared_bytes=8192), "sm_80")
    assert other.cached and other.resources.shared_bytes == 8192


def test_architectures_give_different_code():
    assert compile_cubin(SOURCE, "sm_80").cubin != compile_cubin(SOURCE, "sm_90a").cubin


def test_compiler_error_is_one_line_with_the_entry():
    text = DOUBLE.replace("2 * x[i]", "lots")
    with pytest.raises(CodegenError) as error:
        compile_cubin(text, "sm_90a")
    assert str(error.value) == 'twice: does not compile for sm_90a: kernel.cu(3): error: identifier "lots" is undefined'


def test_instruction_that_the_architecture_lacks():
    text = 'extern "C" __global__ void early() { asm volatile("wgmma.fence.sync.aligned;"); }'
    compile_cubin(text, "sm_90a")
    with pytest.raises(CodegenError, match=r"^early: does not compile for sm_80: .*wgmma"):
        compile_cubin(text, "sm_80")


def test_unknown_architecture_lists_the_known():
    for call in (lambda: compile_cubin(SOURCE, "sm_70"), lambda: Target("sm_70")):
        with pytest.raises(CleaveError, match=r"^target: unknown architecture 'sm_70'; allowed: sm_80, sm_90a$"):
            call()


def test_architecture_that_the_skeleton_lacks():
    only_hopper = dataclasses.replace(SOURCE, architectures=("sm_90a",))
    with pytest.raises(CodegenError, match=r"^twice: skeleton test does not exist for sm_80; it does for sm_90a$"):
        compile_cubin(only_hopper, "sm_80")


def test_text_must_have_one_entry():
    with pytest.raises(CodegenError, match="found 2"):
        compile_cubin(DOUBLE + DOUBLE.replace("twice", "again"), "sm_80")


def test_many_keep_the_order_and_report_failures_beside_successes():
    broken = DOUBLE.replace("2 *", "two *")
    results = compile_many([(DOUBLE, "sm_80"), (broken, "sm_80"), (DOUBLE, "sm_90a"), (DOUBLE, "sm_80")])
    assert [type(r) for r in results] == [Compiled, Failed, Compiled, Compiled]
    assert [r.arch for r in results] == ["sm_80", "sm_80", "sm_90a", "sm_80"]
    failed = results[1]
    assert isinstance(failed, Failed) and failed.reason == 'kernel.cu(3): error: identifier "two" is undefined'
    again = compile_many([(DOUBLE, "sm_80"), (DOUBLE, "sm_90a")])
    assert [c.arch for c in compile_all([SOURCE, SOURCE], "sm_90a")] == ["sm_90a"] * 2
    with pytest.raises(CodegenError, match=r"^twice: does not compile for sm_80: kernel.cu\(3\): error"):
        compile_all([SOURCE, dataclasses.replace(SOURCE, text=broken)], "sm_80")
    assert all(isinstance(r, Compiled) and r.cached for r in again)
    assert again[0].cubin == results[0].cubin


def test_a_compiler_that_crashes_loses_only_its_job(monkeypatch):
    command = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    real = compiling._start_child
    started = []

    def start():
        started.append(None)
        if len(started) > 1:
            return real()
        with monkeypatch.context() as patch:
            popen = compiling.subprocess.Popen
            patch.setattr(compiling.subprocess, "Popen", lambda c, **k: popen([c[0], "-c", command], **k))
            return real()

    monkeypatch.setattr(compiling, "_start_child", start)
    first, second = compile_many([(DOUBLE, "sm_80"), (DOUBLE, "sm_90a")], processes=1)
    assert isinstance(first, Failed) and first.reason == "the compiler's process ended with status -9"
    assert isinstance(second, Compiled)


def test_nothing_heavy_is_loaded_to_compile_from_cache(subprocess_modules):
    compile_cubin(DOUBLE, "sm_80")
    loaded = subprocess_modules(f"from cleave.codegen.compile import compile_cubin; compile_cubin({DOUBLE!r}, 'sm_80')")
    assert not loaded & {"egglog", "sympy", "cupy", "torch", "rich"}


@pytest.fixture
def subprocess_modules():
    import subprocess
    import sys

    def run(code):
        shown = subprocess.run(
            [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
            capture_output=True,
            text=True,
            check=True,
        )
        return set(shown.stdout.split())

    return run
