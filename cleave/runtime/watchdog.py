"""Run a callable in a child process under a time limit: a hang, a crash or an illegal address is an outcome.

    result = run_limited(measure, plan, seconds=60)      # one call, a process of its own
    with Worker() as worker:                             # many calls, one process while it lives
        result = worker.run(measure, plan, seconds=60)

The callable and its arguments are pickled, so the callable is a function of a module that the child can import. After a
CUDA error the context of the child is lost, so the worker starts another one for its next call.
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
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection
from typing import Any

from cleave.errors import CleaveError

_SECONDS_TO_DIE = 10.0


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
_CONTEXT_LOST = frozenset({Outcome.ILLEGAL_ADDRESS, Outcome.LAUNCH_FAILED})


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
    text = f"{type(error).__name__}: {error}"
    return next((outcome for pattern, outcome in _CUDA_ERRORS if pattern.search(text)), Outcome.RAISED)


class Worker:
    """A child process that makes one limited call after another, and is replaced when it was lost."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Limited:
        """Call ``function(*arguments)`` in the child. The limit includes the start of a new child.

        Errors: a function that the child can't import (one of ``__main__``, a lambda, an inner function).
        """
        _check_importable(function)
        begun = time.monotonic()
        request = pickle.dumps((function, arguments))
        pipe = self._started()
        answer = self._answer(pipe, request, begun + seconds)
        if answer.outcome in _CONTEXT_LOST or answer.outcome in (Outcome.TIMEOUT, Outcome.CRASHED):
            self.stop()
        return Limited(answer.outcome, answer.value, answer.message, answer.details, time.monotonic() - begun)

    def stop(self) -> None:
        """End the child, whatever it is doing. A child that even a kill does not end is left behind."""
        child, self._child = self._child, None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if child is not None:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_SECONDS_TO_DIE)

    def _started(self) -> Connection:
        if self._pipe is not None and self._child is not None and self._child.poll() is None:
            return self._pipe
        self.stop()
        here, there = _pipe()
        code = f"from cleave.runtime.watchdog import serve; serve({there.fileno()})"
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, "-c", code]
        self._child = subprocess.Popen(command, env=environment, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL)
        there.close()
        self._pipe = here
        return here

    def _answer(self, pipe: Connection, request: bytes, deadline: float) -> Limited:
        """What the child says; the pipe is cut at the deadline.

        A child may stop in the middle of what it reads or writes, and one that hangs in a driver may outlive a kill:
        only a wait that does not depend on it ends.
        """
        late = threading.Event()
        limit = threading.Timer(max(0.0, deadline - time.monotonic()), _cut, (pipe, late))
        limit.daemon = True
        limit.start()
        answer: Limited | None = None
        try:
            pipe.send_bytes(request)
            answer = _understood(pipe.recv_bytes())
        except (EOFError, OSError):
            pass
        finally:
            limit.cancel()
            limit.join()
        if answer is None and late.is_set():
            return Limited(Outcome.TIMEOUT, message="no answer within the time limit")
        if answer is None:
            return Limited(Outcome.CRASHED, message=self._death())
        if late.is_set():  # it answered at the last moment: the answer counts, the pipe is gone
            self.stop()
        return answer

    def _death(self) -> str:
        assert self._child is not None
        try:
            status = self._child.wait(_SECONDS_TO_DIE)
        except subprocess.TimeoutExpired:
            return "the process closed its pipe"
        if status < 0:
            return f"the process was ended by {signal.Signals(-status).name}"
        return f"the process ended with status {status}"


def _cut(pipe: Connection, late: threading.Event) -> None:
    late.set()
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def _understood(answer: bytes) -> Limited:
    """An answer is data of the child: what can't be read here is an outcome as well."""
    try:
        found = pickle.loads(answer)
    except Exception as error:
        message = f"its answer can't be read: {type(error).__name__}: {error}".splitlines()[0]
        return Limited(Outcome.CRASHED, message=message)
    return found if isinstance(found, Limited) else Limited(Outcome.CRASHED, message="its answer is no outcome")


def serve(handle: int) -> None:
    """Answer requests until the pipe closes: the child's side of ``Worker``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    pipe = Connection(handle)
    while True:
        try:
            request = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        pipe.send_bytes(_answered(request))


def _answered(request: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(request)
        return pickle.dumps(Limited(Outcome.OK, function(*arguments)))
    except Exception as error:
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        return pickle.dumps(Limited(classify(error), message=message, details=traceback.format_exc()))


def _pipe() -> tuple[Connection, Connection]:
    from multiprocessing import Pipe

    return Pipe()


def _check_importable(function: Callable[..., Any]) -> None:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module in (None, "__main__") or "<" in name:
        shown = name or repr(function)
        raise CleaveError(f"{shown} can't run in another process: move it into a module", location="watchdog")
