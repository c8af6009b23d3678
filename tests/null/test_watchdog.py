"""Calls in a child process: every way to end is an outcome, and none of them ends or stops the parent."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cleave.errors import CleaveError, LaunchError
from cleave.runtime import watchdog
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
    child, kill = worker._child, watchdog._kill
    monkeypatch.setattr(watchdog, "_kill", lambda c: None if c is child else kill(c))
    try:
        begun = time.monotonic()
        assert worker.run(ignore_the_end, seconds=0.5).outcome is Outcome.TIMEOUT
        assert time.monotonic() - begun < 5 and child.poll() is None
        assert worker.run(add, 1, 2, seconds=30).value == 3
    finally:
        worker.stop()
        kill(child)
        child.wait()


# ---- processes that the child starts, and what it leaves -----------------------------------------------------------


def sleeper(file, *, then=lambda: None):
    """A process that holds all handles of the child, the pipe among them."""
    if os.fork() == 0:
        Path(file).write_text(str(os.getpid()))
        time.sleep(60)
        os._exit(0)
    while not Path(file).exists() or not Path(file).read_text():
        time.sleep(0.01)
    then()


def sleeper_and_crash(file):
    sleeper(file, then=kill_itself)


def sleeper_and_hang(file):
    sleeper(file, then=ignore_the_end)


def gone(file):
    """Ended, or about to be taken by the system's first process."""
    process = Path("/proc") / Path(file).read_text() / "stat"
    for _ in range(200):
        if not process.exists() or process.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    ("function", "seconds", "outcome", "message"),
    [
        (sleeper, 30, Outcome.OK, ""),
        (sleeper_and_crash, 30, Outcome.CRASHED, "the process was ended by SIGSEGV"),
        (sleeper_and_hang, 1.5, Outcome.TIMEOUT, "no answer within the time limit"),
    ],
)
def test_what_a_child_started_is_ended_with_it(tmp_path, function, seconds, outcome, message):
    begun = time.monotonic()
    result = run_limited(function, str(tmp_path / "number"), seconds=seconds)
    assert (result.outcome, result.message) == (outcome, message)
    assert time.monotonic() - begun < 10
    assert gone(tmp_path / "number")


def fork_and_return():
    return os.fork() == 0


def test_a_call_that_returns_twice_is_answered_once():
    with Worker() as worker:
        for _ in range(3):
            assert worker.run(fork_and_return, seconds=30).value is False
            assert worker.run(add, 1, 2, seconds=30).value == 3


def start_and_wait(file):
    """A parent that is killed while its child hangs."""
    with Worker() as worker:
        worker.run(note_and_hang, file, seconds=60)


def note_and_hang(file):
    Path(file).write_text(str(os.getpid()))
    ignore_the_end()


def test_a_child_ends_when_its_parent_was_killed(tmp_path):
    parent = Worker()
    assert parent.run(start_and_wait, str(tmp_path / "number"), seconds=3).outcome is Outcome.TIMEOUT
    assert gone(tmp_path / "number")


# ---- what else a call may do to its process ------------------------------------------------------------------------


def crash_soon():
    threading.Timer(0.3, kill_itself).start()


def nap():
    time.sleep(1)
    return "rested"


def test_a_crash_that_an_earlier_call_caused_does_not_count_for_the_next():
    with Worker() as worker:
        assert worker.run(crash_soon, seconds=30).outcome is Outcome.OK
        result = worker.run(nap, seconds=30)
        assert (result.outcome, result.value) == (Outcome.OK, "rested")


def write_megabytes():
    for _ in range(64):
        os.write(1, bytes(1 << 16))
        print("x" * (1 << 16), file=sys.stderr)
    print("{}", flush=True)
    return "written"


PROGRAM = """
from cleave.runtime.watchdog import run_limited
from tests.null.test_watchdog import write_megabytes
print(run_limited(write_megabytes, seconds=60).value)
"""


def test_what_a_child_prints_is_no_output_of_the_parent():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "written\n"
    assert len(done.stderr) > 1 << 22


def ask():
    return input()


def end(status):
    sys.exit(status)


def interrupt():
    raise KeyboardInterrupt


def real_time_signal():
    os.kill(os.getpid(), signal.SIGRTMIN + 3)


def abort():
    os.abort()


def close_everything():
    os.closerange(0, 256)
    return 1


def deep(n=0):
    return deep(n + 1)


def deep_value():
    value = []
    for _ in range(100000):
        value = [value]
    return value


class Shameless(Exception):
    def __str__(self):
        raise ValueError("no text")


def shameless():
    raise Shameless


@pytest.mark.parametrize(
    ("function", "arguments", "outcome", "words"),
    [
        (ask, (), Outcome.RAISED, "EOFError"),
        (end, (0,), Outcome.CRASHED, "the process ended with status 0"),
        (end, ("words",), Outcome.CRASHED, "the process ended with status 1"),
        (interrupt, (), Outcome.CRASHED, "the process "),
        (real_time_signal, (), Outcome.CRASHED, f"the process was ended by signal {signal.SIGRTMIN + 3}"),
        (abort, (), Outcome.CRASHED, "the process was ended by SIGABRT"),
        (close_everything, (), Outcome.CRASHED, "the process "),
        (deep, (), Outcome.RAISED, "RecursionError: "),
        (deep_value, (), Outcome.RAISED, "RecursionError: "),
        (shameless, (), Outcome.RAISED, "Shameless"),
    ],
)
def test_every_other_end_is_an_outcome_and_the_next_call_runs(function, arguments, outcome, words):
    with Worker() as worker:
        result = worker.run(function, *arguments, seconds=30)
        assert result.outcome is outcome and result.message.startswith(words), result
        assert "\n" not in result.message
        assert worker.run(add, 1, 2, seconds=30).value == 3


def test_no_process_to_be_had_is_an_outcome(monkeypatch):
    def refuse(*_, **__):
        raise OSError(11, "Resource temporarily unavailable")

    with Worker() as worker, monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        result = worker.run(add, 1, 2, seconds=30)
        assert result.outcome is Outcome.CRASHED
        assert result.message == "no process can be started: Resource temporarily unavailable"
        patch.undo()
        assert worker.run(add, 1, 2, seconds=30).value == 3


def test_the_working_directory_is_no_place_to_import_from(tmp_path, monkeypatch):
    (tmp_path / "pickle.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    assert run_limited(add, 1, 2, seconds=30).value == 3


def test_arguments_that_cannot_be_sent_are_refused():
    with pytest.raises(CleaveError, match=r"^watchdog: add: an argument can't be sent to another process: ") as caught:
        run_limited(add, 1, lambda: None, seconds=1)
    assert "\n" not in str(caught.value)


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
