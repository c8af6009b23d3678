"""The command line. ``cleave --help`` lists the commands and exit codes, ``cleave COMMAND --help`` the options."""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Whatever a caller can mend is one line on stderr and code 2."""
    from cleave.cli.output import OutputError, complain, flush, shown_warnings
    from cleave.cli.parser import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, BadInput, parse
    from cleave.errors import CleaveError

    try:
        options = parse(arguments)
        commands = import_module("cleave.cli.commands")
        with shown_warnings(), _interruptible():
            code = int(getattr(commands, options.command)(options))
        flush()
        return code
    except BadInput as error:
        complain(str(error))
        return EXIT_BAD_INPUT
    except CleaveError as error:
        complain(str(error))
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        complain("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe went away (`| head`): nothing is left to say
        _close_output()
        return EXIT_OK
    except OutputError as error:
        _close_output()
        complain(str(error))
        return EXIT_FAILED
    except OSError as error:  # a name that is too long, a folder that is gone, a disk that is full
        complain(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
        return EXIT_BAD_INPUT
    except MemoryError:
        complain("out of memory")
        return EXIT_FAILED


def _close_output() -> None:
    """What is still buffered must not fail a second time when Python ends."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_SOON = 0.01
"""Seconds."""


def _is_deaf(frame: FrameType | None) -> bool:
    """Whether what is raised in a frame may go nowhere."""
    while frame is not None:
        if frame.f_code.co_filename == weakref.__file__ or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


@contextmanager
def _interruptible() -> Generator[None]:
    """Ctrl-C holds wherever it comes.

    Python drops what is raised while a weak reference dies, and terms are interned weakly: then it is raised again.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if _is_deaf(frame):
            threading.Timer(_SOON, os.kill, (os.getpid(), number)).start()
            return
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
