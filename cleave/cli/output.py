"""What the command line prints: results on stdout; progress (on a terminal only), errors and warnings on stderr."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from cleave.errors import CleaveWarning

Progress = Callable[[str], None]


class OutputError(Exception):
    """Standard output can't be written: full, or closed. A pipe whose reader went away is a BrokenPipeError."""


def print_text(text: str) -> None:
    """A character that the terminal's encoding lacks is spelt out."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    _write(text.rstrip("\n").encode(encoding, "backslashreplace").decode(encoding) + "\n")


def print_json(value: Any) -> None:
    """JSON without NaN and infinities, which it does not know: they become null."""
    _write(json.dumps(_finite(value), indent=1, default=str) + "\n")


def flush() -> None:
    """What is lost when Python ends is lost silently."""
    _write("")


def _write(text: str) -> None:
    if sys.stdout is None:
        raise OutputError("standard output is closed")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output can't be written: {error.strerror}") from None


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def complain(message: str) -> None:
    """One line on stderr, without control characters."""
    line = "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"cleave: {line}\n")
            sys.stderr.flush()


@contextmanager
def shown_warnings() -> Generator[None]:
    """Warnings of cleave as single lines, each once; others as Python shows them."""
    seen: set[str] = set()
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if not issubclass(category, CleaveWarning):
                others(message, category, *rest, **named)
            elif str(message) not in seen:
                seen.add(str(message))
                complain(f"warning: {message}")

        warnings.showwarning = show
        warnings.simplefilter("always", CleaveWarning)
        yield


@contextmanager
def progress(*, quiet: bool) -> Generator[Progress | None]:
    """A line that says what runs, on a terminal; nothing otherwise."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update
