"""CUDA text -> cubin, through the disk cache; several at once in processes of their own.

compile_cubin(source, arch)            one kernel, in this process
compile_many([(source, arch), ...])    many, in parallel; what failed is reported beside what succeeded
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue

from cleave.codegen import cache, nvrtc
from cleave.codegen.cubin import read_resources
from cleave.errors import CodegenError
from cleave.kernel import Compiled, KernelSource
from cleave.target import Target

_BASE_OPTIONS = ("--std=c++17", "--ptxas-options=-v")
_ERROR_LINE = re.compile(r"\b(error|fatal)\b", re.IGNORECASE)
_ENTRY = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__\w+__\s*\([^)]*\)\s*)*(\w+)\s*\(')
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Failed:
    """A kernel that did not compile: what the compiler said first, and its whole log."""

    entry: str
    arch: str
    reason: str
    log: str


@dataclass(frozen=True, slots=True)
class _Job:
    text: str
    entry: str
    dynamic_shared_bytes: int
    arch: str
    options: tuple[str, ...]


def compile_cubin(source: KernelSource | str, arch: str, options: tuple[str, ...] = ()) -> Compiled:
    """Compile one kernel for an architecture, or take it from the cache.

    ``source`` as text must define exactly one ``extern "C" __global__`` function. ``options`` are NVRTC's.
    Errors: an architecture that is unknown or that the skeleton lacks; text that does not compile.
    """
    return _or_raise(_compiled(_job(source, arch, options)))


def compile_all(sources: Sequence[KernelSource], arch: str, options: tuple[str, ...] = ()) -> list[Compiled]:
    """Compile kernels in parallel.

    Errors: the first that does not compile.
    """
    return [_or_raise(r) for r in compile_many([(source, arch) for source in sources], options)]


def compile_many(
    jobs: Sequence[tuple[KernelSource | str, str]], options: tuple[str, ...] = (), *, processes: int | None = None
) -> list[Compiled | Failed]:
    """Compile (source, architecture) pairs in parallel processes; results in the order of the jobs.

    The cache is read and written here; a compiler that crashes loses only its own job. ``processes`` defaults to the
    number of cores.
    """
    work = [_job(source, arch, options) for source, arch in jobs]
    found: dict[_Job, Compiled | Failed] = {}
    for job in dict.fromkeys(work):
        if (hit := _from_cache(job)) is not None:
            found[job] = hit
    missing = [job for job in dict.fromkeys(work) if job not in found]
    if len(missing) == 1:
        found[missing[0]] = _compiled(missing[0])
    elif missing:
        found.update(_compiled_in_parallel(missing, min(len(missing), processes or os.cpu_count() or 1)))
    return [found[job] for job in work]


def is_compiled(sources: Sequence[KernelSource], arch: str) -> bool:
    """Whether all of them lie in the cache."""
    return all(_from_cache(_job(source, arch, ())) is not None for source in sources)


def _or_raise(result: Compiled | Failed) -> Compiled:
    if isinstance(result, Failed):
        raise CodegenError(f"does not compile for {result.arch}: {result.reason}", location=result.entry)
    return result


def compiler() -> str:
    """Name and version of the compiler, part of every cache key."""
    major, minor = nvrtc.version()
    return f"nvrtc {major}.{minor}"


def _job(source: KernelSource | str, arch: str, options: tuple[str, ...]) -> _Job:
    Target(arch)
    if isinstance(source, str):
        return _Job(source, _only_entry(source), 0, arch, options)
    if arch not in source.architectures:
        raise CodegenError(
            f"skeleton {source.skeleton} does not exist for {arch}; it does for {', '.join(source.architectures)}",
            location=source.entry,
        )
    return _Job(source.text, source.entry, source.shared_bytes, arch, options)


def _only_entry(text: str) -> str:
    names = _ENTRY.findall(text)
    if len(names) != 1:
        raise CodegenError(
            f'exactly one extern "C" __global__ function is expected, found {len(names)}', location="CUDA"
        )
    return str(names[0])


def _options(job: _Job) -> tuple[str, ...]:
    return (f"--gpu-architecture={job.arch}", *_BASE_OPTIONS, *job.options)


def _key(job: _Job) -> str:
    return cache.key(job.text, job.entry, _options(job), compiler())


def _from_cache(job: _Job) -> Compiled | None:
    hit = cache.load(_key(job))
    return None if hit is None else _with_dynamic_shared(hit, job)


def _compiled(job: _Job) -> Compiled | Failed:
    hit = _from_cache(job)
    return hit if hit is not None else _kept(job, _fresh(job))


def _compiled_in_parallel(jobs: Sequence[_Job], count: int) -> dict[_Job, Compiled | Failed]:
    with _Children() as children, ThreadPoolExecutor(count) as pool:
        try:
            return {job: _kept(job, result) for job, result in zip(jobs, pool.map(children.compile, jobs), strict=True)}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _fresh(job: _Job) -> Compiled | Failed:
    output = nvrtc.compile_program(job.text, _options(job))
    if output.cubin is None:
        return Failed(job.entry, job.arch, _first_error(output.log), output.log)
    return Compiled(job.entry, job.arch, output.cubin, output.log, read_resources(output.cubin, job.entry))


def _kept(job: _Job, result: Compiled | Failed) -> Compiled | Failed:
    """Store what compiled. The entry has static shared memory only: the dynamic part belongs to the launch."""
    if isinstance(result, Failed):
        return result
    cache.store(_key(job), result)
    return _with_dynamic_shared(result, job)


def _with_dynamic_shared(compiled: Compiled, job: _Job) -> Compiled:
    total = compiled.resources.shared_bytes + job.dynamic_shared_bytes
    return replace(compiled, resources=replace(compiled.resources, shared_bytes=total))


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next(
        (line for line in lines if _ERROR_LINE.search(line)), lines[0] if lines else "the compiler said nothing"
    )


# ---- processes -----------------------------------------------------------------------------------------------------
# Plain child interpreters rather than multiprocessing: no fork of a process that may hold a CUDA context, and no need
# for an importable __main__, which a notebook or a script without a guard does not have.


class _Children:
    """Child interpreters that compile one job after the other; a context manager that ends them."""

    def __init__(self) -> None:
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()

    def __enter__(self) -> _Children:
        return self

    def __exit__(self, *_: object) -> None:
        while not self._idle.empty():
            child = self._idle.get()
            child.communicate()

    def compile(self, job: _Job) -> Compiled | Failed:
        """Called from several threads: takes an idle child or starts one, and gives it back if it survived."""
        try:
            child = self._idle.get_nowait()
        except Empty:
            child = _start_child()
        assert child.stdin is not None and child.stdout is not None
        try:
            pickle.dump(job, child.stdin)
            child.stdin.flush()
            result: Compiled | Failed = pickle.load(child.stdout)
        except Exception:  # half an answer may unpickle to anything
            with contextlib.suppress(OSError):  # what was not sent when it died
                child.stdin.close()
            child.stdout.close()
            return Failed(job.entry, job.arch, f"the compiler's process ended with status {child.wait()}", "")
        self._idle.put(child)
        return result


def _start_child() -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_PACKAGE_ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-c", "from cleave.codegen.compile import serve; serve()"]
    # A group of its own: Ctrl-C is the parent's affair, also before the child can say so.
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, process_group=0)


def serve() -> None:
    """Compile jobs from standard input until it ends: the child's side of ``compile_many``."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # whatever the compiler prints must not end up among the answers
        while True:
            try:
                job: _Job = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            answers.write(pickle.dumps(_fresh(job)))
            answers.flush()
