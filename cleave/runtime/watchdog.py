"""Run a callable in a child process under a time limit: a hang, a crash or an illegal address is an outcome.

    result = run_limited(measure, plan, seconds=60)      # one call, a process of its own
    with Worker() as worker:                             # many calls, one process while it lives
        result = worker.run(measure, plan, seconds=60)

The callable and its arguments are pickled, so the callable is a function of a module that the child can import. After a
CUDA error the context of the child is lost, so the worker starts another one for its next call. A child may be broken
by a call that was answered before: what fails in a child that is not fresh is called again in one that is.

What the child prints goes to the standard error of the parent, whose output may be read by a program. The child leads
a process group: what it starts is ended with it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from multiprocessing.connection import Connection
from typing import Any

from cleave.errors import CleaveError

_SECONDS_TO_DIE = 10.0
_POLL_SECONDS = 0.02
_STANDARD_ERROR = 2


class Outcome(Enum):
    """How a call in a child process ended."""

    OK = "ok"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    """The process died without an answer: a signal, or an exit."""
    RAISED = "raised"
    """A Python exception that is not a CUDA error."""
    ILLEGAL_ADDRESS = "illegal address"
    """Also a misaligned one."""
    LAUNCH_FAILED = "launch failed"
    """Any other CUDA error of a kernel: an illegal instruction, a destroyed barrier, a refused configuration."""
    OUT_OF_MEMORY = "out of memory"


_CUDA_ERRORS: tuple[tuple[re.Pattern[str], Outcome], ...] = (
    (re.compile(r"(ILLEGAL|MISALIGNED)_?ADDRESS|INVALID_?ADDRESS_?SPACE", re.IGNORECASE), Outcome.ILLEGAL_ADDRESS),
    (re.compile(r"OUT_?OF_?MEMORY|MEMORY_?ALLOCATION", re.IGNORECASE), Outcome.OUT_OF_MEMORY),
    (re.compile(r"CUDA_?ERROR|CUDARuntimeError|CUDADriverError|LaunchError", re.IGNORECASE), Outcome.LAUNCH_FAILED),
)
_NOT_ITS_FAULT = frozenset({Outcome.CRASHED, Outcome.ILLEGAL_ADDRESS, Outcome.LAUNCH_FAILED})
"""Ends that an earlier call in the same process may have caused."""

_CHILD_LOST = _NOT_ITS_FAULT | {Outcome.TIMEOUT}


@dataclass(frozen=True, slots=True)
class Limited:
    """Outcome of a limited call: ``value`` if OK, else ``message`` (one line) and ``details`` (a traceback, if any)."""

    outcome: Outcome
    value: Any = None
    message: str = ""
    details: str = ""
    seconds: float = 0.0


def run_limited(function: Callable[..., Any], *arguments: Any, seconds: float) -> Limited:
    """Call ``function(*arguments)`` in a fresh process; at most ``seconds`` from its start to its answer."""
    with Worker() as worker:
        return worker.run(function, *arguments, seconds=seconds)


def classify(error: BaseException) -> Outcome:
    """The outcome that an exception stands for, by the name of the CUDA error in its text."""
    if isinstance(error, MemoryError):
        return Outcome.OUT_OF_MEMORY
    text = _told(error)
    return next((outcome for pattern, outcome in _CUDA_ERRORS if pattern.search(text)), Outcome.RAISED)


def _told(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # of the exception's own making
        return f"{type(error).__name__}: it has no text"


class Worker:
    """A child process that makes one limited call after another, and is replaced when it was lost."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._is_over = False

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Limited:
        """Call ``function(*arguments)`` in the child. The limit includes the start of a new child.

        Errors: a function that the child can't import (one of ``__main__``, a lambda, an inner function), arguments
        that can't be pickled.
        """
        request = _request(function, arguments)
        begun = time.monotonic()
        used = self._child is not None
        answer = self._once(request, begun + seconds)
        if used and answer.outcome in _NOT_ITS_FAULT:
            again = self._once(request, begun + seconds)
            answer = answer if again.outcome is Outcome.TIMEOUT else again
        return replace(answer, seconds=time.monotonic() - begun)

    def end(self) -> None:
        """From another thread: the call that runs ends as crashed, and there is none after it."""
        self._is_over = True
        if self._child is not None:
            _kill(self._child)

    def stop(self) -> None:
        """End the child, whatever it is doing, and what it started. A child that even a kill does not end is left
        behind."""
        child, self._child = self._child, None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if child is not None:
            _kill(child)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_SECONDS_TO_DIE)

    def _once(self, request: bytes, deadline: float) -> Limited:
        if self._is_over:
            return Limited(Outcome.CRASHED, message="the worker was ended")
        try:
            pipe = self._started()
        except OSError as error:  # the system has no process or no memory left for one
            return Limited(Outcome.CRASHED, message=f"no process can be started: {error.strerror}")
        answer = self._answer(pipe, request, deadline)
        if answer.outcome in _CHILD_LOST:
            self.stop()
        return answer

    def _started(self) -> Connection:
        if self._pipe is not None and self._child is not None and not _has_ended(self._child):
            return self._pipe
        self.stop()
        here, there = _pipe()
        code = f"from cleave.runtime.watchdog import serve; serve({there.fileno()}, {os.getpid()})"
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        command = [sys.executable, "-P", "-c", code]  # -P: the working directory is no place to import from
        try:
            self._child = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=_STANDARD_ERROR,
                start_new_session=True,
            )
        except OSError:
            here.close()
            raise
        finally:
            there.close()
        self._pipe = here
        return here

    def _answer(self, pipe: Connection, request: bytes, deadline: float) -> Limited:
        """What the child says; the pipe is cut at the deadline, and when the child ends.

        A child may stop in the middle of what it reads or writes, and one that hangs in a driver may outlive a kill:
        only a wait that does not depend on it ends. One that ends may leave a process that holds its pipe.
        """
        assert self._child is not None
        over, late = threading.Event(), threading.Event()
        watch = threading.Thread(target=_watch, args=(self._child, pipe, deadline, over, late), daemon=True)
        watch.start()
        answer: Limited | None = None
        try:
            pipe.send_bytes(request)
            answer = _understood(pipe.recv_bytes())
        except (EOFError, OSError):
            pass
        finally:
            over.set()
            watch.join()
        if answer is None and late.is_set():
            return Limited(Outcome.TIMEOUT, message="no answer within the time limit")
        if answer is None:
            return Limited(Outcome.CRASHED, message=self._death())
        if late.is_set():  # it answered at the last moment: the answer counts, the pipe is gone
            self.stop()
        return answer

    def _death(self) -> str:
        assert self._child is not None
        until = time.monotonic() + _SECONDS_TO_DIE
        while not _has_ended(self._child):
            if time.monotonic() > until:
                return "the process closed its pipe"
            time.sleep(_POLL_SECONDS)
        _kill(self._child)  # what it left, before its number is free
        status = self._child.wait()
        return f"the process was ended by {_name(-status)}" if status < 0 else f"the process ended with status {status}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Without taking its status, so that its number stays its own."""
    if child.returncode is not None:
        return True
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # somebody else took it
        return True


def _kill(child: subprocess.Popen[bytes]) -> None:
    """The process group of a child whose status was not taken yet: after that its number may be another's."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def _watch(
    child: subprocess.Popen[bytes], pipe: Connection, deadline: float, over: threading.Event, late: threading.Event
) -> None:
    """Cut the pipe at the deadline, or when the child has ended; what it said before can be read still."""
    while not over.wait(max(0.0, min(_POLL_SECONDS, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            late.set()
        if late.is_set() or _has_ended(child):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(pipe.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)
            return


def _request(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module in (None, "__main__") or "<" in name:
        shown = name or repr(function)
        raise CleaveError(f"{shown} can't run in another process: move it into a module", location="watchdog")
    try:
        return pickle.dumps((function, arguments))
    except Exception as error:
        reason = _told(error).splitlines()[0]
        raise CleaveError(
            f"{name}: an argument can't be sent to another process: {reason}", location="watchdog"
        ) from None


def _understood(answer: bytes) -> Limited:
    """An answer is data of the child: what can't be read here is an outcome as well."""
    try:
        found = pickle.loads(answer)
    except Exception as error:
        message = f"its answer can't be read: {type(error).__name__}: {error}".splitlines()[0]
        return Limited(Outcome.CRASHED, message=message)
    return found if isinstance(found, Limited) else Limited(Outcome.CRASHED, message="its answer is no outcome")


def serve(handle: int, parent: int) -> None:
    """Answer requests until the pipe closes: the child's side of ``Worker``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    pipe, myself = Connection(handle), os.getpid()
    while True:
        try:
            request = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        answer = _answered(request)
        if os.getpid() != myself:  # the call forked, and its copy came back as well: one answer is enough
            os._exit(0)
        pipe.send_bytes(answer)


def _end_with(parent: int) -> None:
    """A parent that was killed leaves nobody who would end a call that hangs."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _answered(request: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(request)
        return pickle.dumps(Limited(Outcome.OK, function(*arguments)))
    except Exception as error:
        message = _told(error).splitlines()[0]
        return pickle.dumps(Limited(classify(error), message=message, details=traceback.format_exc()))


def _pipe() -> tuple[Connection, Connection]:
    from multiprocessing import Pipe

    return Pipe()
