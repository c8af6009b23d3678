"""Files of saved data: JSON with a format and a version, written whole or not at all, faults named in one line.

{"format": "cleave-candidates", "version": 1, ...}
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from cleave.errors import CleaveError, SavedFileError


class Saved(msgspec.Struct, forbid_unknown_fields=True):
    """What every saved file starts with."""

    format: str
    version: int


class _Start(msgspec.Struct):
    """The same of any file, whatever else is in it."""

    format: str
    version: int


S = TypeVar("S", bound=Saved)

_START = 100
"""Bytes of a file that hold its format."""


def write_saved(saved: Saved, path: str | Path, *, indent: int = 1) -> None:
    """Write atomically; indent -1 puts everything into one line.

    Errors: a place that can't be written, or holds something else (SavedFileError).
    """
    check_place(path, saved.format)
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=indent) + b"\n")
        temporary.replace(target)
    except OSError as error:
        raise SavedFileError(f"can't be written: {error.strerror}", location=str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def check_place(path: str | Path, form: str) -> None:
    """Refuse a place that a file of a format can't be saved to: only files of that format are replaced."""
    target = Path(path)
    try:
        if not target.parent.is_dir():
            raise SavedFileError("can't be written: its folder does not exist", location=str(path))
        if target.exists() and not (target.is_file() and form.encode() in target.read_bytes()[:_START]):
            raise SavedFileError(f"exists and is no {form} file; nothing was written", location=str(target))
    except OSError as error:
        raise SavedFileError(f"can't be written: {error.strerror}", location=str(path)) from None
    if not os.access(target.parent, os.W_OK):
        raise SavedFileError(f"can't be written: {target.parent} may not be written", location=str(path))


def read_saved(path: str | Path, kind: type[S], form: tuple[str, int], *, what: str = "result") -> S:
    """Read what ``write_saved`` wrote.

    Errors: a file that can't be read, that is no saved ``what``, or of another format or version (SavedFileError).
    """
    where = Path(path).name
    try:
        content = Path(path).read_bytes()
        start = msgspec.json.decode(content, type=_Start)
        if (start.format, start.version) != form:
            expected = "{} version {}".format(*form)
            raise SavedFileError(f"is {start.format} version {start.version}, expected {expected}", location=where)
        return msgspec.json.decode(content, type=kind)
    except OSError as error:
        raise SavedFileError(f"can't be read: {error.strerror}", location=where) from None
    except SavedFileError:
        raise
    except (msgspec.MsgspecError, CleaveError) as error:
        raise SavedFileError(f"is no saved {what}: {error}", location=where) from None


def format_of(path: str | Path) -> str:
    """The format that a file says it has, "" if it says none or can't be read."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=_Start).format
    except (OSError, msgspec.MsgspecError):
        return ""
