"""Records of measurements: append-only JSON lines, each with what was run, how it ended, and the environment it ran in.

    Record ::= workload, candidate, schedule, outcome, check, quantiles, environment, time, details

Records are lines, written under a lock with one call, so that several processes may append to one file and lose
nothing. A line that a crash cut off is closed by the next append, and named by its number when the file is read;
``mend`` removes it.
"""

from __future__ import annotations

import fcntl
import os
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from cleave.environment import environment
from cleave.errors import CleaveWarning, SavedFileError

VERSION = 1

_START = b'{"workload":'
"""Of every line."""


class Outcome(StrEnum):
    """How a measurement ended. Only OK carries times."""

    OK = "ok"
    WRONG = "wrong"
    """The kernel ran, and its result is outside the metric."""
    REFUSED = "refused"
    """Not verified, or no schedule: it was never compiled."""
    COMPILE_FAILED = "compile failed"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    """An illegal address, a failed launch, or the end of the process."""
    OUT_OF_MEMORY = "out of memory"
    SKIPPED = "skipped"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """One line.

    workload     what was computed: operator, dims, dtypes
    candidate    name or content hash, and rules
    schedule     target, tiles, splits, merge, skeleton
    check        what verification said, with its figures
    quantiles    microseconds by quantile ("p10", "p50", "p90"), empty if nothing was timed
    environment  see ``cleave.environment``
    details      whatever else the experiment wants to keep
    """

    workload: dict[str, Any]
    outcome: Outcome
    candidate: dict[str, Any] = {}
    schedule: dict[str, Any] = {}
    check: dict[str, Any] = {}
    quantiles: dict[str, float] = {}
    environment: dict[str, Any] = {}
    time: str = ""
    details: dict[str, Any] = {}
    version: int = VERSION


def stamped(record: Record, gpu: Mapping[str, Any] | None = None) -> Record:
    """The record with the time (UTC) and the environment, unless it has them."""
    return msgspec.structs.replace(
        record,
        environment=record.environment or environment(gpu),
        time=record.time or datetime.now(UTC).isoformat(timespec="seconds"),
    )


def append(path: str | Path, record: Record, gpu: Mapping[str, Any] | None = None) -> None:
    """Add one stamped line to a file, which is made with its folder if it does not exist."""
    append_all(path, [record], gpu)


def append_all(path: str | Path, records: Sequence[Record], gpu: Mapping[str, Any] | None = None) -> None:
    """Add stamped lines, one after another. Errors: a file that can't be written."""
    lines = b"".join(msgspec.json.encode(stamped(r, gpu)) + b"\n" for r in records)
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target, os.O_RDWR | os.O_CREAT | os.O_APPEND) as handle:
            _write_all(handle, b"\n" + lines if _is_cut_off(handle) else lines)
    except OSError as error:
        raise SavedFileError(f"can't be written: {error.strerror}", location=str(path)) from None


def mend(path: str | Path) -> None:
    """Remove what a crash cut off at the end of a file, with a warning: what it was about is measured again.

    A file that does not exist is fine. Errors: what is no file of records, or can't be written.
    """
    target = Path(path)
    try:
        if not target.exists():
            return
        with target.open("rb") as stream:
            start = stream.read(len(_START))
        if not _START.startswith(start):
            raise SavedFileError("exists and is no file of records; nothing was written", location=str(path))
        with _locked(target, os.O_RDWR) as handle:
            _remove_cut_off(handle, target)
    except OSError as error:
        raise SavedFileError(f"can't be written: {error.strerror}", location=str(path)) from None


def _remove_cut_off(handle: int, target: Path) -> None:
    if not _is_cut_off(handle):
        return
    content = target.read_bytes()
    whole = content.rfind(b"\n") + 1
    number = content.count(b"\n") + 1
    if _decoded(content[whole:], f"{target.name}:{number}") is None:
        os.ftruncate(handle, whole)


@contextmanager
def _locked(target: Path, flags: int) -> Generator[int]:
    """The handle of a file that nobody else writes meanwhile."""
    handle = os.open(target, flags, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)  # gives the lock back


def _is_cut_off(handle: int) -> bool:
    size = os.fstat(handle).st_size
    return size > 0 and os.pread(handle, 1, size - 1) != b"\n"


def _write_all(handle: int, data: bytes) -> None:
    """One call nearly always; a full disk or a signal may split it, and the lock keeps others out meanwhile."""
    while data:
        data = data[os.write(handle, data) :]


def read(path: str | Path) -> Iterator[Record]:
    """The records of a file in order. A damaged line is left out with a warning that names it.

    Errors: a file that can't be read; a record of another version.
    """
    source = Path(path)
    try:
        lines = source.read_bytes().split(b"\n")
    except OSError as error:
        raise SavedFileError(f"can't be read: {error.strerror}", location=source.name) from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            found = _decoded(line, f"{source.name}:{number}")
            if found is not None:
                yield found


def _decoded(line: bytes, where: str) -> Record | None:
    try:
        record = msgspec.json.decode(line, type=Record)
    except msgspec.MsgspecError as error:
        warnings.warn(f"{where}: no record, left out ({error})", CleaveWarning, stacklevel=3)
        return None
    if record.version != VERSION:
        raise SavedFileError(f"is a record of version {record.version}, expected {VERSION}", location=where)
    return record
