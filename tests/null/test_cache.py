"""Disk cache: what is in a key, damaged entries, folders that can't be written, several processes."""

import errno
import os
import subprocess
import sys
import warnings

import pytest

from cleave.codegen import cache, compile, nvrtc
from cleave.codegen.compile import compile_cubin
from cleave.errors import CleaveWarning

TEXT = 'extern "C" __global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'
OTHER = TEXT.replace("2 *", "3 *")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEAVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compilations(monkeypatch):
    """The texts that reached the compiler."""
    seen = []
    real = nvrtc.compile_program
    monkeypatch.setattr(nvrtc, "compile_program", lambda text, options: (seen.append(text), real(text, options))[1])
    return seen


def only_entry(folder):
    (path,) = folder.rglob("*.kernel")
    return path


def test_second_time_comes_from_the_disk_with_its_figures(folder, compilations):
    first, second = compile_cubin(TEXT, "sm_80"), compile_cubin(TEXT, "sm_80")
    assert compilations == [TEXT]
    assert (first.cached, second.cached) == (False, True)
    assert (second.cubin, second.log, second.resources) == (first.cubin, first.log, first.resources)
    assert "Used" in second.log
    assert cache.summary() == cache.Summary(folder, 1, only_entry(folder).stat().st_size)


def test_everything_that_decides_the_code_is_in_the_key(compilations, monkeypatch):
    compile_cubin(TEXT, "sm_80")
    compile_cubin(OTHER, "sm_80")
    compile_cubin(TEXT, "sm_90a")
    compile_cubin(TEXT, "sm_80", ("-lineinfo",))
    monkeypatch.setattr(compile, "compiler", lambda: "nvrtc 99.0")
    compile_cubin(TEXT, "sm_80")
    assert len(compilations) == 5 and cache.summary().entries == 5


def test_parts_of_a_key_do_not_run_together():
    assert cache.key("ab", "c", (), "d") != cache.key("a", "bc", (), "d")
    assert cache.key("a", "b", ("c", "d"), "e") != cache.key("a", "b", ("cd",), "e")


def test_k03_key_does_not_depend_on_what_was_built_before(compilations):
    """K03: graph B alone and after graph A of the same name have one key; a second start compiles nothing."""
    run(f"compile_cubin({TEXT!r}, 'sm_80')")
    compile_cubin(OTHER, "sm_80")
    assert compile_cubin(TEXT, "sm_80").cached
    assert compilations == [OTHER]
    assert run(f"print(compile_cubin({OTHER!r}, 'sm_80').cached)") == "True"


@pytest.mark.parametrize("damage", ["empty", "header", "half", "last byte", "flipped", "other format", "text"])
def test_damaged_entry_is_reported_and_compiled_again(folder, compilations, damage, rng):
    whole = compile_cubin(TEXT, "sm_80")
    path = only_entry(folder)
    raw = path.read_bytes()
    at = int(rng.integers(8, len(raw)))
    path.write_bytes(
        {
            "empty": b"",
            "header": raw[:20],
            "half": raw[: len(raw) // 2],
            "last byte": raw[:-1],
            "flipped": raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :],
            "other format": b"cleave99" + raw[8:],
            "text": b"not an entry at all, but long enough to hold a header of one",
        }[damage]
    )
    with pytest.warns(CleaveWarning, match=r"^cache entry [0-9a-f]{12} is damaged \(.*\); compiling again$"):
        again = compile_cubin(TEXT, "sm_80")
    assert (again.cubin, again.resources, again.cached) == (whole.cubin, whole.resources, False)
    assert len(compilations) == 2
    assert compile_cubin(TEXT, "sm_80").cached


def test_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CLEAVE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(CleaveWarning) as caught:
        compiled = compile_cubin(TEXT, "sm_80")
    assert compiled.cubin.startswith(b"\x7fELF")
    assert any("can't be kept in" in str(w.message) and "Not a directory" in str(w.message) for w in caught)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_full_or_read_only_disk(folder, monkeypatch, code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(cache.os, "replace", refuse)
    with pytest.warns(
        CleaveWarning, match=f"can't be kept in .*{os.strerror(code)}.*; set CLEAVE_CACHE to another folder"
    ):
        compiled = compile_cubin(TEXT, "sm_80")
    assert compiled.cubin.startswith(b"\x7fELF")
    assert not [p for p in folder.rglob("*") if p.is_file()]  # nothing half-written


def test_clear_removes_entries_and_leftovers(folder):
    compile_cubin(TEXT, "sm_80")
    compile_cubin(OTHER, "sm_80")
    (only := folder / "ab").mkdir(exist_ok=True)
    (only / "abc.unfinished").write_bytes(b"half")
    assert cache.clear() == 2
    assert cache.summary().entries == 0 and not list(folder.rglob("*.unfinished"))
    assert cache.clear() == 0


def test_summary_of_a_folder_that_does_not_exist(folder):
    assert cache.summary() == cache.Summary(folder, 0, 0)


def test_default_folder_is_the_users(monkeypatch):
    monkeypatch.delenv("CLEAVE_CACHE")
    assert cache.folder().name == "kernels" and "cleave" in str(cache.folder())


def test_several_processes_share_one_folder():
    """K04: processes that compile the same into an empty folder all get it right, and leave one whole entry."""
    code = f"print(len(compile_cubin({TEXT!r}, 'sm_80').cubin))"
    children = [start(code) for _ in range(4)]
    sizes = {child.communicate()[0].strip() for child in children}
    assert sizes == {str(len(compile_cubin(TEXT, "sm_80").cubin))}
    assert cache.summary().entries == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_cubin(TEXT, "sm_80").cached


def start(code):
    head = "import warnings; warnings.simplefilter('error'); from cleave.codegen.compile import compile_cubin; "
    return subprocess.Popen([sys.executable, "-c", head + code], stdout=subprocess.PIPE, text=True)


def run(code):
    child = start(code)
    out, _ = child.communicate()
    assert child.returncode == 0
    return out.strip()
