"""Disk cache: what is in a key, damaged entries, folders that can't be written, several processes."""

import contextlib
import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from cleave.codegen import cache, compile, nvrtc
from cleave.codegen.compile import compile_cubin
from cleave.errors import CleaveWarning
from cleave.kernel import Compiled, Resources

ROOT = Path(__file__).parents[2]

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


def test_k04_several_processes_share_one_folder(folder):
    """K04: 8 processes compile the same into an empty folder; then the entry is cut in half."""
    code = f"import hashlib; print(hashlib.sha256(compile_cubin({TEXT!r}, 'sm_80').cubin).hexdigest())"
    children = [start(code) for _ in range(8)]
    found = {child.communicate()[0].strip() for child in children}
    assert found == {hashlib.sha256(compile_cubin(TEXT, "sm_80").cubin).hexdigest()}
    assert cache.summary().entries == 1 and not list(folder.rglob("*.unfinished"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_cubin(TEXT, "sm_80").cached
    path = only_entry(folder)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.warns(CleaveWarning, match=r"is damaged \(its checksum is wrong\); compiling again$"):
        assert hashlib.sha256(compile_cubin(TEXT, "sm_80").cubin).hexdigest() in found
    assert compile_cubin(TEXT, "sm_80").cached


# ---- under fire: entries made by hand, no compiler -----------------------------------------------------------------

KEY = cache.key("text", "entry", ("option",), "compiler")
OTHER_KEY = cache.key("other text", "entry", ("option",), "compiler")
MADE = Compiled("entry", "sm_80", bytes(range(256)), "log", Resources(40, 1024, 0, 0, 0, 1024))


def stored(entry_key=KEY, made=MADE):
    assert cache.store(entry_key, made)
    return cache._path(entry_key)


def same(found):
    return found is not None and found.cached and replace(found, cached=False) == MADE


def damaged(path, raw):
    path.write_bytes(raw)
    with pytest.warns(CleaveWarning, match=r"^cache entry [0-9a-f]{12} is damaged \(.*\); compiling again$"):
        assert cache.load(KEY) is None


def test_a_flipped_bit_anywhere_is_seen(rng):
    path = stored()
    raw = path.read_bytes()
    assert same(cache.load(KEY))
    for at in range(len(raw)):  # magic, checksum, length, JSON, cubin
        damaged(path, raw[:at] + bytes([raw[at] ^ (1 << int(rng.integers(8)))]) + raw[at + 1 :])


def test_a_file_cut_or_longer_anywhere_is_seen():
    path = stored()
    raw = path.read_bytes()
    for at in range(len(raw)):
        damaged(path, raw[:at])
    damaged(path, raw + b"\0")
    damaged(path, raw + raw)
    damaged(path, bytes(len(raw)))  # what a crash of the machine may leave: the right length, nothing in it
    assert stored() == path and same(cache.load(KEY))


def test_the_entry_of_another_kernel_is_no_entry():
    path = stored()
    other = stored(OTHER_KEY, replace(MADE, cubin=b"another"))
    damaged(path, other.read_bytes())


def test_a_folder_in_the_place_of_an_entry(compilations):
    entry_key = compile._key(compile._job(TEXT, "sm_80", ()))
    cache._path(entry_key).mkdir(parents=True)
    with pytest.warns(CleaveWarning) as caught:
        compiled = compile_cubin(TEXT, "sm_80")
    assert compiled.cubin.startswith(b"\x7fELF") and not compiled.cached and compilations == [TEXT]
    said = [str(w.message) for w in caught]
    assert "can't be read (Is a directory); compiling again" in said[0] and "can't be kept in" in said[1]
    with pytest.warns(CleaveWarning, match="1 files of .* can't be removed"):
        cache.clear()


def in_a_child(code):
    """Run code in another process; what it printed. Warnings of cleave go to its standard error."""
    head = """
import os, signal, sys, resource
from cleave.codegen import cache
from tests.null.test_cache import KEY, MADE, OTHER_KEY, same
"""
    done = subprocess.run(
        [sys.executable, "-c", head + code], capture_output=True, text=True, cwd=ROOT, check=False, timeout=60
    )
    return done


def test_a_limit_on_file_sizes_stands_for_a_full_disk(folder):
    done = in_a_child("""
resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
assert not cache.store(KEY, MADE)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert cache.load(KEY) is None
assert cache.store(KEY, MADE) and same(cache.load(KEY))
""")
    assert done.returncode == 0, done.stderr
    assert "compiled kernels can't be kept in" in done.stderr and "File too large" in done.stderr
    assert not list(folder.rglob("*.unfinished"))


@pytest.fixture
def tiny_disk(tmp_path, monkeypatch):
    place = tmp_path / "disk"
    place.mkdir()
    if os.getuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a disk")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip(f"no disk can be mounted here: {made.stderr.decode().strip()}")
    monkeypatch.setenv("CLEAVE_CACHE", str(place))
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_really_full(tiny_disk):
    keys = [cache.key(str(n), "entry", (), "compiler") for n in range(40)]
    with pytest.warns(CleaveWarning, match="can't be kept in .*No space left on device"):
        kept = [entry_key for entry_key in keys if cache.store(entry_key, replace(MADE, cubin=bytes(4000)))]
    assert 0 < len(kept) < len(keys) and not list(tiny_disk.rglob("*.unfinished"))
    for entry_key in keys:
        found = cache.load(entry_key)
        assert (found is not None) == (entry_key in kept)
        assert found is None or found.cubin == bytes(4000)
    with pytest.warns(CleaveWarning, match="can't be kept in .*No space left on device"):
        assert compile_cubin(TEXT, "sm_80").cubin.startswith(b"\x7fELF")


def test_a_disk_that_is_read_only(tiny_disk):
    stored()
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    assert same(cache.load(KEY))
    with pytest.warns(CleaveWarning, match="can't be kept in .*Read-only file system"):
        assert not cache.store(OTHER_KEY, MADE)
    assert cache.load(OTHER_KEY) is None


@pytest.fixture
def shared(monkeypatch):
    """A folder of somebody else: entries are made as its owner, then ``as_another`` takes the rights away."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    monkeypatch.setenv("CLEAVE_CACHE", str(place))
    yield place
    for path in [place, *place.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(place)


@contextlib.contextmanager
def as_another():
    """Root may do everything: become somebody who may not. Others test the modes themselves."""
    if os.getuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_may_only_be_read(shared):
    path = stored()
    path.chmod(0o444)
    for place in (path.parent, shared):
        place.chmod(0o555)
    with as_another():
        assert same(cache.load(KEY))
        for entry_key in (KEY, OTHER_KEY):
            with pytest.warns(CleaveWarning, match="can't be kept in .*Permission denied"):
                assert not cache.store(entry_key, MADE)
        with pytest.warns(CleaveWarning, match="1 files of .* can't be removed"):
            assert cache.clear() == 0


def test_an_entry_that_may_not_be_read(shared):
    stored().chmod(0o000)
    with as_another(), pytest.warns(CleaveWarning, match=r"can't be read \(Permission denied\); compiling again"):
        assert cache.load(KEY) is None


def test_a_folder_that_may_not_be_entered(shared):
    stored()
    shared.chmod(0o000)
    with as_another(), pytest.warns(CleaveWarning) as caught:
        assert compile_cubin(TEXT, "sm_80").cubin.startswith(b"\x7fELF")
    said = [str(w.message) for w in caught]
    assert "can't be read (Permission denied)" in said[0] and "can't be kept in" in said[1]


@pytest.mark.parametrize("seconds", [-(10**9), -90_000, 90_000, 10**9])
def test_clocks_that_are_wrong(seconds):
    path = stored()
    then = time.time() + seconds
    os.utime(path, (then, then))
    abandoned, current = path.with_name("a.unfinished"), path.with_name("b.unfinished")
    for left in (abandoned, current):
        left.write_bytes(b"half")
    os.utime(abandoned, (then, then))
    assert same(cache.load(KEY))
    stored()
    assert same(cache.load(KEY)) and not abandoned.exists() and current.exists()


@pytest.mark.parametrize("moment", ["before the first byte", "in the middle", "before the rename", "after the rename"])
def test_a_writer_that_is_killed(folder, moment):
    done = in_a_child(f"""
moment = {moment!r}
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
real = os.fdopen
class Half:
    def __init__(self, handle):
        self.stream = real(handle, "wb", buffering=0)
    def __enter__(self):
        return self
    def __exit__(self, *_):
        die()
    def write(self, data):
        self.stream.write(data[:len(data) // 2])
if moment == "before the first byte":
    cache.os.fdopen = die
elif moment == "in the middle":
    cache.os.fdopen = lambda handle, mode: Half(handle)
elif moment == "before the rename":
    cache.os.replace = die
cache.store(KEY, MADE)
die()
""")
    assert done.returncode == -signal.SIGKILL, done.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # there is an entry or there is none
        found = cache.load(KEY)
        assert same(found) if moment == "after the rename" else found is None
        stored()
        assert same(cache.load(KEY))
    left = list(folder.rglob("*.unfinished"))
    assert len(left) == (moment != "after the rename")
    for path in left:
        os.utime(path, (1, 1))
    stored()
    assert not list(folder.rglob("*.unfinished"))


def test_readers_writers_and_a_vandal_at_once():
    """Readers see the right entry or none, while others write it, cut it and remove it."""
    work = """
import random, time, warnings
warnings.simplefilter("ignore")
chance, end, hits = random.Random(SEED), time.monotonic() + 1.5, 0
path = cache._path(KEY)
while time.monotonic() < end:
    match chance.randrange(4) if SEED else 3 + chance.randrange(2):
        case 0 | 1:
            found = cache.load(KEY)
            assert found is None or same(found)
            hits += found is not None
        case 2:
            assert cache.store(KEY, MADE)
        case 3:
            try:
                size = path.stat().st_size
                with open(path, "r+b") as stream:
                    stream.seek(chance.randrange(size + 1))
                    stream.write(bytes([chance.randrange(256)]))
                os.truncate(path, chance.randrange(size + 1))
            except OSError:
                pass
            time.sleep(0.002)
        case 4:
            path.unlink(missing_ok=True)
print(hits)
"""
    head = "import os\nfrom cleave.codegen import cache\nfrom tests.null.test_cache import KEY, MADE, same\n"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", head + work.replace("SEED", str(seed))], cwd=ROOT, text=True, stdout=subprocess.PIPE
        )
        for seed in range(5)
    ]
    hits = [int(child.communicate(timeout=60)[0]) for child in children]
    assert all(child.returncode == 0 for child in children)
    assert sum(hits) > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CleaveWarning)
        assert cache.load(KEY) is None or same(cache.load(KEY))


def start(code):
    head = "import warnings; warnings.simplefilter('error'); from cleave.codegen.compile import compile_cubin; "
    return subprocess.Popen([sys.executable, "-c", head + code], stdout=subprocess.PIPE, text=True)


def run(code):
    child = start(code)
    out, _ = child.communicate()
    assert child.returncode == 0
    return out.strip()
