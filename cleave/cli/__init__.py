"""The command line. ``cleave --help`` lists the commands and exit codes, ``cleave COMMAND --help`` the options."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Whatever a caller can mend is one line on stderr and code 2."""
    from cleave.cli.output import complain, shown_warnings
    from cleave.cli.parser import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK, BadInput, parse
    from cleave.errors import CleaveError

    try:
        options = parse(arguments)
        commands = import_module("cleave.cli.commands")
        with shown_warnings():
            return int(getattr(commands, options.command)(options))
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
