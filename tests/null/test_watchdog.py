"""Calls in a child process: every way to end is an outcome, and none of them ends or stops the parent."""

import os
import signal
import time

import pytest

from cleave.errors import CleaveError, LaunchError
from cleave.runtime.watchdog import Outcome, Worker, classify, run_limited


def add(a, b):
    return a + b


def ignore_the_end():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pass


def kill_itself():
    os.kill(os.getpid(), signal.SIGSEGV)


def leave():
    os._exit(3)


def fail(text):
    raise ValueError(text)


def process():
    return os.getpid()


def unpicklable():
    return lambda: None


class CUDARuntimeError(RuntimeError):
    pass


def cuda_error(name):
    raise CUDARuntimeError(f"{name}: something about it")


def test_a_value_comes_back():
    result = run_limited(add, 2, 3, seconds=30)
    assert (result.outcome, result.value, result.message) == (Outcome.OK, 5, "")
    assert 0 < result.seconds < 30


def test_one_worker_serves_many_calls_and_replaces_what_it_lost():
    with Worker() as worker:
        first = worker.run(process, seconds=30).value
        assert worker.run(process, seconds=30).value == first != os.getpid()
        crashed = worker.run(kill_itself, seconds=30)
        assert (crashed.outcome, crashed.message) == (Outcome.CRASHED, "the process was ended by SIGSEGV")
        second = worker.run(process, seconds=30).value
        assert second != first
        lost = worker.run(cuda_error, "cudaErrorIllegalAddress", seconds=30)
        assert lost.outcome is Outcome.ILLEGAL_ADDRESS
        assert worker.run(process, seconds=30).value != second  # its CUDA context was lost
        left = worker.run(leave, seconds=30)
        assert (left.outcome, left.message) == (Outcome.CRASHED, "the process ended with status 3")
        raised = worker.run(fail, "no such tile\nsecond line", seconds=30)
        assert (raised.outcome, raised.message) == (Outcome.RAISED, "ValueError: no such tile")
        assert "in fail" in raised.details
        assert worker.run(unpicklable, seconds=30).outcome is Outcome.RAISED


def test_a_hang_ends_with_its_limit():
    with Worker() as worker:
        worker.run(add, 1, 2, seconds=30)
        begun = time.monotonic()
        assert worker.run(ignore_the_end, seconds=0.5).outcome is Outcome.TIMEOUT
        assert time.monotonic() - begun < 5
        assert worker.run(add, 1, 2, seconds=30).value == 3


def stop_before_reading():
    os.kill(os.getpid(), signal.SIGSTOP)


def length(data):
    return len(data)


class Unreadable:
    """Can be pickled by the child, and by nobody unpickled."""

    def __reduce__(self):
        return (int, ("no number",))


def unreadable():
    return Unreadable()


def test_a_child_that_stops_is_a_timeout():
    with Worker() as worker:
        assert worker.run(stop_before_reading, seconds=1).outcome is Outcome.TIMEOUT
        assert worker.run(length, bytes(1 << 22), seconds=30).value == 1 << 22


def test_a_request_that_nobody_reads_is_a_timeout():
    with Worker() as worker:
        worker.run(add, 1, 2, seconds=30)
        os.kill(worker._child.pid, signal.SIGSTOP)
        begun = time.monotonic()
        assert worker.run(length, bytes(1 << 22), seconds=0.5).outcome is Outcome.TIMEOUT
        assert time.monotonic() - begun < 5
        assert worker.run(add, 1, 2, seconds=30).value == 3


def test_an_answer_that_cannot_be_read_is_an_outcome():
    with Worker() as worker:
        result = worker.run(unreadable, seconds=30)
        assert result.outcome is Outcome.CRASHED
        assert result.message.startswith("its answer can't be read: ValueError: invalid literal")
        assert worker.run(add, 1, 2, seconds=30).value == 3


def test_a_child_that_outlives_a_kill_does_not_hold_the_parent(monkeypatch):
    """As one that hangs in a driver: here a kill does nothing to it while the call is waited for."""
    monkeypatch.setattr("cleave.runtime.watchdog._SECONDS_TO_DIE", 0.1)
    worker = Worker()
    worker.run(add, 1, 2, seconds=30)
    child = worker._child
    kill, child.kill = child.kill, lambda: None
    try:
        begun = time.monotonic()
        assert worker.run(ignore_the_end, seconds=0.5).outcome is Outcome.TIMEOUT
        assert time.monotonic() - begun < 5 and child.poll() is None
        assert worker.run(add, 1, 2, seconds=30).value == 3
    finally:
        worker.stop()
        kill()
        child.wait()


def test_a_function_that_the_child_cannot_import_is_refused():
    with pytest.raises(CleaveError, match="can't run in another process: move it into a module"):
        run_limited(lambda: None, seconds=1)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (
            CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered"),
            Outcome.ILLEGAL_ADDRESS,
        ),
        (CUDARuntimeError("CUDA_ERROR_MISALIGNED_ADDRESS: misaligned address"), Outcome.ILLEGAL_ADDRESS),
        (CUDARuntimeError("cudaErrorLaunchFailure: unspecified launch failure"), Outcome.LAUNCH_FAILED),
        (CUDARuntimeError("CUDA_ERROR_INVALID_VALUE: invalid argument"), Outcome.LAUNCH_FAILED),
        (LaunchError("65536 blocks along y, allowed are 65535", location="k"), Outcome.LAUNCH_FAILED),
        (CUDARuntimeError("cudaErrorMemoryAllocation: out of memory"), Outcome.OUT_OF_MEMORY),
        (MemoryError("Out of memory allocating 1 bytes"), Outcome.OUT_OF_MEMORY),
        (ValueError("a value"), Outcome.RAISED),
    ],
)
def test_errors_are_classified(error, outcome):
    assert classify(error) is outcome
