"""Files of saved data: JSON with a format and a version, written whole or not at all, faults named in one line.

{"format": "cleave-candidates", "version": 1, ...}
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from cleave.errors import CleaveError, SavedFileError


class Saved(msgspec.Struct, forbid_unknown_fields=True):
    """What every saved file starts with."""

    format: str
    version: int


S = TypeVar("S", bound=Saved)


def write_saved(saved: Saved, path: str | Path, *, indent: int = 1) -> None:
    """Write atomically; indent -1 puts everything into one line."""
    target = Path(path)
    temporary = target.with_name(target.name + ".part")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=indent) + b"\n")
    temporary.replace(target)


def read_saved(path: str | Path, kind: type[S], form: tuple[str, int], *, what: str = "result") -> S:
    """Read what ``write_saved`` wrote.

    Errors: a file that can't be read, that is no saved ``what``, or of another format or version (SavedFileError).
    """
    where = Path(path).name
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=kind)
    except OSError as error:
        raise SavedFileError(f"can't be read: {error.strerror}", location=where) from None
    except (msgspec.MsgspecError, CleaveError) as error:
        raise SavedFileError(f"is no saved {what}: {error}", location=where) from None
    if (found.format, found.version) != form:
        expected = "{} version {}".format(*form)
        raise SavedFileError(f"is {found.format} version {found.version}, expected {expected}", location=where)
    return found
