"""Disk cache of cubins: one file an entry, written atomically, checked when read.

    entry ::= magic (8 bytes) | sha256 of all that follows (32) | length of the JSON (8, little endian) | JSON | cubin

The folder is CLEAVE_CACHE if set, else the user's cache folder. Several processes may share it: a file is written under
another name and then renamed, so a reader sees a whole entry or none, whenever a writer is killed. The JSON repeats the
key, so that an entry under another's name is no entry. One that is damaged is reported and compiled again; a folder
that can't be written costs the reuse, not the result. No decision about an entry rests on a clock.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cleave.errors import CleaveWarning
from cleave.kernel import Compiled, Resources

FOLDER_VARIABLE = "CLEAVE_CACHE"
_MAGIC = b"cleave02"
_DIGEST_BYTES = 32
_HEADER_BYTES = len(_MAGIC) + _DIGEST_BYTES + 8
_SUFFIX = ".kernel"
_UNFINISHED = ".unfinished"
_ABANDONED_SECONDS = 24 * 3600.0
"""An unfinished file whose time is further from now than this, on either side, has no writer any more."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What lies in the cache folder."""

    folder: Path
    entries: int
    bytes: int


def folder() -> Path:
    """Where entries lie; the folder need not exist."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("cleave")) / "kernels"


def key(text: str, entry: str, options: tuple[str, ...], compiler: str) -> str:
    """sha256 of all that decides the machine code; the architecture is one of the options."""
    digest = hashlib.sha256(_MAGIC)
    for part in (text, entry, compiler, *options):
        raw = part.encode()
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()


def load(entry_key: str) -> Compiled | None:
    """The entry, or None if there is none, or (with a warning) if it is damaged or can't be read."""
    path = _path(entry_key)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn(f"cache entry {entry_key[:12]} can't be read ({error.strerror}); compiling again")
        return None
    try:
        return _decode(raw, entry_key)
    except (ValueError, KeyError, TypeError) as error:
        _warn(f"cache entry {entry_key[:12]} is damaged ({error}); compiling again")
        return None


def store(entry_key: str, compiled: Compiled) -> bool:
    """Write an entry; False, with a warning, if that could not be done (read-only or full)."""
    path, unfinished = _path(entry_key), None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f"{entry_key[:12]}.", suffix=_UNFINISHED)
        with os.fdopen(handle, "wb") as stream:
            stream.write(_encode(compiled, entry_key))
        os.replace(unfinished, path)
        _remove_abandoned(path.parent)
    except OSError as error:
        if unfinished is not None:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
        _warn(
            f"compiled kernels can't be kept in {folder()} ({error.strerror}); set {FOLDER_VARIABLE} to another folder"
        )
        return False
    return True


def summary() -> Summary:
    """Folder, number of entries and their size."""
    sizes = [_size(p) for p in _files(_SUFFIX)]
    return Summary(folder(), len(sizes), sum(sizes))


def clear() -> int:
    """Remove all entries (and what interrupted writers left); how many entries there were.

    What can't be removed is a warning.
    """
    removed, kept = 0, 0
    for path in [*_files(_SUFFIX), *_files(_UNFINISHED)]:
        try:
            path.unlink()
        except FileNotFoundError:  # another process cleared it
            continue
        except OSError:  # another user's, or no file
            kept += 1
        else:
            removed += path.suffix == _SUFFIX
    if kept:
        _warn(f"{kept} files of {folder()} can't be removed")
    return removed


def _path(entry_key: str) -> Path:
    return folder() / entry_key[:2] / (entry_key + _SUFFIX)


def _files(suffix: str) -> Iterator[Path]:
    return folder().glob(f"[0-9a-f][0-9a-f]/*{suffix}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # another process cleared it
        return 0


def _remove_abandoned(shard: Path) -> None:
    """What killed writers left beside an entry. To a writer with a clock a day off it costs the reuse: ``store``."""
    now = time.time()
    for path in shard.glob(f"*{_UNFINISHED}"):
        with contextlib.suppress(OSError):
            if abs(now - path.stat().st_mtime) > _ABANDONED_SECONDS:
                path.unlink()


def _encode(compiled: Compiled, entry_key: str) -> bytes:
    meta = {
        "key": entry_key,
        "entry": compiled.entry,
        "arch": compiled.arch,
        "log": compiled.log,
        "resources": asdict(compiled.resources),
    }
    text = json.dumps(meta, sort_keys=True).encode()
    body = len(text).to_bytes(8, "little") + text + compiled.cubin
    return _MAGIC + hashlib.sha256(body).digest() + body


def _decode(raw: bytes, entry_key: str) -> Compiled:
    if len(raw) < _HEADER_BYTES:
        raise ValueError(f"{len(raw)} bytes, a header has {_HEADER_BYTES}")
    if not raw.startswith(_MAGIC):
        raise ValueError("another format")
    digest, body = raw[len(_MAGIC) :][:_DIGEST_BYTES], raw[len(_MAGIC) + _DIGEST_BYTES :]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError("its checksum is wrong")
    length = int.from_bytes(body[:8], "little")
    meta = json.loads(body[8 : 8 + length])
    if meta["key"] != entry_key:
        raise ValueError("it is another kernel's")
    resources = Resources(**meta["resources"])
    return Compiled(meta["entry"], meta["arch"], body[8 + length :], meta["log"], resources, cached=True)


def _warn(message: str) -> None:
    warnings.warn(message, CleaveWarning, stacklevel=4)
