"""The border to egglog: saturation, one round a call, with limits between rounds; in this process or in a child.

A round runs the analysis to its fixpoint, every family of rules once, and the analysis again. Nothing can stop egglog
inside a round, hence the child: it sends a snapshot of the e-graph after each round (not more often than a quarter of
the time permits, and none that could not be read in time), so that a limit, a crash or Ctrl-C keeps the last one.
"""

from __future__ import annotations

import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from enum import StrEnum
from typing import IO, Any

import msgspec

from cleave.errors import SearchError
from cleave.rewrite.parser import Session


class Stop(StrEnum):
    """Why a saturation ended. Saturated: no rule finds anything new, so the e-graph holds all that the rules can
    reach. Equal: the terms that were to be found equal are.
    """

    SATURATED = "saturated"
    ROUNDS = "rounds"
    NODES = "nodes"
    SECONDS = "seconds"
    MEMORY = "memory"
    INTERRUPTED = "interrupted"
    CRASHED = "crashed"
    EQUAL = "equal"


class Request(msgspec.Struct, frozen=True):
    """What to run: programs as egglog text, and when to stop. ``dating`` holds one program a round, see
    ``Rulebook.tick_text``. ``snapshot``: the most bytes of one that can still be read in time; twice as many where it
    is the last word of the rules, and any number where the goals are met. ``goals``: pairs of terms; when both of each
    are one class, nothing more is wanted.
    """

    rules: str
    program: str
    families: tuple[str, ...]
    constructors: tuple[str, ...]
    dating: tuple[str, ...]
    rounds: int
    nodes: int
    seconds: float
    memory: int = 4096
    snapshot: int = 1 << 40
    goals: tuple[tuple[str, str], ...] = ()


class Started(msgspec.Struct, frozen=True, tag="started"):
    """Rules are loaded; the clock of the limits runs from here."""


class Round(msgspec.Struct, frozen=True, tag="round"):
    """Sizes after a round, and how often each rule matched in it.

    ``nodes``: e-nodes as egglog counts them, both orders of a sum or product; ``EGraph`` keeps one of them.
    """

    number: int
    nodes: int
    classes: int
    seconds: float
    matches: dict[str, int]


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot"):
    """The e-graph after a round, as egglog serializes it."""

    round: int
    graph: bytes


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    stop: Stop


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """egglog refused a program: a broken rulebook, not a limit."""

    message: str


Message = Started | Round | Snapshot | Ended | Failed
_HEADER = 8
_LAST_WORDS: Mapping[Stop | None, float] = {Stop.SATURATED: 2, Stop.EQUAL: math.inf}
"""Ends after which nothing is missing from the e-graph, and how much larger it may be to be worth reading."""
_SHARE_OF_SNAPSHOTS = 0.25
_START_UP = 60.0
_LOOK = 0.1
"""Seconds after which somebody looks how large the child is: nothing else sees a limit inside a round."""


def saturate(request: Request, *, isolate: bool) -> Generator[Message]:
    """Rounds and snapshots, then how it ended. Closing the iterator ends the child."""
    return _in_child((request,)) if isolate else _rounds(request)


def saturate_each(requests: Sequence[Request], *, isolate: bool) -> Generator[tuple[int, Message]]:
    """Several saturations, one after another, each message with the number of its request.

    One child takes them all; where it hangs or crashes, that request ends so, and another child takes the rest.
    """
    done = 0
    while done < len(requests):
        for message in _in_child(requests[done:]) if isolate else _rounds(requests[done]):
            yield done, message
            done += isinstance(message, (Ended, Failed))


# ---- in this process


def _rounds(request: Request) -> Generator[Message]:
    from egglog import bindings

    with Session() as session:
        try:
            session.execute(request.rules)
            yield Started()
            began = time.perf_counter()
            session.execute(request.program)
        except bindings.EggSmolError as error:
            yield Failed(" ".join(str(error).split()))
        else:
            yield from _saturated(session, request, began)


def _saturated(session: Session, request: Request, began: float) -> Generator[Message]:
    held = _resident()
    families = " ".join(f"(run {family})" for family in request.families)
    schedule = f"(run-schedule (saturate (run analysis)) {families} (saturate (run analysis)))"
    snapshots, small = 0.0, True
    for number in range(1, request.rounds + 1):
        report = session.execute(schedule)[0].report
        session.execute(request.dating[number - 1])
        done = _measured(number, report, session.execute("(print-size)")[0].sizes, request, time.perf_counter() - began)
        yield done
        met = bool(request.goals) and all(session.equal(a, b) for a, b in request.goals)
        stop = Stop.EQUAL if met else _stop(done, request, _resident() - held, updated=report.updated)
        elapsed = time.perf_counter() - began
        if (small and (stop is not None or snapshots <= _SHARE_OF_SNAPSHOTS * elapsed)) or stop in _LAST_WORDS:
            graph = session.serialized().encode()
            small = len(graph) <= request.snapshot
            if len(graph) <= request.snapshot * _LAST_WORDS.get(stop, 1):
                yield Snapshot(number, graph)
            snapshots += time.perf_counter() - began - elapsed
        if stop is not None:
            yield Ended(stop)
            return


def _measured(number: int, report: Any, sizes: Any, request: Request, seconds: float) -> Round:
    size: dict[str, int] = dict(sizes)
    matches: dict[str, int] = {n: c for n, c in report.num_matches_per_rule.items() if c and "(" not in n}
    nodes = sum(size.get(constructor, 0) for constructor in request.constructors)
    return Round(number, nodes, size.get("axes", 0), seconds, matches)


def _stop(done: Round, request: Request, grown: int, *, updated: bool) -> Stop | None:
    if not updated:
        return Stop.SATURATED
    if done.nodes >= request.nodes:
        return Stop.NODES
    if done.seconds >= request.seconds:
        return Stop.SECONDS
    if grown > request.memory << 20:
        return Stop.MEMORY
    return Stop.ROUNDS if done.number == request.rounds else None


# ---- in a child process


def child() -> None:
    """Entry of the child: requests on stdin, messages on stdout. Interrupts go to the parent, which ends the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[Request])
    out = sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever prints must not land between the messages
    for message in (m for request in requests for m in _rounds(request)):
        data = msgspec.msgpack.encode(message)
        out.write(len(data).to_bytes(_HEADER, "big") + data)
        out.flush()


def _in_child(requests: Sequence[Request]) -> Generator[Message]:
    command = [sys.executable, "-c", "from cleave.search.engine import child; child()"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    pipe, silence = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=silence, env=environment)
    received: queue.Queue[Message | None] = queue.Queue()
    assert process.stdin is not None and process.stdout is not None
    threading.Thread(target=_receive, args=(process.stdout, received), daemon=True).start()
    try:
        yield from _relay(process, received, requests)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


def _relay(
    process: subprocess.Popen[bytes], received: queue.Queue[Message | None], requests: Sequence[Request]
) -> Generator[Message]:
    """Messages of the child; at a limit, or when it ends without a word, the reason instead."""
    assert process.stdin is not None
    try:
        process.stdin.write(msgspec.msgpack.encode(requests))
        process.stdin.close()
    except BrokenPipeError:
        yield Ended(Stop.CRASHED)
        return
    for request in requests:
        alive = yield from _until_the_end(received, process, request)
        if not alive:
            return


def _until_the_end(
    received: queue.Queue[Message | None], process: subprocess.Popen[bytes], request: Request
) -> Generator[Message, None, bool]:
    """Messages for one request; whether the child is there for the next one."""
    deadline = time.monotonic() + _START_UP
    while True:
        try:
            message = received.get(timeout=max(min(deadline - time.monotonic(), _LOOK), 0.0))
        except queue.Empty:
            limit = _met(process.pid, deadline, request)
            if limit is None:
                continue
            yield Ended(limit)
            return False
        if message is None:
            yield Ended(Stop.CRASHED)
            return False
        yield message
        if isinstance(message, (Ended, Failed)):
            return True
        if isinstance(message, Started):
            deadline = time.monotonic() + request.seconds


def _met(process: int, deadline: float, request: Request) -> Stop | None:
    """The limit that a child has met inside a round."""
    if time.monotonic() >= deadline:
        return Stop.SECONDS
    return Stop.MEMORY if _resident(process) > request.memory << 20 else None


def _resident(process: int | str = "self") -> int:
    """Bytes of memory that a process holds; 0 where the system doesn't tell."""
    try:
        with open(f"/proc/{process}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _receive(stream: IO[bytes], received: queue.Queue[Message | None]) -> None:
    decoder = msgspec.msgpack.Decoder(Message)
    try:
        with stream:
            while header := stream.read(_HEADER):
                received.put(decoder.decode(stream.read(int.from_bytes(header, "big"))))
    except (OSError, ValueError, msgspec.MsgspecError):
        pass
    received.put(None)


def refused(message: str) -> SearchError:
    return SearchError(f"egglog refused the rules or the encoded graph: {message}")
